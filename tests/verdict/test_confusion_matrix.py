"""The confusion matrix of verdicts: runs on real devices whose limit is known, and the verdicts that each may have.

A row is one way to set up a run, the verdicts that are right for it, and the warnings that it must have. If the record shows
that the machine took the CPU from the run or paused it, `undetermined` and `harness-limited` are right too, and what is
derived from counters or from the share of time may be missing. Nothing makes a disturbed or cached run device-limited.
`test_rules.py` tests each rule, with facts that no machine can be made to have (heat, a hypervisor that takes its CPUs).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from engines import real_engine, wrapped_engine
from mounted import LoopFileSystem, overlay
from needs import BTRFS, lacking

from iosonde.execution.session import execute
from iosonde.metrics.verdict.evidence import SOME
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.direct_io import writes_to_page_cache
from iosonde.study.model import Study

Measure = Callable[..., Record]

pytestmark = [pytest.mark.alone, pytest.mark.system, pytest.mark.needs("root", "disk")]

NOT_DISTURBED = {"cpu_governor", "io_scheduler", "one_hardware_queue", "device_stalled"}
"""Properties of a machine or a device, as opposed to disturbances of a run."""
PAUSES = {"engine_stalled", "cpu_contention", "steal_time", "late_counters"}
"""Effects of other load and of virtual machine pauses on any run. `test_rules.py` tests when each is given."""
NOISE = {
    # Effects of other work on the machine are no fault of the rules.
    *("cpu_contention", "steal_time", "other_io", "core_saturated", "turnaround", "engine_stalled", "device_stalled"),
    *("late_counters", "harness_cost", "foreign_interrupts"),
    # This machine, from its record.
    *("cpu_governor", "io_scheduler", "one_hardware_queue", "throttled_device", "hot_device"),
}
COUNTED = {"limit_operations": 400, "duration": "60s"}
"""A load that ends with its count of I/Os: a thread that waits for a CPU does not make it smaller."""
BURN = "print('started', flush=True)\nwhile True: pass"
NEIGHBOUR = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
print(flush=True)
while True:
    os.preadv(file, [buffer], 0)
    os.pwritev(file, [buffer], 0)
"""


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure one case on a directory: parameters as in a study, what differs from 4 KiB direct reads for 300 ms."""
    if "IOSONDE_ENGINE" not in os.environ:
        monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    numbers = iter(range(100))

    def run(directory: Path | str, *, analysis: list[dict[str, Any]] | None = None, **measurement: Any) -> Record:
        load = {"span": "16MiB", "ramp": "0s", "duration": "300ms", "interval": "100ms", **measurement}
        facts = {"name": "one", "title": "One case", "question": "?", "repeats": 1, "measurement": load}
        facts |= {"parts": [{"name": "main"}], "profiles": {"standard": {}}, "analysis": analysis or []}
        study = Study.model_validate(facts)
        plan = expand(study, open_target(str(directory)))
        consent = Consent(destroy=(str(directory),)) if str(directory).startswith("/dev/") else Consent()
        (record,) = execute(plan, tmp_path / f"set{next(numbers)}", consent=consent).records()
        assert record.failure is None, record.failure
        return record

    return run


def codes(record: Record) -> set[str]:
    return {warning.code for warning in record.warnings}


@dataclass(kw_only=True)
class Bench:
    """Resources of a row."""

    directory: Path
    loops: Callable[..., LoopFileSystem]
    monkeypatch: pytest.MonkeyPatch
    stack: ExitStack
    measurement: dict[str, Any] = field(default_factory=dict)

    def loop(self) -> Path:
        """A file system on a loop device with direct I/O: all of its own."""
        return self.loops(size="192M", direct_io=True).directory

    def company(self, program: str, *arguments: str | Path, cpu: int | None = None) -> None:
        """Start a program in Python that runs until the test ends, on a CPU."""
        pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
        command = [*pinned, sys.executable, "-c", program, *map(str, arguments)]
        process = self.stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        self.stack.callback(process.kill)
        assert process.stdout and process.stdout.readline(), "it prints a line once it has started"

    def engine(self, command: str) -> None:
        """Start the engine through a shell command."""
        self.monkeypatch.setenv("IOSONDE_ENGINE", str(wrapped_engine(self.directory, command)))


def sound(bench: Bench) -> Path:
    bench.engine("exec chrt --fifo 1")
    bench.measurement = {"span": "128MiB", "block_size": "64KiB", "queue_depth": 2}
    return bench.loop()


def null(bench: Bench) -> str:
    return "null:64MiB"


def page_cached(bench: Bench) -> Path:
    bench.measurement = {"io_mode": "buffered", "page_cache": "warm"}
    return bench.directory


def buffered_writes(bench: Bench) -> Path:
    """On a device of its own: the kernel writes back pages of others to a disk at any time."""
    bench.measurement = {"io_mode": "buffered", "read_fraction": 0.0, "span": "64MiB", "limit_bytes": "16MiB"}
    return bench.loop()


def tmpfs(bench: Bench) -> Path:
    bench.measurement = {"io_mode": "buffered"}
    return Path(bench.stack.enter_context(TemporaryDirectory(dir="/dev/shm")))


def unwritten(bench: Bench) -> Path:
    bench.measurement = {"layout": "never"}
    return bench.directory


def cached_below(bench: Bench) -> Path:
    """Its file is on a loop device of its own, which no other process reads."""
    return bench.loops(size="64M", image_on=bench.loop()).directory


def throttled(bench: Bench) -> Path:
    mounted = bench.loops(size="192M", direct_io=True)
    number = Path(f"/sys/class/block/{Path(mounted.device).name}/dev").read_text().strip()
    limit = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device")
    limit.write_text(f"{number} 2000")
    bench.stack.callback(lambda: limit.write_text(f"{number} 0"))
    return mounted.directory


def throttled_drive(bench: Bench) -> Path:
    """500 IOPS, of blocks so large that a probe of the new device (blkid, 1 MiB) is a small share of its bytes."""
    from iosonde.lab import Limits, throttled_devices

    [drive] = bench.stack.enter_context(throttled_devices(Limits(iops=500), size_bytes=128 << 20))
    bench.engine("exec chrt --fifo 1")
    load = {"span": "96MiB", "block_size": "64KiB", "queue_depth": 4, "duration": "1500ms"}
    bench.measurement = {"layout": "never", **load}
    return drive.path


def starved(bench: Bench) -> Path:
    """Three processes with the engine's only CPU, at a higher priority: its jobs wait for most of the time."""
    cpu = min(os.sched_getaffinity(0))
    for _ in range(3):
        bench.company(BURN, cpu=cpu)
    bench.engine(f"exec nice -n 5 taskset -c {cpu}")
    bench.measurement = {"queue_depth": 16, "duration": "600ms"}
    return bench.directory


