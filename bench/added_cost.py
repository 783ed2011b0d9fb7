"""Added cost per I/O of open loop and of verification, in paired, interleaved engine runs on one pinned core.

    python bench/added_cost.py [--pairs 7] [--seconds 2] [--cpu 1] [--directory DIR] [--output FILE.json]

- A schedule: random 4 KiB reads from the page cache at a rate far beyond what can be done, so that every I/O is due and
  none is waited for, against the same in closed loop. The difference is the cost of the schedule: the next instant
  drawn, the backlog kept, a second latency recorded.
- Verification `during`: the same reads, each checked as it completes, against the same file unchecked.

The difference of the CPU time for each I/O is taken within each pair: for verification of all of it, for schedules of
user time, because the kernel does the same for both and its copying varies by more than a schedule costs. Prints a
Markdown table (docs/performance.md holds it).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pairs import difference_of, interleaved, provenance, shown, table
from runs import Measured, MeasurementError, random_read_spec, run_engine

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture

FILE_BYTES = 1 << 30
QUEUE_DEPTH = 32
RATE_BEYOND = 10_000_000
"""I/Os per second: the highest that may be asked for, and many times what one core reads."""

HEAD = ("what", "limit (ns)", "CPU per I/O that it adds (ns)", "with", "without")
Spec = dict[str, Any]
Figure = Callable[[Measured], float]


def main() -> None:
    chosen = arguments()
    engine = find_engine()
    facts = capture(engine)
    with tempfile.TemporaryDirectory(dir=chosen.directory) as scratch:
        path, seconds = Path(scratch) / "data", chosen.seconds
        comparisons = [
            # First, so that the file is laid out with seals, which the others do not look at.
            ("verification `during`", 600, all_cpu, *verified(path, seconds)),
            *((f"schedule, {kind}", 40, user_cpu, *scheduled(path, kind, seconds)) for kind in ("constant", "poisson")),
        ]
        print(provenance(facts, f"{chosen.pairs} pairs of {seconds:g} s"))
        rows, kept = [], []
        for what, limit_ns, figure, with_it, without in comparisons:
            print(what, file=sys.stderr)
            ours, theirs = (partial(run_engine, engine, spec, cpu=chosen.cpu) for spec in (with_it, without))
            pairs = interleaved(ours, theirs, pairs=chosen.pairs)
            rows.append(row(what, limit_ns, figure, pairs))
            kept.append({"what": what, "pairs": [{"with": asdict(one), "without": asdict(two)} for one, two in pairs]})
        print(f"\n{table(HEAD, rows)}")
    if chosen.output:
        chosen.output.write_text(json.dumps({"command": sys.argv, "environment": facts, "rows": kept}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What open loop and verification add to an I/O.")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="length of each measurement, after a ramp of 0.5 s")
    parser.add_argument("--cpu", type=int, default=1, help="core that the engine is pinned to")
    parser.add_argument("--directory", type=Path, default=Path(), help="where a file of 1 GiB is made and removed")
    parser.add_argument("--output", type=Path, help="JSON file for every run with its spec")
    return parser.parse_args()


def scheduled(path: Path, kind: str, seconds: float) -> tuple[Spec, Spec]:
    """The same reads when each of them is due, and in closed loop."""
    plain = cached_reads(path, seconds)
    (stream,) = plain["workload"]["streams"]
    due = stream | {"arrival": {"kind": kind, "rate": RATE_BEYOND}}
    return {**plain, "workload": {**plain["workload"], "streams": [due]}}, plain


def verified(path: Path, seconds: float) -> tuple[Spec, Spec]:
    """Reads of one file that is sealed once, checked and not."""
    plain = cached_reads(path, seconds)
    return {**plain, "workload": {**plain["workload"], "verify": {"when": "during"}}}, plain


def cached_reads(path: Path, seconds: float) -> Spec:
    """Random 4 KiB reads from the page cache."""
    return random_read_spec(path, span_bytes=FILE_BYTES, queue_depth=QUEUE_DEPTH, io_mode="buffered", seconds=seconds)


def all_cpu(measured: Measured) -> float:
    """Nanoseconds an I/O."""
    return measured.cpu_ns_per_io


def user_cpu(measured: Measured) -> float:
    """The same, without the kernel's."""
    return measured.user_ns_per_io


def row(what: str, limit_ns: int, figure: Figure, pairs: list[tuple[Measured, Measured]]) -> list[str]:
    """The median over the pairs of what one costs more than the other."""
    added = difference_of(pairs, figure)
    medians = (median(map(figure, side)) for side in zip(*pairs, strict=True))
    return [what, str(limit_ns), shown(added), *(f"{each:.1f}" for each in medians)]


if __name__ == "__main__":
    try:
        main()
    except MeasurementError as error:
        sys.exit(f"error: {error}")
