"""Targets that are filled and purged: what is written, and faults, each with a clear result and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from fills import fills
from mounted import LoopFileSystem
from stores import small_file_system

from iosonde.errors import StudyError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.plan import PREPARATION, Plan
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import open_target

Mounts = Callable[..., LoopFileSystem]

MIB = 1 << 20


def plan_of(directory: Path, **settings: str) -> Plan:
    return expand(fills(90, 30), open_target(str(directory)), settings=settings)


class DuringFill(Observer):
    def __init__(self, act: Callable[[Any], None]) -> None:
        self._act = act

    def run_started(self, run: Any, case: Any) -> None:
        self._act(run)


def by_step(result_set: ResultSet) -> list[tuple[Any, str, str]]:
    return [
        (record.levels["fill"], str(record.levels.get("step", "round")), record.outcome)
        for record in result_set.records()
    ]


def test_a_disk_that_gets_full_in_mid_fill_fails_that_level_and_the_next_is_measured(
    loop_file_system: Mounts, tmp_path: Path
) -> None:
    """At the time of the plan there was room for 90 %; then somebody else takes half of the disk."""
    directory = loop_file_system("ext4", size="128M").directory
    plan = plan_of(directory)
    other = directory / "of-somebody-else"

    def act(run: Any) -> None:
        if run.levels.get("step") == "fill" and not other.exists():
            with other.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 50 * MIB)
        elif run.run_id.startswith("c0002"):
            other.unlink(missing_ok=True)

    result_set = execute(plan, tmp_path / "set", observer=DuringFill(act))
    assert by_step(result_set) == [
        (90, "purge", "complete"),
        (90, "fill", "failed"),
        (30, "purge", "complete"),
        (30, "fill", "complete"),
        (30, "round", "complete"),
    ]
    [failed] = [record for record in result_set.records() if record.failure]
    assert failed.failure and "No space left" in f"{failed.failure.message} {failed.failure.context}"
    assert failed.failure.hint
    assert {path.name for path in directory.iterdir()} <= {"lost+found"}


def test_what_cannot_be_filled_or_purged_is_refused_in_the_plan(loop_file_system: Mounts, tmp_path: Path) -> None:
    """ext4 keeps 5 % for the administrator, and iosonde leaves it to him."""
    directory = loop_file_system("ext4", size="256M").directory
    with pytest.raises(StudyError, match=r"99 % of .* cannot be filled.*; the file system reserves ") as raised:
        plan_of(directory, fill="99")
    assert "--set fill=" in raised.value.hint
    assert {path.name for path in directory.iterdir()} == {"lost+found"}
    with pytest.raises(StudyError, match="the target offers no purge by `format`") as raised:
        plan_of(tmp_path, purge="format", capacity="64MiB")
    assert "`overwrite`" in raised.value.hint


def test_a_target_that_shrinks_is_a_failure_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()

    def act(run: Any) -> None:
        if not run.part:
            [file] = (tmp_path / "on").glob("*/data")
            os.truncate(file, 64 * 1024)

    settings = {"capacity": "16MiB", "fill": "50", "read_fraction": "1.0"}
    result_set = execute(plan_of(tmp_path / "on", **settings), tmp_path / "set", observer=DuringFill(act))
    record = result_set.records()[-1]
    assert (record.outcome, record.part) == ("failed", "main") and record.failure
    assert "has shrunk: 8 MiB were prepared, and 64 KiB are left" in record.failure.message
    assert "--retry-failed" in record.failure.hint
    assert not list((tmp_path / "on").iterdir())


SESSION = """
import os, signal, sys
from pathlib import Path
from iosonde.execution.session import execute
from iosonde.plan import Plan
from test_fill_faults import DuringFill

class Dies(DuringFill):
    def event(self, run, event):
        if run.levels.get("step") == "fill" and event["event"] == "phase":
            os.kill(os.getpid(), signal.SIGKILL)

execute(Plan.model_validate_json(Path(sys.argv[1]).read_text()), sys.argv[2], observer=Dies(lambda run: None))
"""


def test_a_power_cut_during_the_fill_loses_that_run_and_the_target_is_prepared_again(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    plan = plan_of(tmp_path / "on", capacity="32MiB", fill="90")
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), str(CHECKOUT / "python")])
    child = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path / "plan.json"), str(tmp_path / "set")],
        env={**os.environ, "PYTHONPATH": paths},
        process_group=0,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    before = {record.run_id for record in ResultSet.open(tmp_path / "set").records()}
    assert not any("round" in run_id for run_id in before)
    result_set = resume(tmp_path / "set")
    assert result_set.records()[-1].outcome == "complete"
    again = [record for record in result_set.records() if record.run_id not in before]
    assert [record.levels.get("step", "round") for record in again] == ["purge", "fill", "round"]
    assert [record.part for record in again] == [PREPARATION, PREPARATION, "main"]
    assert not list((tmp_path / "on").iterdir()), "nothing is left"


def test_every_jobs_file_is_filled_with_what_does_not_compress(tmp_path: Path) -> None:
    settings = {"files": "per_job", "jobs": "4", "capacity": "32MiB"}
    plan = expand(fills(50), open_target(str(tmp_path)), settings=settings, keep=True)
    result_set = execute(plan, tmp_path / "set")
    assert [record.outcome for record in result_set.records()] == ["complete"] * 3
    [own] = [path for path in tmp_path.iterdir() if path.name.startswith("iosonde-")]
    files = sorted(own.iterdir())
    assert [file.name for file in files] == ["main.0", "main.1", "main.2", "main.3"]
    assert [file.stat().st_size for file in files] == [4 * MIB] * 4
    for file in files:
        content = file.read_bytes()
        assert len(zlib.compress(content, 1)) > 0.99 * len(content)
    filled = next(record for record in result_set.records() if record.levels.get("step") == "fill")
    assert filled.part == PREPARATION and filled.result
    assert sum(job["bytes"] for job in filled.result["jobs"]) == 16 * MIB


SETTINGS = {"purge": "trim", "span": "4MiB", "io_mode": "buffered"}


def warnings(directory: Path, results: Path) -> list[str]:
    plan = expand(fills(50), open_target(str(directory)), settings=SETTINGS)
    records = execute(plan, results).records()
    assert {(record.outcome, record.failure) for record in records} == {("complete", None)}
    return [each.message for record in records for each in record.warnings if each.code == "not_discarded"]


@pytest.mark.system
@pytest.mark.needs("root")
def test_freed_blocks_that_were_not_discarded_have_a_warning(loop_file_system: Mounts, tmp_path: Path) -> None:
    assert warnings(loop_file_system().directory, tmp_path / "discarded") == []
    with small_file_system(tmp_path / "memory", 64) as memory:  # It has no FITRIM.
        [warning] = warnings(memory, tmp_path / "set")
    assert warning.startswith("the purge freed the files' blocks but did not discard them on the device: FITRIM failed")
