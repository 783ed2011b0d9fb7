"""Series, events and sentences of a history."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Iosonde
from fabricate import result_set, small_study
from summaries import CASE, LOAD, a_summary

from iosonde.collections.history import History, history, page
from iosonde.collections.history.page import render
from iosonde.collections.library.indexing import Index
from iosonde.collections.library.summary import Device, Summary
from iosonde.errors import ResultsError


def nights(count: int = 40, *, loss_from: int = 30, **later: object) -> list[Summary]:
    """Sessions whose IOPS fall by 5 % from one night on, with these facts from then on."""
    random = np.random.default_rng(1)
    found = []
    for night in range(count):
        iops = 100_000 * float(np.exp(random.normal(0, 0.01))) * (0.95 if night >= loss_from else 1.0)
        facts = {"kernel": "6.1", "firmware": "1.0"} | (later if night >= loss_from else {})
        found.append(a_summary(night, iops=iops, facts=facts))
    return found


def history_from(summaries: list[Summary], **options: str) -> History:
    return history(Index(root=Path("/srv"), summaries=summaries, problems=[]), **options)


def test_a_planted_change_is_a_sentence_with_interval_dates_and_what_changed() -> None:
    found = history_from(nights(kernel="6.6"))
    [(track, shift)] = found.shifts
    assert shift.is_loss
    text = page.sentence(track, shift)
    assert text.startswith(f"{LOAD}: IOPS fell ")
    assert "(95 % CI " in text
    assert text.endswith("between 2026-01-30 and 2026-01-31; the kernel changed from 6.1 to 6.6 in between")
    assert "no change detected" not in "\n".join(page.lines(found))
    [(track, shift)] = history_from(nights()).shifts
    assert page.sentence(track, shift).endswith("; no recorded setting changed in between")


def test_a_flat_history_has_no_changes_and_states_how_many_were_to_be_expected() -> None:
    found = history_from(nights(loss_from=1000))
    assert found.shifts == []
    assert "0.001 change points would be expected in 1 series" in found.method
    assert "no change detected in 1 of 1 series" in "\n".join(page.lines(found))


def test_undetermined_sessions_and_those_with_other_parameters_of_a_case_do_not_count() -> None:
    summaries = nights(loss_from=1000)
    for night in (10, 11, 12, 13):
        summaries[night] = a_summary(night, iops=50_000, verdict="undetermined")
    [track] = history_from(summaries).tracks
    assert track.shifts == []
    assert len(track.series[0].usable) == 36
    assert track.exclusions == ["4 sessions excluded in some or all cases: runs are undetermined"]
    summaries = nights(loss_from=1000)
    summaries[5] = a_summary(5, iops=20_000, parameters={CASE: "other"})
    [track] = history_from(summaries).tracks
    excluded = "1 session excluded in some or all cases: other parameters than in the newest session"
    assert track.exclusions == [excluded]


def test_another_device_or_target_is_another_track_and_another_firmware_is_not() -> None:
    summaries = nights(10, loss_from=1000)
    other = [Device(name="nvme0n1", model="EXAMPLE SSD", firmware="1.0", serial="feedface")]
    newer = [Device(name="nvme0n1", model="EXAMPLE SSD", firmware="2.0", serial="0badcafe")]
    summaries += [a_summary(20, devices=other), a_summary(21, target="/mnt/other"), a_summary(22, devices=newer)]
    assert sorted(len(each.sessions) for each in history_from(summaries).tracks) == [1, 1, 11]
    assert [len(each.sessions) for each in history_from(summaries, target="feedface").tracks] == [1]
    assert [len(each.sessions) for each in history_from(summaries, target="/mnt/other").tracks] == [1]
    with pytest.raises(ResultsError, match="no result set to follow"):
        history_from(summaries, study="other")


@pytest.mark.parametrize(
    ("name", "kind", "clause"),
    [
        ("firmware", "firmware", "the firmware changed from a to b"),
        ("kernel", "kernel", "the kernel changed from a to b"),
        ("iosonde", "iosonde", "iosonde changed from a to b"),
        ("setting io_mode", "configuration", "setting io_mode changed from a to b"),
    ],
)
def test_changes_between_sessions_are_events(name: str, kind: str, clause: str) -> None:
    [track] = history_from([a_summary(0, facts={name: "a"}), a_summary(1, facts={name: "b"})]).tracks
    [event] = track.events
    assert (event.kind, event.text, event.session) == (kind, clause, 1)
    [track] = history_from([a_summary(0, facts={}), a_summary(1, facts={"kernel": "b"})]).tracks
    assert track.events == [], "a fact that one session lacks did not change"


def test_losses_of_the_last_sessions_fail_the_command_and_older_ones_do_not() -> None:
    found = history_from(nights())
    assert len(found.losses(10)) == 1
    assert found.losses(9) == []


def test_the_page_has_a_figure_for_each_series() -> None:
    page = render(history_from(nights()))
    assert page.count("<svg ") == 1
    assert 'class="band loss"' in page


def test_json_has_points_changes_and_events() -> None:
    document = json.loads(json.dumps(page.document(history_from(nights(kernel="6.6")))))
    [track] = document["tracks"]
    assert len(track["series"][0]["points"]) == 40
    [change] = track["changes"]
    assert change["loss"] and change["low"] < change["change"] < change["high"] < 0
    assert change["events"] == ["the kernel changed from 6.1 to 6.6"]
    assert track["events"][0]["kind"] == "kernel"


@pytest.mark.engine
def test_the_command_prints_writes_and_returns_its_exit_codes(iosonde: Iosonde, tmp_path: Path) -> None:
    for night in range(2):
        result_set(tmp_path / "sets" / str(night), small_study(), seconds=1, seed=night)
    page = tmp_path / "history.html"
    done = iosonde("history", tmp_path / "sets", "--output", page, "--fail-on-loss", "3")
    assert done.returncode == 0, done.stderr
    assert "fabricated (quick) on /srv/test/iosonde.dat (EXAMPLE SSD 1TB)" in done.stdout
    assert "2 sessions" in done.stdout and "PELT" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120, "the width that the environment names"
    assert page.read_text().startswith("<!doctype html>")
    assert iosonde("history", tmp_path / "none").returncode == 1
    assert iosonde("history", tmp_path / "none", "--fail-on-loss", "3").returncode == 2
    one = json.loads(iosonde("history", tmp_path / "sets", "--metric", "iops", "--json").stdout)
    assert {each["metric"] for each in one["tracks"][0]["series"]} == {"iops"}
