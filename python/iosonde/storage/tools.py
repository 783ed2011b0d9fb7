"""System programs that create and remove setups (found, called, with their errors), and modules of this kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from iosonde.base.tools import TOOLS, run
from iosonde.base.tools import find as find
from iosonde.errors import TargetError

SYS = Path("/sys")
MODULE_FILES = Path("/lib/modules")

State = Literal["loaded", "built in", "module", "missing"]


def is_loaded(module: str) -> bool:
    """Return True if a module is loaded, or built in and visible."""
    return (SYS / "module" / module.replace("-", "_")).is_dir()


def state_of(*modules: str) -> State:
    """Return the state of the least available of these modules."""
    order: tuple[State, ...] = ("missing", "module", "built in", "loaded")
    return min(map(_state, modules), key=order.index)


def _state(module: str) -> State:
    if is_loaded(module):
        return "loaded"
    files = MODULE_FILES / os.uname().release
    pattern = module.replace("-", "[-_]")
    name = re.compile(rf"/{pattern}\.ko\b")
    if name.search(_text(files / "modules.builtin")):
        return "built in"
    return "module" if name.search(_text(files / "modules.dep")) else "missing"


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace", encoding="utf-8")
    except OSError:
        return ""


TIMEOUT_S = 3600
"""Longer than any of them takes, unless a device hangs."""
BUSY_S = 10.0
POLL_S = 0.1
T = TypeVar("T")


def require(tool: str, purpose: str) -> str:
    """The program's path; `TargetError` names the package that it comes with."""
    found = find(tool)
    if found is None:
        raise TargetError(
            f"`{tool}` is not installed, and it is needed to {purpose}",
            hint=f"install it, on Debian with `apt install {TOOLS[tool].packages[0]}`",
        )
    return found


def call(*command: str | Path) -> dict[str, Any]:
    """Run a program -> `command`, `seconds`, `output`, for the record; `TargetError` if it fails."""
    words = [str(word) for word in command]
    program = require(words[0], "create what the study needs")
    began = time.monotonic()
    try:
        done = run(
            [program, *words[1:]],
            timeout_s=TIMEOUT_S,
            process_group=0,  # Ctrl-C in a terminal goes to a whole group, and what follows is ours to decide.
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise TargetError(f"`{' '.join(words)}` did not finish within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise TargetError(f"`{' '.join(words)}` failed: {_last_words(done)}", hint="see the kernel log (`dmesg`)")
    return {"command": words, "seconds": round(time.monotonic() - began, 3), "output": done.stdout.strip()}


def patiently(act: Callable[[], T]) -> T:
    """Repeat what fails with `TargetError`: a process that has just exited keeps a device busy for a moment."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return act()
        except TargetError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def wait_until(
    is_done: Callable[[], bool], within_s: float, problem: str, hint: str = "see the kernel log (`dmesg`)"
) -> None:
    """Return once something is done; `TargetError` that names the problem and the time after that long."""
    deadline = time.monotonic() + within_s
    while not is_done():
        if time.monotonic() > deadline:
            raise TargetError(f"{problem} within {within_s:.0f} s", hint=hint)
        time.sleep(POLL_S)


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    text = (done.stderr or done.stdout).strip()
    if done.returncode < 0:
        return f"{' '.join(text.split())} (killed by {signal.Signals(-done.returncode).name})".lstrip()
    return " ".join(text.split()) if text else f"exit status {done.returncode}"


def require_root(purpose: str) -> None:
    """`TargetError` for other users."""
    if os.geteuid() != 0:
        raise TargetError(
            f"only root can {purpose}",
            hint="run iosonde as root (`sudo -E iosonde ...`), or measure files in a directory without a setup",
        )
