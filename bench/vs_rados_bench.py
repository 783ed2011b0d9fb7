"""The engine against `rados bench`: operations per second on one private Ceph cluster, in paired, interleaved runs.

    python bench/vs_rados_bench.py [--operations write,sequential_read,random_read] [--pairs 9] [--seconds 8]
                                   [--size 4096] [--depth 16] [--read-objects 10000] [--target DIRECTORY]

Up to three comparisons with one client thread: writes of new objects, sequential reads and random reads, each with
`depth` operations in flight. Each run starts once the object daemon is idle: what it does in the background after one
run (writes in place, removal of objects) would otherwise slow down the next. The engine writes the objects that it
reads, so its measurement of reads starts after a ramp. `rados bench` reads each object once in order and stops after
the last: sequential reads need more objects (`--read-objects`) than it reads in `seconds`. Both use librados and the
same pool; each has objects of its own. `rados bench` compares the first bytes of what it reads, the engine all of them.
Prints a Markdown table, and exits with 1 unless agreement within 5 % is shown: the whole interval of each ratio must be
within 0.95 to 1.05.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
from pairs import interleaved, provenance, ratio_of, shown, table

from iosonde.execution.engine import drive, find_engine
from iosonde.execution.environment import capture
from iosonde.execution.stop import Stop
from iosonde.servers.ceph import Layout
from iosonde.servers.ceph_cluster import POOL, CephCluster
from iosonde.servers.directories import Directories
from iosonde.storage import journal
from iosonde.workload.engine_spec import engine_spec

HEAD = ("operation", "engine, 1/s", "rados bench, 1/s", "ratio")
OPERATIONS = {"write": "write", "sequential_read": "seq", "random_read": "rand"}
TOLERANCE = 0.05
RAMP_S = 3
IDLE_S, IDLE_CPU = 1.0, 0.05
"""The object daemon is idle once it uses less than this share of a core for this long."""
OWN_OBJECTS = 100_000
"""More than the engine writes in a run, so that it writes new objects as `rados bench` does."""


class BenchError(Exception):
    """A run did not give what it must."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all comparisons share."""

    engine: Path
    cluster: CephCluster
    seconds: int
    size: int
    depth: int
    read_objects: int

    def ours(self, operation: str) -> float:
        """Operations per second of the engine."""
        self.wait_until_idle()
        stop = Stop()
        try:
            spec = engine_spec(self._workload(operation), seed=1, run_id="bench", devices=[])
            done = drive(spec, on_event=lambda _: None, stop=stop, engine=self.engine)
        finally:
            stop.close()
        if done.result is None:
            raise BenchError(f"the engine failed: {done.failure}")
        if done.result["objects"]["wrong"]:
            raise BenchError("objects are wrong")
        seconds = (done.result["end_ns"] - done.result["begin_ns"]) / 1e9
        return sum(int(job["operations"]) for job in done.result["jobs"]) / seconds

    def theirs(self, operation: str) -> float:
        """Operations per second of `rados bench`."""
        self.wait_until_idle()
        block = ["-b", str(self.size), "--no-cleanup"] if operation == "write" else []
        output = self.rados("bench", str(self.seconds), OPERATIONS[operation], "-t", str(self.depth), *block)
        found = re.search(r"^Total (?:writes|reads) made: +(\d+)", output, re.MULTILINE)
        time = re.search(r"^Total time run: +([\d.]+)", output, re.MULTILINE)
        if not found or not time:
            raise BenchError(f"rados bench printed no result: {output[-500:]}")
        return int(found[1]) / float(time[1])

    def wait_until_idle(self) -> None:
        """Return once the object daemon has finished its background work."""
        daemon = psutil.Process(self.cluster.pid_of("osd.0"))
        while daemon.cpu_percent(IDLE_S) > IDLE_CPU * 100:
            pass

    def rados(self, *arguments: str) -> str:
        """What the program `rados` prints."""
        base = ["rados", "-c", str(self.cluster.configuration), "-p", POOL]
        return subprocess.run([*base, *arguments], capture_output=True, text=True, check=True).stdout

    def _workload(self, operation: str) -> dict[str, object]:
        streams = [
            {
                "name": "main",
                "jobs": 1,
                "queue_depth": self.depth,
                "operation": operation,
                "arrival": {"kind": "closed"},
            }
        ]
        config = str(self.cluster.configuration)
        return {
            "kind": "objects",
            "store": {"kind": "rados", "library": None, "config_path": config, "user": "admin", "pool": POOL},
            "object_bytes": self.size,
            "objects": OWN_OBJECTS if operation == "write" else self.read_objects,
            "content_seed": 1,
            "streams": streams,
            "ramp_ns": 0 if operation == "write" else RAMP_S * 10**9,
            "duration_ns": self.seconds * 10**9,
            "interval_ns": 10**9,
            "timeout_ns": 60 * 10**9,
            "delete_after": True,
        }


def main() -> int:
    """Run all comparisons and print the table."""
    parser = argparse.ArgumentParser(description="The engine against rados bench, in operations per second")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--read-objects", type=int, default=10_000)
    parser.add_argument("--target", type=Path)
    arguments = parser.parse_args()
    engine, rows, outside = find_engine(), [], []
    with tempfile.TemporaryDirectory(prefix="iosonde-bench-", dir=arguments.target) as name:
        Path(name).chmod(0o711)
        cluster = _started(Path(name))
        try:
            bench = Bench(
                engine=engine, cluster=cluster, seconds=arguments.seconds, size=arguments.size, depth=arguments.depth,
                read_objects=arguments.read_objects,
            )  # fmt: skip
            if arguments.operations != "write":
                _write_for_reads(bench)
            for operation in arguments.operations.split(","):
                found = interleaved(
                    lambda o=operation: bench.ours(o), lambda o=operation: bench.theirs(o), pairs=arguments.pairs
                )
                pairs = " ".join(f"{ours:,.0f}/{theirs:,.0f}" for ours, theirs in found)
                print(f"{operation}: {pairs}", file=sys.stderr)
                ratio = ratio_of(found, lambda rate: rate)
                rows.append(
                    [
                        operation,
                        *(f"{sorted(each)[len(each) // 2]:,.0f}" for each in zip(*found, strict=True)),
                        shown(ratio),
                    ]
                )
                low, high = (ratio.low or 0.0, ratio.high or math.inf) if ratio else (0.0, math.inf)
                outside += [operation] if low < 1 - TOLERANCE or high > 1 + TOLERANCE else []
        finally:
            cluster.remove()
            if journal.find(cluster.directories.own):
                journal.remove(cluster.directories.own)
    print(provenance(capture(engine), f"Ceph {cluster.installation.version}"))
    print()
    print(table(HEAD, rows))
    if outside:
        print(f"\nagreement within {TOLERANCE:.0%} is not shown for: {', '.join(outside)}")
    return 1 if outside else 0


def _started(place: Path) -> CephCluster:
    directories = Directories(own=place / "iosonde-be9c4000", name="ceph-be9c4000")
    layout = Layout(osds=1, replication=1, placement_groups=32, osd_bytes=4 << 30, settings={})
    cluster = CephCluster.locate(directories, layout)
    try:
        cluster.provision()
        cluster.start()
    except BaseException:
        cluster.remove()
        raise
    return cluster


def _write_for_reads(bench: Bench) -> None:
    """Write the objects that `rados bench` reads: as many as the engine has."""
    bench.rados(
        *("bench", "600", "write", "-t", str(bench.depth), "-b", str(bench.size), "--no-cleanup"),
        *("--max-objects", str(bench.read_objects)),
    )


if __name__ == "__main__":
    sys.exit(main())
