"""Every warning, provoked on a real file or device with the real engine; and none on a sound run.

What a machine cannot be made to do (heat, a slow clock, a hypervisor that takes its CPUs) is tested from facts in
`test_rules.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mounted import overlay
from needs import BTRFS

from iosonde.results.schema import Record
from iosonde.verdict import warning_kinds

Measure = Callable[..., Record]

pytestmark = [pytest.mark.alone, pytest.mark.system, pytest.mark.needs("disk")]

NOISE = {
    # Effects of other work on the machine are no fault of the rules.
    *("cpu_contention", "steal_time", "other_io", "core_saturated", "turnaround", "engine_stalled", "device_stalled"),
    *("late_counters", "harness_cost"),
    # This machine, from its record.
    *("cpu_governor", "io_scheduler", "one_hardware_queue", "throttled_device", "hot_device"),
}
PAUSED = {"engine_stalled", "late_counters"}
"""Effects of a pause of the machine on a short run: then shares of bytes and of time may be unknown."""
COUNTED = {"limit_operations": 400, "duration": "60s"}
"""A load that ends with its count of I/Os: a thread that waits for a CPU does not make it smaller."""


def codes(record: Record) -> set[str]:
    return {warning.code for warning in record.warnings}


def kind(record: Record) -> str:
    assert record.verdict
    return record.verdict.kind


def number(record: Record, name: str) -> float:
    assert record.verdict
    value = record.verdict.evidence[name]
    assert value is not None, f"the record does not contain `{name}`"
    return value


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


def test_a_sound_run_has_no_warning_of_its_own(measure: Measure, disk: Path, real_time_engine: None) -> None:
    """Direct reads and writes of 128 MiB that iosonde wrote before. With real-time priority the engine is never late."""
    record = measure(disk, span="128MiB", block_size="64KiB", read_fraction=0.5, queue_depth=2)
    assert codes(record) <= NOISE
    assert record.verdict
    assert number(record, "in_flight_share") > 0
    assert number(record, "missing_share") == 0
    assert number(record, "harness_ns_per_io") > 5
    assert record.harness
    assert record.harness["streams"]["main"]["shape"].startswith("random uniform with_replacement, queue depth 1,")


# Memory answers ------------------------------------------------------------------------------------------------------


def test_warm_buffered_reads_are_memorys(measure: Measure, disk: Path) -> None:
    record = measure(disk, io_mode="buffered", page_cache="warm", **COUNTED)
    assert "span_fits_memory" in codes(record)
    assert number(record, "cached_before_share") >= 0.99  # The kernel may reclaim a page at any time.
    if not codes(record) & PAUSED:
        assert "reads_from_memory" in codes(record)
        assert kind(record) == "cache-served"


@pytest.mark.quiet
def test_buffered_writes_are_memorys_until_they_are_written_back(measure: Measure, disk: Path) -> None:
    record = measure(disk, io_mode="buffered", read_fraction=0.0, span="64MiB", limit_bytes="16MiB")
    assert "writes_to_memory" in codes(record)
    assert kind(record) == "cache-served"


def test_a_target_in_memory_is_named_as_what_it_is(measure: Measure, memory: Path) -> None:
    record = measure(memory, io_mode="buffered")
    assert "memory_file_system" in codes(record)
    assert kind(record) == "cache-served"


def test_reads_of_what_was_never_written_are_not_the_disks(measure: Measure, disk: Path) -> None:
    record = measure(disk, layout="never")
    assert "unwritten_extents" in codes(record)
    assert kind(record) == "cache-served"
    assert number(record, "missing_share") == 1


def test_reads_of_what_was_trimmed_are_not_the_disks(measure: Measure, disk: Path) -> None:
    record = measure(disk, span="4MiB", read_fraction=0.5, trim_fraction=0.5, **COUNTED)
    assert "unwritten_extents" in codes(record)


def test_reads_of_a_loop_device_are_served_from_the_cache_of_its_file(measure: Measure, loop_file_system: Any) -> None:
    """Its file is on a loop device of its own, which no other process reads."""
    below = loop_file_system(size="192M", direct_io=True)
    mounted = loop_file_system(size="64M", image_on=below.directory)
    record = measure(mounted.directory, **COUNTED)
    assert "cache_below" in codes(record)
    assert kind(record) == "cache-served"


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
    assert number(record, "read_from_memory_share") < warning_kinds.SOME
    assert "cache_below" in codes(record)


@pytest.mark.quiet
def test_a_span_as_small_as_a_drives_own_memory_is_doubtful(measure: Measure, disk: Path) -> None:
    record = measure(disk, block_size="64KiB", queue_depth=4)
    assert "span_fits_device_cache" in codes(record)
    assert number(record, "passes") >= 2


# The tool and its processor ------------------------------------------------------------------------------------------


@pytest.mark.quiet
def test_cached_reads_in_a_deep_queue_saturate_their_core(measure: Measure, disk: Path) -> None:
    record = measure(disk, io_mode="buffered", page_cache="warm", queue_depth=32)
    assert "core_saturated" in codes(record)


@pytest.mark.quiet
def test_filling_large_blocks_one_at_a_time_is_the_tools_time(measure: Measure, memory: Path) -> None:
    record = measure(memory, io_mode="buffered", read_fraction=0.0, block_size="1MiB", span="64MiB")
    assert "turnaround" in codes(record)
    assert number(record, "turnaround_share") > 0.1
    assert number(record, "turnaround_ns_per_io") > 1000
    message = next(warning.message for warning in record.warnings if warning.code == "turnaround")
    assert "ns of it harness overhead" in message


def test_the_harness_is_weighed_against_a_job_of_one_io_at_a_time(
    measure: Measure, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk is fast enough for it here, so the scale is made finer."""
    monkeypatch.setattr(warning_kinds, "HARNESS_SHARE", 1e-9)
    assert "harness_cost" in codes(measure(disk, **COUNTED))
    assert "harness_cost" not in codes(measure(disk, queue_depth=4, **COUNTED))


