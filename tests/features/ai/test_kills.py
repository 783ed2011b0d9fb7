"""Studies of these loads whose processes are killed: what `cleanup` removes, and what `resume` completes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import CHECKOUT, Iosonde
from engines import real_engine
from leftovers import leftovers
from study_texts import study_text

from iosonde.base import cache
from iosonde.features.ai import kv_trace
from iosonde.results import ResultSet
from iosonde.storage.safety import journal

pytestmark = pytest.mark.engine

KILLING_ENGINE = Path(__file__).parents[2] / "killing_engine.py"
TIMES = 'ramp = "0s"\nduration = "200ms"\ninterval = "100ms"\n'
CACHE = 'scale = 0.001\nwarm_requests = 20\nspeed = 100.0\ncapacity = "16GiB"\ninterval = "100ms"\n'
STUDIES = {
    "weights": study_text(
        "ai_weights", 'scale = 0.001\nrequest_size = "1MiB"\n', 'factors.strategy = ["mmap", "direct"]'
    ),
    "kv": study_text("ai_kv_cache", f"{CACHE}requests = 60\n", 'factors.layout = ["hashed", "slots"]'),
    "kv-of-trace": study_text("ai_kv_cache", CACHE, 'factors.layout = ["flat", "renamed"]'),
    "ingest": study_text(
        "ai_ingest",
        f'{TIMES}model = "cosmoflow"\nscale = 2e-5\ncompute_time = "10ms"\n',
        'factors.io_mode = ["direct", "buffered"]',
    ),
    "ranks": study_text(
        "ai_checkpoint",
        'scale = 1e-4\npause = "0s"\nrestores = 1\nrequest_size = "1MiB"\ninterval = "100ms"\n',
        'factors.mode = ["buffered", "background"]',
    ),
    "queries": study_text("ai_vector", f'{TIMES}index_size = "16MiB"\n', "factors.concurrency = [1, 2]"),
}


def trace(path: Path) -> Path:
    """A trace of 60 requests in 6 s, each with a block of its own after one that all have."""
    lines = ({"timestamp": 100 * number, "input_length": 1024, "hash_ids": [0, 1 + number]} for number in range(60))
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def killing(home: Path, *, victim: str, at: str) -> dict[str, str]:
    """Variables of a session in which something is killed."""
    (home / "killed").unlink(missing_ok=True)
    given = {"engine": str(real_engine()), "home": str(home), "victim": victim, "at": at}
    return {"IOSONDE_ENGINE": str(KILLING_ENGINE), "KILL": json.dumps(given)}


def processes() -> list[str]:
    """Other processes with the journal of this test."""
    mark = f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}".encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if each.name != str(os.getpid()) and mark in (each / "environ").read_bytes().split(b"\0"):
                found.append(each.name)
    return found


def remaining(home: Path) -> list[str]:
    """Everything that exists besides the result set: files of the load, entries of the journal, temporary files."""
    return [*leftovers(home / "data"), *map(str, (home / "out").rglob(".tmp-*")), *map(str, cache.abandoned())]


AT = ("bytes", "measure", "next")
USUAL = {
    ("weights", "bytes", "resume"), ("kv", "measure", "resume"), ("kv-of-trace", "bytes", "resume"),
    ("ingest", "measure", "cleanup"), ("ranks", "bytes", "cleanup"), ("queries", "next", "cleanup"),
}  # fmt: skip
"""All others of load, instant and what follows are `extended`."""


@pytest.mark.parametrize(
    ("load", "at", "follows"),
    [
        pytest.param(*case, marks=() if case in USUAL else pytest.mark.extended)
        for case in itertools.product(STUDIES, AT, ("cleanup", "resume"))
    ],
)
def test_after_a_kill_cleanup_leaves_nothing_and_resume_completes_the_study(
    tmp_path: Path, iosonde: Iosonde, load: str, at: str, follows: str
) -> None:
    """The session is killed, later the engine alone."""
    (tmp_path / "data").mkdir()
    (tmp_path / "study.toml").write_text(STUDIES[load])
    settings = ["--set", f"trace={trace(tmp_path / 'trace.jsonl')}"] if load == "kv-of-trace" else []
    run = ["run", "study.toml", "--target", "data", "--output", "out", "--no-report", *settings]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), **killing(tmp_path, victim="session", at=at)}
    command = [sys.executable, "-m", "iosonde", *run]
    assert subprocess.run(command, cwd=tmp_path, env=environment, process_group=0, check=False).returncode == -9
    while processes():  # The engine ends with its standard input.
        time.sleep(0.01)
    [name] = [path.name for path in (tmp_path / "data").glob("iosonde-*/*")]
    assert name.startswith(f"{load.partition('-')[0]}-")
    if follows == "cleanup":
        done = iosonde("cleanup")
        assert (done.returncode, remaining(tmp_path)) == (0, []), done.stderr
    shutil.rmtree(kv_trace.directory(), ignore_errors=True)  # Traces are converted again.
    resume = ("resume", tmp_path / "out", "--retry-failed", "--no-report")
    done = iosonde(*resume, **killing(tmp_path, victim="engine", at="measure"))
    kept = 1 if at == "next" else 0
    outcomes = [record.outcome for record in ResultSet.open(tmp_path / "out").records()]
    assert outcomes == [*["complete"] * kept, "failed", *["complete"] * (1 - kept)], done.stderr
    assert (remaining(tmp_path), processes()) == ([], [])
    done = iosonde(*resume)
    assert (done.returncode, remaining(tmp_path), processes()) == (0, [], []), done.stderr
    results = ResultSet.open(tmp_path / "out")
    assert ([record.outcome for record in results.records()], results.problems) == (["complete"] * 2, [])
    assert journal.cleanup() == []
