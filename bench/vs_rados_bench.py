"""The engine against `rados bench` on one private Ceph cluster: rates and CPU time per operation, in interleaved pairs.

    python bench/vs_rados_bench.py [--operations write,sequential_read,random_read] [--pairs 25] [--seconds 4]
                                   [--size 4096] [--depth 16] [--read-objects 10000] [--hints] [--iops N]
                                   [--target DIRECTORY]

Up to three comparisons with one client thread: writes of new objects, sequential reads and random reads, each with
`depth` operations in flight, which the rate times the mean latency confirms. Both use librados and the same pool; each
has objects of its own. Where the CPU is the limit, other work on the machine decides the rates. With `--iops` the
object daemon is on a rate-limited device (root), which then is the limit of both.

 - Each run starts once the object daemon is idle: its background work after one run would slow down the next.
 - The first pair is not counted. BlueStore caches no data, so every read is one of the device.
 - Writes: both write new objects, and remove them after the measurement.
 - Reads: `rados bench` reads objects that were written once. The engine writes its objects in each run, before a ramp.
   In sequential reads `rados bench` reads every object once and stops; the engine starts again.
 - The first second of `rados bench` is not counted, as the engine's ramp is not.
 - `rados bench` sends a hint about the expected size with each write, and the engine does not. `--hints` leaves it on.

CPU time of the client and of the object daemon is that of the measurement. Ratios are medians over the pairs with the
interval of the sign test. Prints a Markdown table, and exits with 1
unless agreement within 5 % is shown: the whole interval of each ratio of rates must be within 0.95 to 1.05.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shared import (
    BenchError,
    driven,
    interleaved,
    median_ratio_of,
    medians,
    options,
    provenance,
    shown,
    spec_of,
    table,
)

from iosonde.features.object_stores.ceph import ClusterLayout
from iosonde.features.object_stores.ceph.cluster import POOL, CephCluster
from iosonde.lab import Limits, throttled_devices
from iosonde.storage.safety import journal
from iosonde.study.servers.directories import Directories

OPERATIONS = {"write": "write", "sequential_read": "seq", "random_read": "rand"}
TOLERANCE = 0.05
RAMP_S = {"write": 1, "sequential_read": 3, "random_read": 3}
IDLE_S, IDLE_CPU = 1.0, 0.05
"""The object daemon is idle once it uses less than this share of a core for this long."""
OWN_OBJECTS = 100_000
"""More than the engine writes in a run, so that it writes new objects as `rados bench` does."""
OSD_BYTES = 4 << 30
SETTINGS = {"bluestore_default_buffered_read": "false", "osd_memory_target": 4 << 30}
"""No cache of data, so that every read is one of the device, and room for all metadata."""
RUN_NAME = "reads"
"""Under which `rados bench` finds the objects that it reads."""
NEVER_S = 600
"""Longer than `rados bench` needs to read all objects."""
SKIPPED_S = 1
"""Not counted of `rados bench`, which has no ramp."""
PROGRESS = re.compile(r"^(?P<time>\S+) +(?P<second>\d+) +\d+ +\d+ +(?P<finished>\d+) ", re.MULTILINE)
"""A line that `rados bench --show-time` prints each second, the first one at the start."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of either program."""

    operations: int
    seconds: float
    in_flight: float
    """Mean number of operations in flight: rate times mean latency (Little's law)."""
    client_us: float
    """CPU time of the client per operation, in microseconds."""
    daemon_us: float
    """CPU time of the object daemon per operation, in microseconds."""

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


COLUMNS: Sequence[tuple[str, Callable[[Measured], float], str]] = (
    ("operations/s", lambda run: run.rate, ",.0f"),
    ("client CPU, µs", lambda run: run.client_us, ".1f"),
    ("daemon CPU, µs", lambda run: run.daemon_us, ".1f"),
)
"""Title, value and format of what is compared."""
HEAD = ("operation", "pairs", "in flight", *(f"{title}: engine / rados bench, ratio" for title, _, _ in COLUMNS))


@dataclass(kw_only=True)
class Window:
    """CPU time of processes between two moments."""

    pids: Sequence[int]
    at_start: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Start of the measurement."""
        self.at_start = [cpu_ns(pid) for pid in self.pids]

    def end(self) -> None:
        """End of the measurement."""
        self.used = [cpu_ns(pid) - at_start for pid, at_start in zip(self.pids, self.at_start, strict=True)]


def cpu_ns(pid: int) -> int:
    """CPU time of a process with all its threads; its clock is that of clock_getcpuclockid(3)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


