"""The warning about a log on the device of the data."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution.instruments.shared_log_device import shared_devices


def test_two_directories_of_a_file_system_share_its_device(tmp_path: Path) -> None:
    for name in ("data", "log"):
        (tmp_path / name).mkdir()
    assert shared_devices(tmp_path / "data", tmp_path / "log")


def test_file_systems_without_a_common_device_share_none(tmp_path: Path) -> None:
    assert shared_devices(tmp_path, Path("/proc")) == []
