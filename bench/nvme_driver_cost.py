"""Cost per I/O of the user-level NVMe driver, on a controller in memory that completes at once.

    cargo build --release -p iosonde-nvme --example nvme_cost
    python bench/nvme_driver_cost.py PATH/nvme_cost [--seconds 2] [--repeats 5]

For each queue depth: the median over the repeats of each repeat's median time from submission to completion, the best
repeat, and the writes to doorbell registers per I/O. The time of the responder, which writes completions in the same
thread, is included, so the times are upper bounds. Exits with 1 if the driver costs more than 60 ns per I/O at queue
depth 32.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

LIMIT_NS = 60
DEPTHS = (1, 8, 32, 128)


def main() -> int:
    """Print a table; whether the limit holds is the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print("| queue depth | median ns per I/O | best ns per I/O | doorbell writes per I/O |\n|---|---|---|---|")
    medians = {}
    for depth in DEPTHS:
        runs = [run(options.program, depth, options.seconds) for _ in range(options.repeats)]
        medians[depth] = statistics.median(each["ns_per_io_median"] for each in runs)
        best = min(each["ns_per_io_best"] for each in runs)
        print(f"| {depth} | {medians[depth]:.1f} | {best:.1f} | {runs[0]['doorbell_writes_per_io']:.3f} |")
    return 0 if medians[32] <= LIMIT_NS else 1


def run(program: Path, depth: int, seconds: int) -> dict[str, float]:
    """One repeat."""
    done = subprocess.run([program, str(depth), str(seconds)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
