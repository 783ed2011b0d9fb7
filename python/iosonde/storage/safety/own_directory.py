"""Directories of iosonde's own: created, checked, and removed relative to their descriptors.

A path is resolved again at every use, and each part of it may be a symbolic link by then. So what is removed here is
reached from an open directory whose identity was compared, never through a link, and only what iosonde put there is
removed: files that it recorded, by inode, and databases. Anything else stays and is reported.

An inode number is not enough: ext4 gives that of a removed file to the next one at once. Handles of files are never
used again, where the file system has them. On FUSE a handle lasts only as long as the kernel has the inode in memory,
and libfuse gives a file another number once the kernel has forgotten it, as with sshfs, which it may whenever memory is
short. It does not while a descriptor refers to the file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from iosonde.base import directory_tree
from iosonde.storage.block_layer.block_nodes import closing, identity_of

DATABASE = re.compile(r"[a-z]+-[0-9a-f]{8}(-log|-cache)?")
"""Name of a directory in one of ours that contains the database of a store, its log, or its read cache."""

ANNOUNCED = -1
"""Inode number of what was about to be created: it is ours only while it has no data."""

COMPANIONS = (".verify",)
"""Suffixes that the engine adds to the name of a file for its own files about it."""

_UNLINKED = (".fuse_hidden", ".nfs")
"""Names of files that are unlinked and not yet closed."""
_CLOSES_WITHIN_S = 10

_LARGE_BYTES = 1 << 20
_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC

_AT_FDCWD = -100
_HANDLE = struct.Struct("=Ii")
"""Start of a `struct file_handle`: number of bytes that follow, and their type."""
_MOST_BYTES = 128
"""`MAX_HANDLE_SZ` of Linux."""
_STATFS_BYTES = 256
"""More than a `struct statfs` has; it begins with the type of the file system."""
_FUSE = 0x65735546
"""`FUSE_SUPER_MAGIC`."""
_LIBC = ctypes.CDLL(None, use_errno=True)

_kept: dict[Path, int] = {}
"""Descriptors of files on FUSE."""


class WrongDirectoryError(OSError):
    """Another directory, or a link, has the name by now."""


def handle_of(path: Path) -> str | None:
    """Return the handle of what is at `path`, a link not followed, as hexadecimal digits; None if it has none.

    name_to_handle_at(2). File systems that cannot be exported have none, such as overlayfs without `nfs_export`;
    those of FUSE do not last.
    """
    if is_on_fuse(path):
        return None
    handle, mount = ctypes.create_string_buffer(_HANDLE.size + _MOST_BYTES), ctypes.c_int()
    _HANDLE.pack_into(handle, 0, _MOST_BYTES, 0)
    if _LIBC.name_to_handle_at(_AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0) != 0:
        return None
    size, kind = _HANDLE.unpack_from(handle)
    return f"{kind:x}:{handle.raw[_HANDLE.size : _HANDLE.size + size].hex()}"


def mark_of(path: Path) -> str:
    """Return what a later thing with the inode number of this one lacks; empty if nothing is known.

    Its handle, or else owner and mode of a file with a single name, as its file system reports them.
    """
    if handle := handle_of(path):
        return handle
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return f"{found.st_uid}:{stat.S_IMODE(found.st_mode):o}"
    return ""


def is_on_fuse(path: Path) -> bool:
    """Return True if a process serves the file system of what is at `path`."""
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    found = _LIBC.statfs(os.fsencode(path), status)
    return found == 0 and ctypes.c_long.from_buffer(status).value == _FUSE


def keep_number(path: Path) -> None:
    """Keep the number of what is at `path` now, a link not followed, until `release_numbers`. Only on FUSE."""
    if is_on_fuse(path):
        with suppress(OSError):  # Gone, or not permitted: the number may then change.
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            if path in _kept:
                os.close(_kept[path])
            _kept[path] = descriptor


def release_numbers(path: Path) -> None:
    """Close the descriptors of a file, or of a directory and what is in it."""
    for each in [kept for kept in _kept if kept.is_relative_to(path)]:
        os.close(_kept.pop(each))


def create(path: Path) -> None:
    """A new directory that only its owner can enter, whatever the umask."""
    path.mkdir(mode=0o700)
    with opened(path) as directory:
        os.fchmod(directory, 0o700)


def create_parents(path: Path) -> None:
    """A directory of iosonde's own files with everything above it; what is created belongs to this user alone."""
    for each in [*reversed(path.parents), path]:
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def opened(path: Path, identity: str | None = None, *, follow: bool = False) -> Iterator[int]:
    """A descriptor of the directory at `path`, which must have this identity, and be no link unless that is allowed."""
    with closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | (os.O_CLOEXEC if follow else _NO_FOLLOW))) as descriptor:
        if identity is not None and identity != identity_of(os.fstat(descriptor)):
            raise WrongDirectoryError(f"`{path}` is not the directory that iosonde created")
        yield descriptor


