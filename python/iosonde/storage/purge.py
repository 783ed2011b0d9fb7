"""Give up what a target's files hold, so that the next run finds it as if nothing had ever been written.

`format` and `sanitize` are the drive's own means (`nvme/format.py`, `nvme/sanitize.py`).
`trim` frees every block of the files and, where this user may (FITRIM takes a privilege), has the file system tell the
device what is free; a file system that is mounted with `discard` tells it anyway. `overwrite` frees nothing: zeros are
written by the engine, which is what is left where blocks cannot be freed.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from iosonde.storage.nvme.format import format_namespace
from iosonde.storage.nvme.sanitize import sanitize

_FITRIM = 0xC0185879
_BLKDISCARD = 0x1277
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PROBE_BYTES = 1 << 16


def purge(target: Mapping[str, Any], means: str, *, tell: Callable[[str], None]) -> None:
    """Free the blocks of the files that a spec's target names; `OSError` if that fails. `tell` hears how far it is."""
    is_device = target["kind"] == "device"
    if means == "format" and is_device:
        format_namespace(Path(target["path"]))
    if means == "sanitize" and is_device:
        sanitize(Path(target["path"]), tell)
    if means != "trim":
        return
    if is_device:
        _discard(Path(target["path"]), target["size_bytes"])
        return
    for path in _files(target):
        os.truncate(path, 0)
        _tell_device(path.parent)


def can_trim(directory: Path) -> bool:
    """Whether the file system frees the blocks of a part of a file, which trims of the engine need as well."""
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


def _discard(device: Path, size_bytes: int) -> None:
    """BLKDISCARD of the part that is measured (`linux/fs.h`)."""
    descriptor = os.open(device, os.O_WRONLY)
    try:
        fcntl.ioctl(descriptor, _BLKDISCARD, array.array("Q", [0, size_bytes]))
    finally:
        os.close(descriptor)


def _files(target: Mapping[str, Any]) -> Iterator[Path]:
    match target["kind"]:
        case "file":
            path = Path(target["path"])
            if path.exists():
                yield path
        case "file_per_job":
            yield from (path for path in Path(target["directory"]).iterdir() if path.is_file())


def _tell_device(directory: Path) -> None:
    """FITRIM of the whole file system. Who may not, or whose device takes no discard, has freed the blocks all the
    same."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.syncfs(descriptor) if hasattr(os, "syncfs") else os.sync()
            fcntl.ioctl(descriptor, _FITRIM, array.array("Q", [0, 2**64 - 1, 0]))
    finally:
        os.close(descriptor)
