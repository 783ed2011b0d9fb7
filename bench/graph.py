"""PageRank of the engine against its aims: 0.8 of the device's bandwidth, or 50 million edges per second and core.

    python bench/graph.py [--target DIRECTORY | --bandwidth SIZE] [--scale 22] [--jobs 1] [--queue-depth 16] [--pairs 5]

Two measurements, each on the same R-MAT graph:
 - PageRank without a page cache, in pairs with sequential block reads of the same file with the same distribution of
   read sizes and as many reads in flight: ratio of their bandwidths. What is limited by the CPU has a lower one.
 - PageRank with a page cache larger than the graph: edges per second of CPU time, over iterations that read nothing.
   Each edge reads the rank of a random vertex, so the rate falls with the scale of the graph.

Prints which of the two aims is reached, and exits with 1 if neither is. Run it on a quiet machine: other work changes
the bandwidths, and takes space in the cache that all cores share. `--bandwidth` (as root) measures on a device that is
limited to so many bytes per second, such as `200MB`: below what the CPU processes, the device is the limit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from shared import (
    URING,
    block_spec,
    interleaved,
    medians,
    options,
    provenance,
    random_reads,
    ratio_of,
    run_engine,
    shown,
    spec_of,
    table,
)

from iosonde.lab import Limits, throttled_devices
from iosonde.units import parse_size

AIM_SHARE = 0.8
AIM_EDGES = 50e6
ITERATIONS = 10
RANK_BYTES = 8
LIMITED_BYTES = 4 << 30
SECONDS = 3
Facts = dict[str, Any]


def main() -> int:
    """Measure, print, and compare with the aims."""
    given = options(__doc__, target=Path(), bandwidth="", scale=22, jobs=1, queue_depth=16, pairs=5)
    with limited(parse_size(given.bandwidth)) if given.bandwidth else directory(given.target) as target:
        first = graph(given, target)
        list_bytes = first["adjacency_bytes"]
        pairs = interleaved(
            lambda: read_bandwidth(graph(given, target)),
            lambda: block_bandwidth(given, target, first["request_sizes"], list_bytes),
            pairs=given.pairs,
        )
        rates = sorted(edges_in_memory(graph(given, target, list_bytes * 2)) for _ in range(given.pairs))
        waiting = graph(given, target)
    share, edges = ratio_of(pairs, lambda bandwidth: bandwidth), median(rates)
    assert share is not None, "both have a bandwidth"
    of_graph, of_block = medians(pairs, lambda bandwidth: bandwidth / 1e6)
    read_wait = waiting["io_wait_ns"] / 1e9 / waiting["seconds"] / given.jobs
    print(provenance(*cpu_facts()))
    rows = [
        ("stored edges", f"{first['edges']:,}, written in {first['build_ns'] / 1e9:.1f} s"),
        ("read by PageRank", f"{of_graph:,.0f} MB/s"),
        ("block reads with the same distribution of sizes", f"{of_block:,.0f} MB/s"),
        ("ratio", f"{shown(share)}, aim {AIM_SHARE}"),
        ("PageRank waits for reads", f"{read_wait:.0%} of the time"),
        (
            "edges per second and core, in memory",
            f"{edges / 1e6:.0f} million ({rates[0] / 1e6:.0f} to {rates[-1] / 1e6:.0f} in {len(rates)} runs), aim "
            f"{AIM_EDGES / 1e6:.0f} million",
        ),
        ("ranks, read at random", f"{RANK_BYTES * first['vertices'] / 2**20:.0f} MiB"),
    ]
    print(f"\n{table(('quantity', 'value'), rows)}\n")
    if share.value >= AIM_SHARE:
        print("The device is the limit.")
    elif edges >= AIM_EDGES:
        print("The CPU is the limit, above the aim for edges in memory.")
    else:
        print("Neither aim is reached.")
    return 0 if share.value >= AIM_SHARE or edges >= AIM_EDGES else 1


@contextmanager
def directory(place: Path) -> Iterator[Facts]:
    """A file in a directory of its own, as a target."""
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-graph-") as name:
        yield {"kind": "file", "path": str(Path(name, "graph")), "size_bytes": 1 << 40}


@contextmanager
def limited(bandwidth: int) -> Iterator[Facts]:
    """A device with at most this many bytes per second, as a target; its data is in memory."""
    with throttled_devices(Limits(bandwidth=bandwidth), size_bytes=LIMITED_BYTES) as [device]:
        yield {"kind": "device", "path": str(device.path), "size_bytes": LIMITED_BYTES}


def cpu_facts() -> list[str]:
    """CPU properties that determine the speed of random memory accesses; virtual machines share one model name."""
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in info.items()}
    third = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    cache = [f"L3 cache {third.read_text().strip()}"] if third.exists() else []
    return [f"CPU family {known.get('cpu family')} model {known.get('model')}", *cache]


def graph(given: argparse.Namespace, target: Facts, cache_bytes: int = 0) -> Facts:
    """The facts of a PageRank run, with its measured seconds."""
    shape = {"kind": "rmat", "scale": given.scale, "edge_factor": 16, "a": 0.57, "b": 0.19, "c": 0.19, "seed": 1}
    algorithm = {"kind": "pagerank", "mode": "pull", "damping": 0.85, "tolerance": 0.0, "iterations": ITERATIONS}
    workload = {
        "kind": "graph",
        "target": target,
        "backend": URING,
        "graph": {"source": shape, "lists": "both"},
        "layout": "missing",
        "sort_memory_bytes": 1 << 29,
        "algorithm": algorithm,
        "reading": {"queue_depth": given.queue_depth, "request_bytes": 256 << 10, "cache_bytes": cache_bytes},
        "jobs": given.jobs,
        "duration_ns": None,
        "interval_ns": 500_000_000,
        "verify_after": False,
    }
    result = run_engine(spec_of(workload))[-1]
    return {**result["graph"], "seconds": (result["end_ns"] - result["begin_ns"]) / 1e9}


def block_bandwidth(given: argparse.Namespace, target: Facts, sizes: list[Facts], span_bytes: int) -> float:
    """Bytes per second of sequential block reads with the same sizes and as many in flight."""
    stream = random_reads(
        span_bytes,
        queue_depth=given.queue_depth,
        jobs=given.jobs,
        access={"kind": "sequential"},
        block_sizes=[{"bytes": size["bytes"], "weight": size["count"]} for size in sizes],
        span={"offset_bytes": 0, "bytes": span_bytes, "sharing": "split"},
    )
    written = {**target, "size_bytes": span_bytes}
    spec = block_spec(written, stream, seconds=SECONDS, ramp_s=0.2, layout="never", page_cache="drop")
    result = run_engine(spec)[-1]
    return float(sum(job["bytes"] for job in result["jobs"]) * 1e9 / (result["end_ns"] - result["begin_ns"]))


def read_bandwidth(facts: Facts) -> float:
    """Bytes per second that were read."""
    return float(sum(size["bytes"] * size["count"] for size in facts["request_sizes"]) / facts["seconds"])


def edges_in_memory(facts: Facts) -> float:
    """Edges per second of CPU time in iterations that read nothing."""
    cached = [each for each in facts["iterations"] if each["read_bytes"] == 0]
    return float(1e9 * sum(each["edges"] for each in cached) / sum(each["cpu_ns"] for each in cached))


if __name__ == "__main__":
    sys.exit(main())