def test_the_clock_is_weighed_against_an_io(measure: Measure, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warning_kinds, "CLOCK_SHARE", 1e-9)
    assert "slow_clock" in codes(measure(disk, **COUNTED))


SPIN = "print(flush=True)\nwhile True: pass"


@pytest.mark.quiet
def test_a_job_that_shares_its_core_is_named(
    measure: Measure, disk: Path, company: Callable[..., None], first_cpu: int
) -> None:
    for _ in range(2):
        company(SPIN, cpu=first_cpu)
    record = measure(disk, cpus=[first_cpu], queue_depth=8)
    assert "cpu_contention" in codes(record)
    assert number(record, "cpu_wait_share") > 0.1


# A microsecond of sleep is a timer interrupt; without slack (prctl(2), PR_SET_TIMERSLACK is 29) they are not joined.
TIMERS = """
import ctypes, time
ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)
print(flush=True)
while True: time.sleep(1e-6)
"""


@pytest.mark.quiet
def test_a_core_that_serves_others_interrupts_is_named(
    measure: Measure, disk: Path, company: Callable[..., None], first_cpu: int
) -> None:
    for _ in range(4):
        company(TIMERS, cpu=first_cpu)
    slow = {"arrival": "constant", "rate": "100"}  # so that its own I/Os explain next to nothing
    record = measure(disk, cpus=[first_cpu], **slow)
    assert "foreign_interrupts" in codes(record)
    assert number(record, "interrupts_per_second") > 10_000


@pytest.fixture
def first_cpu() -> int:
    import os

    return min(os.sched_getaffinity(0))


# The device ----------------------------------------------------------------------------------------------------------

READ_ALL = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
print(flush=True)
while True:
    if not os.preadv(file, [buffer], 0): raise SystemExit
