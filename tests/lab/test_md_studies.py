"""Studies on real md: members that fail in the middle of a run, and sessions that are killed while an array exists."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

NOTHING = {"superblocks": ["", "", ""], "running": [], "journal": [], "free": [True, True, True]}


@pytest.fixture(scope="module")
def reported(guest_report: Report) -> dict[str, Any]:
    return guest_report.step("arrays")


@pytest.fixture(scope="module")
def failing(reported: dict[str, Any]) -> dict[str, Any]:
    """Two arrays, each of which lost a member in the first of two runs."""
    found: dict[str, Any] = reported["failing"]
    return found


def runs_of(failing: dict[str, Any], *, lost_in_it: bool) -> list[dict[str, Any]]:
    return [run for run in failing["runs"] if (run["run_id"] in failing["failed_in"]) == lost_in_it]


def test_every_run_continues_without_the_member(failing: dict[str, Any]) -> None:
    assert [run["outcome"] for run in failing["runs"]] == ["complete"] * 4
    assert len(failing["failed_in"]) == 2


def test_the_record_has_the_failed_member_and_the_time(failing: dict[str, Any]) -> None:
    for run in runs_of(failing, lost_in_it=True):
        assert (run["state"]["degraded"], run["state_after"]["degraded"]) == (0, 1)
        assert run["state"]["members"][failing["member"]] == "in_sync"
        assert "in_sync" not in run["state_after"]["members"][failing["member"]]
        seen = run["member_failed"]
        assert seen["phase"] == "measure" and seen["interval"] >= 2
        assert run["state"]["at"] < seen["at"] < run["state_after"]["at"]
        assert f"`{failing['member']}`; 1 of 3 are missing, first seen in" in run["warnings"]["member_failed"]
        assert "member_missing" not in run["warnings"]


def test_the_next_run_does_not_take_the_array_for_a_healthy_one(failing: dict[str, Any]) -> None:
    for run in runs_of(failing, lost_in_it=False):
        assert run["state"]["degraded"] == 1
        assert "1 of 3 members were missing" in run["warnings"]["member_missing"]
        assert "member_failed" not in run["warnings"]


def test_findings_and_observer_report_it(failing: dict[str, Any], guest_report: Report) -> None:
    titles = "\n".join(finding.sentence for finding in guest_report.findings("failing"))
    assert f"A member of the array failed during the run: `{failing['member']}`" in titles
    assert "The array was degraded before the run started" in titles
    continued = [note for note in failing["notes"] if note.endswith("; the study continues")]
    assert len(continued) == 2
    assert all(f"a member of the array failed during the run: `{failing['member']}`" in note for note in continued)


def test_mds_own_thread_is_seen_at_work(failing: dict[str, Any], guest_report: Report) -> None:
    """RAID 5 writes 4 KiB blocks at random: all of it passes through one thread."""
    for run in failing["runs"]:
        if run["array"] == "raid5":
            [thread] = [each for each in run["kernel"]["threads"] if each["name"].endswith("_raid5")]
            assert thread["threads"] == 1 and 0 < thread["cpu_ns"] == thread["busiest_cpu_ns"]
    threads = guest_report.result_set("failing").runs["array_thread"].drop_nulls()
    assert sum(name.endswith("_raid5") for name in threads) == 2


def test_an_array_that_lost_a_member_is_removed(failing: dict[str, Any]) -> None:
    assert failing["left"] == NOTHING


@pytest.mark.parametrize("then", ["cleanup", "resume"])
def test_after_a_kill_the_array_is_stopped_and_its_members_are_free(reported: dict[str, Any], then: str) -> None:
    killed = reported[then]
    assert killed["was_measuring"]
    assert len(killed["existed"]["running"]) == 1
    assert killed["existed"]["free"] == [False, False, False]
    assert all(name.startswith("iosonde-") for name in killed["existed"]["superblocks"])
    assert killed["existed"]["journal"]
    assert killed["result"] == {"cleanup": [], "resume": ["complete"]}[then]
    assert killed["left"] == NOTHING
