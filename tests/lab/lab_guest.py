"""Reports of the guest of one start."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import CHECKOUT
from engines import real_engine

from iosonde.errors import LabError
from iosonde.findings.finding import Finding
from iosonde.lab.machine import Machine, Settings
from iosonde.lab.qemu import Image
from iosonde.report.content import collect
from iosonde.results import ResultSet


@dataclass
class Report:
    """Files that a guest has written, and its messages."""

    stderr: str = ""
    exit_code: int | None = None
    results: Path = Path()
    """The directory that the guest could write to."""

    def step(self, name: str) -> dict[str, Any]:
        """Results of a step of `guest.py`."""
        path = self.results / f"{name}.json"
        assert path.exists(), f"the guest did not get to `{name}`: exit code {self.exit_code}\n{self.stderr}"
        found: dict[str, Any] = json.loads(path.read_text())
        assert "broken" not in found, found["broken"]
        return found

    def result_set(self, name: str) -> ResultSet:
        """A result set that it wrote."""
        return ResultSet.open(self.results / name)

    def findings(self, name: str) -> list[Finding]:
        """Findings in the report of such a result set."""
        [chapter] = collect([self.result_set(name)]).chapters
        return [finding for _, found in chapter.findings for finding in found]


def run_guest(image: Image, results: Path, settings: Settings, *arguments: str) -> Report:
    """Start the machine once, which runs everything that tests look at in a guest."""
    folder, report = Path(__file__).parent, Report(results=results)
    for code in (CHECKOUT / "python", folder):  # Emulated, compiling all modules takes a minute.
        compileall.compile_dir(code, quiet=2)
    command = [sys.executable, "-B", str(folder / "guest.py"), str(sizes_program()), *arguments]
    environment = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
    if sys.pycache_prefix:
        environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    try:
        with Machine(command, image=image, results=results, settings=settings, environment=environment) as machine:
            for _, data in machine.output():
                report.stderr += data.decode(errors="replace")
        report.exit_code = machine.exit_code
    except LabError as error:
        report.stderr += str(error)
    return report


def sizes_program() -> Path:
    """The example `nvme_sizes` of the driver, built."""
    command = ["cargo", "build", "--release", "--package", "iosonde-nvme", "--example", "nvme_sizes"]
    done = subprocess.run(
        [*command, "--message-format", "json"], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return Path(next(filter(None, built)))
