"""Verdicts on a database server, provoked by a slow device and by contended rows.

They are shares of time, which other load changes; the rules are tested on values (`tests/verdict`).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from servers.conftest import alone

from iosonde.execution import execute
from iosonde.lab import Limits, throttled_devices
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = [pytest.mark.quiet, pytest.mark.system, pytest.mark.needs("setpriv", "engine", "root", "postgres")]

STUDY = """
name = "limits"
title = "Limits"
question = "?"
workload = "{workload}"
repeats = 1
[measurement]
interval = "100ms"
ramp = "500ms"
duration = "1500ms"
{measurement}
[[parts]]
[profiles.standard]
"""
IN_MEMORY = 'postgresql = { shared_buffers = "256MB", max_connections = 40, fsync = false, synchronous_commit = "off" }'
SYNCED = 'postgresql = { shared_buffers = "16MB", max_connections = 40, max_wal_size = "64MB" }'


def limit_of(place: Path, output: Path, *measurement: str, workload: str = "commit") -> str:
    text = STUDY.format(workload=workload, measurement="\n".join(measurement))
    execute(expand(parse(text, name="limits.toml"), open_target(str(place))), output)
    record = alone(list(ResultSet.open(output).records()))
    assert record.outcome == "complete" and record.verdict, record.failure
    return record.verdict.kind


@pytest.mark.needs("qemu-storage-daemon", "FUSE", "loop devices", "mkfs.ext4")
def test_commits_on_a_slow_device_are_device_limited(place: Path, tmp_path: Path) -> None:
    directory = place / "disk"
    directory.mkdir()
    with throttled_devices(Limits(iops=600), size_bytes=2 << 30) as [device]:
        subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", device.path], check=True)
        subprocess.run(["mount", device.path, directory], check=True)
        try:
            directory.chmod(0o711)
            assert limit_of(directory, tmp_path / "r", "clients = 4", SYNCED) == "device-limited"
        finally:
            subprocess.run(["umount", directory], check=True)
    directory.rmdir()


def test_many_terminals_on_one_warehouse_are_lock_limited(place: Path, tmp_path: Path) -> None:
    load = ("warehouses = 1", "terminals = 32", IN_MEMORY)
    assert limit_of(place, tmp_path / "r", *load, workload="tpcc") == "lock-limited"
