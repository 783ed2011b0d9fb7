"""I/O counters of a server's control group, for the device that holds its data."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.execution.instruments.database_server import accounts_of

pytestmark = pytest.mark.unit


def group(*devices: tuple[str, int, int], memory: dict[str, Any] | None = None) -> dict[str, Any]:
    counted = [{"device": name, "read_bytes": read, "write_bytes": written} for name, read, written in devices]
    return {"cpu_ns": 7, "devices": counted, "memory": memory}


def test_a_loop_device_and_the_disk_below_it_are_not_added_up() -> None:
    """The kernel counts the same bytes at both."""
    found = accounts_of(group(("7:0", 4096, 0), ("254:0", 4096, 512)), {"7:0"})
    assert found == {"server_cpu_ns": 7, "group_read_bytes": 4096, "group_write_bytes": 0}


def test_data_and_log_on_two_devices_are_added_up() -> None:
    assert accounts_of(group(("8:0", 1, 2), ("8:16", 10, 20)), {"8:0", "8:16"})["group_read_bytes"] == 11


def test_a_file_system_without_a_device_number_of_its_own_takes_all() -> None:
    assert accounts_of(group(("8:0", 1, 2), ("8:16", 10, 20)), {"0:33"})["group_write_bytes"] == 22


def test_major_faults_are_those_of_the_memory_group() -> None:
    assert accounts_of(group(memory={"statistics": {"pgmajfault": 5}}), set())["server_major_faults"] == 5
    assert "group_read_bytes" not in accounts_of(group(), set())
