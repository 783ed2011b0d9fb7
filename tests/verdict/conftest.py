"""One measurement on a real target, and company that disturbs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine, wrapped_engine

from iosonde.execution import execute
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent
from iosonde.study.model import Study

Measure = Callable[..., Record]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure one case on a directory: parameters as in a study, what differs from 4 KiB direct reads for 300 ms."""
    if "IOSONDE_ENGINE" not in os.environ:
        monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    numbers = iter(range(100))

    def run(directory: Path | str, *, analysis: list[dict[str, Any]] | None = None, **measurement: Any) -> Record:
        study = Study.model_validate(
            {
                "name": "one",
                "title": "One case",
                "question": "What set it?",
                "repeats": 1,
                "measurement": {"span": "16MiB", "ramp": "0s", "duration": "300ms", "interval": "100ms", **measurement},
                "parts": [{"name": "main"}],
                "profiles": {"standard": {}},
                "analysis": analysis or [],
            }
        )
        plan = expand(study, open_target(str(directory)))
        consent = Consent(destroy=(str(directory),)) if str(directory).startswith("/dev/") else Consent()
        (record,) = execute(plan, tmp_path / f"set{next(numbers)}", consent=consent).records()
        assert record.failure is None, record.failure
        return record

    return run


@pytest.fixture
def real_time_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other load on the machine does not keep the engine from running."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(wrapped_engine(tmp_path, "exec chrt --fifo 1")))


@pytest.fixture
def company() -> Iterator[Callable[..., None]]:
    """Start processes that run until the test ends: a program in Python, and the CPU that it is pinned to."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: str, cpu: int | None = None) -> None:
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)
        started.append(process)
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        assert process.stdout
        process.stdout.readline()  # It prints a line once it has started.

    yield start
    for process in started:
        process.kill()
        process.communicate()
