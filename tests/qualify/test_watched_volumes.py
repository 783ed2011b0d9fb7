"""`iosonde qualify --duration`: windows of continuous load on simulated devices, worst windows, kill and resume."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT, Iosonde
from engines import real_engine

from iosonde.findings.outcome import Result
from iosonde.findings.requirements import results_of
from iosonde.findings.windows import OBSERVED
from iosonde.qualify import load_application, qualification_of, watch_plan
from iosonde.report.content.report import collect
from iosonde.report.writers import html, markdown
from iosonde.results import ResultSet
from iosonde.results.schema import RecordVerdict, RecordWarning
from iosonde.storage import open_target
from iosonde.verdict.warning_kinds import WARNINGS

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
block_size = "16KiB"
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


def test_every_window_is_judged_and_the_result_is_that_of_the_worst(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde(
        *("qualify", "etcd", "--target", STEADY, "--duration", "3min", "--every", "1m", "-o", "set"),
        *("--json", "--junit", "junit.xml"),
    )
    assert done.returncode == 0, done.stderr
    assert "continuous load in 3 windows of 1 min" in done.stderr
    records = ResultSet.open(tmp_path / "set").records()
    assert [each.end_reason for each in records] == ["", "", ""], "no window ends early"
    assert all(each.spec["workload"]["duration_ns"] == 58 * SECOND for each in records)
    p99 = next(each for each in json.loads(done.stdout)[0]["results"] if "p99" in each["requirement"]["name"])
    windows = p99["windows"]
    assert sorted(each["run_id"] for each in windows) == [each.run_id for each in records]
    assert [each["margin"] for each in windows] == sorted(each["margin"] for each in windows)
    assert (p99["outcome"], p99["value"], p99["reason"]) == ("pass", windows[0]["value"], "3 of 3 windows passed")
    assert {each["started_at"] for each in windows} == {each.started_at for each in records}


def test_a_drive_that_becomes_slow_fails_in_its_late_windows(iosonde: Iosonde, tmp_path: Path) -> None:
    """The first windows of a fresh drive write without garbage collection, as with burst credits."""
    (tmp_path / "burst.toml").write_text(BURST, encoding="utf-8")
    done = iosonde(
        *("qualify", "./burst.toml", "--target", "sim:pm963,capacity=48GiB"),
        *("--duration", "48s", "--every", "12s", "-o", "set"),
    )
    assert done.returncode == 1, done.stderr + done.stdout
    [result] = results_of(ResultSet.open(tmp_path / "set"))
    outcomes = {each.run_id: each.outcome for each in result.windows}
    assert outcomes["c0001-r1"] == "pass" and result.windows[0].outcome == "fail"
    values = [each.value for each in result.windows]
    assert result.value == values[0] == min(value for value in values if value is not None)
    table = done.stdout.partition("Worst windows\n")[2]
    assert re.search(r"Start +Result +Value +Margin\n[0-9-]{10} [0-9:]{8} +fail +[0-9]+ MB/s +-[0-9]+ %\n", table)
    assert re.search("[1-9] of 4 windows passed, [1-9] failed", done.stdout)


def test_a_killed_watch_loses_one_window_and_is_resumed(iosonde: Iosonde, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "iosonde", "qualify", "etcd", "--target", STEADY, "-o", "set"]
    environment = {
        "PYTHONPATH": str(CHECKOUT / "python"),
        "IOSONDE_ENGINE": str(real_engine()),
        "PATH": "/usr/bin:/bin",
    }
    watch = subprocess.Popen([*command, "--duration", "8min", "--every", "1m", "-q"], env=environment)
    records = tmp_path / "set" / "records"
    while watch.poll() is None and not (records.is_dir() and any(map(_is_record, records.iterdir()))):
        time.sleep(0.01)
    watch.send_signal(signal.SIGKILL)
    watch.wait()
    before = [each.run_id for each in ResultSet.open(tmp_path / "set").records()]
    assert 1 <= len(before) < 8
    partial = qualification_of(ResultSet.open(tmp_path / "set"))
    assert partial.outcome == "undecided" and "missing" in partial.detail
    resumed = iosonde("resume", "set", "--no-report")
    assert resumed.returncode == 0, resumed.stderr
    assert len(ResultSet.open(tmp_path / "set").records()) == 8
    assert resumed.stdout.endswith("8 of 8 windows passed\n")


def _is_record(path: Path) -> bool:
    return path.name.startswith("c0001-")


def watched(directory: Path, changes: dict[int, dict[str, Any]], windows: int = 20) -> Result:
    """Return the result for the p99 of a watch in which some runs are changed."""
    from iosonde.execution import execute

    plan = watch_plan(
        load_application("etcd"), open_target(STEADY), duration_ns=windows * 15 * SECOND, every_ns=15 * SECOND
    )
    whole = execute(plan, directory / "set")
    for number, each in changes.items():
        run_id = f"c0001-r{number}"
        whole._contents.records[run_id] = whole._contents.records[run_id].model_copy(update=each)
    return next(each for each in results_of(whole) if each.requirement.name == "p99 of fdatasync")


def disturbed(message: str) -> dict[str, Any]:
    verdict = RecordVerdict(kind="undetermined", because=[message], evidence={"temperature_celsius": 71.0})
    return {"verdict": verdict, "warnings": [RecordWarning(code="other_io", message=message)]}


def test_disturbed_windows_decide_nothing_and_state_what_happened(tmp_path: Path) -> None:
    result = watched(tmp_path, {3: disturbed("other processes moved 1 GB")})
    assert (result.outcome, result.reason) == ("pass", "19 of 20 windows passed, 1 undecided")
    [window] = [each for each in result.windows if each.outcome == "undecided"]
    assert (window.run_id, window.reason) == ("c0001-r3", "undetermined: other processes moved 1 GB")
    assert list(window.observed) == ["other processes moved 1 GB", "device at 71 °C"]
    assert result.windows[0] == window


def test_too_many_unusable_windows_leave_a_watch_undecided(tmp_path: Path) -> None:
    result = watched(tmp_path, {number: disturbed("steal") for number in (1, 2, 3)}, windows=10)
    assert result.outcome == "undecided"
    assert result.reason == "7 of 10 windows passed, 3 undecided; undetermined: steal"


def test_windows_that_were_only_slowed_pass_and_are_counted(tmp_path: Path) -> None:
    lost = dict.fromkeys(("stalled_share", "cpu_wait_share", "steal_share"), 0.0)
    change = disturbed("other processes moved 1 GB")
    change["verdict"] = change["verdict"].model_copy(update={"evidence": lost})
    result = watched(tmp_path, dict.fromkeys((1, 2, 3), change), windows=10)
    assert (result.outcome, result.reason) == (
        "pass",
        "10 of 10 windows passed, 3 of these in spite of a disturbance",
    )


def test_the_windows_are_in_every_format_of_the_report(iosonde: Iosonde, tmp_path: Path) -> None:
    done = iosonde("qualify", "openshift", "--target", STEADY, "--duration", "60s", "--every", "15s", "-o", "set", "-q")
    assert done.returncode in (0, 2), done.stderr
    results = ResultSet.open(tmp_path / "set")
    assert Counter(each.case_id for each in results.records()) == {"minimum": 2, "busy": 2}, "loads take turns"
    report = collect([results])
    [table] = [each for each in report.chapters[0].required if each.title == "Worst windows"]
    assert len(table.rows) == 6, "two windows of each of three requirements"
    page = html.render(report)
    assert 'id="table-worst-windows-1"' in page and results.records()[0].run_id in page
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
        (["etcd", "--duration", "30s"], "got 0"),
        (["etcd", "--duration", "30d"], "got 43.2 k"),
        (["etcd", "--duration", "0s"], "`--duration` must be greater than 0"),
    ],
)
def test_a_watch_that_cannot_be_planned_is_refused(iosonde: Iosonde, arguments: list[str], message: str) -> None:
    done = iosonde("qualify", "--target", STEADY, *arguments)
    assert done.returncode == 2 and message in done.stderr


def test_the_plan_states_what_a_day_writes(tmp_path: Path) -> None:
    plans = {
        name: watch_plan(
            load_application(name), open_target(str(tmp_path)), duration_ns=86_400 * SECOND, every_ns=60 * SECOND
        )
        for name in ("openshift", "etcd")
    }
    assert [len(each.runs) for each in plans.values()] == [1440, 1440]
    writes = 720 * 60 * (50 + 500)
    assert (plans["openshift"].cost.write_bytes, plans["etcd"].cost.write_bytes) == (writes * 8000, None)
    assert "7.88 TiB at 100 MB/s" in plans["etcd"].notes[-1]
    assert all(86_400 <= each.cost.seconds < 86_900 for each in plans.values())


def test_each_code_of_an_observation_is_a_warning() -> None:
    assert set(OBSERVED) <= set(WARNINGS)
