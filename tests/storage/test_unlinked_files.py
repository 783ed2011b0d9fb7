"""Files that FUSE or NFS still take for open remain under another name for a moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from iosonde.storage.safety import own_directory


def test_a_directory_is_removed_once_its_unlinked_files_are_closed(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    hidden = directory / ".fuse_hidden0000000200000001"
    hidden.touch()
    closes = threading.Timer(0.2, hidden.unlink)
    closes.start()
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        own_directory._remove_emptied(parent, "own")
    finally:
        os.close(parent)
        closes.join()
    assert not directory.exists()


def test_a_directory_with_other_files_is_an_error_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    (directory / "foreign").touch()
    parent = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not empty"):
            own_directory._remove_emptied(parent, "own")
    finally:
        os.close(parent)
    assert (directory / "foreign").exists()
