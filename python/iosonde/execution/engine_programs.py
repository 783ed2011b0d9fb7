"""The programs of the engine that a session needs: found, or built where the sources are, and checked.

`iosonde-engine-clients` has the clients of servers that take longer to compile than everything else, so a checkout
builds it when a study first needs it. Wheels contain it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.base.features import contributed
from iosonde.base.tools import ask
from iosonde.engine import protocol
from iosonde.engine.protocol.validation import unsupported
from iosonde.errors import EngineError, UnsupportedError
from iosonde.execution.engine import ENGINE, find_engine, variable_of
from iosonde.metrics.wording import listing
from iosonde.study.workload import described, workloads
from iosonde.study.workload.workload import Engine

Spec = Mapping[str, Any]

_BUILD = Path(__file__).resolve().parents[3] / "scripts" / "build-clients"
"""Builds the program for clients; part of a checkout only."""


def require(specs: Iterable[Spec], note: Callable[[str], None]) -> None:
    """Find or build the programs that specs need; `EngineError` where one is missing or does not accept a spec."""
    for program, own in _by_program(specs).items():
        check(_provided(program, note), own)


def clients_of(specs: Iterable[Spec]) -> dict[str, Path]:
    """Return the programs that specs need besides `iosonde-engine`, which every session uses."""
    return {program: find_engine(program) for program in _by_program(specs) if program != ENGINE}


def is_built_on_demand() -> bool:
    """Return True if the sources are there."""
    return _BUILD.is_file()


def stores_with_clients() -> str:
    """Name the stores that need the program for clients: the stores `a` and `b`."""
    products = [pair for each in workloads().values() for pair in each.products.items()]
    return f"the stores {listing([f'`{name}`' for name, each in products if each.engine != ENGINE])}"


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
    needed = f"needed for {stores_with_clients()}"
    reason = ""
    if not shutil.which("cargo", path=environment["PATH"]):
        reason, hint = "`cargo` was not found on PATH", "install Rust with `make setup`"
    elif not os.access(own, os.W_OK):
        reason, hint = f"no permission to write to `{own}`", f"run `{_BUILD} {own}` as the owner of `{own}`"
    if reason:
        raise EngineError(f"`{program}` cannot be built: {reason}", where=needed, hint=f"{hint}, {by_hand}")
    note(f"building `{program}`, {needed}, into `{own}`, once for this checkout; this takes several minutes")
    done = subprocess.run([_BUILD, own], stdin=subprocess.DEVNULL, stdout=2, env=environment, check=False)
    if done.returncode:
        raise EngineError(
            f"`{program}` could not be built (exit status {done.returncode})",
            where=f"by `{_BUILD} {own}`; cargo's messages are above",
            hint="correct the cause that cargo names; the first build downloads crates, which requires a network; "
            f"{by_hand}",
        )


def check(engine: Path, specs: Iterable[Mapping[str, Any]]) -> None:
    """Raise `EngineError` if the engine's schema does not accept one of these specs."""
    # The supervisor of external commands is part of iosonde.
    specs = [spec for spec in specs if described(spec["workload"]).io != "command"]
    if not specs:
        return
    schema = _schema(engine)
    if not schema:
        return
    if schema.get("protocol") != protocol.VERSION:
        raise _differs(engine, f"it uses protocol {schema.get('protocol')}, iosonde uses {protocol.VERSION}")
    for spec in specs:
        if problem := unsupported(spec, schema["spec"]):
            raise _differs(engine, problem)


def _differs(engine: Path, how: str) -> EngineError:
    return EngineError(
        f"the engine `{engine}` is of another version than iosonde: {how}",
        where="found before anything was written",
        hint="build both from the same sources: `make setup` in a checkout, `pip install` elsewhere; if the variable "
        "`IOSONDE_ENGINE` names another build, remove it or build that again (`cargo build --release`)",
    )


@functools.cache
def _schema(engine: Path) -> dict[str, Any] | None:
    """The engine's schema; None if it prints none."""
    answer = _answer(engine, "--schema")
    return answer if isinstance(answer, dict) and isinstance(answer.get("spec"), dict) else None


def _answer(engine: Path, *arguments: str | Path) -> Any:
    """Return the JSON that an engine prints; None if it fails, or prints something else."""
    asked = ask(engine, *arguments)
    if asked is None or asked.returncode:
        return None
    with suppress(ValueError):
        return json.loads(asked.stdout)
    return None


@dataclass(frozen=True, kw_only=True)
class ProbedBackend:
    """One backend, and whether it can be used on the target."""

    name: str
    """As messages name it: `uring with completion polling`."""
    is_available: bool
    lacks: tuple[str, ...] = ()
    """Features that it lacks, with the reason."""
    reason: str = ""
    """Reason for its unavailability; empty if it is available."""
    hint: str = ""
    note: str = ""
    """For plans that use it where it is available: `takes ... from the kernel`."""


Probe = Callable[[Path], ProbedBackend]
"""Tries the backend of a feature on a target; listed in `PROBES` of its `probes.py`."""


def probe_backends(engine: Path, path: Path) -> list[ProbedBackend]:
    """Every backend, tried on a device, a file or a directory. Empty if the path cannot be read or the engine fails.

    Nothing is written to a device or a file; in a directory the engine uses a file of its own and removes it.
    """
    found = _answer(engine, "--probe-backends", path)
    if not isinstance(found, list):  # An engine of another version may print something else.
        return []
    backends = [
        ProbedBackend(
            name=each["name"],
            is_available=each["available"],
            lacks=tuple(f"{lack['feature']}: {lack['reason']}" for lack in each.get("lacks", ())),
            reason=each.get("reason", ""),
            hint=each.get("hint", ""),
        )
        for each in found
    ]
    probes: tuple[Probe, ...] = contributed("run", "PROBES")
    return [*backends, *(probe(path) for probe in probes)]


def missing_backend(specs: Mapping[str, Spec], target: str) -> dict[str, UnsupportedError]:
    """Return the errors of specs whose backend a target lacks, tried by a read of it; nothing without an engine."""
    try:
        found = {each.name: each for each in probe_backends(find_engine(), Path(target))}
    except EngineError:
        return {}
    used = {key: found.get(name_of(spec["workload"]["backend"])) for key, spec in specs.items()}
    return {
        key: UnsupportedError(f"backend `{each.name}` is not available here: {each.reason}", hint=each.hint)
        for key, each in used.items()
        if each and not each.is_available
    }


def name_of(backend: Mapping[str, Any]) -> str:
    """A backend of a spec as messages name it."""
    polling = [f" with {kind} polling" for kind in ("submission", "completion") if backend.get(f"{kind}_polling")]
    return str(backend["kind"]) + "".join(polling)


def used(found: Iterable[ProbedBackend], specs: Iterable[Mapping[str, Any]]) -> list[ProbedBackend]:
    """Return the backends that a plan's specs use."""
    workloads = [spec["workload"] for spec in specs]
    asked = {name_of(each["backend"]) for each in workloads if described(each).io == "blocks"}
    return [each for each in found if each.name in asked]
