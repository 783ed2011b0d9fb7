"""The programs of the engine that a session needs: found, or built where the sources are, and checked.

`iosonde-engine-clients` has the clients of servers that take longer to compile than everything else, so a checkout
builds it when a study first needs it. Wheels contain it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from iosonde.errors import EngineError
from iosonde.execution.checks import compatibility
from iosonde.execution.engine import ENGINE, find_engine, variable_of
from iosonde.metrics.wording import listing
from iosonde.workload import described, workloads
from iosonde.workload.workload import Engine

Spec = Mapping[str, Any]

_BUILD = Path(__file__).resolve().parents[4] / "scripts" / "build-clients"
"""Builds the program for clients; part of a checkout only."""


def require(specs: Iterable[Spec], note: Callable[[str], None]) -> None:
    """Find or build the programs that specs need; `EngineError` where one is missing or does not accept a spec."""
    for program, own in _by_program(specs).items():
        compatibility.check(_provided(program, note), own)


def clients_of(specs: Iterable[Spec]) -> dict[str, Path]:
    """Return the programs that specs need besides `iosonde-engine`, which every session uses."""
    return {program: find_engine(program) for program in _by_program(specs) if program != ENGINE}


def is_built_on_demand() -> bool:
    """Return True if the sources are there."""
    return _BUILD.is_file()


def stores_with_clients() -> str:
    """Name the stores that need the program for clients: the stores `a` and `b`."""
    return f"the stores {listing([f'`{name}`' for each in workloads().values() for name in each.with_clients])}"


def _by_program(specs: Iterable[Spec]) -> dict[Engine, list[Spec]]:
    programs: dict[Engine, list[Spec]] = {ENGINE: []}
    for spec in specs:
        workload = spec["workload"]
        programs.setdefault(described(workload).engine(workload), []).append(spec)
    return programs


def _provided(program: Engine, note: Callable[[str], None]) -> Path:
    try:
        return find_engine(program)
    except EngineError:
        if program == ENGINE or variable_of(program) in os.environ or not is_built_on_demand():
            raise
    _build(program, note)
    return find_engine(program)


def _build(program: Engine, note: Callable[[str], None]) -> None:
    """Build a program next to this Python. Cargo's progress goes to standard error."""
    own = Path(sys.executable).parent
    # Setup links a compiler there if the one on PATH is too old.
    environment = {**os.environ, "PATH": f"{own}:{os.environ.get('PATH', os.defpath)}"}
    by_hand = f"or set the environment variable `{variable_of(program)}` to the path of a build"
    if not shutil.which("cargo", path=environment["PATH"]):
        raise EngineError(
            f"`{program}` cannot be built: `cargo` was not found on PATH",
            where=f"needed for {stores_with_clients()}",
            hint=f"install Rust with `make setup`, {by_hand}",
        )
    if not os.access(own, os.W_OK):
        raise EngineError(
            f"`{program}` cannot be built: no permission to write to `{own}`",
            where=f"needed for {stores_with_clients()}",
            hint=f"run `{_BUILD} {own}` as the owner of `{own}`, {by_hand}",
        )
    note(
        f"building `{program}`, needed for {stores_with_clients()}, into `{own}`, once for this checkout; this takes "
        "several minutes"
    )
    done = subprocess.run([_BUILD, own], stdin=subprocess.DEVNULL, stdout=2, env=environment, check=False)
    if done.returncode:
        raise EngineError(
            f"`{program}` could not be built (exit status {done.returncode})",
            where=f"by `{_BUILD} {own}`; cargo's messages are above",
            hint="correct the cause that cargo names; the first build downloads crates, which requires a network; "
            f"{by_hand}",
        )
