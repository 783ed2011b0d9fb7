"""Descriptors that keep inode numbers on FUSE."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from iosonde.storage.safety import journal, kept_numbers


def descriptors(place: Path) -> list[str]:
    """Where descriptors of this process lead in a place."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # Of the list itself.
            found.append(each.readlink())
    return sorted(str(each.relative_to(place)) for each in found if each.is_relative_to(place))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is taken for one on FUSE."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(kept_numbers, "is_on_fuse", lambda path: os.path.lexists(path))
    return tmp_path / "mount"


def test_what_the_journal_identifies_by_its_number_is_held_until_it_is_removed(place: Path) -> None:
    own = place / "iosonde-00000000"
    journal.created(own, "directory")
    own.mkdir(parents=True)
    journal.identify(own)
    (own / "main.0").touch()
    for _ in range(2):
        journal.add_files(own, {"main.0": (own / "main.0").stat().st_ino, "announced": -1})
    assert journal.take_over(own, keep=False)
    assert descriptors(place) == ["iosonde-00000000", "iosonde-00000000/main.0"]
    journal.remove(own)
    assert not own.exists()
    assert descriptors(place) == []


def test_other_file_systems_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_numbers, "is_on_fuse", lambda path: False)
    kept_numbers.keep(tmp_path)
    assert descriptors(tmp_path) == []
