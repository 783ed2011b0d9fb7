"""Limits of the process and its CPUs, with the engine: what is in effect is recorded, and what is exceeded is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
from needs import CPUSET
from plans import null_spec

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


@pytest.mark.parametrize(
    ("limit", "settings", "problem"),
    [
        ("ulimit -f 2000", (), "the limit on file size (`ulimit -f`) is 1000 KiB"),
        ("ulimit -n 256", ("--set", "jobs=300"), "the limit on open files (`ulimit -n`) is 256"),
        ("ulimit -v 600000", (), "the limit on address space (`ulimit -v`) is 600000 KiB, but iosonde needs"),
    ],
)
def test_a_limit_that_is_exceeded_is_named(limit: str, settings: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    done = measured(tmp_path / "data", limit, *settings)
    assert done.returncode != 0
    assert problem in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and "report this" not in done.stderr


def test_the_record_has_the_cpus_of_each_job(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = measured(tmp_path / "data", "true", "--set", f"cpus={cpu}", "--set", "jobs=2", "-o", str(tmp_path / "set"))
    assert done.returncode == 0, done.stderr
    results = ResultSet.open(tmp_path / "set")
    [record] = results.records()
    assert record.result and record.result["evidence"]["job_cpus"] == [str(cpu)] * 2
    assert results.sql("SELECT job_cpus FROM runs").item() == str(cpu)


def pinned_to(cpu: int, *start: str) -> dict[str, Any]:
    """The last event of the engine, of a load on one CPU; no plan refuses it before."""
    spec = null_spec("pinned")
    spec["workload"]["streams"][0]["cpus"] = [cpu]
    command = [*start, str(real_engine())]
    done = subprocess.run(command, input=json.dumps(spec), capture_output=True, encoding="utf-8", check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.fixture
def last_cpu_alone() -> Iterator[tuple[Path, int]]:
    """A cpuset with the last CPU."""
    group, cpu = CPUSET / f"iosonde-test-{os.getpid()}", max(os.sched_getaffinity(0))
    group.mkdir()
    try:
        (group / "cpuset.mems").write_text((CPUSET / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(cpu))
        yield group, cpu
    finally:
        group.rmdir()


@pytest.mark.needs("cpuset")
def test_a_cpu_outside_of_the_cpuset_is_refused_with_those_in_it(last_cpu_alone: tuple[Path, int]) -> None:
    error = pinned_to(1023)
    assert (error["event"], error["code"]) == ("error", "unsupported")
    assert error["message"].startswith("job 0 cannot run on CPU 1023 (`cpus`): Invalid argument (os error 22); ")
    group, cpu = last_cpu_alone
    within = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    assert pinned_to(cpu, *within)["event"] == "result"
    error = pinned_to(0, *within)
    assert error["message"].endswith(f"; the engine may run on CPUs {cpu}")
