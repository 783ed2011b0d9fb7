"""What the guest of one start reports, and how starved it was meanwhile."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT
from engines import real_engine
from lab_needs import NOT_RUN

from iosonde.errors import LabError
from iosonde.lab.image import Image
from iosonde.lab.machine import Machine, Settings

STARVED = 0.5
"""Seconds that QEMU's threads waited for a processor in each second, from which on figures of the guest prove nothing."""


@dataclass
class Report:
    """What a guest said, by the name of what it tried."""

    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    starved: dict[str, float] = field(default_factory=dict)
    """Seconds waited for a processor per second, while that was tried."""
    waited_s: float = 0.0
    """Seconds that QEMU's threads waited for a processor, all in all."""
    complaint: str = ""
    exit_code: int | None = None

    def of(self, name: str) -> dict[str, Any]:
        """What it said of one thing; its test is not run when a starved guest fell silent before it."""
        if name not in self.said:
            if self.exit_code is None:
                self.excuse("the whole start", f"nothing about `{name}`: exit code {self.exit_code}")
            raise AssertionError(f"the guest said nothing about `{name}`: exit code {self.exit_code}\n{self.complaint}")
        return self.said[name]

    def excuse(self, name: str, what: str) -> None:
        """Skip, and say so, when the machine was too busy to hold the drives' rate."""
        starved = self.starved.get(name, 0.0)
        if starved > STARVED:
            pytest.skip(f"{NOT_RUN}this machine is too busy (QEMU waited {starved:.1f} s a second): {what}")


def run_guest(image: Image, results: Path, settings: Settings, *arguments: str) -> Report:
    """Start the machine once, run `guest.py` in it, and listen."""
    guest = Path(__file__).with_name("guest.py")
    command = [sys.executable, "-B", str(guest), str(real_engine()), *arguments]
    report = Report()
    began = time.monotonic()
    try:
        environment = {"PYTHONPATH": str(CHECKOUT / "python")}
        with Machine(command, image=image, results=results, settings=settings, environment=environment) as machine:
            _listen(machine, report)
        report.exit_code = machine.exit_code
    except LabError as error:
        report.complaint += str(error)
    report.starved["the whole start"] = report.waited_s / (time.monotonic() - began)
    return report


def _listen(machine: Machine, report: Report) -> None:
    began: dict[str, tuple[float, float]] = {}
    for line in _lines(machine, report):
        name = line["name"]
        if "begins" in line:
            began[name] = time.monotonic(), machine.waited_s()
        else:
            at, waited = began[name]
            report.said[name] = line
            report.starved[name] = (machine.waited_s() - waited) / (time.monotonic() - at)


def _lines(machine: Machine, report: Report) -> Iterator[dict[str, Any]]:
    rest = b""
    for stream, data in machine.output():
        report.waited_s = max(report.waited_s, machine.waited_s())
        if stream != "out":
            report.complaint += data.decode(errors="replace")
            continue
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)
