"""Sessions: runs in their order, failures, what is resumed, and that only files of iosonde are removed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE
from plans import MIB, hand_plan, sign
from stores import small_file_system

import iosonde
from iosonde.engine.protocol import Event
from iosonde.errors import EngineError, ResultsError, TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.plan import Case, Plan, Run
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target, prepare
from iosonde.study.model import Study

RUN_IDS = ["c0001-r1", "c0002-r1", "c0001-r2", "c0002-r2"]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs are carried out by the fake engine, which fails as given: run id -> how."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))

    def plan_faults(**faults: str) -> None:
        monkeypatch.setenv("FAKE_ENGINE", json.dumps({name.replace("_", "-"): how for name, how in faults.items()}))

    plan_faults()
    return plan_faults


class Watcher(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def run_started(self, run: Run, case: Case) -> None:
        self.seen.append(("started", run.run_id))

    def event(self, run: Run, event: Event) -> None:
        self.seen.append((event["event"], run.run_id))

    def run_ended(self, run: Run, record: Record) -> None:
        self.seen.append(("ended", record.run_id))

    def note(self, text: str) -> None:
        self.notes.append(text)


def null_plan(**changes: Any) -> Plan:
    return hand_plan(name="null:1MiB", **changes)


def file_study() -> Study:
    return parse("""
name = "small-file"
title = "A small file"
question = "Does it work?"
repeats = 1
shuffle = false
measurement = { span = "1MiB", io_mode = "buffered", duration = "none", limit_operations = 100, ramp = "0s" }
[[parts]]
factors.read_fraction = [1.0, 0.0]
[profiles.quick]
""")


def outcomes(result_set: ResultSet) -> dict[str, str]:
    return {record.run_id: record.outcome for record in result_set.records()}


def test_every_run_is_carried_out_in_its_order_and_leaves_a_record(tmp_path: Path) -> None:
    watcher = Watcher()
    result_set = execute(null_plan(), tmp_path / "set", observer=watcher)
    assert [run for what, run in watcher.seen if what == "started"] == RUN_IDS
    assert [run for what, run in watcher.seen if what == "ended"] == RUN_IDS
    assert outcomes(result_set) == dict.fromkeys(RUN_IDS, "complete")
    assert result_set.problems == []
    record = result_set.records()[0]
    assert record.spec == result_set.plan.runs[0].spec
    assert record.target == {"kind": "null", "name": "null:1MiB", "size_bytes": MIB, "devices": []}
    assert result_set.environments()[record.environment]["software"]["engine"].startswith("iosonde-engine ")
    assert ResultSet.open(tmp_path / "set").records() == result_set.records()
    sums = result_set.sql(
        "SELECT run_id, (SELECT sum(count) FROM intervals i WHERE i.run_id = r.run_id) AS intervals,"
        " (SELECT sum(count) FROM histograms h WHERE h.run_id = r.run_id) AS histograms,"
        " (SELECT sum(operations) FROM jobs j WHERE j.run_id = r.run_id) AS jobs FROM runs r"
    )
    assert sums.height == len(RUN_IDS)
    for _, *counts in sums.rows():
        assert len(set(counts)) == 1 and counts[0] > 0


def test_a_failed_run_is_a_record_and_the_study_continues(faults: Any, tmp_path: Path) -> None:
    faults(c0001_r1="crash", c0002_r1="no space", c0001_r2="warning")
    result_set = execute(null_plan(), tmp_path / "set")
    assert list(outcomes(result_set).values()) == ["failed", "failed", "complete", "complete"]
    assert all(record.failure.message for record in result_set.records() if record.failure)
    assert result_set.missing_runs() == []
    assert result_set.sql("SELECT run_id, failure FROM runs WHERE outcome = 'failed'").rows() == [
        ("c0001-r1", "crashed"),
        ("c0002-r1", "no_space"),
    ]
    assert result_set.warnings.rows() == [("c0001-r2", "page_cache", "reads came from memory", "use direct I/O")]


def test_repeated_failures_are_reported_once_and_unsupported_runs_not(faults: Any, tmp_path: Path) -> None:
    notes = {}
    for how in ("no space", "unsupported"):
        faults(**{"*": how})
        watcher = Watcher()
        execute(null_plan(), tmp_path / how, observer=watcher)
        notes[how] = watcher.notes
    assert notes["unsupported"] == []
    [note] = notes["no space"]
    assert note.startswith("3 consecutive runs failed with `no_space`") and "--retry-failed" in note


def test_only_retry_failed_repeats_a_failed_run(faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE_MARKER", str(tmp_path / "marker"))
    faults(c0002_r1="fails once")
    first = execute(null_plan(), tmp_path / "set").records()
    watcher = Watcher()
    resume(tmp_path / "set", observer=watcher)
    assert watcher.seen == []
    result_set = resume(tmp_path / "set", observer=watcher, retry_failed=True)
    assert {run for _, run in watcher.seen} == {"c0002-r1"}
    assert [record.attempt for record in result_set.records()] == [1, 2, 1, 1]
    assert outcomes(result_set) == dict.fromkeys(RUN_IDS, "complete")
    assert [record for record in result_set.records() if record.attempt == 1] == [first[0], *first[2:]]


def test_resume_carries_out_what_is_missing_and_nothing_else(faults: Any, tmp_path: Path) -> None:
    before = execute(null_plan(), tmp_path / "set")
    for path in (tmp_path / "set/records/c0001-r2").iterdir():
        path.write_bytes(b"")
    watcher = Watcher()
    result_set = resume(tmp_path / "set", observer=watcher)
    assert {run for _, run in watcher.seen} == {"c0001-r2"}
    assert outcomes(result_set) == dict.fromkeys(RUN_IDS, "complete")
    assert result_set.records()[2].attempt == 2
    assert result_set.records()[:2] == before.records()[:2]


def test_a_test_file_is_removed_at_the_end_or_kept_and_other_files_remain(tmp_path: Path) -> None:
    """By the session, or by the next one: what a kill after the last record leaves."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "thesis.tex").write_text("years of work")
    result_set = iosonde.run(file_study(), target=directory, output=tmp_path / "set", profile="quick")
    assert set(outcomes(result_set).values()) == {"complete"}
    assert result_set.records()[0].target["file_system"]["kind"]
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]
    prepare(result_set.plan)
    assert len(list(directory.iterdir())) == 2
    resume(tmp_path / "set")
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]
    assert (directory / "thesis.tex").read_text() == "years of work"
    execute(expand(file_study(), open_target(str(directory)), profile="quick", keep=True), tmp_path / "kept")
    assert sorted(path.stat().st_size for path in directory.rglob("*") if path.is_file()) == [13, MIB]


