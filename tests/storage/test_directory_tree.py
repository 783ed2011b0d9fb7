"""Removal of directories that another user or program has written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iosonde import directory_tree


def removed(path: Path) -> None:
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        directory_tree.remove(parent, path.name)
    finally:
        os.close(parent)


@pytest.mark.unit
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


@pytest.mark.unit
def test_emptying_keeps_the_directory(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").write_text("")
    directory_tree.empty(tmp_path)
    assert list(tmp_path.iterdir()) == []


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
        subprocess.run(["umount", inside], check=True)
