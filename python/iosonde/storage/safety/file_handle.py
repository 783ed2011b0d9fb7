"""Handles of files: unlike an inode number, which ext4 gives to the next file at once, they are never used again."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_AT_FDCWD = -100
_MOST_BYTES = 128
"""`MAX_HANDLE_SZ` of Linux."""
_STATFS_BYTES = 256
"""More than a `struct statfs` has; it begins with the type of the file system."""
_FUSE = 0x65735546
"""`FUSE_SUPER_MAGIC`: there, a handle lasts only as long as the kernel has the inode in memory."""


_LIBC = ctypes.CDLL(None, use_errno=True)


class _Handle(ctypes.Structure):
    _fields_ = (
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * _MOST_BYTES),
    )


def handle_of(path: Path) -> str | None:
    """Return the handle of what is at `path`, a link not followed, as hexadecimal digits; None if it has none.

    name_to_handle_at(2). File systems that cannot be exported have none, such as overlayfs without `nfs_export`;
    those of FUSE do not last.
    """
    if is_on_fuse(path):
        return None
    handle, mount = _Handle(handle_bytes=_MOST_BYTES), ctypes.c_int()
    name = ctypes.c_char_p(os.fsencode(path))
    if _LIBC.name_to_handle_at(_AT_FDCWD, name, ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        return None
    return f"{handle.handle_type:x}:{bytes(handle.f_handle[: handle.handle_bytes]).hex()}"


def is_on_fuse(path: Path) -> bool:
    """Return True if a process serves the file system of what is at `path`."""
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    found = _LIBC.statfs(ctypes.c_char_p(os.fsencode(path)), status)
    return found == 0 and ctypes.c_long.from_buffer(status).value == _FUSE
