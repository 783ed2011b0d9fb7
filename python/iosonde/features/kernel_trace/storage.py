"""The journal entry of a trace instance."""

from __future__ import annotations

from iosonde.storage.safety.journal import OWN_DIRECTORY, Entry, JournalKind


def _undo(entry: Entry) -> None:
    from iosonde.features.kernel_trace.instance import undo

    undo(entry)


UNDO = (
    JournalKind(
        what="trace instance",
        path=rf"/sys/kernel/tracing/instances/{OWN_DIRECTORY.pattern}",
        ends_with_boot=True,
        undo=_undo,
    ),
)
