"""User Mode Linux: a kernel with NFS, netem and device mapper, at the speed of this machine but with slow system calls.

It has one CPU, and needs neither KVM nor an emulated processor: a round trip of a few microseconds takes some tens there, and
several milliseconds under QEMU without KVM.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from command_line import CHECKOUT
from engines import real_engine

from iosonde.lab.qemu import Image

PROGRAM = "linux.uml"
MEMORY_MIB = 1536
LIMIT_S = 1200.0
SLOW_S = 120
"""A test inside that takes this long prints its stack."""
REPORTS = "IOSONDE_TEST_REPORTS"
"""Variable with the file to which tests inside write their reports, as JSON Lines."""


def run_script(name: str, *arguments: str, image: Image, place: Path, packages: Path, limit_s: float = LIMIT_S) -> None:
    """Run a script of this folder in it, in the shared directory `place`; packages of the image go to a new directory."""
    script = [str(Path(__file__).parent / name), *arguments]
    code = run_python(script, layer=packages_of(image, packages), results=place, limit_s=limit_s)
    assert code == 0, (place / "stderr").read_text()


def run_tests(tests: Sequence[str], *, image: Image, place: Path) -> tuple[list[dict[str, Any]], str]:
    """Run tests in it, one after the other: their reports, and everything that was printed."""
    reports, results = place / "results" / "reports", place / "results"
    results.mkdir()
    names = [str(CHECKOUT / each) for each in tests]
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={CHECKOUT}"]
    command += [f"--config-file={CHECKOUT / 'pyproject.toml'}", "-o", f"faulthandler_timeout={SLOW_S}"]
    layer, problem = packages_of(image, place / "packages"), ""
    try:
        run_python([*command, *names], layer=layer, results=results, limit_s=LIMIT_S, **{REPORTS: str(reports)})
    except (AssertionError, subprocess.TimeoutExpired) as error:  # Others have written their reports.
        problem = str(error)
    written = [results / "stdout", results / "stderr"]
    printed = "".join(each.read_text() for each in written if each.exists())
    lines = reports.read_text().splitlines() if reports.exists() else []
    return [json.loads(line) for line in lines], printed + problem


def run_python(command: Sequence[str], *, layer: Path, results: Path, limit_s: float, **variables: str) -> int:
    """Run this Python in it, with this checkout and its engine."""
    environment = {
        "PYTHONPATH": str(CHECKOUT / "python"),
        "IOSONDE_ENGINE": str(real_engine()),
        "XDG_STATE_HOME": "/run/state",
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **variables,
    }
    if sys.pycache_prefix:
        environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    python = [sys.executable, "-B", *command]
    return run(python, layer=layer, results=results, environment=environment, limit_s=limit_s)


def packages_of(image: Image, place: Path) -> Path:
    """Unpack the packages in the image of the virtual machine that this machine lacks."""
    place.mkdir()
    with image.initrd.open("rb") as archive:
        command = ["cpio", "--extract", "--make-directories", "--quiet", "layer/*"]
        subprocess.run(command, stdin=archive, cwd=place, check=True)
    shutil.rmtree(place / "layer/usr/lib/modules", ignore_errors=True)  # Of another kernel.
    return place / "layer"


def run(command: Sequence[str], *, layer: Path, results: Path, environment: Mapping[str, str], limit_s: float) -> int:
    """Run a command in it, with the shared directory `results` as its working directory; return its exit code.

    Its output is in the files `stdout` and `stderr` there.
    """
    script = results / "command"
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    script.write_text(f"{exports}cd {shlex.quote(str(results))}\nexec {shlex.join(command)}\n")
    settings = {"LAYER": layer, "RESULTS": results, "COMMAND": script}
    options = ["rootfstype=hostfs", "rootflags=/", "ro", f"init={Path(__file__).parent / 'user_mode_init'}", "quiet"]
    console = [f"uml_dir={results}/uml", "con=null", "con0=null,fd:1", f"mem={MEMORY_MIB}M"]
    machine = [PROGRAM, *options, *console, *(f"{name}={value}" for name, value in settings.items())]
    library, source = results / "wide_registers.so", Path(__file__).with_name("wide_registers.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    with (results / "console").open("wb") as log:
        process = subprocess.Popen(
            machine,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": "/dev/shm", "LD_PRELOAD": str(library)},  # Its memory is a file there.
            process_group=0,
            preexec_fn=_take_priority,
        )
        try:
            process.wait(limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
    code = results / "exit_code"
    assert code.exists(), (results / "console").read_text(errors="replace")
    return int(code.read_text())


def _take_priority() -> None:
    """Run before other work of this machine: the delays of this process are those of all that it simulates."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
