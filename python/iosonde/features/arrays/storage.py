"""The layer that an array is in a setup, which module creates each kind, and its journal entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.features.arrays import btrfs, md
from iosonde.features.arrays.setup import JOURNALED, Array, ArraySetup
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, Entry, JournalKind
from iosonde.storage.targets.target import LayerKind

KINDS: dict[str, Any] = {"md": md, "btrfs": btrfs}


def _check_possible(array: ArraySetup) -> None:
    KINDS[array.kind].check_possible()


def _build(devices: Sequence[Path], further: Sequence[Path], array: ArraySetup, name: str) -> Array:
    built: Array = KINDS[array.kind].build(devices, array, name)
    return built


def undo(entry: Entry) -> None:
    """Remove the array of a journal entry; `OSError` if it is in use."""
    KINDS[str(entry.facts["kind"])].undo(entry)


LAYERS = (LayerKind(part=ArraySetup, journal_kind=JOURNALED, check_possible=_check_possible, build=_build),)


_OWN = OWN_DIRECTORY.pattern

UNDO = (
    JournalKind(
        what=JOURNALED,
        path=rf"(/dev/md/{_OWN}|{MOUNTS}/{_OWN}/array)",
        facts={"kind": r"md|btrfs", "name": _OWN},
        has_members=True,
        undo=undo,
    ),
)
