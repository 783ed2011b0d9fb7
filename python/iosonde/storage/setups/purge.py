"""Purge of a target, so that the next run finds it as if it had never been written.

`format` and `sanitize` are commands of the drive (`nvme/format.py`, `nvme/sanitize.py`). `trim` frees every block of
the files and, with the privilege for FITRIM, discards all free blocks of the file system; one that is mounted with
`discard` does so anyway. `overwrite` frees nothing: the engine writes zeros, where blocks cannot be freed.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from iosonde.storage.block_layer import block_nodes
from iosonde.storage.nvme.format import format_namespace
from iosonde.storage.nvme.sanitize import sanitize
from iosonde.storage.safety import journal, own_directory

_FITRIM = 0xC0185879
_BLKDISCARD = 0x1277
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PROBE_BYTES = 1 << 16


def purge(
    target: Mapping[str, Any], means: str, *, identities: Mapping[str, str], report: Callable[[str], None]
) -> str:
    """Purge a spec's target; `OSError` if that fails.

    `identities` are those of the paths (`workspace.provision`): nothing else is opened. `report` receives progress.
    Returns why the freed blocks were not discarded on the device; empty if they were.
    """
    if target["kind"] == "device":
        _purge_device(target, means, identities[target["path"]], report)
    elif means == "trim":
        return _truncate_files(target, identities)
    return ""


def can_trim(directory: Path) -> bool:
    """Return True if the file system frees the blocks of a part of a file, which trims of the engine need as well."""
    try:
        with tempfile.TemporaryFile(dir=directory, prefix=".iosonde-") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            return _punch(file.fileno(), _PROBE_BYTES)
    except OSError:
        return False


def _punch(descriptor: int, size_bytes: int) -> bool:
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return int(fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, size_bytes)) == 0


def _purge_device(target: Mapping[str, Any], means: str, number: str, report: Callable[[str], None]) -> None:
    with block_nodes.opened(number, os.O_RDWR) as device:
        match means:
            case "format":
                format_namespace(device)
            case "sanitize":
                sanitize(device, report)
            case "trim":
                _discard(device, target["size_bytes"])


def _discard(device: int, size_bytes: int) -> None:
    """BLKDISCARD of the part that is measured (`linux/fs.h`)."""
    fcntl.ioctl(device, _BLKDISCARD, array.array("Q", [0, size_bytes]))


def _truncate_files(target: Mapping[str, Any], identities: Mapping[str, str]) -> str:
    path = Path(target["path"] if target["kind"] == "file" else target["directory"])
    parent = path.parent if target["kind"] == "file" else path
    with own_directory.opened(parent, identities.get(str(parent)), follow=True) as directory:
        if target["kind"] == "file":
            own_directory.truncate(directory, path.name, _inode(identities[str(path)]))
        else:
            entry = journal.find(path)
            for name, inode in (journal.own_files(entry) if entry else own_directory.plain_files(directory)).items():
                own_directory.truncate(directory, name, inode)
        return _trim_file_system(directory)


def _inode(identity: str) -> int:
    return int(identity.rpartition(":")[2])


def _trim_file_system(directory: int) -> str:
    """FITRIM of the whole file system; returns why it failed, such as a device without discard."""
    os.sync()
    try:
        fcntl.ioctl(directory, _FITRIM, array.array("Q", [0, 2**64 - 1, 0]))
    except OSError as error:
        return error.strerror or str(error)
    return ""
