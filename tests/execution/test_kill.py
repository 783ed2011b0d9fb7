"""A study is killed again and again at random instants, and ends as if nothing had happened."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path

import pytest
from leftovers import killed_once

from iosonde.execution.session import resume
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal

STUDY = """
name = "short-runs"
title = "Many short runs"
question = "Does it survive?"
repeats = 4
measurement = { span = "256KiB", io_mode = "buffered", duration = "20ms", ramp = "0s", interval = "100ms" }
[[parts]]
factors.read_fraction = [1.0, 0.5, 0.0]
[profiles.quick]
"""


@pytest.fixture
def result_set(tmp_path: Path) -> ResultSet:
    (tmp_path / "data").mkdir()
    plan = expand(parse(STUDY), open_target(str(tmp_path / "data")), profile="quick")
    return ResultSet.create(tmp_path / "set", plan)


def digests(directory: Path) -> dict[str, str]:
    records = [path for path in (directory / "records").iterdir() if not path.name.startswith(".tmp-")]
    files = [path for record in records for path in record.iterdir()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 20))])
def test_kills_at_random_instants_lose_nothing_and_measure_nothing_twice(
    result_set: ResultSet, tmp_path: Path, seed: int
) -> None:
    directory, chance = result_set.directory, random.Random(seed)
    kept: dict[str, str] = {}

    def has_new_records() -> bool:
        return len(digests(directory)) > len(kept)

    for _ in range(2):
        killed_once(directory, has_new_records, after_s=chance.uniform(0.0, 0.1))
        found = digests(directory)
        assert kept.items() <= found.items()
        kept = found
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
    killed_once(directory, lambda: bool(digests(directory)))
    assert list(directory.glob(".tmp-*")), "a session reserves space for records"
    before = digests(directory)
    assert before
    deadline = time.monotonic() + 300
    while [each for each in journal.cleanup() if each.failed]:  # The engine ends with its standard input.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert digests(directory) == before
    assert not list(directory.rglob(".tmp-*"))
    assert list((tmp_path / "data").iterdir()) == []
    assert journal.cleanup() == []
