"""Temporary names: of files that are renamed when they are complete, and of scratch directories.

All names that are created in a directory at a time start with one random token, and `DIRECTORY/TOKEN` is in the journal
before the first of them. So `iosonde cleanup` finds what a killed process left, wherever it was, and removes nothing
else: nobody else chooses such a name, and links are not followed.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iosonde.base import directory_tree
from iosonde.base.cache import TEMPORARY
from iosonde.errors import TargetError
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal import SCRATCH, TEMPORARY_FILES, Entry


class TemporaryNames:
    """New names in an open directory."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._entry: Path | None = None
        self._count = 0

    def new(self) -> str:
        """Return a name that does not exist; the journal has its start."""
        if self._entry is None:
            # Not the path that the user named: the working directory, or a link in the path, may change.
            path = Path(f"/proc/self/fd/{self._directory}").readlink()
            self._entry = _announced(path / f"{TEMPORARY}{secrets.token_hex(8)}")
        self._count += 1
        return f"{self._entry.name}-{self._count}"

    def release(self) -> None:
        """Remove the journal entry; where a file could not be removed, it remains for `iosonde cleanup`."""
        with suppress(OSError):
            if self._entry is not None and not _names(self._directory, self._entry.name):
                journal.removed(self._entry)
                self._entry = None


def remove_settled_entries(directory: int) -> None:
    """Remove the journal entries of killed processes whose files in an open directory are gone."""
    with suppress(OSError, TargetError):  # As without a journal that can be written.
        path = Path(f"/proc/self/fd/{directory}").readlink()
        for entry in journal.entries():
            place = Path(entry.path)
            is_here = entry.what == TEMPORARY_FILES and place.parent == path
            if is_here and not entry.in_use and not _names(directory, place.name):
                journal.removed(place)


@contextmanager
def temporary_names(directory: Path) -> Iterator[TemporaryNames]:
    """New names in a directory, for the length of a block."""
    with own_directory.opened(directory, follow=True) as descriptor:
        names = TemporaryNames(descriptor)
        try:
            yield names
        finally:
            names.release()


def create_scratch() -> Path:
    """Create a directory for temporary files, which only this user can enter; `remove_scratch` removes it."""
    path = _announced(Path(tempfile.gettempdir()).resolve() / f"{SCRATCH}{secrets.token_hex(8)}")
    path.mkdir(mode=0o700)
    return path


def remove_scratch(path: Path) -> None:
    """Remove such a directory with its contents; what cannot be removed remains for `iosonde cleanup`."""
    with suppress(OSError):
        _remove(path)
        journal.removed(path)


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for temporary files, for the length of a block."""
    path = create_scratch()
    try:
        yield path
    finally:
        remove_scratch(path)


def remain(entry: Entry) -> bool:
    """Return True if there is a file of a journal entry."""
    path = Path(entry.path)
    with suppress(OSError), own_directory.opened(path.parent, follow=True) as directory:
        return bool(_names(directory, path.name))
    return False


def undo(entry: Entry) -> None:
    """Remove the files of a journal entry."""
    _remove(Path(entry.path))


def _announced(path: Path) -> Path:
    """Note names in the journal.

    Reports and simulations work without a journal that can be written. Then a kill leaves files that only the next
    writer of the result set removes.
    """
    with suppress(TargetError):
        journal.created(path, TEMPORARY_FILES)
    return path


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError), own_directory.opened(path.parent, follow=True) as directory:
        for name in _names(directory, path.name):
            with suppress(FileNotFoundError):  # Its next writer may remove it at the same time.
                directory_tree.remove_any(directory, name)


def _names(directory: int, start: str) -> list[str]:
    return [name for name in directory_tree.names(directory) if name.startswith(start)]
