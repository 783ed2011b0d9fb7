"""Handles of files."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from iosonde.storage.safety import file_handle
from iosonde.storage.safety.file_handle import handle_of


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
    monkeypatch.setattr(file_handle, "_FUSE", ctypes.c_long.from_buffer(status).value)
    assert handle_of(tmp_path) is None
