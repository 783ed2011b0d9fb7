"""Journal entries of network storage that iosonde serves itself."""

from __future__ import annotations

from iosonde.features.network_storage import link
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.storage.safety.journal_entry import MOUNTS, OWN_DIRECTORY, JournalKind

_OWN = OWN_DIRECTORY.pattern

KINDS = (
    JournalKind(
        what=nvme_tcp.JOURNALED,
        path=rf"{MOUNTS}/{_OWN}/fabric",
        facts={"own": _OWN, "port": r"[0-9]{1,5}", "mounted": r"(yes)?"},
        ends_with_boot=True,
        undo=nvme_tcp.undo,
    ),
    JournalKind(
        what=link.JOURNALED,
        path=rf"{MOUNTS}/{_OWN}/route",
        facts={"own": _OWN, "address": r"[0-9A-Fa-f.:]+"},
        ends_with_boot=True,
        undo=link.undo,
    ),
    JournalKind(
        what=nfs.EXPORTED,
        path=rf"{MOUNTS}/{_OWN}/exported",
        facts={"own": _OWN},
        ends_with_boot=True,
        undo=nfs.undo_export,
    ),
    JournalKind(
        what=nfs.FILES,
        path=rf"{MOUNTS}/{_OWN}/files",
        facts={"own": _OWN, "source": r"[^/\s]+:(/[^\s,]*)?"},
        undo=nfs.undo_files,
    ),
    JournalKind(
        what=nfs.THREADS_CHANGED,
        path=r"/proc/fs/nfsd/threads",
        facts={"value": r"[0-9]{1,5}", "own": _OWN},
        ends_with_boot=True,
        undo=nfs.undo_threads,
    ),
)