def quota(bench: Bench) -> Path:
    """Half of one CPU. The heartbeat may continue on another while jobs wait, whose waiting always shows the quota."""
    group = Path("/sys/fs/cgroup/cpu/iosonde-test-quota")
    group.mkdir()
    bench.stack.callback(lambda: _remove(group))
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("50000")
    bench.engine(f"echo $$ > {group}/cgroup.procs; exec")
    bench.measurement = {"io_mode": "buffered", "page_cache": "warm", "queue_depth": 16, "duration": "600ms"}
    return bench.directory


def _remove(group: Path) -> None:
    for _ in range(2400):
        try:
            return group.rmdir()
        except OSError:  # The last process is being removed.
            time.sleep(0.05)
    group.rmdir()


def stopped(bench: Bench, every_s: float = 0.4, for_s: float = 0.5) -> Path:
    """The engine is stopped again and again, by a shell that ends with it."""
    stop = f"while sleep {every_s} && kill -STOP $$; do sleep {for_s}; kill -CONT $$; done"
    bench.engine(f"({stop}) </dev/null >/dev/null 2>&1 & exec")
    bench.measurement = {"queue_depth": 16, "duration": "1500ms"}
    return bench.directory


def half_stopped(bench: Bench) -> Path:
    """For half of the time, for 40 ms at once: each stop alone is shorter than a stall that counts."""
    return stopped(bench, every_s=0.04, for_s=0.04)


def overlay_in_memory(bench: Bench) -> Path:
    memory = Path(bench.stack.enter_context(TemporaryDirectory(dir="/dev/shm")))
    bench.measurement = {"io_mode": "buffered", "read_fraction": 0.5, **COUNTED}
    return bench.stack.enter_context(overlay(bench.directory / "overlay", on=memory))


def cache_of_a_daemon(bench: Bench) -> Path:
    """Direct I/O on NTFS, which a FUSE daemon serves."""
    bench.measurement = {"block_size": "64KiB", **COUNTED}
    return bench.loops("ntfs", size="64M", direct_io=True).directory


def compressed_reads(bench: Bench) -> Path:
    bench.measurement = {"block_size": "64KiB", "payload": "zeros", **COUNTED}
    return bench.loops("btrfs", size="256M", options="compress-force=zstd", direct_io=True).directory


def compressed_writes(bench: Bench) -> Path:
    """In blocks of 1 MiB, which are larger than the metadata of a synchronous write."""
    place = compressed_reads(bench)
    bench.measurement |= {"block_size": "1MiB", "span": "64MiB", "io_mode": "buffered", "durability": "dsync"}
    bench.measurement |= {"read_fraction": 0.0}
    return place


def busy_neighbour(bench: Bench) -> Path:
    directory = bench.loop()
    (directory / "theirs").write_bytes(bytes(1 << 20))
    bench.company(NEIGHBOUR, directory / "theirs")
    return directory


Prepare = Callable[[Bench], Path | str]

DISTURBED = {"undetermined", "harness-limited"}

