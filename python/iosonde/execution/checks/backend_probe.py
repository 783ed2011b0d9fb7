"""I/O backends available on a target and this machine: the engine tries each of its own with a real read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.core.features import contributed
from iosonde.tools import ask
from iosonde.workload import described


@dataclass(frozen=True, kw_only=True)
class ProbedBackend:
    """One backend, and whether it can be used on the target."""

    name: str
    """As messages name it: `uring with completion polling`."""
    is_available: bool
    features: tuple[str, ...] = ()
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
    asked = ask(engine, "--probe-backends", path)
    if asked is None or asked.returncode:
        return []
    try:
        found = json.loads(asked.stdout)
    except ValueError:
        return []
    # An engine of another version may print something else.
    probes: tuple[Probe, ...] = contributed("probes", "PROBES")
    return [*map(_read, found), *(probe(path) for probe in probes)] if isinstance(found, list) else []


def _read(found: Mapping[str, Any]) -> ProbedBackend:
    return ProbedBackend(
        name=found["name"],
        is_available=found["available"],
        features=tuple(found.get("features", ())),
        lacks=tuple(f"{each['feature']}: {each['reason']}" for each in found.get("lacks", ())),
        reason=found.get("reason", ""),
        hint=found.get("hint", ""),
    )


def name_of(backend: Mapping[str, Any]) -> str:
    """A backend of a spec as messages name it."""
    polling = [f" with {kind} polling" for kind in ("submission", "completion") if backend.get(f"{kind}_polling")]
    return str(backend["kind"]) + "".join(polling)


def used(found: Iterable[ProbedBackend], specs: Iterable[Mapping[str, Any]]) -> list[ProbedBackend]:
    """Return the backends that a plan's specs use."""
    workloads = [spec["workload"] for spec in specs]
    asked = {name_of(each["backend"]) for each in workloads if described(each).moves_blocks}
    return [each for each in found if each.name in asked]
