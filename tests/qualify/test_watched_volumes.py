"""`iosonde qualify --duration`: windows of continuous load on simulated devices, worst windows, and resume."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde, in_this_process
from engines import real_engine
from plans import sign

from iosonde.collections.qualify import load_application, qualification_of, watch_plan
from iosonde.findings.requirements import OBSERVED, Result, results_of
from iosonde.metrics.verdict.rules import rules
from iosonde.report import html, markdown
from iosonde.report.content import collect
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = pytest.mark.engine

STEADY = "simulated:servers=1,write=1ms,service=exponential,size=1GiB"
"""A flush has a 99th percentile of 4.6 ms."""
SECOND = 10**9

BURST = """
name = "qualify-burst"
title = "Random writes"
question = "Does it last?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
block_size = "128KiB"
queue_depth = 32
span = "80%"
interval = "100ms"
ramp = "0s"
duration = "60s"

[[parts]]
name = "main"

[profiles.standard]

[[requirement]]
name = "sustained writes"
holds = "bandwidth >= 640MB/s"
means = "Ingest falls behind."
[requirement.source]
title = "Manual"
publisher = "Example"
version = "1.0"
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def ten_windows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The result set of ten windows that passed, and the output as JSON."""
    directory = tmp_path_factory.mktemp("windows") / "set"
    done = in_this_process(
        *("qualify", "etcd", "--target", STEADY, "--duration", "150s", "--every", "15s", "-o", directory, "--json"),
        IOSONDE_ENGINE=str(real_engine()),
        XDG_STATE_HOME=str(tmp_path_factory.mktemp("state")),
        XDG_CACHE_HOME=str(tmp_path_factory.mktemp("cache")),
    )
    assert done.returncode == 0, done.stderr
    assert "continuous load in 10 windows of 15 s" in done.stderr
    return directory, json.loads(done.stdout)[0]


def p99_of(directory: Path) -> Result:
    return next(each for each in results_of(ResultSet.open(directory)) if each.requirement.name == "p99 of fdatasync")


def test_every_window_is_judged_and_the_result_is_that_of_the_worst(ten_windows: tuple[Path, Any]) -> None:
    directory, found = ten_windows
    records = ResultSet.open(directory).records()
    assert [each.end_reason for each in records] == [""] * 10, "no window ends early"
    assert all(each.spec["workload"]["duration_ns"] == 13 * SECOND for each in records)
    p99 = next(each for each in found["results"] if "p99" in each["requirement"]["name"])
    windows = p99["windows"]
    assert sorted(each["run_id"] for each in windows) == sorted(each.run_id for each in records)
    assert [each["margin"] for each in windows] == sorted(each["margin"] for each in windows)
    assert (p99["outcome"], p99["value"], p99["reason"]) == ("pass", windows[0]["value"], "10 of 10 windows passed")
    assert {each["started_at"] for each in windows} == {each.started_at for each in records}


def changed(ten_windows: tuple[Path, Any], windows: tuple[int, ...], evidence: dict[str, float]) -> Result:
    """The result if some windows had been disturbed, with this evidence."""
    message = "other processes moved 1 GB"
    shutil.copytree(ten_windows[0], "set")
    for number in windows:
        place = Path(f"set/records/c0001-r{number}")
        record = json.loads((place / "record.json").read_bytes())
        record["verdict"] = {"kind": "undetermined", "because": [message], "evidence": evidence}
        record["warnings"] = [{"code": "other_io", "message": message}]
        (place / "record.json").write_text(json.dumps(record))
        sign(place)
    return p99_of(Path("set"))


def test_a_disturbed_window_decides_nothing_and_states_what_happened(ten_windows: tuple[Path, Any]) -> None:
    result = changed(ten_windows, (3,), {"temperature_celsius": 71.0})
    assert (result.outcome, result.reason) == ("pass", "9 of 10 windows passed, 1 undecided")
    [window] = [each for each in result.windows if each.outcome == "undecided"]
    assert (window.run_id, window.reason) == ("c0001-r3", "undetermined: other processes moved 1 GB")
    assert list(window.observed) == ["other processes moved 1 GB", "device at 71 °C"]
    assert result.windows[0] == window
    assert set(OBSERVED) <= set(rules())


@pytest.mark.parametrize(
    ("windows", "evidence", "outcome", "reason"),
    [
        ((1, 2), {}, "undecided", "8 of 10 windows passed, 2 undecided; undetermined: other processes moved 1 GB"),
        # Windows that were only slowed.
        (
            (1, 2, 3),
            dict.fromkeys(("stalled_share", "cpu_wait_share", "steal_share"), 0.0),
            *("pass", "10 of 10 windows passed, 3 of these in spite of a disturbance"),
        ),
    ],
)
def test_more_unusable_windows_than_one_in_ten_leave_a_watch_undecided(
    ten_windows: tuple[Path, Any], windows: tuple[int, ...], evidence: dict[str, float], outcome: str, reason: str
) -> None:
    result = changed(ten_windows, windows, evidence)
    assert (result.outcome, result.reason) == (outcome, reason)


def test_a_watch_that_was_stopped_has_missing_windows_and_is_resumed(
    iosonde: Iosonde, ten_windows: tuple[Path, Any]
) -> None:
    shutil.copytree(ten_windows[0], "set")
    for number in (8, 9, 10):
        shutil.rmtree(f"set/records/c0001-r{number}")
    partial = qualification_of(ResultSet.open(Path("set")))
    assert partial.outcome == "undecided" and "3 missing" in partial.detail
    resumed = iosonde("resume", "set", "--no-report")
    assert resumed.returncode == 0, resumed.stderr
    assert len(ResultSet.open(Path("set")).records()) == 10
    assert "10 of 10 windows passed; a slow phase that comes less than once in" in resumed.stdout


def test_a_drive_that_becomes_slow_fails_in_its_late_windows(iosonde: Iosonde, tmp_path: Path) -> None:
    """The first windows of a fresh drive write without garbage collection, as with burst credits."""
    (tmp_path / "burst.toml").write_text(BURST, encoding="utf-8")
    target = ("--target", "sim:pm963,capacity=48GiB")
    done = iosonde("qualify", "./burst.toml", *target, "--duration", "48s", "--every", "12s", "-o", "set")
    assert done.returncode == 1, done.stderr + done.stdout
    [result] = results_of(ResultSet.open(tmp_path / "set"))
    outcomes = {each.run_id: each.outcome for each in result.windows}
    assert outcomes["c0001-r1"] == "pass" and result.windows[0].outcome == "fail"
    values = [each.value for each in result.windows]
    assert result.value == values[0] == min(value for value in values if value is not None)
    table = done.stdout.partition("Worst windows\n")[2]
    assert re.search(r"Start +Result +Value +Margin\n[0-9-]{10} [0-9:]{8} +fail +[0-9]+ MB/s +-[0-9]+ %\n", table)
    assert re.search("[1-9] of 4 windows passed, [1-9] failed", done.stdout)


def test_the_windows_are_in_every_format_of_the_report(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde(
        *("qualify", "openshift", "--target", STEADY, "--duration", "60s", "--every", "15s"), *("-o", "set", "-q")
    )
    assert done.returncode in (0, 3), done.stderr
    results = ResultSet.open(tmp_path / "set")
    assert Counter(each.case_id for each in results.records()) == {"minimum": 2, "busy": 2}, "loads take turns"
    report = collect([results])
    [table] = [each for each in report.chapters[0].required if each.title == "Worst windows"]
    assert len(table.rows) == 6, "two windows of each of three requirements"
    page = html.render(report)
    assert page.index("<h3>Worst windows</h3>") < page.index('id="table-required-1-2"')
    assert results.records()[0].run_id in page
    markdown.write(report, tmp_path / "report.md")
    assert "## Worst windows" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["etcd", "--every", "1m"], "give both"),
        (["--all", "--duration", "1h"], "omit `--all`"),
        (["etcd", "--duration", "1h", "--time-limit", "30s"], "omit `--time-limit`"),
        (["etcd", "--duration", "1h", "--set", "duration=5s"], "`--every` is the length"),
        (["etcd", "--duration", "1h", "--every", "5s"], "must be at least 12 s"),
        (["etcd", "--duration", "30d"], "got 43.2 k"),
    ],
)
def test_a_watch_that_cannot_be_planned_is_refused(iosonde: Iosonde, arguments: list[str], message: str) -> None:
    done = iosonde("qualify", "--target", STEADY, *arguments)
    assert done.returncode == 2 and message in done.stderr


def test_the_plan_states_what_a_load_of_hours_writes(tmp_path: Path) -> None:
    hours, minute = 2 * 3600 * SECOND, 60 * SECOND
    target = open_target(str(tmp_path))
    openshift, etcd = (
        watch_plan(load_application(name), target, duration_ns=hours, every_ns=minute) for name in ("openshift", "etcd")
    )
    assert len(openshift.runs) == len(etcd.runs) == 120
    assert (openshift.cost.write_bytes, etcd.cost.write_bytes) == (60 * 60 * (50 + 500) * 8000, None)
    assert "671 GiB at 100 MB/s" in etcd.notes[-1]
    assert all(7_200 <= each.cost.seconds < 7_300 for each in (openshift, etcd))
