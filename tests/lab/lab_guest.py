"""What the guest of one start reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command_line import CHECKOUT
from engines import real_engine

from iosonde.errors import LabError
from iosonde.lab.image import Image
from iosonde.lab.machine import Machine, Settings


@dataclass
class Report:
    """What a guest said, by the name of what it tried."""

    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    complaint: str = ""
    exit_code: int | None = None

    def of(self, name: str) -> dict[str, Any]:
        """What it said of one thing."""
        if name not in self.said:
            raise AssertionError(f"the guest said nothing about `{name}`: exit code {self.exit_code}\n{self.complaint}")
        return self.said[name]


def run_guest(image: Image, results: Path, settings: Settings, *arguments: str) -> Report:
    """Start the machine once, run `guest.py` in it, and listen."""
    guest = Path(__file__).with_name("guest.py")
    command = [sys.executable, "-B", str(guest), str(real_engine()), *arguments]
    report = Report()
    try:
        environment = {"PYTHONPATH": str(CHECKOUT / "python")}
        with Machine(command, image=image, results=results, settings=settings, environment=environment) as machine:
            _listen(machine, report)
        report.exit_code = machine.exit_code
    except LabError as error:
        report.complaint += str(error)
    return report


def _listen(machine: Machine, report: Report) -> None:
    for line in _lines(machine, report):
        if "begins" not in line:
            report.said[line["name"]] = line


def _lines(machine: Machine, report: Report) -> Iterator[dict[str, Any]]:
    rest = b""
    for stream, data in machine.output():
        if stream != "out":
            report.complaint += data.decode(errors="replace")
            continue
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)
