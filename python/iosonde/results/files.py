"""Files that are there completely or not at all, also after a power cut.

Everything is written under a name that begins with `.tmp-`, synced, and renamed; then the directory that holds the name
is synced too, because a rename is durable only with its directory (`rename(2)`, `fsync(2)`).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp-"
"""What begins with this is not part of a result set."""


def write_file(path: Path, content: bytes) -> None:
    """Write a new file."""
    temporary = _temporary(path)
    _write_synced(temporary, content)
    temporary.rename(path)
    sync_directory(path.parent)


def write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a new directory with these files; a directory with anything in it is never replaced."""
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        for name, content in files.items():
            _write_synced(temporary / name, content)
        sync_directory(temporary)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


RESERVE_BYTES = 8 << 20


class Reserve:
    """Room that is kept free for records, because the study itself may fill the file system they are on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fill()

    def use(self, write: Callable[[], None]) -> None:
        """Write; when there is no room, give up the reserve and write again."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._path.exists():
                raise
            self._path.unlink()
            write()
            self._fill()

    def release(self) -> None:
        """Give the room back."""
        self._path.unlink(missing_ok=True)

    def _fill(self) -> None:
        """As far as there is room: a study can do without a reserve."""
        with suppress(OSError), self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


@contextmanager
def reserve(directory: Path) -> Iterator[Reserve]:
    """A reserve on the file system of `directory`, as long as the context lasts."""
    kept = Reserve(directory / f"{TEMPORARY}reserve")
    try:
        yield kept
    finally:
        kept.release()


def remove_temporaries(directory: Path) -> None:
    """Remove what a killed writer left."""
    for path in directory.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{path.name}")


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
