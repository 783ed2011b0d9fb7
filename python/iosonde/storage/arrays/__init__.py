"""Arrays of a setup: created from devices, brought to a state, removed.

Each kind is a module with `check_possible()`, `build(devices, setup, name) -> Array`, `mounted(built, point)` for what
can only be done once a file system is mounted, `state(built) -> facts`, `health(built) -> facts` (of these what a
member that fails changes, cheap enough to be called during a run), and `remove(built)`. What a kind is about
to make is in the journal first; `undo` takes apart what a killed iosonde has left, and touches a device only where it
finds the name that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from iosonde.plan import Setup
from iosonde.storage.safety import journal

JOURNALED = "array"
"""What the journal calls one."""


@dataclass(frozen=True, kw_only=True)
class Array:
    """An active array."""

    device: Path
    """The device for a file system, for mounting, or to be measured raw."""
    members: list[Path]
    key: Path
    """Its identity in the journal."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: commands, sizes, state."""
    mount_options: str = ""
    """That mounting it needs."""


def announce(key: Path, kind: str, members: list[Path], **facts: Any) -> None:
    """Note an array before its first command."""
    journal.created(key, JOURNALED, facts={"kind": kind, "members": [str(each) for each in members], **facts})


def check_possible(setup: Setup) -> None:
    """`TargetError` if this machine cannot create the array of a setup."""
    if setup.array != "single":
        import_module(f"iosonde.storage.arrays.{setup.array_kind}").check_possible()


def undo(entry: journal.Entry) -> None:
    """Remove the array of a journal entry; `OSError` if it is in use."""
    import_module(f"iosonde.storage.arrays.{entry.facts['kind']}").undo(entry)
