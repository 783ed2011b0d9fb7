"""Fill a file system by files, one for each job: bytes written, fill level and remaining space."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from engines import real_engine
from mounted import LoopFileSystem

from iosonde.errors import StudyError
from iosonde.execution import execute
from iosonde.plan import PREPARATION
from iosonde.planning import expand, parse
from iosonde.storage import open_target

MIB = 1 << 20

STUDY = """
name = "filled"
title = "Filled files"
question = "?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
files = "per_job"
jobs = 4
purge = "overwrite"
ramp = 0
duration = "none"
limit_bytes = "1MiB"

[[parts]]
name = "main"
factors.fill = [50]
rounds.max_rounds = 1

[profiles.quick]
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def test_every_jobs_file_is_filled_with_what_does_not_compress(tmp_path: Path) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings={"capacity": "64MiB"}, keep=True)
    result_set = execute(plan, tmp_path / "set")
    assert [record.outcome for record in result_set.records()] == ["complete"] * 3
    [own] = [path for path in tmp_path.iterdir() if path.name.startswith("iosonde-")]
    files = sorted(own.iterdir())
    assert [file.name for file in files] == ["main.0", "main.1", "main.2", "main.3"]
    assert [file.stat().st_size for file in files] == [8 * MIB] * 4
    for file in files:
        content = file.read_bytes()
        assert len(zlib.compress(content, 1)) > 0.99 * len(content)
    filled = next(record for record in result_set.records() if record.levels.get("step") == "fill")
    assert filled.part == PREPARATION and filled.result
    assert sum(job["bytes"] for job in filled.result["jobs"]) == 32 * MIB


def test_a_file_system_is_filled_to_its_percentage_by_files(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    directory = loop_file_system("ext4", size="256M").directory
    plan = expand(parse(STUDY), open_target(str(directory)), profile="quick", settings={"fill": "80"}, keep=True)
    total = os.statvfs(directory).f_blocks * os.statvfs(directory).f_frsize
    result_set = execute(plan, tmp_path / "set")
    assert [record.outcome for record in result_set.records()] == ["complete"] * 3
    space = os.statvfs(directory)
    used = (space.f_blocks - space.f_bfree) * space.f_frsize
    assert used / total == pytest.approx(0.8, abs=0.05)


def test_files_of_jobs_are_filled_for_one_stream_only(tmp_path: Path) -> None:
    text = STUDY.replace('name = "main"\n', 'name = "main"\nstreams = [{ name = "a" }, { name = "b" }]\n')
    with pytest.raises(StudyError) as raised:
        expand(parse(text), open_target(str(tmp_path)), profile="quick", settings={"capacity": "64MiB"})
    assert raised.value.what == '`fill` and `precondition` with `files = "per_job"` require a single stream'
