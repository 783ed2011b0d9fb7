"""Facts of the kernel in a record of the real engine: on real files and devices, and on the layers between them.

`test_confusion_matrix.py` has the limits of runs, `test_rules.py` each rule, with facts that no machine can be made to
have (heat, a slow clock, a hypervisor that takes its CPUs).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mounted import overlay
from needs import BTRFS, lacking

from iosonde.results.schema import Record
from iosonde.verdict import warning_kinds

Measure = Callable[..., Record]

pytestmark = [pytest.mark.alone, pytest.mark.system, pytest.mark.needs("disk")]

NOISE = {
    # Effects of other work on the machine are no fault of the rules.
    *("cpu_contention", "steal_time", "other_io", "core_saturated", "turnaround", "engine_stalled", "device_stalled"),
    *("late_counters", "harness_cost", "foreign_interrupts"),
    # This machine, from its record.
    *("cpu_governor", "io_scheduler", "one_hardware_queue", "throttled_device", "hot_device"),
}
PAUSED = {"engine_stalled", "late_counters"}
"""Effects of a pause of the machine on a short run: then shares of bytes and of time may be unknown."""
COUNTED = {"limit_operations": 400, "duration": "60s"}
"""A load that ends with its count of I/Os: a thread that waits for a CPU does not make it smaller."""


def codes(record: Record) -> set[str]:
    return {warning.code for warning in record.warnings}


def number(record: Record, name: str) -> float:
    assert record.verdict
    value = record.verdict.evidence[name]
    assert value is not None, f"the record does not contain `{name}`"
    return value


def assert_cached(record: Record, *warnings: str) -> None:
    """Unless the machine paused, the run has these warnings and was served from a cache."""
    if not codes(record) & PAUSED:
        assert record.verdict and record.verdict.kind == "cache-served", codes(record)
        assert {*warnings} <= codes(record)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory on a disk."""
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_a_run_has_every_number(measure: Measure, loop_file_system: Any) -> None:
    """Direct reads and writes of files that iosonde wrote before, on one CPU."""
    mounted = loop_file_system(size="64M", direct_io=True)
    cpu = min(os.sched_getaffinity(0))
    record = measure(mounted.directory, block_size="64KiB", read_fraction=0.5, queue_depth=2, cpus=[cpu], **COUNTED)
    assert record.verdict
    assert number(record, "in_flight_share") > 0
    assert number(record, "missing_share") == 0
    assert number(record, "harness_ns_per_io") > 5
    assert number(record, "turnaround_ns_per_io") > 0
    assert number(record, "steal_share") >= 0
    assert number(record, "interrupts_per_second") >= 0
    assert record.engine["clock_read_ns"] > 0
    assert record.harness
    assert record.harness["streams"]["main"]["shape"].startswith("random uniform with_replacement, queue depth 1,")
    if not lacking("CPU governor"):
        governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
        assert ("cpu_governor" in codes(record)) == (governor != "performance")
    if not lacking("temperature sensor"):
        record = measure(mounted.directory.parent, **COUNTED)
        assert record.target_after["devices"] and number(record, "temperature_celsius") > 0


def test_a_percentile_that_the_study_asks_for_needs_enough_ios(measure: Measure, disk: Path) -> None:
    tail = [{"kind": "peak", "over": "queue_depth", "metric": "completion_latency_ns_p99_9"}]
    record = measure(disk, analysis=tail, io_mode="buffered", page_cache="warm", limit_operations=500, duration="60s")
    assert "short_for_tail" in codes(record)
    assert number(record, "cached_before_share") >= 0.99  # The kernel may reclaim a page at any time.


# Layers --------------------------------------------------------------------------------------------------------------


def test_reads_of_what_was_trimmed_are_not_the_disks(measure: Measure, disk: Path) -> None:
    record = measure(disk, span="4MiB", read_fraction=0.5, trim_fraction=0.5, **COUNTED)
    assert "unwritten_extents" in codes(record)


@pytest.mark.needs("loop devices")
def test_reads_of_holes_of_a_backing_file_are_not_the_disks(measure: Measure, disk: Path) -> None:
    """The loop device moves all bytes, with direct I/O, and the disk none of them."""
    from iosonde.storage.setups.loop_devices import LoopDevice

    image = disk / "image"
    image.touch()
    os.truncate(image, 64 << 20)
    device = LoopDevice(image, sector_bytes=512)
    try:
        record = measure(device.path, layout="never", **COUNTED)
    finally:
        assert device.close()
    assert record.target["devices"][0]["loop_dio"] == "1"
    assert_cached(record, "cache_below")


