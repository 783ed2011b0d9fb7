"""Another build of the engine against this one, in paired, interleaved runs on one pinned core.

    python bench/vs_engine.py --other ENGINE [--pairs 11] [--seconds 1] [--cpu 1] [--directory DIR]

CPU time per I/O at queue depths 1, 32 and 128: reads of 4 KiB from a file in the page cache, the harness on a backend
that does nothing, and the simulator. Ratios are this engine's over the other's, with the interval of the sign test.
Prints Markdown (docs/performance.md holds it).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine_cost import servers_spec, virtual_spec
from shared import (
    Json,
    block_spec,
    interleaved,
    measured,
    median_ratio_of,
    medians,
    options,
    provenance,
    random_reads,
    run_engine,
    table,
)

FILE_BYTES = 256 << 20
DEPTHS = (1, 32, 128)
VIRTUAL_SECONDS = 20
"""Of the simulator, for each second of the others."""


def main() -> None:
    given = options(__doc__, other=Path, pairs=11, seconds=1.0, cpu=1, directory=Path())
    print(provenance(f"{given.pairs} pairs of {given.seconds:g} s"))
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        file = Path(scratch, "data")
        file.write_bytes(bytes(FILE_BYTES))
        rows = [
            row(given, "page cache", lambda depth: cached_spec(file, depth, given.seconds)),
            row(given, "null backend", lambda depth: virtual_spec({"kind": "null"}, given.seconds, queue_depth=depth)),
            row(given, "simulated servers", lambda depth: servers_spec(depth, given.seconds * VIRTUAL_SECONDS)),
        ]
    head = ("load", *(f"queue depth {depth}: CPU per I/O (ns), ratio to the other" for depth in DEPTHS))
    print(f"\n{table(head, rows)}")


def row(given: argparse.Namespace, name: str, spec_at: Callable[[int], Json]) -> list[str]:
    """A load at each queue depth: CPU time of an I/O, and its ratio."""
    return [name, *(cell(given, spec_at(depth)) for depth in DEPTHS)]


def cell(given: argparse.Namespace, spec: Json) -> str:
    """Compare both engines on one load."""
    ours = partial(cpu_ns, given.cpu, spec, None)
    pairs = interleaved(ours, partial(cpu_ns, given.cpu, spec, given.other), pairs=given.pairs)
    found = median_ratio_of(pairs, float)
    interval = f" ({found.low:.3f}..{found.high:.3f})" if found.low is not None else ""
    return f"{medians(pairs, float)[0]:,.0f}, {found.value:.3f}{interval}"


def cpu_ns(cpu: int, spec: Json, engine: Path | None) -> float:
    """CPU time of an I/O."""
    return measured(run_engine(spec, cpu=cpu, engine=engine)[-1]).cpu_ns_each


def cached_spec(file: Path, depth: int, seconds: float) -> Json:
    """Reads of a file that has just been written."""
    target = {"kind": "file", "path": str(file), "size_bytes": FILE_BYTES}
    return block_spec(target, random_reads(FILE_BYTES, queue_depth=depth, io_mode="buffered"), seconds=seconds)


if __name__ == "__main__":
    main()
