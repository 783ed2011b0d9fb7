"""The layer that an array is in a setup, and which module creates each kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosonde.features.arrays import btrfs, md
from iosonde.features.arrays.array import JOURNALED, Array
from iosonde.features.arrays.setup import ArraySetup
from iosonde.storage.safety.journal_entry import Entry
from iosonde.storage.targets.layer import LayerKind

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