def test_the_queue_of_a_device_and_its_scheduler_are_in_the_record(
    measure: Measure, loop_file_system: Any, request: pytest.FixtureRequest
) -> None:
    mounted = loop_file_system(size="64M")
    queue = Path(f"/sys/class/block/{Path(mounted.device).name}/queue")
    before = (queue / "scheduler").read_text().partition("[")[2].partition("]")[0]
    # The next user of this loop device would find remaining data of a test.
    request.addfinalizer(lambda: (queue / "scheduler").write_text(before))
    (queue / "scheduler").write_text("mq-deadline")
    slots = int((queue / "nr_requests").read_text())
    record = measure(mounted.directory, queue_depth=slots + 1)
    assert "queue_too_short" in codes(record)
    device = record.target["devices"][0]
    assert (device["scheduler"], device["nr_requests"], device["hardware_queues"]) == ("mq-deadline", slots, 1)
    assert "queue_too_short" not in codes(measure(mounted.directory, queue_depth=slots))


@pytest.mark.needs("overlay")
def test_an_overlay_is_measured_on_the_file_system_that_it_writes_to(
    measure: Measure, disk: Path, memory: Path, tmp_path: Path
) -> None:
    with overlay(tmp_path / "in-memory", on=memory) as merged:
        record = measure(merged, io_mode="buffered", read_fraction=0.5, **COUNTED)
    assert record.verdict and record.verdict.kind == "cache-served"
    assert "memory_file_system" in codes(record)
    with overlay(tmp_path / "on-disk", on=disk) as merged:
        record = measure(merged, read_fraction=0.5, **COUNTED)
    assert codes(record) <= NOISE
    assert record.target["file_system"]["below"]["kind"] != "overlay"
    assert codes(record) & PAUSED or number(record, "read_from_memory_share") < warning_kinds.SOME


@pytest.mark.needs("loop devices", "mkfs.ntfs", "ntfs-3g")
def test_direct_io_that_a_daemon_serves_from_its_cache_is_not_the_devices(
    measure: Measure, loop_file_system: Any
) -> None:
    mounted = loop_file_system("ntfs", size="64M", direct_io=True)
    record = measure(mounted.directory, block_size="64KiB", **COUNTED)
    assert record.target["file_system"]["kind"] == "fuseblk"
    assert not {"no_block_device", "other_io"} & codes(record)
    assert_cached(record, "reads_from_memory")


@pytest.mark.needs("FUSE", "bindfs")
def test_a_fuse_mount_of_a_directory_is_not_a_server(measure: Measure, disk: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    subprocess.run(["bindfs", disk, mounted], check=True)
    try:
        record = measure(mounted, **COUNTED)
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)
    assert not {"no_block_device", "network_file_system", "other_io"} & codes(record)
    assert record.target["devices"]


@BTRFS
def test_compressed_files_of_btrfs_are_served_from_the_page_cache(measure: Measure, loop_file_system: Any) -> None:
    """Writes in blocks of 1 MiB, which are larger than the metadata of a synchronous write."""
    mounted = loop_file_system("btrfs", size="256M", options="compress-force=zstd", direct_io=True)
    record = measure(mounted.directory, block_size="64KiB", payload="zeros", **COUNTED)
    assert_cached(record, "reads_from_memory", "not_direct", "compressing_file_system")
    synchronous = {"io_mode": "buffered", "durability": "dsync", "read_fraction": 0.0}
    record = measure(mounted.directory, block_size="1MiB", span="64MiB", payload="zeros", **synchronous, **COUNTED)
    assert_cached(record, "writes_to_memory", "compressible_data", "copying_file_system")


@BTRFS
def test_direct_writes_of_files_with_checksums_are_not_direct(measure: Measure, loop_file_system: Any) -> None:
    """The probe determines if this kernel writes them through the page cache; all bytes reach the device."""
    from iosonde.storage.targets.direct_io import writes_to_page_cache

    mounted = loop_file_system("btrfs", size="256M", direct_io=True)
    record = measure(mounted.directory, read_fraction=0.0, **COUNTED)
    assert ("not_direct" in codes(record)) == writes_to_page_cache(mounted.directory)
    assert "writes_to_memory" not in codes(record)
    without = loop_file_system("btrfs", size="256M", options="nodatacow", direct_io=True)
    record = measure(without.directory, read_fraction=0.0, **COUNTED)
    assert not {"not_direct", "copying_file_system", "compressing_file_system"} & codes(record)
