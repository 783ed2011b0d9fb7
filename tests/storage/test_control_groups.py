"""Limits of control groups, as both versions write them, and a memory limit on this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_stack import controls, limits
from iosonde.storage.control_groups import MemoryGroup


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Path]]:
    """The groups that this process is in, by hierarchy: its own and its ancestors."""
    own = {"blkio": [tmp_path / "v1/own", tmp_path / "v1"], "": [tmp_path / "v2/own", tmp_path / "v2"]}
    for directories in own.values():
        directories[0].mkdir(parents=True)
    monkeypatch.setattr(block_stack, "groups", lambda controller: own[controller])
    return own


def test_limits_of_both_versions_count_also_of_an_ancestor_and_other_settings_are_no_limits(
    groups: dict[str, list[Path]],
) -> None:
    own, root = groups["blkio"]
    (own / "blkio.throttle.read_iops_device").write_text("8:0 100\n259:0 2000\n")
    (root / "blkio.throttle.write_bps_device").write_text("259:0 1048576\n")
    own, root = groups[""]
    (own / "io.max").write_text("259:1 rbps=max wbps=1048576 riops=2000 wiops=max\n")
    (own / "io.latency").write_text("259:2 target=5000\n8:0 target=100\n")
    (root / "io.cost.qos").write_text("259:2 enable=1 ctrl=user rpct=95.00 rlat=2500\n")
    assert limits("259:0") == ["read_iops_device 2000", "write_bps_device 1048576"]
    assert limits("259:1") == ["wbps=1048576", "riops=2000"]
    assert limits("259:2") == limits("8:16") == []
    assert controls("259:2") == ["io.latency target=5000", "io.cost.qos enable=1 ctrl=user rpct=95.00 rlat=2500"]


LIMIT = 32 << 20

READS = """
import sys
sys.stdin.read(1)
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
"""


def facts(file: Path, mebibytes: int) -> dict[str, int]:
    """Counters of the kernel while a process read a file of that size."""
    file.write_bytes(bytes(mebibytes << 20))
    with file.open("rb") as written:
        os.fsync(written.fileno())
        os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    group = MemoryGroup.make(LIMIT)
    try:
        command = [sys.executable, "-c", READS, str(file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            group.add(process.pid)
            process.communicate(b"x")
        return group.facts()
    finally:
        group.remove()


@pytest.mark.system
@pytest.mark.needs("root", "memory limits")
def test_reclaims_at_the_limit_are_counted_and_a_run_below_it_has_none(tmp_path: Path) -> None:
    large, small = facts(tmp_path / "large", 128), facts(tmp_path / "small", 4)
    assert large["at_limit"] > 0 == small["at_limit"]
    assert LIMIT / 2 < large["peak_bytes"] <= LIMIT > small["peak_bytes"]


@pytest.mark.system
@pytest.mark.needs("root", "memory limits")
def test_limits_of_the_record_are_those_in_effect() -> None:
    """The kernel limits memory in whole pages."""
    group = MemoryGroup.make(LIMIT + 1, swap_bytes=8 << 20)
    try:
        found = group.facts()
        assert found["limit_bytes"] == LIMIT
        file = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}[found["version"]]
        swap = group.path / file
        before = LIMIT if found["version"] == 1 else 0
        assert found["swap_limit_bytes"] == (int(swap.read_text()) - before if swap.exists() else None)
        assert found["swap_limit_bytes"] in (8 << 20, None)
    finally:
        group.remove()
