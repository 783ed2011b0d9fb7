"""Files and directories of iosonde: distinguished by handles and inode numbers, and removed whatever others do there."""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from iosonde.base import directory_tree
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.own_directory import handle_of


def test_a_handle_stays_with_a_file_and_is_not_that_of_another(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.touch()
    first = handle_of(path)
    path.write_text("changed")
    path.rename(other)
    path.touch()
    if first is None:  # Not on overlayfs, for example.
        assert handle_of(other) is None
    else:
        assert handle_of(other) == first != handle_of(path)


def test_there_is_none_of_a_missing_file_nor_on_fuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handle_of(tmp_path / "missing") is None
    status = ctypes.create_string_buffer(256)
    assert ctypes.CDLL(None).statfs(str(tmp_path).encode(), status) == 0
    monkeypatch.setattr(own_directory, "_FUSE", ctypes.c_long.from_buffer(status).value)
    assert handle_of(tmp_path) is None


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
    monkeypatch.setattr(own_directory, "is_on_fuse", lambda path: os.path.lexists(path))
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


def test_a_directory_is_removed_once_its_unlinked_files_are_closed_and_not_with_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    hidden = directory / ".fuse_hidden0000000200000001"
    hidden.touch()
    rmdir = os.rmdir

    def closed_after_an_attempt(*arguments: Any, **options: Any) -> None:
        try:
            rmdir(*arguments, **options)
        except OSError:
            hidden.unlink()
            raise

    parent = os.open(tmp_path, os.O_RDONLY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", closed_after_an_attempt)
        own_directory._remove_emptied(parent, "own")
    assert not directory.exists()
    directory.mkdir()
    (directory / "foreign").touch()
    with pytest.raises(OSError, match="not empty"):
        own_directory._remove_emptied(parent, "own")
    os.close(parent)


def removed(path: Path) -> None:
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        directory_tree.remove(parent, path.name)
    finally:
        os.close(parent)


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/file").write_text("removed")
    (tree / "link").symlink_to("../other")
    (tree / "a/b/link").symlink_to(tmp_path / "other/file")
    os.mkfifo(tree / "a/fifo")
    removed(tree)
    assert not tree.exists()
    assert (tmp_path / "other/file").read_text() == "kept"


@pytest.mark.engine
def test_directories_nested_without_end_are_an_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    with pytest.raises(OSError, match="nested more than 200 deep"):
        directory_tree.empty(tmp_path)
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


@pytest.mark.system
@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
def test_nothing_is_removed_from_what_is_mounted_inside(tmp_path: Path, kind: str) -> None:
    (tmp_path / "other").mkdir()
    inside = tmp_path / "tree/inside"
    inside.mkdir(parents=True)
    options = ["--bind", tmp_path / "other"] if kind == "bind" else ["-t", "tmpfs", "none"]
    subprocess.run(["mount", *options, inside], check=True)
    try:
        (inside / "file").write_text("kept")
        with pytest.raises(OSError, match="another file system is mounted there"):
            removed(tmp_path / "tree")
        assert (inside / "file").read_text() == "kept"
    finally:
        subprocess.run(["umount", "--lazy", inside], check=True)
