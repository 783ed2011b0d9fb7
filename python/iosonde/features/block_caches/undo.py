"""The journal entry of a block cache."""

from __future__ import annotations

from iosonde.storage.safety.journal_entry import MOUNTS, OWN_DIRECTORY, Entry, JournalKind


def _undo(entry: Entry) -> None:
    from iosonde.features.block_caches.layers import undo

    undo(entry)


KINDS = (
    JournalKind(
        what="block cache",
        path=rf"{MOUNTS}/{OWN_DIRECTORY.pattern}/cache",
        facts={"kind": r"bcache|dm-cache|dm-writecache", "name": OWN_DIRECTORY.pattern},
        has_members=True,
        undo=_undo,
    ),
)