MATRIX: list[tuple[Prepare, set[str], set[str]]] = [
    (sound, {"device-limited"}, set()),
    (null, {"harness-limited"}, {"null_backend"}),
    (page_cached, {"cache-served"}, {"reads_from_memory"}),
    (buffered_writes, {"cache-served"}, {"writes_to_memory"}),
    (tmpfs, {"cache-served"}, {"memory_file_system"}),
    (unwritten, {"cache-served"}, {"unwritten_extents"}),
    (cached_below, {"cache-served"}, {"cache_below"}),
    (throttled, DISTURBED, {"throttled_device"}),
    (starved, DISTURBED, {"cpu_contention"}),
    (quota, {"cache-served"}, {"cpu_contention", "reads_from_memory"}),
    (throttled_drive, {"device-limited"}, set()),
    (stopped, {"undetermined"}, {"engine_stalled"}),
    (half_stopped, {"undetermined"}, {"engine_stalled"}),
    (busy_neighbour, DISTURBED, {"other_io"}),
    (overlay_in_memory, {"cache-served"}, {"memory_file_system"}),
    (cache_of_a_daemon, {"cache-served"}, {"reads_from_memory"}),
    (compressed_reads, {"cache-served"}, {"reads_from_memory", "not_direct", "compressing_file_system"}),
    (compressed_writes, {"cache-served"}, {"writes_to_memory", "compressible_data", "copying_file_system"}),
]
NEEDS = {
    sound: ("real-time scheduling",),
    throttled: ("blkio throttle",),
    throttled_drive: ("qemu-storage-daemon", "FUSE", "loop devices", "real-time scheduling"),
    quota: ("cpu quota",),
    overlay_in_memory: ("overlay",),
    cache_of_a_daemon: ("loop devices", "mkfs.ntfs", "ntfs-3g"),
    **dict.fromkeys((compressed_reads, compressed_writes), BTRFS.args),
}


@pytest.mark.parametrize(
    ("prepare", "verdicts", "warnings"),
    [pytest.param(*row, id=row[0].__name__, marks=pytest.mark.needs(*NEEDS.get(row[0], ()))) for row in MATRIX],
)
def test_a_run_has_the_verdict_of_what_limited_it(
    prepare: Prepare,
    verdicts: set[str],
    warnings: set[str],
    tmp_path: Path,
    measure: Measure,
    loop_file_system: Callable[..., LoopFileSystem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    with ExitStack() as stack:
        bench = Bench(directory=directory, loops=loop_file_system, monkeypatch=monkeypatch, stack=stack)
        target = prepare(bench)
        record = measure(target, **bench.measurement)
    found = codes(record)
    assert record.verdict, record.failure
    if prepare is throttled_drive:
        assert record.verdict.evidence["below_cache_share"] is None, "what is below the device is not visible"
    if found & PAUSES - warnings:
        assert record.verdict.kind in verdicts - {"device-limited"} | DISTURBED, (record.verdict, found)
        return
    assert warnings <= found, (found, record.verdict)
    assert record.verdict.kind in verdicts, (record.verdict, found)
    if "device-limited" in verdicts:
        assert found <= NOT_DISTURBED, found


# Facts of the kernel in a record of the real engine


def number(record: Record, name: str) -> float:
    assert record.verdict
    value = record.verdict.evidence[name]
    assert value is not None, f"the record does not contain `{name}`"
    return value


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


def test_a_percentile_that_the_study_asks_for_needs_enough_ios(measure: Measure, tmp_path: Path) -> None:
    tail = [{"kind": "peak", "over": "queue_depth", "metric": "completion_latency_ns_p99_9"}]
    record = measure(
        tmp_path, analysis=tail, io_mode="buffered", page_cache="warm", limit_operations=500, duration="60s"
    )
    assert "short_for_tail" in codes(record)
    assert number(record, "cached_before_share") >= 0.99  # The kernel may reclaim a page at any time.


@pytest.mark.needs("overlay", "FUSE", "bindfs")
def test_directories_that_are_mounted_again_are_measured_on_the_disk_below(measure: Measure, tmp_path: Path) -> None:
    (disk := tmp_path / "data").mkdir()
    with overlay(tmp_path / "on-disk", on=disk) as merged:
        record = measure(merged, read_fraction=0.5, **COUNTED)
    assert codes(record) <= NOISE
    assert record.target["file_system"]["below"]["kind"] != "overlay"
    assert codes(record) & PAUSES or number(record, "read_from_memory_share") < SOME
    (mounted := tmp_path / "mounted").mkdir()
    subprocess.run(["bindfs", disk, mounted], check=True)
    try:
        record = measure(mounted, **COUNTED)
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)
    assert not {"no_block_device", "network_file_system", "other_io"} & codes(record)
    assert record.target["devices"]


@BTRFS
def test_direct_writes_of_files_with_checksums_are_not_direct(measure: Measure, loop_file_system: Any) -> None:
    """The probe determines if this kernel writes them through the page cache; all bytes reach the device."""
    mounted = loop_file_system("btrfs", size="256M", direct_io=True)
    record = measure(mounted.directory, read_fraction=0.0, **COUNTED)
    assert ("not_direct" in codes(record)) == writes_to_page_cache(mounted.directory)
    assert "writes_to_memory" not in codes(record)
    without = loop_file_system("btrfs", size="256M", options="nodatacow", direct_io=True)
    record = measure(without.directory, read_fraction=0.0, **COUNTED)
    assert not {"not_direct", "copying_file_system", "compressing_file_system"} & codes(record)
