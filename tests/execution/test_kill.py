"""A study is killed again and again at random instants, and ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engines import real_engine

from iosonde.execution import resume
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.study.model import Study

SESSION = """
import sys
from iosonde.execution import resume
print("ready", flush=True)
sys.stdin.readline()
resume(sys.argv[1], retry_failed=True)
"""

STUDY = Study.model_validate(
    {
        "name": "short-runs",
        "title": "Many short runs",
        "question": "Does it survive?",
        "repeats": 12,
        "measurement": {"span": "256KiB", "io_mode": "buffered", "duration": "20ms", "ramp": "0s", "interval": "100ms"},
        "parts": [{"name": "main", "factors": {"read_fraction": [1.0, 0.5, 0.0]}}],
        "profiles": {"quick": {}},
    }
)


@pytest.fixture
def result_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultSet:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "data").mkdir()
    plan = expand(STUDY, open_target(str(tmp_path / "data")), profile="quick")
    return ResultSet.create(tmp_path / "set", plan)


def started(directory: Path) -> subprocess.Popen[str]:
    """A session that has imported everything and waits for a word."""
    return subprocess.Popen(
        [sys.executable, "-c", SESSION, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begin(session: subprocess.Popen[str]) -> None:
    assert session.stdin is not None and session.stdout is not None
    assert session.stdout.readline() == "ready\n"
    session.stdin.write("go\n")
    session.stdin.flush()


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until_gone(pids: list[int], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):  # A zombie has no program any more.
        assert time.monotonic() < deadline, f"{pids} outlived iosonde"
        time.sleep(0.01)


def digests(directory: Path) -> dict[str, str]:
    """Every record that is there, with its content."""
    records = [path for path in (directory / "records").iterdir() if not path.name.startswith(".tmp-")]
    files = [path for record in records for path in record.iterdir()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_kills_at_random_instants_lose_nothing_and_measure_nothing_twice(result_set: ResultSet, tmp_path: Path) -> None:
    directory, seed = result_set.directory, random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kept: dict[str, str] = {}
    session = started(directory)
    for _ in range(8):
        following = started(directory)  # It imports while this one is at work.
        begin(session)
        time.sleep(chance.uniform(0.0, 0.4))
        engines = children(session.pid)
        session.kill()
        _, stderr = session.communicate()
        assert session.returncode == -signal.SIGKILL, stderr
        wait_until_gone(engines)
        found = digests(directory)
        assert kept.items() <= found.items()
        kept, session = found, following
    session.kill()
    session.communicate()

    ended = resume(directory)
    assert kept.items() <= digests(directory).items()
    assert ended.problems == []
    assert [record.outcome for record in ended.records()] == ["complete"] * len(ended.plan.runs)
    assert sorted(path.name for path in (directory / "records").iterdir()) == sorted(
        run.run_id for run in ended.plan.runs
    )
    assert not list(directory.rglob(".tmp-*"))
    assert list((tmp_path / "data").iterdir()) == []


def test_cleanup_after_a_kill_leaves_only_records(result_set: ResultSet, tmp_path: Path) -> None:
    directory = result_set.directory
    session = started(directory)
    begin(session)
    deadline = time.monotonic() + 300
    while not digests(directory):
        assert time.monotonic() < deadline, "no run has ended"
        time.sleep(0.01)
    engines = children(session.pid)
    session.kill()
    session.communicate()
    wait_until_gone(engines)
    assert list(directory.glob(".tmp-*")), "a session reserves space for records"
    before = digests(directory)
    cleaned = journal.cleanup()
    assert not [each for each in cleaned if each.failed]
    assert digests(directory) == before
    assert not list(directory.rglob(".tmp-*"))
    assert list((tmp_path / "data").iterdir()) == []
    assert journal.cleanup() == []


def test_killed_engines_give_failed_records_and_the_study_continues(result_set: ResultSet) -> None:
    directory, chance = result_set.directory, random.Random(1)
    session = started(directory)
    begin(session)
    seen: set[int] = set()
    killed = 0
    while session.poll() is None:
        for engine in set(children(session.pid)) - seen:
            seen.add(engine)
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0, 0.03))
                with contextlib.suppress(ProcessLookupError):  # It has exited.
                    os.kill(engine, signal.SIGKILL)
                    killed += 1
        time.sleep(0.005)
    session.communicate()
    assert session.returncode == 0
    ended = ResultSet.open(directory)
    failures = [record.failure for record in ended.records()]
    assert killed > 0
    assert len(failures) == len(ended.plan.runs)
    assert 0 < len([failure for failure in failures if failure is not None]) <= killed
    assert {failure.code for failure in failures if failure is not None} == {"killed"}
    again = resume(directory, retry_failed=True)
    assert [record.outcome for record in again.records()] == ["complete"] * len(ended.plan.runs)
