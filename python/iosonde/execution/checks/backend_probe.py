"""Which I/O backends a target and this machine have: the engine tries each by a real read.

The user-level driver is not tried, because that takes the drive away from the kernel: its requirements are checked.
"""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.nvme import handover
from iosonde.workload import described

TIMEOUT_S = 30


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
    """Why it is not available."""
    hint: str = ""


def probe_backends(engine: Path, path: Path) -> list[ProbedBackend]:
    """Every backend, tried on a device, a file or a directory. Empty if the path cannot be read or the engine fails.

    Nothing is written to a device or a file; in a directory the engine uses a file without a name.
    """
    try:
        asked = subprocess.run(
            [engine, "--probe-backends", path],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    # An engine of another version may print something else.
    return [*map(_read, found), _user_driver(path)] if isinstance(found, list) else []


def _read(found: Mapping[str, Any]) -> ProbedBackend:
    return ProbedBackend(
        name=found["name"],
        is_available=found["available"],
        features=tuple(found.get("features", ())),
        lacks=tuple(f"{each['feature']}: {each['reason']}" for each in found.get("lacks", ())),
        reason=found.get("reason", ""),
        hint=found.get("hint", ""),
    )


def _user_driver(path: Path) -> ProbedBackend:
    """Whether the controller of a namespace could be handed over."""
    name = "nvme_user"
    try:
        if not stat.S_ISBLK(path.stat().st_mode):
            return ProbedBackend(
                name=name,
                is_available=False,
                reason="the target is not a namespace of an NVMe drive",
                hint="name one as `/dev/nvme0n1`",
            )
        handover.check(handover.controller_of(number_of(path)))
    except TargetError as error:
        return ProbedBackend(name=name, is_available=False, reason=error.what, hint=error.hint)
    except OSError as error:
        return ProbedBackend(name=name, is_available=False, reason=error.strerror or str(error))
    return ProbedBackend(name=name, is_available=True, features=("prp", "polling"))


def name_of(backend: Mapping[str, Any]) -> str:
    """A backend of a spec as messages name it."""
    polling = [f" with {kind} polling" for kind in ("submission", "completion") if backend.get(f"{kind}_polling")]
    return str(backend["kind"]) + "".join(polling)


def unavailable(found: Iterable[ProbedBackend], specs: Iterable[Mapping[str, Any]]) -> list[ProbedBackend]:
    """Backends that a plan's specs require and the target does not have."""
    workloads = [spec["workload"] for spec in specs]
    asked = {name_of(each["backend"]) for each in workloads if described(each).moves_blocks}
    return [each for each in found if each.name in asked and not each.is_available]
