"""A memory limit on this kernel: that it is met, and how often memory was reclaimed at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iosonde.storage.control_groups.control_group import MemoryGroup

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
def test_reclaims_at_the_limit_are_counted(tmp_path: Path) -> None:
    found = facts(tmp_path / "large", 128)
    assert found["at_limit"] > 0
    assert LIMIT / 2 < found["peak_bytes"] <= LIMIT


@pytest.mark.system
@pytest.mark.needs("root", "memory limits")
def test_a_run_below_the_limit_has_none(tmp_path: Path) -> None:
    found = facts(tmp_path / "small", 4)
    assert found["at_limit"] == 0
    assert found["peak_bytes"] < LIMIT


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
