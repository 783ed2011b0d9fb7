"""Speed and memory of drive simulation.

    python bench/simulation_speed.py [--repeats 3] [--cpu 1] [--operations 4000000]

Simulated I/Os in a second of the engine's CPU time, for loads that cost the simulation little and much; and a drive of
400 GB preconditioned as SNIA's specification asks, 128 KiB in order, its capacity twice over. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pairs import provenance, table
from published.steady_drives import steady
from runs import MeasurementError, run_events
from simulated import Figures, Load, figures, spec_of

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture

HEAD = ("load", "simulated I/Os in a second of CPU time", "of the drive's own time in one of CPU time")
PRECONDITION_HEAD = ("drive", "written", "wall time (s)", "CPU time (s)", "peak memory (MB)")
LARGE = "sim:pm1725a,capacity=400GB"
LARGE_BYTES = 400 * 10**9
SMALL, SMALL_BYTES = "sim:pm1725a,capacity=16GB", 16 * 10**9
LOADS = {
    "3D XPoint, random 4 KiB reads, queue depth 32": ("sim:p900", Load(block_bytes=4096, queue_depth=32)),
    "3D XPoint, 70/30 mix": ("sim:p900", Load(block_bytes=4096, queue_depth=32, read_fraction=0.7)),
    "flash, random 4 KiB reads, queue depth 32": (SMALL, Load(block_bytes=4096, queue_depth=32)),
    "flash that collects, 70/30 mix": (SMALL, Load(block_bytes=4096, queue_depth=32, read_fraction=0.7)),
    "flash that collects, random 4 KiB writes": (SMALL, Load(block_bytes=4096, queue_depth=32, read_fraction=0.0)),
    "RAID 5 of four, 70/30 mix": (
        "sim:p900*4,raid=5,chunk=64KiB",
        Load(block_bytes=4096, queue_depth=32, read_fraction=0.7),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast drives are simulated.")
    parser.add_argument("--repeats", type=int, default=3, help="runs behind each median")
    parser.add_argument("--cpu", type=int, default=1, help="core that the engine is pinned to")
    parser.add_argument("--operations", type=int, default=4_000_000, help="I/Os of each run")
    chosen = parser.parse_args()
    engine = find_engine()
    print(provenance(capture(engine), f"medians of {chosen.repeats} runs"))
    print(f"\n{table(HEAD, speeds(engine, chosen))}")
    print(f"\n{table(PRECONDITION_HEAD, [precondition(engine, chosen.cpu)])}")


def speeds(engine: Path, chosen: argparse.Namespace) -> list[list[str]]:
    """A row for each load; the drives that collect are steady before."""
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        state = steady(engine, SMALL, SMALL_BYTES, Path(scratch) / "state")
        for name, (target, load) in LOADS.items():
            spec = spec_of(target, load, seconds=1e6, operations=chosen.operations)
            spec["workload"]["interval_ns"] = 60 * 10**9
            if "collects" in name:
                spec["workload"]["backend"]["state_path"] = str(state)
            found = [figures(run_events(engine, spec, cpu=chosen.cpu)) for _ in range(chosen.repeats)]
            rate = median(each.operations / cpu_seconds(each) for each in found)
            ratio = median(each.seconds / cpu_seconds(each) for each in found)
            lines.append([name, f"{rate:,.0f}", f"{ratio:,.1f} s"])
    return lines


def precondition(engine: Path, cpu: int) -> list[str]:
    """SNIA's workload-independent preconditioning, from a drive that was never written."""
    load = Load(block_bytes=128 << 10, queue_depth=32, read_fraction=0.0, access="sequential", layout="never")
    spec = spec_of(LARGE, load, seconds=1e6, operations=2 * LARGE_BYTES // (128 << 10))
    spec["workload"]["interval_ns"] = 60 * 10**9
    begin = time.monotonic()
    result = figures(run_events(engine, spec, cpu=cpu))
    wall, peak = time.monotonic() - begin, result.result["peak_memory_bytes"] / 1e6
    written = f"{result.bytes_moved / 1e9:,.0f} GB"
    return [LARGE, written, f"{wall:.1f}", f"{cpu_seconds(result):.1f}", f"{peak:,.0f}"]


def cpu_seconds(found: Figures) -> float:
    """Of the whole engine process, over the measurement."""
    used = found.result["process"]
    return float(used["user_ns"] + used["system_ns"]) / 1e9


if __name__ == "__main__":
    try:
        main()
    except MeasurementError as error:
        sys.exit(f"error: {error}")
