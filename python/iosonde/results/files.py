"""Files of a result set: written completely or not at all, and never through a symbolic link.

A result set may come from another person. So its directory is opened once, everything in it is opened relative to that
descriptor with `O_NOFOLLOW` (`openat(2)`), and only regular files are read. A file is written under a name that begins
with `.tmp-`, synced, and renamed; then its directory is synced too, because a rename is durable only with its directory
(`rename(2)`, `fsync(2)`). A rename replaces a symbolic link of that name and does not follow it. Names with `.tmp-` are
not part of a result set. The next writer of a set removes those of a killed one, and so does `iosonde cleanup`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from iosonde.base import directory_tree
from iosonde.base.cache import TEMPORARY
from iosonde.base.text_files import open_regular
from iosonde.storage.targets.temporary_files import TemporaryNames, remove_settled_entries

MARK = "format.json"
"""File that makes a directory a result set."""
_LIMIT_BYTES = 1 << 30
"""Of files that are read whole: plans and records. Real ones have a few MiB."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Directory:
    """An open directory. Names are single components, and symbolic links are never followed."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Take over a descriptor; `path` is for messages."""
        self.descriptor = descriptor
        self.path = path
        self.temporary = TemporaryNames(descriptor)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a directory that the user named; their path may contain links."""
        return cls(os.open(path, _DIRECTORY), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.temporary.release()
        os.close(self.descriptor)

    def moved_to(self) -> Path | None:
        """Return the path that it has now (proc(5)); None if that is the one by which it was opened."""
        with suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self.descriptor)):
                return None
        return Path(f"/proc/self/fd/{self.descriptor}").readlink()

    def subdirectory(self, name: str, *, create: bool = False) -> Directory:
        """Open a directory in this one."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(_component(name), dir_fd=self.descriptor)
        descriptor = os.open(_component(name), _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.descriptor)
        return Directory(descriptor, self.path / name)

    def names(self) -> list[str]:
        """List the entries in order, without incompletely written ones."""
        return sorted(name for name in self._entries() if not name.startswith(TEMPORARY))

    def _entries(self) -> list[str]:
        return os.listdir(self.descriptor)  # noqa: PTH208  # of a descriptor

    def is_directory(self, name: str) -> bool:
        """Return whether an entry is a directory, and no link to one."""
        return stat.S_ISDIR(os.stat(_component(name), dir_fd=self.descriptor, follow_symlinks=False).st_mode)

    def open_file(self, name: str) -> int:
        """Open a regular file for reading; returns its descriptor."""
        return open_regular(_component(name), directory=self.descriptor, follow_links=False)

    def read(self, name: str) -> bytes:
        """Read a regular file of at most 1 GiB."""
        with os.fdopen(self.open_file(name), "rb") as file:
            if os.fstat(file.fileno()).st_size > _LIMIT_BYTES:
                raise OSError(errno.EFBIG, "it is longer than 1 GiB")
            return file.read()

    def open_lock(self, name: str) -> int:
        """Open a regular file for reading and writing, created if it is missing; returns its descriptor."""
        # O_NONBLOCK: opening a FIFO would wait for its other end.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(_component(name), flags, 0o666, dir_fd=self.descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file with a single hard link")

    def write(self, name: str, content: bytes) -> None:
        """Write a file; one of that name is replaced."""
        temporary = self.temporary.new()
        try:
            with self._created(temporary) as file:
                _write_synced(file, content)
                os.rename(temporary, _component(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.descriptor)
            raise
        self.sync()

    def write_directory(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write a new directory with these files; a directory that is not empty is never replaced."""
        temporary = self.temporary.new()
        try:
            os.mkdir(temporary, dir_fd=self.descriptor)
            with self.subdirectory(temporary) as directory:
                for file_name, content in files.items():
                    with directory._created(file_name) as file:
                        _write_synced(file, content)
                directory.sync()
            os.rename(temporary, _component(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True, dir_fd=self.descriptor)
            raise
        self.sync()

    def remove_temporaries(self) -> None:
        """Remove what a killed writer left; a report may be written at this moment."""
        for name in self._entries():
            if name.startswith(TEMPORARY) and not self._is_being_written(name):
                directory_tree.remove_any(self.descriptor, name)
        remove_settled_entries(self.descriptor)

    def _is_being_written(self, name: str) -> bool:
        """Return True if a process holds the lock of a file; the kernel releases it when the process dies."""
        try:
            descriptor = self.open_file(name)
        except OSError:  # It is a directory, a link or gone.
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # A file system without locks.
            return False
        finally:
            os.close(descriptor)
        return False

    def sync(self) -> None:
        """Make the names in this directory durable."""
        os.fsync(self.descriptor)

    @contextmanager
    def _created(self, name: str) -> Iterator[BinaryIO]:
        """A new file to write to, locked while it is open."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(_component(name), flags, 0o666, dir_fd=self.descriptor)
        with os.fdopen(descriptor, "wb") as file:
            with suppress(OSError):  # A file system without locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file


def _write_synced(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def new_directory(path: Path, *, last: str = "") -> Iterator[Path]:
    """Yield a directory to fill, which gets its name once it is complete, so that no part of it has that name.

    One that the user has created, such as a mount point, is filled in place. With the name of the `last` file it must
    be empty (`OSError`), and all that is complete is moved into it, that file at the end.
    """
    if path.exists() and not last:
        yield path
        return
    is_new = not path.exists()
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    with Directory.open(path.parent if is_new else path) as parent:
        if not is_new and parent.names():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        temporary, place = parent.temporary.new(), parent.descriptor
        try:
            os.mkdir(temporary, dir_fd=place)
            yield parent.path / temporary
            if is_new:
                os.rename(temporary, _component(path.name), src_dir_fd=place, dst_dir_fd=place)
            else:
                names = [each.name for each in (parent.path / temporary).iterdir()]
                for name in sorted(names, key=lambda each: (each == last, each)):
                    os.rename(f"{temporary}/{name}", name, src_dir_fd=place, dst_dir_fd=place)
                os.rmdir(temporary, dir_fd=place)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True, dir_fd=place)
            raise
        parent.sync()


def write_output(path: Path, content: bytes, *, within: Iterable[Path] = ()) -> None:
    """Write a file that the user requested, such as a report; missing directories are created.

    In `within`, directories that others may have written (result sets, directories of them), no link is followed, not
    even one in place of a directory. Elsewhere the path is the user's own: it may be a link, a pipe or `/dev/stdout`,
    but no block device.
    """
    path = path.absolute()
    known = [each.stat() for each in within]
    parents = (each for each in path.parents if each.exists())
    root = next((each for each in parents if any(os.path.samestat(each.stat(), found) for found in known)), None)
    if root is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_anywhere(path, content)
        return
    with ExitStack() as opened:
        directory = opened.enter_context(Directory.open(root))
        for name in path.relative_to(root).parts[:-1]:
            directory = opened.enter_context(directory.subdirectory(name, create=True))
        directory.write(path.name, content)


def _write_anywhere(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        found = os.fstat(descriptor).st_mode
        if stat.S_ISBLK(found):  # One is written only if it is a target and `--destroy` names it.
            raise OSError(errno.EINVAL, "it is a block device")
        if stat.S_ISREG(found):
            os.truncate(descriptor, 0)
        file.write(content)


RESERVE_BYTES = 8 << 20


class Reserve:
    """Space reserved for records, because the study itself may fill their file system; until `release`."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._name = directory.temporary.new()
        self._fill()

    def use(self, write: Callable[[], None]) -> None:
        """Write; if the file system is full, release the reserve and write again."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.release():
                raise
            write()
            self._fill()

    def release(self) -> bool:
        """Free the space; returns whether there was any."""
        try:
            os.unlink(self._name, dir_fd=self._directory.descriptor)
        except OSError:
            return False
        return True

    def _fill(self) -> None:
        """Reserve as much as there is room for: a study can do without."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            descriptor = os.open(self._name, flags, 0o600, dir_fd=self._directory.descriptor)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)


def _component(name: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "not a file name")
    return name