class Bench:
    """Both programs on one cluster."""

    def __init__(self, given: argparse.Namespace, cluster: CephCluster) -> None:
        self.given, self.cluster = given, cluster

    def ours(self, operation: str) -> Measured:
        """The engine."""
        self.wait_until_idle()
        readings: list[int] = []

        def watch(event: Any) -> None:
            if event["event"] == "interval" and event["phase"] == "measure":
                readings.append(cpu_ns(self.daemon))

        done = driven(spec_of(self._workload(operation)), on_event=watch)
        if done.result["objects"]["wrong"]:
            raise BenchError("objects are wrong")
        used = done.result["process"]
        counts = done.intervals.filter(phase="measure").sort("begin_ns").select("count", "completion_latency_ns_sum")
        latency_ns, operations = counts["completion_latency_ns_sum"].sum(), counts["count"].sum()
        # The daemon's CPU time is read when an interval is reported, at its end.
        after_first = counts["count"][1:].sum()
        length_ns = done.result["end_ns"] - done.result["begin_ns"]
        return Measured(
            operations=operations,
            seconds=length_ns / 1e9,
            in_flight=latency_ns / length_ns,
            client_us=(used["user_ns"] + used["system_ns"]) / operations / 1e3,
            daemon_us=(readings[-1] - readings[0]) / after_first / 1e3,
        )

    def theirs(self, operation: str) -> Measured:
        """`rados bench`."""
        self.wait_until_idle()
        seconds = NEVER_S if operation == "sequential_read" else SKIPPED_S + self.given.seconds
        if operation == "write":
            more = ["-b", str(self.given.size), *([] if self.given.hints else ["--no-hints"])]
        else:
            more = ["--run-name", RUN_NAME]
        command = self.rados("bench", str(seconds), OPERATIONS[operation], "-t", str(self.given.depth), *more)
        with subprocess.Popen([*command, "--show-time"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            window, lines = Window(pids=[process.pid, self.daemon]), []
            for line in process.stdout:
                lines.append(line)
                found = PROGRESS.match(line)
                if found and int(found["second"]) == SKIPPED_S:
                    window.begin()
                elif "Total time run" in line:
                    window.end()
        return result_of("".join(lines), window)

    @property
    def daemon(self) -> int:
        """Process number of the object daemon."""
        return self.cluster.pid_of("osd.0")

    def wait_until_idle(self) -> None:
        """Return once the object daemon has finished its background work."""
        window = Window(pids=[self.daemon])
        while not window.used or window.used[0] > IDLE_CPU * IDLE_S * 1e9:
            window.begin()
            time.sleep(IDLE_S)
            window.end()

    def rados(self, *arguments: str) -> list[str]:
        """The program `rados` with arguments."""
        return ["rados", "-c", str(self.cluster.configuration), "-p", POOL, *arguments]

    def write_for_reads(self) -> None:
        """Write the objects that `rados bench` reads: as many as the engine has."""
        given = self.given
        size = ["-t", str(given.depth), "-b", str(given.size), "--max-objects", str(given.read_objects)]
        command = self.rados("bench", str(NEVER_S), "write", *size, "--no-cleanup", "--run-name", RUN_NAME)
        subprocess.run(command, check=True, capture_output=True)

    def _workload(self, operation: str) -> dict[str, object]:
        given, arrival = self.given, {"kind": "closed"}
        stream = {"name": "main", "jobs": 1, "queue_depth": given.depth, "operation": operation, "arrival": arrival}
        config = str(self.cluster.configuration)
        return {
            "kind": "objects",
            "store": {"kind": "rados", "library": None, "config_path": config, "user": "admin", "pool": POOL},
            "object_bytes": given.size,
            "objects": OWN_OBJECTS if operation == "write" else given.read_objects,
            "content_seed": 1,
            "streams": [stream],
            "ramp_ns": RAMP_S[operation] * 10**9,
            "duration_ns": given.seconds * 10**9,
            "interval_ns": 10**9,
            "timeout_ns": 60 * 10**9,
            "delete_after": operation == "write",
        }


def result_of(output: str, window: Window) -> Measured:
    """Parse the output of `rados bench`, without its first seconds."""
    patterns = {
        "operations": r"Total (?:writes|reads) made: +(\d+)",
        "seconds": r"Total time run: +([\d.]+)",
        "mean_latency_s": r"Average Latency\(s\): +([\d.]+)",
    }
    found = {name: re.search(pattern, output) for name, pattern in patterns.items()}
    progress = {int(each["second"]): each for each in PROGRESS.finditer(output)}
    if not all(found.values()) or not window.used or SKIPPED_S not in progress:
        raise BenchError(f"rados bench printed no result: {output[-500:]}")
    values = {name: float(each[1]) for name, each in found.items() if each}
    times = [datetime.fromisoformat(progress[second]["time"]) for second in (0, SKIPPED_S)]
    operations = int(values["operations"]) - int(progress[SKIPPED_S]["finished"])
    client_us, daemon_us = (used / operations / 1e3 for used in window.used)
    return Measured(
        operations=operations,
        seconds=values["seconds"] - (times[1] - times[0]).total_seconds(),
        in_flight=values["operations"] / values["seconds"] * values["mean_latency_s"],
        client_us=client_us,
        daemon_us=daemon_us,
    )


def main() -> int:
    """Run all comparisons and print the table."""
    given = options(
        __doc__,
        operations=",".join(OPERATIONS),
        pairs=25,
        seconds=4,
        size=4096,
        depth=16,
        read_objects=10_000,
        hints=False,
        target=Path(tempfile.gettempdir()),
        iops=0,
    )
    rows, outside = [], []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="iosonde-bench-", dir=given.target))
        Path(directory).chmod(0o711)
        devices = stack.enter_context(throttled(given.iops)) if given.iops else ()
        cluster = _started(Path(directory), devices)
        try:
            bench = Bench(given, cluster)
            if given.operations != "write":
                bench.write_for_reads()
            for operation in given.operations.split(","):
                pairs = compared(bench, operation, pairs=given.pairs)
                rows.append(row(operation, pairs))
                outside += [] if is_within(pairs) else [operation]
        finally:
            cluster.remove()
            if journal.find(cluster.directories.own):
                journal.remove(cluster.directories.own)
    print(f"{provenance(f'Ceph {cluster.installation.version}')}\n\n{table(HEAD, rows)}")
    if outside:
        print(f"\nagreement within {TOLERANCE:.0%} is not shown for: {', '.join(outside)}")
    return 1 if outside else 0


