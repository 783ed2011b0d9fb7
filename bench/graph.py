"""PageRank of the engine against its aims: 0.8 of the device's bandwidth, or 50 million edges per second and core.

usage: bench/graph.py [--target DIRECTORY | --bandwidth SIZE] [--scale N] [--jobs N] [--queue-depth N] [--pairs N]
                      [--json FILE]

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
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pairs import interleaved, provenance, ratio_of

from iosonde import protocol
from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture
from iosonde.lab import Limits, throttled_devices
from iosonde.units import parse_size

AIM_SHARE = 0.8
AIM_EDGES = 50e6
ITERATIONS = 10
RANK_BYTES = 8
LIMITED_BYTES = 4 << 30
SECONDS = 3
URING = {
    "kind": "uring",
    "registered_files": True,
    "registered_buffers": True,
    "submission_polling": False,
    "completion_polling": False,
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Parameters of a measurement."""

    target: dict[str, Any]
    scale: int
    jobs: int
    queue_depth: int


def main() -> int:
    """Measure, print, and compare with the aims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path())
    parser.add_argument("--bandwidth", type=parse_size)
    parser.add_argument("--scale", type=int, default=22)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--queue-depth", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with limited(given.bandwidth) if given.bandwidth else directory(given.target) as target:
        setting = Setting(target=target, scale=given.scale, jobs=given.jobs, queue_depth=given.queue_depth)
        found = measured(setting, pairs=given.pairs)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))
    return shown(found)


@contextmanager
def directory(place: Path) -> Iterator[dict[str, Any]]:
    """A file in a directory of its own, as a target."""
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-graph-") as name:
        yield {"kind": "file", "path": str(Path(name, "graph")), "size_bytes": 1 << 40}


@contextmanager
def limited(bandwidth: int) -> Iterator[dict[str, Any]]:
    """A device with at most this many bytes per second, as a target; its data is in memory."""
    with throttled_devices(Limits(bandwidth=bandwidth), size_bytes=LIMITED_BYTES) as [device]:
        yield {"kind": "device", "path": str(device.path), "size_bytes": LIMITED_BYTES}


def measured(setting: Setting, *, pairs: int) -> dict[str, Any]:
    """Share of bandwidth with its interval, and edges per second in memory."""
    first = graph(setting)
    sizes, list_bytes = first["request_sizes"], first["adjacency_bytes"]
    results = interleaved(
        lambda: bandwidth_of(graph(setting)), lambda: block_bandwidth(setting, sizes, list_bytes), pairs=pairs
    )
    share = ratio_of(results, lambda bandwidth: bandwidth)
    assert share is not None, "both have a bandwidth"
    cached = [graph(setting, cache_bytes=list_bytes * 2) for _ in range(pairs)]
    return {
        "provenance": provenance(capture(find_engine()), *cpu_facts()),
        "edges": first["edges"],
        "random_bytes": RANK_BYTES * first["vertices"],
        "build_seconds": first["build_ns"] / 1e9,
        "graph_bandwidth": sorted(each[0] for each in results)[pairs // 2],
        "block_bandwidth": sorted(each[1] for each in results)[pairs // 2],
        "share": [share.value, share.low, share.high],
        "read_wait": read_wait(graph(setting)),
        "edges_per_core_sec_in_memory": sorted(edges_in_memory(each) for each in cached),
    }


def shown(found: dict[str, Any]) -> int:
    """Print the numbers and which aim is reached."""
    value, low, high = found["share"]
    rates = found["edges_per_core_sec_in_memory"]
    edges = median(rates)
    print(found["provenance"])
    print(f"graph                  {found['edges']:,} stored edges, written in {found['build_seconds']:.1f} s")
    print(f"PageRank               {found['graph_bandwidth'] / 1e6:,.0f} MB/s")
    print(f"block reads            {found['block_bandwidth'] / 1e6:,.0f} MB/s at the same distribution of read sizes")
    interval = "" if low is None or high is None else f" (95 % CI {low:.2f}-{high:.2f})"
    print(f"share of bandwidth     {value:.2f}{interval}, aim {AIM_SHARE}; waiting for reads {found['read_wait']:.2f}")
    print(
        f"in memory              {edges / 1e6:.0f} million edges per second and core "
        f"({rates[0] / 1e6:.0f} to {rates[-1] / 1e6:.0f} in {len(rates)} runs), aim {AIM_EDGES / 1e6:.0f}; "
        f"ranks that are read at random: {found['random_bytes'] / 2**20:.0f} MiB"
    )
    by_device, by_cpu = value >= AIM_SHARE, edges >= AIM_EDGES
    if by_device:
        print("reached: share of the device's bandwidth")
    elif by_cpu:
        print("reached: CPU-limited above the edges per second and core in memory")
    else:
        print("not reached")
    return 0 if by_device or by_cpu else 1


def cpu_facts() -> list[str]:
    """CPU properties that determine the speed of random memory accesses; virtual machines share one model name."""
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in info.items()}
    family, model = known.get("cpu family"), known.get("model")
    third = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    cache = [f"L3 cache {third.read_text().strip()}"] if third.exists() else []
    return [f"CPU family {family} model {model}", *cache]


def graph(setting: Setting, *, cache_bytes: int = 0) -> dict[str, Any]:
    """The facts of a PageRank run, with its measured seconds."""
    result = carried_out(
        {
            "kind": "graph",
            "target": setting.target,
            "backend": URING,
            "graph": {
                "source": {
                    "kind": "rmat",
                    "scale": setting.scale,
                    "edge_factor": 16,
                    "a": 0.57,
                    "b": 0.19,
                    "c": 0.19,
                    "seed": 1,
                },
                "lists": "both",
            },
            "layout": "missing",
            "sort_memory_bytes": 1 << 29,
            "algorithm": {
                "kind": "pagerank",
                "mode": "pull",
                "damping": 0.85,
                "tolerance": 0.0,
                "iterations": ITERATIONS,
            },
            "reading": {
                "queue_depth": setting.queue_depth,
                "request_bytes": 256 << 10,
                "cache_bytes": cache_bytes,
            },
            "jobs": setting.jobs,
            "duration_ns": None,
            "interval_ns": 500_000_000,
            "verify_after": False,
        }
    )
    return {**result["graph"], "seconds": (result["end_ns"] - result["begin_ns"]) / 1e9, "jobs": setting.jobs}


def block_bandwidth(setting: Setting, sizes: list[dict[str, int]], span_bytes: int) -> float:
    """Bytes per second of sequential block reads with the same sizes and as many in flight."""
    stream = {
        "name": "main",
        "jobs": setting.jobs,
        "queue_depth": setting.queue_depth,
        "access": {"kind": "sequential"},
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": size["bytes"], "weight": size["count"]} for size in sizes],
        "span": {"offset_bytes": 0, "bytes": span_bytes, "sharing": "split"},
        "io_mode": "direct",
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
        "limit_bytes": None,
        "limit_operations": None,
    }
    result = carried_out(
        {
            "kind": "block",
            "target": {**setting.target, "size_bytes": span_bytes},
            "backend": URING,
            "layout": "never",
            "page_cache": "drop",
            "streams": [stream],
            "ramp": {"duration_ns": 200_000_000, "bytes": None},
            "duration_ns": SECONDS * 10**9,
            "interval_ns": 500_000_000,
        }
    )
    seconds = (result["end_ns"] - result["begin_ns"]) / 1e9
    return float(sum(job["bytes"] for job in result["jobs"]) / seconds)


def carried_out(workload: dict[str, Any]) -> dict[str, Any]:
    """The result of a run."""
    spec = {
        "protocol": protocol.VERSION,
        "run_id": "bench",
        "seed": 1,
        "workload": workload,
        "observe": {"block_devices": []},
    }
    done = subprocess.run([find_engine()], input=json.dumps(spec), capture_output=True, text=True, check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if last["event"] != "result":
        sys.exit(f"{last['message']} ({last['context']})")
    return last


def bandwidth_of(facts: dict[str, Any]) -> float:
    """Bytes per second that were read."""
    return float(sum(size["bytes"] * size["count"] for size in facts["request_sizes"]) / facts["seconds"])


def read_wait(facts: dict[str, Any]) -> float:
    """Share of the jobs' time in waiting for reads."""
    return float(facts["io_wait_ns"] / 1e9 / facts["seconds"] / facts["jobs"])


def edges_in_memory(facts: dict[str, Any]) -> float:
    """Edges per second of CPU time in iterations that read nothing."""
    cached = [each for each in facts["iterations"] if each["read_bytes"] == 0]
    return float(1e9 * sum(each["edges"] for each in cached) / sum(each["cpu_ns"] for each in cached))


if __name__ == "__main__":
    sys.exit(main())
