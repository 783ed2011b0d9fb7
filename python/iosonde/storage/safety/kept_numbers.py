"""Descriptors that keep the inode numbers of files on FUSE.

libfuse gives a file another number once the kernel has forgotten it, as with sshfs, and the kernel may forget it
whenever memory is short. It does not while a descriptor refers to the file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from iosonde.storage.safety.file_handle import is_on_fuse

_descriptors: dict[Path, int] = {}


def keep(path: Path) -> None:
    """Keep the number of what is at `path` now, a link not followed, until `release`. Only on FUSE."""
    if is_on_fuse(path):
        with suppress(OSError):  # Gone, or not permitted: the number may then change.
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            if path in _descriptors:
                os.close(_descriptors[path])
            _descriptors[path] = descriptor


def release(path: Path) -> None:
    """Close the descriptors of a file, or of a directory and what is in it."""
    for each in [kept for kept in _descriptors if kept.is_relative_to(path)]:
        os.close(_descriptors.pop(each))