def test_a_target_that_vanishes_gives_failed_records_with_the_reason(tmp_path: Path) -> None:
    class Vandal(Observer):
        def run_ended(self, run: Run, record: Record) -> None:
            subprocess.run(["rm", "-rf", tmp_path / "data"], check=True)

    (tmp_path / "data").mkdir()
    plan = expand(file_study(), open_target(str(tmp_path / "data")), profile="quick")
    result_set = execute(plan, tmp_path / "set", observer=Vandal())
    first, second = result_set.records()
    assert first.outcome == "complete"
    assert second.failure is not None and second.failure.code == "vanished"
    assert "problem" in second.target


@pytest.mark.system
@pytest.mark.needs("root")
def test_a_full_disk_makes_a_failed_record_also_when_the_record_is_on_it(tmp_path: Path) -> None:
    class Hog(Observer):
        """Another process takes all the room when the first run starts, and frees it when the run has ended."""

        def run_started(self, run: Run, case: Case) -> None:
            if run.order == 0:
                room = os.statvfs(disk)
                with (disk / "hog").open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)

        def run_ended(self, run: Run, record: Record) -> None:
            (disk / "hog").unlink(missing_ok=True)

    with small_file_system(tmp_path / "disk", 24) as disk:
        (disk / "data").mkdir()
        plan = expand(file_study(), open_target(str(disk / "data")), profile="quick")
        first, second = execute(plan, disk / "set", observer=Hog()).records()
    assert first.failure is not None and first.failure.code == "no_space"
    assert second.outcome == "complete"


def test_a_study_is_not_resumed_on_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    plan = expand(file_study(), open_target(str(tmp_path / "data")), profile="quick")
    result_set = execute(plan, tmp_path / "set")
    path = tmp_path / "set/records" / plan.runs[0].run_id / "record.json"
    record = json.loads(path.read_text())
    record["target"]["file_system"]["kind"] = "befs"
    path.write_text(json.dumps(record))
    sign(path.parent)
    (tmp_path / "set/records" / plan.runs[1].run_id / "record.json").unlink()
    with pytest.raises(TargetError) as error:
        resume(tmp_path / "set")
    kind = result_set.records()[0].target["file_system"]["kind"]
    assert f"its file system is `{kind}`, and was `befs` in run `c0001-r1`" in error.value.what


def test_a_result_set_that_is_being_written_is_not_resumed(faults: Any, tmp_path: Path) -> None:
    result_set = execute(null_plan(), tmp_path / "set")
    with result_set.lock(), pytest.raises(ResultsError, match=f"is being written by process {os.getpid()}"):
        resume(tmp_path / "set")


def test_without_an_engine_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(tmp_path / "none"))
    with pytest.raises(EngineError):
        execute(null_plan(), tmp_path / "set")
    assert not (tmp_path / "set").exists()