def compared(bench: Bench, operation: str, *, pairs: int) -> list[tuple[Measured, Measured]]:
    """The pairs of an operation, after one that is not counted; each is printed."""

    def reported(program: str, run: Callable[[str], Measured]) -> Measured:
        found = run(operation)
        values = ", ".join(f"{title} {value(found):{form}}" for title, value, form in COLUMNS)
        print(f"{operation}, {program}: {values}, {found.in_flight:.1f} in flight", file=sys.stderr)
        return found

    found = interleaved(
        lambda: reported("engine", bench.ours), lambda: reported("rados bench", bench.theirs), pairs=pairs + 1
    )
    return found[1:]


def row(operation: str, pairs: Sequence[tuple[Measured, Measured]]) -> list[str]:
    """The row of an operation: medians of both programs, and the ratio with its interval."""
    cells = [
        operation,
        str(len(pairs)),
        " / ".join(f"{each:.1f}" for each in medians(pairs, lambda run: run.in_flight)),
    ]
    for _, value, form in COLUMNS:
        ours, theirs = medians(pairs, value)
        cells.append(f"{ours:{form}} / {theirs:{form}}, {shown(median_ratio_of(pairs, value))}")
    return cells


def is_within(pairs: Sequence[tuple[Measured, Measured]]) -> bool:
    """Return True if the whole interval of the ratio of rates is within the tolerance."""
    ratio = median_ratio_of(pairs, lambda run: run.rate)
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low >= 1 - TOLERANCE and ratio.high <= 1 + TOLERANCE


@contextmanager
def throttled(iops: int) -> Iterator[Sequence[Path]]:
    """One rate-limited device."""
    with throttled_devices(Limits(iops=iops), count=1, size_bytes=OSD_BYTES) as devices:
        yield [Path(device.path) for device in devices]


def _started(place: Path, devices: Sequence[Path]) -> CephCluster:
    directories = Directories(own=place / "iosonde-be9c4000", name="ceph-be9c4000")
    layout = ClusterLayout(
        osds=1, replication=1, placement_groups=32, osd_bytes=OSD_BYTES, settings=SETTINGS, devices=devices
    )
    cluster = CephCluster.locate(directories, layout)
    try:
        cluster.provision()
        cluster.start()
    except BaseException:
        cluster.remove()
        raise
    return cluster


if __name__ == "__main__":
    sys.exit(main())