def create_file(directory: int, name: str, size_bytes: int) -> None:
    """A new file of that size without data; `FileExistsError` if anything has that name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
    with closing(os.open(name, flags, 0o600, dir_fd=directory)) as descriptor:
        os.truncate(descriptor, size_bytes)


def open_file(directory: int, name: str, inode: int) -> int:
    """A descriptor for reading and writing a file of ours; `OSError` if another file, or a link, has its name."""
    descriptor = os.open(name, os.O_RDWR | os.O_NONBLOCK | _NO_FOLLOW, dir_fd=directory)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_ino == inode and found.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise OSError(f"`{name}` is not the file that iosonde created")


def inode_of(directory: int, name: str) -> int:
    """The inode number of what has this name now."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino


def is_unchanged(directory: int, name: str, inode: int | None, *, is_directory: bool) -> bool:
    """Return True if a name still belongs to the inode that was created: no link, no second name of a file."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if inode == ANNOUNCED:
        is_empty = _is_empty_directory(directory, name) if is_directory else _has_no_data(found)
        inode = found.st_ino if is_empty else None
    if is_directory:
        return stat.S_ISDIR(found.st_mode) and found.st_ino == inode
    return stat.S_ISREG(found.st_mode) and found.st_ino == inode and found.st_nlink == 1


def _has_no_data(found: os.stat_result) -> bool:
    """Return True if a file is empty, or one large hole; small files may have data without blocks."""
    return found.st_size == 0 or (found.st_blocks == 0 and found.st_size >= _LARGE_BYTES)


def _is_empty_directory(parent: int, name: str) -> bool:
    try:
        with directory_tree.opened_in(parent, name) as directory:
            return not directory_tree.names(directory)
    except NotADirectoryError:
        return False


def truncate(directory: int, name: str, inode: int) -> None:
    """Free the blocks of a file of ours; `OSError` if another file, or a link, has its name."""
    with closing(open_file(directory, name, inode)) as descriptor:
        os.truncate(descriptor, 0)


def plain_files(directory: int) -> dict[str, int]:
    """Inode numbers of the regular files in a directory, by name."""
    found = {name: os.stat(name, dir_fd=directory, follow_symlinks=False) for name in directory_tree.names(directory)}
    return {name: status.st_ino for name, status in found.items() if stat.S_ISREG(status.st_mode)}


def remove(path: Path, identity: str | None, files: Mapping[str, int]) -> list[str]:
    """Remove a directory and the files in it -> the names of what is not iosonde's, which stays with the directory.

    `files` are the names of its files with their inode numbers, 0 for a file that is replaced while in use.
    """
    with opened(path.parent, follow=True) as parent:
        with directory_tree.opened_in(parent, path.name) as directory:
            if identity is not None and identity != identity_of(os.fstat(directory)):
                raise WrongDirectoryError(f"`{path}` is not the directory that iosonde created")
            foreign = [name for name in directory_tree.names(directory) if not _remove_own(directory, name, files)]
        if not foreign:
            _remove_emptied(parent, path.name)
        return foreign


def _remove_emptied(parent: int, name: str) -> None:
    """Remove a directory whose files were unlinked; `OSError` (`ENOTEMPTY`) if anything remains.

    FUSE and NFS rename a file that is unlinked while they take it for open, and remove it when the last close arrives,
    which is after close(2) has returned (libfuse: option `hard_remove`; NFS: silly rename).
    """
    deadline = time.monotonic() + _CLOSES_WITHIN_S
    while True:
        try:
            os.rmdir(name, dir_fd=parent)
            return
        except OSError as error:
            with directory_tree.opened_in(parent, name) as directory:
                remaining = directory_tree.names(directory)
            are_unlinked = all(each.startswith(_UNLINKED) for each in remaining)
            if error.errno != errno.ENOTEMPTY or not are_unlinked or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _remove_own(directory: int, name: str, files: Mapping[str, int]) -> bool:
    """Remove one thing if it is iosonde's; return True if it was."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        is_ours = DATABASE.fullmatch(name) and is_unchanged(directory, name, files.get(name), is_directory=True)
        if is_ours:
            directory_tree.remove(directory, name)
        return bool(is_ours)
    inode = files.get(name)
    if inode == ANNOUNCED and _has_no_data(found):
        inode = 0
    for suffix in COMPANIONS:
        if inode is None and name.endswith(suffix) and name.removesuffix(suffix) in files:
            inode = 0
    if inode is None or not stat.S_ISREG(found.st_mode) or inode not in (0, found.st_ino):
        return False
    os.unlink(name, dir_fd=directory)
    return True
