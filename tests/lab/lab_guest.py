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

GUEST = """
set -e
echo "rates, failures, guard" >&2
"$0" -B "$1/guest.py" "$2" "$3" "$4"
export IOSONDE_LAB_DEVICES=/dev/lab/8,/dev/lab/9,/dev/lab/10,/dev/lab/11
echo "arrays built by iosonde" >&2
"$0" -B "$1/guest_md_builder.py" >&2
echo "studies" >&2
"$0" -B "$1/guest_studies.py" studies.json >&2
"""
"""The first eight drives have limits. What comes on standard output are the JSON Lines of `guest.py`."""


@dataclass
class Report:
    """What a guest said, by the name of what it tried."""

    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    complaint: str = ""
    exit_code: int | None = None
    results: Path = Path()
    """The directory that the guest could write to."""

    def file(self, name: str) -> dict[str, Any]:
        """What it wrote to a JSON file."""
        path = self.results / name
        assert path.exists(), f"the guest did not write `{name}`: exit code {self.exit_code}\n{self.complaint}"
        read: dict[str, Any] = json.loads(path.read_text())
        return read

    def of(self, name: str) -> dict[str, Any]:
        """What it said of one thing."""
        if name not in self.said:
            raise AssertionError(f"the guest said nothing about `{name}`: exit code {self.exit_code}\n{self.complaint}")
        return self.said[name]


def run_guest(image: Image, results: Path, settings: Settings, *arguments: str) -> Report:
    """Start the machine once, run everything in it, and listen."""
    folder = Path(__file__).parent
    command = ["sh", "-c", GUEST, sys.executable, str(folder), str(real_engine()), *arguments]
    report = Report(results=results)
    try:
        environment = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
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
