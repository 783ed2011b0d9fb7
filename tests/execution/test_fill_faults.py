"""Faults during the preparation of a target: each has a clear result, the study continues, and nothing remains."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
from fills import fills
from mounted import LoopFileSystem

from iosonde.errors import StudyError
from iosonde.execution import execute, resume
from iosonde.plan import PREPARATION, Plan
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import open_target

MIB = 1 << 20


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def plan_of(directory: Path, **settings: str) -> Plan:
    return expand(fills(90, 30), open_target(str(directory)), settings=settings)


class DuringFill:
    """Does something when a run begins."""

    def __init__(self, act: Callable[[Any], None]) -> None:
        self._act = act

    def run_started(self, run: Any, case: Any) -> None:
        self._act(run)

    def event(self, run: Any, event: dict[str, Any]) -> None: ...

    def run_ended(self, run: Any, record: Any) -> None: ...

    def note(self, text: str) -> None: ...


def by_step(result_set: ResultSet) -> list[tuple[Any, str, str]]:
    """Level of fill, step, and how it went."""
    return [
        (record.levels["fill"], str(record.levels.get("step", "round")), record.outcome)
        for record in result_set.records()
    ]


def test_a_disk_that_gets_full_in_mid_fill_fails_that_level_and_the_next_is_measured(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
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


def test_what_the_file_system_keeps_back_cannot_be_filled(loop_file_system: Callable[..., LoopFileSystem]) -> None:
    """ext4 keeps 5 % for the administrator, and iosonde leaves it to him."""
    directory = loop_file_system("ext4", size="256M").directory
    with pytest.raises(StudyError) as raised:
        plan_of(directory, fill="99")
    assert "99 % of" in raised.value.what and "cannot be filled" in raised.value.what
    assert "; the file system reserves " in raised.value.what
    assert "--set fill=" in raised.value.hint
    assert {path.name for path in directory.iterdir()} == {"lost+found"}


def test_a_purge_that_the_target_does_not_offer_is_refused_with_those_that_it_does(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as raised:
        plan_of(tmp_path, purge="format", capacity="64MiB")
    assert raised.value.what == "the target offers no purge by `format`"
    assert "`overwrite`" in raised.value.hint


def test_without_discard_the_strongest_means_is_to_overwrite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system that frees no part of a file, as over a device or a server that takes no discard."""
    monkeypatch.setattr("iosonde.storage.setups.purge.can_trim", lambda directory: False)
    plan = plan_of(tmp_path, capacity="8MiB", fill="50")
    assert [case.parameters["purge"] for case in plan.adaptive] == ["overwrite"]
    result_set = execute(plan, tmp_path / "set")
    assert {record.parameters["purge"] for record in result_set.records()} == {"overwrite"}
    assert {record.outcome for record in result_set.records()} == {"complete"}


@pytest.mark.needs("hole punching")
def test_a_device_that_takes_no_discard_is_purged_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`trim` frees the blocks; a device that does not get the discard (FITRIM fails) is no failure."""

    def refuse(*arguments: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr("iosonde.storage.setups.purge.fcntl.ioctl", refuse)
    (tmp_path / "on").mkdir()
    result_set = execute(plan_of(tmp_path / "on", capacity="64MiB", fill="50"), tmp_path / "set")
    assert [how for _, _, how in by_step(result_set)] == ["complete"] * 3
    assert {record.parameters["purge"] for record in result_set.records()} == {"trim"}


def test_a_target_that_shrinks_is_a_failure_with_the_reason(tmp_path: Path) -> None:
    """Somebody cuts the file that was filled; reads then find nothing where there was something."""
    (tmp_path / "on").mkdir()

    def act(run: Any) -> None:
        if not run.part:
            [file] = (tmp_path / "on").glob("*/data")
            os.truncate(file, 64 * 1024)

    settings = {"capacity": "64MiB", "fill": "50", "read_fraction": "1.0"}
    result_set = execute(plan_of(tmp_path / "on", **settings), tmp_path / "set", observer=DuringFill(act))
    record = result_set.records()[-1]
    assert (record.outcome, record.part) == ("failed", "main") and record.failure
    assert "has shrunk: 32 MiB were prepared, and 64 KiB are left" in record.failure.message
    assert "--retry-failed" in record.failure.hint
    assert not list((tmp_path / "on").iterdir())


SESSION = """
import os, signal, sys
from pathlib import Path
from iosonde.execution import execute
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
    plan = plan_of(tmp_path / "on", capacity="1GiB", fill="90")
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