"""


@pytest.mark.quiet
def test_others_on_the_same_device_are_named(
    measure: Measure, loop_file_system: Any, company: Callable[..., None]
) -> None:
    mounted = loop_file_system(size="64M")
    (mounted.directory / "theirs").write_bytes(bytes(1 << 20))
    company(READ_ALL, str(mounted.directory / "theirs"))
    record = measure(mounted.directory)
    assert "other_io" in codes(record)
    assert number(record, "other_bytes_share") > 0.05


@pytest.mark.needs("blkio throttle")
def test_a_cgroups_limit_on_the_device_is_named(measure: Measure, loop_file_system: Any) -> None:
    mounted = loop_file_system(size="64M")
    throttle = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device")
    device = Path(f"/sys/class/block/{Path(mounted.device).name}/dev").read_text().strip()
    throttle.write_text(f"{device} 2000")
    try:
        record = measure(mounted.directory)
    finally:
        throttle.write_text(f"{device} 0")
    assert "throttled_device" in codes(record)
    assert "`read_iops_device 2000`" in next(w.message for w in record.warnings if w.code == "throttled_device")


def test_more_in_flight_than_the_kernel_has_places_for_is_named(measure: Measure, loop_file_system: Any) -> None:
    mounted = loop_file_system(size="64M")
    places = int(Path(f"/sys/class/block/{Path(mounted.device).name}/queue/nr_requests").read_text())
    assert "queue_too_short" in codes(measure(mounted.directory, queue_depth=places + 1))
    assert "queue_too_short" not in codes(measure(mounted.directory, queue_depth=places))


def test_one_queue_and_a_scheduler_are_noted_once_the_rate_is_high(
    measure: Measure, loop_file_system: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    mounted = loop_file_system(size="64M")
    queue = Path(f"/sys/class/block/{Path(mounted.device).name}/queue")
    settings = {"scheduler": "mq-deadline", "rotational": "0"}  # A loop device takes the latter from the device below.
    before = {name: (queue / name).read_text().strip() for name in settings}
    before["scheduler"] = before["scheduler"].partition("[")[2].partition("]")[0]
    # The next user of this loop device would find remaining data of a test.
    request.addfinalizer(lambda: [(queue / name).write_text(value) for name, value in before.items()])
    for name, value in settings.items():
        (queue / name).write_text(value)
    monkeypatch.setattr(warning_kinds, "HIGH_IOPS", 10**9)
    assert not {"one_hardware_queue", "io_scheduler"} & codes(measure(mounted.directory, jobs=2, **COUNTED))
    monkeypatch.setattr(warning_kinds, "HIGH_IOPS", 0)  # A loop device on a busy machine is not fast.
    assert {"one_hardware_queue", "io_scheduler"} <= codes(measure(mounted.directory, jobs=2, **COUNTED))


@pytest.mark.needs("overlay")
def test_an_overlay_is_measured_on_the_file_system_that_it_writes_to(
    measure: Measure, disk: Path, memory: Path, tmp_path: Path
) -> None:
    with overlay(tmp_path / "in-memory", on=memory) as merged:
        record = measure(merged, io_mode="buffered", read_fraction=0.5, **COUNTED)
    assert "memory_file_system" in codes(record)
    assert kind(record) == "cache-served"
    with overlay(tmp_path / "on-disk", on=disk) as merged:
        record = measure(merged, read_fraction=0.5, **COUNTED)
    assert codes(record) <= NOISE
    assert record.target["file_system"]["below"]["kind"] != "overlay"
    assert number(record, "read_from_memory_share") < warning_kinds.SOME


@pytest.mark.needs("loop devices", "mkfs.ntfs", "ntfs-3g")
def test_direct_io_that_a_daemon_serves_from_its_cache_is_not_the_devices(
    measure: Measure, loop_file_system: Any
) -> None:
    mounted = loop_file_system("ntfs", size="64M", direct_io=True)
    record = measure(mounted.directory, block_size="64KiB", **COUNTED)
    assert record.target["file_system"]["kind"] == "fuseblk"
    assert "reads_from_memory" in codes(record)
    assert not {"no_block_device", "other_io"} & codes(record)
    assert kind(record) == "cache-served"


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
    assert number(record, "read_from_memory_share") >= 0


@BTRFS
def test_direct_reads_of_compressed_files_are_served_from_the_page_cache(
    measure: Measure, loop_file_system: Any
) -> None:
    mounted = loop_file_system("btrfs", size="256M", options="compress=zstd", direct_io=True)
    record = measure(mounted.directory, block_size="64KiB", payload="zeros", **COUNTED)
    assert {"reads_from_memory", "not_direct", "compressing_file_system"} <= codes(record)
    assert kind(record) == "cache-served"


@BTRFS
def test_direct_writes_of_files_with_checksums_are_not_direct(measure: Measure, loop_file_system: Any) -> None:
    """The probe determines if this kernel writes them through the page cache; all bytes reach the device."""
    from iosonde.storage.targets.direct_io import writes_to_page_cache

    mounted = loop_file_system("btrfs", size="256M", direct_io=True)
    record = measure(mounted.directory, read_fraction=0.0, **COUNTED)
    assert ("not_direct" in codes(record)) == writes_to_page_cache(mounted.directory)
    assert "writes_to_memory" not in codes(record)
    without = loop_file_system("btrfs", size="256M", options="nodatacow", direct_io=True)
    assert "not_direct" not in codes(measure(without.directory, read_fraction=0.0, **COUNTED))


@BTRFS
def test_writes_that_are_compressed_have_not_reached_the_device(measure: Measure, loop_file_system: Any) -> None:
    """In blocks of 1 MiB, which are larger than the metadata of a synchronous write."""
    mounted = loop_file_system("btrfs", size="256M", options="compress-force=zstd", direct_io=True)
    synchronous = {"io_mode": "buffered", "durability": "dsync", "read_fraction": 0.0}
    record = measure(mounted.directory, block_size="1MiB", span="64MiB", payload="zeros", **synchronous, **COUNTED)
    message = next(warning.message for warning in record.warnings if warning.code == "writes_to_memory")
    assert "compress-force=zstd" in message
    assert "`zeros`" in message
    assert kind(record) == "cache-served"


@BTRFS
def test_a_file_system_that_copies_and_compresses_is_noted(measure: Measure, loop_file_system: Any) -> None:
    mounted = loop_file_system("btrfs", size="256M", options="compress=zstd")
    record = measure(mounted.directory, read_fraction=0.5, **COUNTED)
    assert {"copying_file_system", "compressing_file_system"} <= codes(record)
    plain = loop_file_system("btrfs", size="256M", options="nodatacow")
    assert not {"copying_file_system", "compressing_file_system"} & codes(
        measure(plain.directory, read_fraction=0.5, **COUNTED)
    )


def test_zeros_are_noted(measure: Measure, disk: Path) -> None:
    assert "compressible_data" in codes(measure(disk, read_fraction=0.0, payload="zeros", **COUNTED))


# The run -------------------------------------------------------------------------------------------------------------


def test_a_run_of_a_few_latencies_is_too_short(measure: Measure, disk: Path) -> None:
    record = measure(disk, block_size="4MiB", span="32MiB", queue_depth=8, limit_bytes="32MiB", duration="10s")
    assert codes(record) & {"short_run", "engine_stalled"}


def test_a_run_with_too_few_ios_for_the_requested_percentile_has_a_warning(measure: Measure, disk: Path) -> None:
    tail = [{"kind": "peak", "over": "queue_depth", "metric": "completion_latency_ns_p99_9"}]
    assert "short_for_tail" in codes(measure(disk, analysis=tail, limit_operations=500))
    assert "short_for_tail" not in codes(measure(disk, **COUNTED))


def test_a_limit_that_ends_a_run_is_not_the_tools_fault(measure: Measure, disk: Path) -> None:
    """Little's law alone would blame the tool for a short run that a limit in bytes ends, with a deep queue."""
    record = measure(disk, span="128MiB", queue_depth=64, limit_bytes="8MiB", duration="10s")
    assert "queue_underutilized" not in codes(record)
    assert number(record, "unexplained_share") < 0.1 + number(record, "mean_latency_share")


# Conditions that cannot be provoked on every machine ------------------------------------------------------------------


@pytest.mark.needs("CPU governor")
def test_a_governor_that_saves_power_is_noted(measure: Measure, disk: Path) -> None:
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    assert ("cpu_governor" in codes(measure(disk))) == (governor.read_text().strip() != "performance")


@pytest.mark.needs("temperature sensor")
def test_a_temperature_sensor_is_read_before_and_after(measure: Measure, disk: Path) -> None:
    record = measure(disk)
    assert record.target_after["devices"]
    assert number(record, "temperature_celsius") > 0


def test_stolen_time_is_read_where_there_is_a_hypervisor(measure: Measure, disk: Path) -> None:
    record = measure(disk)
    assert number(record, "steal_share") >= 0
