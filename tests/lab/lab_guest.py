"""Reports of the guest of one start."""

from __future__ import annotations

import compileall
import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import CHECKOUT
from engines import real_engine

from iosonde.errors import LabError
from iosonde.findings.finding import Finding
from iosonde.lab.image import Image
from iosonde.lab.machine import Machine, Settings
from iosonde.report.content.report import collect
from iosonde.results import ResultSet


@dataclass
class Report:
    """Files that a guest has written, and its messages."""

    stderr: str = ""
    exit_code: int | None = None
    results: Path = Path()
    """The directory that the guest could write to."""

    @property
    def steps(self) -> list[str]:
        """Ends of its steps, in seconds since its start."""
        return re.findall(r"^\d+ s: \S+", self.stderr, re.MULTILINE)

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


class Guest:
    """One start of the machine, which runs everything that tests look at in a guest, in a thread of its own."""

    def __init__(self, image: Image, results: Path, settings: Settings, *arguments: str) -> None:
        """Return once the machine runs, or could not be started."""
        self._machine: Machine | None = None
        self._is_started = threading.Event()
        self._report = Report(results=results)
        self._thread = threading.Thread(target=self._run, args=(image, results, settings, arguments))
        self._thread.start()
        self._is_started.wait()

    def report(self) -> Report:
        """Wait for the guest to end and return its report."""
        self._thread.join()
        return self._report

    def end(self) -> None:
        """Stop it, if its report was not awaited."""
        if self._machine and self._thread.is_alive():
            self._machine._qemu.kill()
        self._thread.join()

    def _run(self, image: Image, results: Path, settings: Settings, arguments: Sequence[str]) -> None:
        folder = Path(__file__).parent
        for code in (CHECKOUT / "python", folder):  # Emulated, compiling all modules takes a minute.
            compileall.compile_dir(code, quiet=2)
        command = [sys.executable, "-B", str(folder / "guest.py"), str(sizes_program()), *arguments]
        environment = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
        if sys.pycache_prefix:
            environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        try:
            with Machine(command, image=image, results=results, settings=settings, environment=environment) as machine:
                self._machine = machine
                self._is_started.set()
                for _, data in machine.output():
                    self._report.stderr += data.decode(errors="replace")
            self._report.exit_code = machine.exit_code
        except LabError as error:
            self._report.stderr += str(error)
        finally:
            self._is_started.set()


def sizes_program() -> Path:
    """The example `nvme_sizes` of the driver, built."""
    command = ["cargo", "build", "--release", "--package", "iosonde-nvme", "--example", "nvme_sizes"]
    done = subprocess.run(
        [*command, "--message-format", "json"], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return Path(next(filter(None, built)))
