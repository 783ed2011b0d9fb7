"""Removal of directories whose contents another user or program has written.

Links are not followed. A file system that is mounted inside is an error, also a bind mount of the same one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 200
"""Levels of directories; each needs a descriptor while its contents are removed."""


def remove(parent: int, name: str, depth: int = 0) -> None:
    """Remove a directory with its contents; `OSError` if another file system is mounted in it (`EXDEV`)."""
    if depth > _MAX_DEPTH:
        raise OSError(errno.ELOOP, f"directories are nested more than {_MAX_DEPTH} deep", name)
    with opened_in(parent, name) as directory:
        if _mount_of(directory) != _mount_of(parent):
            raise OSError(errno.EXDEV, "another file system is mounted there", name)
        _empty(directory, depth)
    os.rmdir(name, dir_fd=parent)


def remove_any(parent: int, name: str, depth: int = 0) -> None:
    """Remove a directory with its contents, or a file of any kind."""
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        remove(parent, name, depth)
    else:
        os.unlink(name, dir_fd=parent)


def empty(path: Path | int) -> None:
    """Remove the contents of a directory, given by path or descriptor; `OSError` as above."""
    directory = os.open(path, _FLAGS) if isinstance(path, Path) else os.dup(path)
    try:
        _empty(directory, 0)
    finally:
        os.close(directory)


def _empty(directory: int, depth: int) -> None:
    for name in names(directory):
        remove_any(directory, name, depth + 1)


def names(directory: int) -> list[str]:
    """Names in a directory, sorted."""
    with os.scandir(directory) as found:
        return sorted(each.name for each in found)


@contextmanager
def opened_in(parent: int, name: str) -> Iterator[int]:
    """A descriptor of a directory in another one; `OSError` for a link."""
    descriptor = os.open(name, _FLAGS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mount_of(descriptor: int) -> str:
    """The kernel's number of the mount that a descriptor is on (`mnt_id`, proc(5)): a bind mount has its own."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="utf-8").splitlines()
    return next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")
