from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE, real_engine
from inline_snapshot import snapshot
from plans import MIB, hand_plan, sign

import iosonde
from iosonde.errors import EngineError, ResultsError, TargetError
from iosonde.execution import execute, resume
from iosonde.plan import Case, Plan, Run
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target, prepare
from iosonde.study.model import Study

RUN_IDS = ["c0001-r1", "c0002-r1", "c0001-r2", "c0002-r2"]


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are carried out by the real engine."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs are carried out by the fake engine, which fails as given: run id -> how."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))

    def plan_faults(**faults: str) -> None:
        monkeypatch.setenv("FAKE_ENGINE", json.dumps({name.replace("_", "-"): how for name, how in faults.items()}))

    plan_faults()
    return plan_faults


class Watcher:
    """Notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def run_started(self, run: Run, case: Case) -> None:
        self.seen.append(("started", run.run_id))

    def event(self, run: Run, event: dict[str, Any]) -> None:
        self.seen.append((event["event"], run.run_id))

    def run_ended(self, run: Run, record: Record) -> None:
        self.seen.append(("ended", record.run_id))

    def note(self, text: str) -> None:
        self.notes.append(text)


def null_plan(**changes: Any) -> Plan:
    return hand_plan(name="null:1MiB", **changes)


def file_study(**measurement: Any) -> Study:
    """Reads and writes of a small file."""
    return Study.model_validate(
        {
            "name": "small-file",
            "title": "A small file",
            "question": "Does it work?",
            "repeats": 1,
            "shuffle": False,
            "measurement": {
                "span": "1MiB",
                "block_size": 4096,
                "io_mode": "buffered",
                "duration": "100ms",
                "ramp": "0s",
                "interval": "100ms",
                **measurement,
            },
            "parts": [{"name": "main", "factors": {"read_fraction": [1.0, 0.0]}}],
            "profiles": {"quick": {}, "standard": {}},
        }
    )


def outcomes(result_set: ResultSet) -> dict[str, str]:
    return {record.run_id: record.outcome for record in result_set.records()}


def test_every_run_is_carried_out_in_its_order_and_leaves_a_record(real: None, tmp_path: Path) -> None:
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


def test_intervals_histograms_and_jobs_of_a_run_agree(real: None, tmp_path: Path) -> None:
    result_set = execute(null_plan(repeats=1, duration_ns=300_000_000), tmp_path / "set")
    sums = result_set.sql(
        "SELECT run_id, (SELECT sum(count) FROM intervals i WHERE i.run_id = r.run_id) AS intervals,"
        " (SELECT sum(count) FROM histograms h WHERE h.run_id = r.run_id) AS histograms,"
        " (SELECT sum(operations) FROM jobs j WHERE j.run_id = r.run_id) AS jobs FROM runs r"
    )
    assert sums.height == 2
    for _, *counts in sums.rows():
        assert len(set(counts)) == 1
        assert counts[0] > 0


@pytest.mark.parametrize("how", ["crash", "garbage", "no space", "exit before hello"])
def test_a_failed_run_is_a_record_and_the_study_continues(faults: Any, tmp_path: Path, how: str) -> None:
    faults(c0002_r1=how)
    result_set = execute(null_plan(), tmp_path / "set")
    assert outcomes(result_set) == dict.fromkeys(RUN_IDS, "complete") | {"c0002-r1": "failed"}
    failure = result_set.records()[1].failure
    assert failure is not None
    assert failure.message
    assert result_set.missing_runs() == []
    assert result_set.sql("SELECT run_id, failure FROM runs WHERE outcome = 'failed'").rows() == [
        ("c0002-r1", failure.code)
    ]


def test_repeated_failures_are_reported_once(faults: Any, tmp_path: Path) -> None:
    faults(**{"*": "no space"})
    watcher = Watcher()
    execute(null_plan(), tmp_path / "set", observer=watcher)
    assert watcher.notes == [
        "3 consecutive runs failed with `no_space`; the study continues, and failed runs can be repeated with "
        "`iosonde resume DIR --retry-failed`"
    ]


def test_unsupported_runs_have_no_advice_to_repeat_them(faults: Any, tmp_path: Path) -> None:
    faults(**{"*": "unsupported"})
    watcher = Watcher()
    execute(null_plan(), tmp_path / "set", observer=watcher)
    assert watcher.notes == []


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


def test_resume_carries_out_what_is_missing_and_nothing_else(real: None, tmp_path: Path) -> None:
    before = execute(null_plan(), tmp_path / "set")
    for path in (tmp_path / "set/records/c0001-r2").iterdir():
        path.write_bytes(b"")
    watcher = Watcher()
    result_set = resume(tmp_path / "set", observer=watcher)
    assert {run for _, run in watcher.seen} == {"c0001-r2"}
    assert outcomes(result_set) == dict.fromkeys(RUN_IDS, "complete")
    assert result_set.records()[2].attempt == 2
    assert result_set.records()[:2] == before.records()[:2]


def test_warnings_of_the_engine_travel_with_the_record(faults: Any, tmp_path: Path) -> None:
    faults(c0001_r1="warning")
    result_set = execute(null_plan(), tmp_path / "set")
    assert result_set.warnings.rows() == [
        ("c0001-r1", "page_cache", "reads came from memory", "use direct I/O"),
    ]


def test_a_test_file_is_removed_at_the_end_and_other_files_remain(real: None, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "thesis.tex").write_text("years of work")
    result_set = iosonde.run(file_study(), target=directory, output=tmp_path / "set", profile="quick")
    assert set(outcomes(result_set).values()) == {"complete"}
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]
    assert (directory / "thesis.tex").read_text() == "years of work"
    assert result_set.records()[0].target["file_system"]["kind"]


def test_a_test_file_remains_with_keep(real: None, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    plan = expand(file_study(), open_target(str(tmp_path / "data")), profile="quick", keep=True)
    execute(plan, tmp_path / "set")
    sizes = [path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sizes == [MIB]


def test_what_a_kill_after_the_last_record_leaves_is_removed_by_resume(real: None, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    plan = expand(file_study(), open_target(str(tmp_path / "data")), profile="quick")
    execute(plan, tmp_path / "set")
    prepare(plan)
    assert list((tmp_path / "data").iterdir())
    resume(tmp_path / "set")
    assert not list((tmp_path / "data").iterdir())


def test_a_target_that_vanishes_gives_failed_records_with_the_reason(
    real: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vandal(Watcher):
        def run_ended(self, run: Run, record: Record) -> None:
            subprocess.run(["rm", "-rf", tmp_path / "data"], check=True)

    (tmp_path / "data").mkdir()
    plan = expand(file_study(), open_target(str(tmp_path / "data")), profile="quick")
    result_set = execute(plan, tmp_path / "set", observer=Vandal())
    first, second = result_set.records()
    assert first.outcome == "complete"
    assert second.failure is not None
    assert second.failure.code == "vanished"
    assert "problem" in second.target


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.mark.system
@pytest.mark.needs("root")
def test_a_full_disk_makes_a_failed_record_also_when_the_record_is_on_it(real: None, small_disk: Path) -> None:
    class Hog(Watcher):
        """Somebody else takes all the room when the first run begins, and gives it back when it has ended."""

        def run_started(self, run: Run, case: Case) -> None:
            if run.order == 0:
                room = os.statvfs(small_disk)
                with (small_disk / "hog").open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)

        def run_ended(self, run: Run, record: Record) -> None:
            (small_disk / "hog").unlink(missing_ok=True)

    (small_disk / "data").mkdir()
    plan = expand(file_study(), open_target(str(small_disk / "data")), profile="quick")
    result_set = execute(plan, small_disk / "set", observer=Hog())
    first, second = result_set.records()
    assert first.failure is not None
    assert first.failure.code == "no_space"
    assert second.outcome == "complete"


def test_a_study_is_not_resumed_on_another_file_system(real: None, tmp_path: Path) -> None:
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
    text = str(error.value).replace(str(tmp_path), "TMP").replace(f"`{kind}`", "`KIND`")
    assert text == snapshot("""\
`TMP/data` has changed: its file system is `KIND`, and was `befs` in run `c0001-r1`
  in the result set `TMP/set`

hint: restore the former target, or start a new study with `iosonde run`\
""")


def test_a_result_set_that_is_being_written_is_not_resumed(real: None, tmp_path: Path) -> None:
    result_set = execute(null_plan(), tmp_path / "set")
    with result_set.lock(), pytest.raises(ResultsError, match=f"is being written by process {os.getpid()}"):
        resume(tmp_path / "set")


def test_without_an_engine_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(tmp_path / "none"))
    with pytest.raises(EngineError):
        execute(null_plan(), tmp_path / "set")
    assert not (tmp_path / "set").exists()
