"""The confusion matrix of verdicts: runs on real devices whose limit is known, and the verdicts that each may have.

A row is one way to set up a run, the verdicts that are right for it, and the warnings that it must have. If the record shows
that the machine took the CPU from the run or paused it, `undetermined` and `harness-limited` are right too, and what is
derived from counters or from the share of time may be missing. Nothing makes a disturbed or cached run device-limited.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engines import measuring_engine, wrapped_engine
from mounted import LoopFileSystem
from tiers import skip_paused

from iosonde.results.schema import Record

pytestmark = [pytest.mark.alone, pytest.mark.system, pytest.mark.needs("root", "disk")]

NOT_DISTURBED = {"cpu_governor", "io_scheduler", "one_hardware_queue", "device_stalled"}
"""Properties of a machine or a device, as opposed to disturbances of a run."""
PAUSES = {"engine_stalled", "cpu_contention", "steal_time", "late_counters"}
"""Effects of other load and of virtual machine pauses on any run. `test_rules.py` tests when each is given."""
BURN = "print(flush=True)\nwhile True: pass"
NEIGHBOUR = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
print(flush=True)
while True:
    os.preadv(file, [buffer], 0)
    os.pwritev(file, [buffer], 0)
"""


@dataclass(kw_only=True)
class Bench:
    """Resources of a row."""

    directory: Path
    loops: Callable[..., LoopFileSystem]
    company: Callable[..., None]
    monkeypatch: pytest.MonkeyPatch
    stack: ExitStack
    measurement: dict[str, Any] = field(default_factory=dict)
    stopping: Stopping | None = None

    def loop(self) -> Path:
        """A file system on a loop device with direct I/O: all of its own."""
        return self.loops(size="192M", direct_io=True).directory

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
    import tempfile

    bench.measurement = {"io_mode": "buffered"}
    return Path(bench.stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))


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
    """A drive of the lab: 500 IOPS, by a daemon behind FUSE that the kernel's counters do not show.

    Of blocks so large that a probe of the new device by another process (blkid, 1 MiB) is a small share of its bytes.
    """
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
    """Half of one CPU at queue depth 16: 50 ms of each 100 ms.

    The quota is handed out for each CPU, so the heartbeat may continue on another CPU while jobs wait: the jobs' waiting
    for a CPU is what always shows it.
    """
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


def stopped(bench: Bench, after_s: float = 0.4, for_s: float = 0.5) -> Path:
    bench.stopping = bench.stack.enter_context(Stopping(bench.directory, after_s=after_s, for_s=for_s))
    bench.measurement = {"queue_depth": 16, "duration": "1500ms"}
    return bench.directory


def half_stopped(bench: Bench) -> Path:
    """Stopped for half of the time, for 40 ms at once: each stop alone is shorter than a stall that counts."""
    return stopped(bench, after_s=0.04, for_s=0.04)


class Stopping:
    """Stops the engine that measures in a directory, again and again until it exits."""

    def __init__(self, directory: Path, *, after_s: float, for_s: float) -> None:
        self.directory, self.after_s, self.for_s = directory, after_s, for_s
        self.late_s = 0.0
        """For how long this thread itself had no CPU: then the engine ran meanwhile."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._stop)

    def __enter__(self) -> Stopping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _stop(self) -> None:
        pid = None
        while pid is None:
            if self._ended.wait(0.01):
                return
            pid = measuring_engine(os.getpid(), self.directory)
        try:
            engine = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            while not self._ended.is_set():
                self._sleep(self.after_s)
                signal.pidfd_send_signal(engine, signal.SIGSTOP)
                time.sleep(self.for_s)
                signal.pidfd_send_signal(engine, signal.SIGCONT)
        except ProcessLookupError:  # It has exited.
            return
        finally:
            os.close(engine)

    def _sleep(self, seconds: float) -> None:
        begin = time.monotonic()
        time.sleep(seconds)
        self.late_s += time.monotonic() - begin - seconds


def busy_neighbour(bench: Bench) -> Path:
    directory = bench.loop()
    (directory / "theirs").write_bytes(bytes(1 << 20))
    bench.company(NEIGHBOUR, str(directory / "theirs"))
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
]
NEEDS = {
    throttled: ("blkio throttle",),
    throttled_drive: ("qemu-storage-daemon", "FUSE", "loop devices"),
    quota: ("cpu quota",),
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
    measure: Callable[..., Record],
    loop_file_system: Callable[..., LoopFileSystem],
    company: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    with ExitStack() as stack:
        bench = Bench(
            directory=directory, loops=loop_file_system, company=company, monkeypatch=monkeypatch, stack=stack
        )
        target = prepare(bench)
        record = measure(target, **bench.measurement)
    codes = {warning.code for warning in record.warnings}
    assert record.verdict, record.failure
    if prepare is throttled_drive:
        assert record.verdict.evidence["below_cache_share"] is None, "what is below the device is not visible"
    if bench.stopping and bench.stopping.late_s > 0.5:
        skip_paused(bench.stopping.late_s)
    if codes & PAUSES - warnings:
        assert record.verdict.kind in verdicts - {"device-limited"} | DISTURBED, (record.verdict, codes)
        return
    assert warnings <= codes, (codes, record.verdict)
    assert record.verdict.kind in verdicts, (record.verdict, codes)
    if "device-limited" in verdicts:
        assert codes <= NOT_DISTURBED, codes
