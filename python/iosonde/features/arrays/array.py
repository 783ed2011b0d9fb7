"""An array of a setup: created from devices, brought to a state, removed.

Each kind is a module with `check_possible()`, `build(devices, array, name) -> Array` and `undo(entry)`. An array is in
the journal before its first command; `undo` takes apart what a killed iosonde has left, and touches a device only where
it finds the name of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.storage.safety import journal
from iosonde.storage.targets.layer import BuiltLayer

JOURNALED = "array"
"""Kind of its journal entry."""


@dataclass(frozen=True, kw_only=True)
class Array(BuiltLayer):
    """An active array."""

    members: list[Path]
    key: Path
    """Path of its journal entry."""

    def state(self) -> dict[str, Any]:
        """Return its state at this moment."""
        raise NotImplementedError

    def health(self) -> dict[str, int]:
        """Return what a failing member changes of its state, which is cheap enough to be read during a run."""
        raise NotImplementedError


def announce(key: Path, kind: str, members: list[Path], **facts: Any) -> None:
    """Record an array before its first command."""
    journal.created(key, JOURNALED, facts={"kind": kind, "members": [str(each) for each in members], **facts})
