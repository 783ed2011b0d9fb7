"""Control groups of version 2 for real, inside User Mode Linux: memory limits with swap in use, and limits of I/O."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_sessions import run, study, wait_for
from simulated_disks import disks, kill_during_measurement, wipe

from iosonde.errors import TargetError
from iosonde.execution.session import execute
from iosonde.plan import Plan
from iosonde.planning import expand
from iosonde.storage import cleanup, control_groups, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.journal import entries

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

MIB = 1 << 20
LIMIT = 20 * MIB
GROUPS, PLACE = Path("/sys/fs/cgroup"), Path("/mnt")
LMDB = {"store": "lmdb", "lmdb": {"MDB_NORDAHEAD": True}, "interval": "100ms"}
READ = {"phase": "readrandom", "records": 8000, "value_size": 4000, "memory_limit": "20MiB", "limit_operations": 400}
TOO_LITTLE = {"phase": "readrandom", "records": 1000, "memory_limit": "1MiB", "limit_operations": 10}
LONG = {"phase": "load", "records": "1M", "value_size": 16, "memory_limit": "40MiB"}


@pytest.fixture(scope="module", autouse=True)
def limited_place() -> Iterator[None]:
    """Version 2, a file system on one disk, and swap on another."""
    disk, swap = disks()[:2]
    wipe(disk, swap)
    run("mount", "-t", "cgroup2", "none", GROUPS)
    run("mkswap", swap)
    run("swapon", swap)
    # Without lazy initialization, whose writes are those of another process.
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk)
    run("mount", disk, PLACE)
    yield
    run("umount", PLACE)
    run("swapoff", swap)


def plan(measurement: dict[str, Any]) -> Plan:
    return expand(study({**LMDB, **measurement}, workload="kv"), open_target(str(PLACE)))


def groups() -> list[str]:
    return [path.name for path in GROUPS.glob("iosonde-*")]


def test_a_run_has_the_proof_that_it_read_from_the_device(tmp_path: Path) -> None:
    results = execute(plan(READ), tmp_path / "set")
    [record], [row] = results.records(), results.runs.to_dicts()
    memory = record.memory
    assert record.outcome == "complete", record.failure
    assert memory
    assert (memory["version"], memory["limit_bytes"], memory["oom_kills"]) == (2, LIMIT, 0)
    assert memory["at_limit"] > 0
    assert LIMIT / 2 < memory["peak_bytes"] <= LIMIT, "page cache is charged"
    assert row["database_bytes"] > 1.5 * LIMIT
    assert (row["values_checked"], row["values_corrupted"], row["values_missing"]) == (400, 0, 0)
    [totals], [charged] = record.device_totals, memory["devices"]
    assert charged["device"] == totals["device"]
    # Read for this group alone, value by value of 4000 bytes; the disk's own counters agree.
    assert 400 * 4000 / 2 < charged["read_bytes"] <= totals["read_bytes"] < 2 * charged["read_bytes"]
    # The control group for I/O is of version 2 too, and the engine's own bytes agree with both.
    own = record.own_io
    assert own
    assert own["version"] == 2
    [of_device] = [each for each in own["run"] if each["device"] == totals["device"]]
    assert 400 * 4000 / 2 < of_device["own_read_bytes"] <= totals["read_bytes"]
    assert memory["statistics"]["pgmajfault"] > 0
    assert memory["statistics"]["pgsteal"] > 0
    assert groups() == []


def test_a_limit_too_small_is_out_of_memory_and_swap_does_not_help(tmp_path: Path) -> None:
    before = Path("/proc/vmstat").read_text().partition("pswpout ")[2].split()[0]
    [record] = execute(plan(TOO_LITTLE), tmp_path / "set").records()
    assert record.outcome == "failed"
    assert record.failure
    assert record.failure.code == "out_of_memory"
    assert "at its memory limit of 1 MiB" in record.failure.message
    assert record.memory
    assert record.memory["oom_kills"] == 1
    assert Path("/proc/vmstat").read_text().partition("pswpout ")[2].split()[0] == before
    assert groups() == []


def test_a_kill_in_the_middle_of_a_load_leaves_nothing_after_cleanup(tmp_path: Path) -> None:
    kill_during_measurement(plan(LONG), tmp_path / "set")
    assert list(PLACE.glob("iosonde-*/lmdb-*/database/data.mdb"))
    [group] = groups()
    wait_for(lambda: not (GROUPS / group / "cgroup.procs").read_text())
    assert sorted({entry.what for entry in entries()}) == ["control group", "directory", "temporary file"]
    assert sorted({each.reason for each in cleanup()}) == ["removed", "the temporary file was removed"]
    assert groups() == []
    assert [each.name for each in PLACE.iterdir()] == ["lost+found"]


def test_a_group_with_processes_cannot_have_a_limit() -> None:
    """As in a container: its kernel lets a group have processes or groups with controllers, and not both."""
    (GROUPS / "cgroup.subtree_control").write_text("+memory")
    group = GROUPS / "occupied"
    group.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as inside:
        (group / "cgroup.procs").write_text(str(inside.pid))
        with pytest.raises(TargetError, match=f"cannot limit memory to {LIMIT} bytes in `/sys/fs/cgroup/occ") as raised:
            control_groups.MemoryGroup.make(LIMIT, within=control_groups.Hierarchy(directory=group, version=2))
        inside.kill()
    assert "run iosonde outside this container" in raised.value.hint
    assert list(group.glob("iosonde-*")) == []
    assert entries() == []


def test_limits_of_the_group_and_of_its_parent_are_read() -> None:
    device = number_of(disks()[0])
    outer, inner = GROUPS / "outer", GROUPS / "outer" / "inner"
    for group, limits in ((outer, "riops=200 rbps=18000000"), (inner, "riops=400 rbps=9000000")):
        (group.parent / "cgroup.subtree_control").write_text("+io")
        group.mkdir()
        (group / "io.max").write_text(f"{device} {limits}")
    (inner / "cgroup.procs").write_text(str(os.getpid()))
    try:
        read = block_stack.limits(device)
    finally:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        inner.rmdir()
        outer.rmdir()
    assert sorted(read) == sorted(["riops=200", "rbps=18000000", "riops=400", "rbps=9000000"])
