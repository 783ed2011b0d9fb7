"""Limits of the process and its CPUs, with the engine: what is in effect is recorded, and what is exceeded is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.results import ResultSet

pytestmark = pytest.mark.engine

SHORT = ("--span", "4MiB", "--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


def measured(place: Path, limit: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """`iosonde io` after a shell's `ulimit`."""
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "iosonde", "io", "--target", place, *SHORT, *settings]
    return subprocess.run(
        ["sh", "-c", f'{limit} && exec "$@"', "sh", *command],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())},
        check=False,
    )


def test_the_limit_on_file_size_is_named(tmp_path: Path) -> None:
    done = measured(tmp_path / "data", "ulimit -f 2000")
    assert done.returncode == 1
    assert "the limit on file size (`ulimit -f`) is 1000 KiB" in " ".join(done.stderr.split())


def test_the_limit_on_open_files_is_named(tmp_path: Path) -> None:
    """Each job has a ring of its own, which takes a descriptor."""
    done = measured(tmp_path / "data", "ulimit -n 256", "--set", "jobs=300")
    assert done.returncode != 0
    assert "the limit on open files (`ulimit -n`) is 256" in " ".join(done.stderr.split())
    assert "report this" not in done.stderr


def test_the_limit_on_address_space_is_named(tmp_path: Path) -> None:
    done = measured(tmp_path / "data", "ulimit -v 600000")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the limit on address space (`ulimit -v`) is 600000 KiB" in done.stderr


def test_the_record_has_the_cpus_of_each_job(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = measured(tmp_path / "data", "true", "--set", f"cpus={cpu}", "--set", "jobs=2", "-o", str(tmp_path / "set"))
    assert done.returncode == 0, done.stderr
    [record] = ResultSet.open(tmp_path / "set").records()
    assert record.result and record.result["evidence"]["job_cpus"] == [str(cpu)] * 2
