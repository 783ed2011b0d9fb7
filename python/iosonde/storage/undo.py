"""Kinds of entries of the journal that storage writes, and what undoes each."""

from __future__ import annotations

import re
from pathlib import Path

from iosonde.base.cache import TEMPORARY
from iosonde.storage import control_groups
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import (
    CONTROL_GROUP,
    MOUNTS,
    OWN_DIRECTORY,
    QUEUE_SETTING,
    SCRATCH,
    TEMPORARY_FILES,
    Entry,
    JournalKind,
)
from iosonde.storage.setups import file_systems, machine_settings
from iosonde.storage.targets import device_target, loop_devices, setup_target, temporary_files

_OWN = OWN_DIRECTORY.pattern


def _remove_group(entry: Entry) -> None:
    path = Path(entry.path)
    if entry.identity is None:
        path.rmdir()  # No process was added yet.
    else:
        control_groups.remove_group(path)


KINDS = (
    JournalKind(what="file", path=r"/.+", has_identity=True, undo=journal.remove_file),
    JournalKind(what="directory", path=r"/.+", has_identity=True, undo=journal.remove_directory),
    JournalKind(what=CONTROL_GROUP, path=rf"/.+/{_OWN}", has_identity=True, undo=_remove_group),
    JournalKind(what="loop device", path=rf"/.+/{_OWN}-setup/[a-z]+(-[0-9]+)?", undo=loop_devices.undo),
    JournalKind(what="setup", path=rf"{MOUNTS}/{_OWN}", undo=setup_target.undo),
    JournalKind(
        what="mount",
        path=rf"{MOUNTS}/{_OWN}/mounted",
        facts={"device": r"/.+|[^/]+:(/.*)?"},
        ends_with_boot=True,
        undo=file_systems.undo,
    ),
    JournalKind(
        what="device",
        path=rf"{MOUNTS}/{_OWN}/on-[^/]+",
        facts={"own": _OWN, "device": r"/dev/.+", "identity": r".*"},
        undo=device_target.undo,
    ),
    JournalKind(
        what=QUEUE_SETTING,
        path=r"/sys/block/[^/]+/queue/[a-z_]+",
        facts={"value": r"[\w.:-]*", "own": rf"({_OWN})?", "disk": r".*"},
        ends_with_boot=True,
        undo=machine_settings.undo,
    ),
    JournalKind(
        what=TEMPORARY_FILES,
        path=rf"/(.+/)?({re.escape(TEMPORARY)}|{SCRATCH})[0-9a-f]{{16}}",
        undo=temporary_files.undo,
        remains=temporary_files.remain,
    ),
)
