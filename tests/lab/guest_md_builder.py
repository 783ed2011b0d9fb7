"""Builds arrays of md with iosonde's own builder inside the lab's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from guest_md import LAB

from iosonde.errors import TargetError
from iosonde.features.arrays import md
from iosonde.features.arrays.setup import ArraySetup
from iosonde.storage.safety import journal

NAME = "iosonde-0a0b0c0d"
DEVICES = [(LAB / number).resolve() for number in ("8", "9", "10", "11")]
STATES: dict[str, dict[str, Any]] = {
    "raid0": {"state": "clean"},
    "raid1": {"state": "clean"},
    "raid10": {"state": "degraded", "failed_members": 2},
    "raid5": {"state": "rebuilding", "failed_members": 1},
}


def try_builder() -> dict[str, Any]:
    """State of the arrays, by level."""
    return {level: build_and_remove(level, asked) for level, asked in STATES.items()}


def build_and_remove(level: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Build an array, read its state, remove it."""
    setup = ArraySetup(level=level, chunk=64 << 10, **asked)  # type: ignore[arg-type]
    built = md.build(DEVICES, setup, NAME)
    found = {"state": built.state(), "mdstat": Path("/proc/mdstat").read_text(), "refused": refused(setup)}
    if level == "raid1":
        [entry] = journal.entries()
        journal.undo(Path(entry.path))  # As `iosonde cleanup` does after a kill.
    else:
        journal.undo(built.key)
    found["left"] = [md.name_on(device) for device in DEVICES]
    found["running"] = [path.name for path in Path("/sys/block").glob("md*")]
    found["journal"] = [entry.path for entry in journal.entries()]
    return found


def refused(setup: ArraySetup) -> str:
    """Build another array of the same name while this one exists."""
    try:
        md.build(DEVICES, setup, NAME)
    except TargetError as error:
        return error.what
    return ""
