"""Removal of the mark."""

from __future__ import annotations

from pathlib import Path

from iosonde.storage.safety.journal_entry import MOUNTS, OWN_DIRECTORY, Entry, JournalKind


def _undo(entry: Entry) -> None:
    Path(entry.path).unlink(missing_ok=True)


KINDS = (
    JournalKind(
        what="toy mark",
        path=rf"{MOUNTS}/{OWN_DIRECTORY.pattern}/toy",
        facts={"mark": "[0-9]+"},
        undo=_undo,
    ),
)
