"""The journal entry of an array."""

from __future__ import annotations

from iosonde.features.arrays import layers
from iosonde.features.arrays.array import JOURNALED
from iosonde.storage.safety.journal_entry import MOUNTS, OWN_DIRECTORY, JournalKind

_OWN = OWN_DIRECTORY.pattern

KINDS = (
    JournalKind(
        what=JOURNALED,
        path=rf"(/dev/md/{_OWN}|{MOUNTS}/{_OWN}/array)",
        facts={"kind": r"md|btrfs", "name": _OWN},
        has_members=True,
        undo=layers.undo,
    ),
)
