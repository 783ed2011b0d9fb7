"""The engine against fio, in paired, interleaved runs on one pinned core.

    python bench/vs_fio.py [--pairs 7] [--seconds 3] [--cpu 1] [--only cached|direct] [--directory DIR]
        [--output FILE.json]

Two comparisons, both 4 KiB reads at random in a file of 1 GiB:

- from the page cache, where the program decides: IOPS and CPU time per I/O, at queue depth 1, 32 and 128, against fio
  as most people start it (`plain`) and with registered buffers and files and batches (`tuned`);
- direct, where the disk decides: IOPS and percentiles of latency, at queue depth 1, 8 and 32, which should be equal;
  and CPU time per I/O, most of which is the kernel's. How much of it is user time the kernel samples some hundred times
  a second, and a process that mostly waits is seldom met: judge that with `--seconds 20` or more.

Prints Markdown tables (docs/performance.md holds them); `--output` keeps every run with its command.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pairs import interleaved, provenance, ratio_of, shown, table
from runs import (
    BLOCK_BYTES,
    FIO_TUNED,
    PERCENTILES,
    Measured,
    MeasurementError,
    random_read_spec,
    run_engine,
    run_fio,
)

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture

FILE_BYTES = 1 << 30

CACHED = [(depth, tuned) for depth in (1, 32, 128) for tuned in (False, True)]
DIRECT = [1, 8, 32]

CPU_HEAD = ("user CPU per I/O (ns), engine", "fio", "ratio", "CPU per I/O (ns), engine", "fio", "ratio")
CACHED_HEAD = ("queue depth", "fio", "IOPS, engine", "IOPS, fio", "ratio", *CPU_HEAD)
DIRECT_COST_HEAD = ("queue depth", *CPU_HEAD)
DIRECT_HEAD = ("queue depth", "IOPS, engine", "IOPS, fio", "ratio", "p50, ratio", "p90", "p99", "p99.9")

Pairs = list[tuple[Measured, Measured]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row: what is the same for both, and what both made of it."""

    io_mode: str
    queue_depth: int
    tuned: bool
    pairs: Pairs

    def as_json(self) -> dict[str, Any]:
        """Every run with what it was asked."""
        runs_of_pairs = [{"engine": asdict(ours), "fio": asdict(theirs)} for ours, theirs in self.pairs]
        return {"io_mode": self.io_mode, "queue_depth": self.queue_depth, "tuned": self.tuned, "pairs": runs_of_pairs}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by all comparisons."""

    engine: Path
    file: Path
    cpu: int
    seconds: float
    pairs: int

    def compare(self, io_mode: str, queue_depth: int, *, tuned: bool = False) -> Comparison:
        """Both programs in turn, on the same file in the same state."""
        same: dict[str, Any] = {
            "span_bytes": FILE_BYTES,
            "queue_depth": queue_depth,
            "io_mode": io_mode,
            "seconds": self.seconds,
        }

        def ours() -> Measured:
            return self._checked(run_engine(self.engine, random_read_spec(self.file, **same), cpu=self.cpu), io_mode)

        def theirs() -> Measured:
            options = FIO_TUNED if tuned else ()
            return self._checked(run_fio(self.file, cpu=self.cpu, options=options, **same), io_mode)

        print(f"{io_mode}, queue depth {queue_depth}{', tuned' if tuned else ''}", file=sys.stderr)
        pairs = interleaved(ours, theirs, pairs=self.pairs)
        return Comparison(io_mode=io_mode, queue_depth=queue_depth, tuned=tuned, pairs=pairs)

    def _checked(self, measured: Measured, io_mode: str) -> Measured:
        """Check that the I/O reached the target of the comparison: device or page cache."""
        from_device = measured.fs_input_bytes / (measured.operations * BLOCK_BYTES)
        if io_mode == "buffered" and from_device > 0.01:
            raise MeasurementError(f"{from_device:.0%} of the bytes came from the disk: the file left the page cache")
        if io_mode == "direct" and from_device < 0.95:
            raise MeasurementError(f"only {from_device:.0%} of the bytes came from the disk: direct I/O was not direct")
        return measured


def main() -> None:
    chosen = arguments()
    if not shutil.which("fio"):
        raise MeasurementError("`fio` is not found: install the package `fio`")
    engine = find_engine()
    facts: dict[str, Any] = {
        "command": sys.argv,
        "environment": capture(engine),
        "fio": subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        "load_average": os.getloadavg(),
    }
    print(provenance(facts["environment"], facts["fio"], f"{chosen.pairs} pairs of {chosen.seconds:g} s"))
    with tempfile.TemporaryDirectory(dir=chosen.directory) as scratch:
        bench = Bench(
            engine=engine, file=Path(scratch) / "data", cpu=chosen.cpu, seconds=chosen.seconds, pairs=chosen.pairs
        )
        lay_out(bench)
        cached: list[Comparison] = []
        direct: list[Comparison] = []
        if chosen.only != "direct":
            cached = [bench.compare("buffered", depth, tuned=tuned) for depth, tuned in CACHED]
            print(f"\nFrom the page cache:\n\n{table(CACHED_HEAD, [cached_row(one) for one in cached])}")
        if chosen.only != "cached":
            direct = [bench.compare("direct", depth) for depth in DIRECT]
            print(f"\nDirect:\n\n{table(DIRECT_HEAD, [direct_row(one) for one in direct])}")
            print(f"\nDirect, what it costs:\n\n{table(DIRECT_COST_HEAD, [direct_cost_row(one) for one in direct])}")
    if chosen.output:
        comparisons = [one.as_json() for one in (*cached, *direct)]
        chosen.output.write_text(json.dumps({**facts, "comparisons": comparisons}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The engine against fio, in paired, interleaved runs on one core.")
    parser.add_argument(
        "--pairs", type=int, default=7, help="pairs of runs in each comparison (from 3 on with intervals)"
    )
    parser.add_argument("--seconds", type=float, default=3, help="length of each measurement, after a ramp of 0.5 s")
    parser.add_argument("--cpu", type=int, default=1, help="core that both programs are pinned to")
    parser.add_argument("--only", choices=["cached", "direct"], help="one of the two comparisons")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the file of 1 GiB is made and removed")
    parser.add_argument("--output", type=Path, help="JSON file for every run with its command")
    return parser.parse_args()


def lay_out(bench: Bench) -> None:
    """Write the file and read it once, so that all of it lies on the disk and in the page cache."""
    run_engine(
        bench.engine,
        random_read_spec(bench.file, span_bytes=FILE_BYTES, queue_depth=1, io_mode="buffered", seconds=0.1),
        cpu=bench.cpu,
    )
    with bench.file.open("rb") as file:
        while file.read(1 << 20):
            pass


def cached_row(comparison: Comparison) -> list[str]:
    """IOPS and CPU time, each for both and as a ratio."""
    pairs = comparison.pairs
    return [
        str(comparison.queue_depth),
        "tuned" if comparison.tuned else "plain",
        *(f"{iops:,.0f}" for iops in medians(pairs, "iops")),
        shown(ratio_of(pairs, lambda run: run.iops)),
        *cpu_cells(pairs),
    ]


def direct_row(comparison: Comparison) -> list[str]:
    """IOPS, and each percentile as a ratio."""
    pairs = comparison.pairs
    return [
        str(comparison.queue_depth),
        *(f"{iops:,.0f}" for iops in medians(pairs, "iops")),
        shown(ratio_of(pairs, lambda run: run.iops)),
        *(shown(ratio_of(pairs, partial(latency_ns, name=name))) for name in PERCENTILES),
    ]


def direct_cost_row(comparison: Comparison) -> list[str]:
    """CPU time, for both and as a ratio."""
    return [str(comparison.queue_depth), *cpu_cells(comparison.pairs)]


def cpu_cells(pairs: Pairs) -> list[str]:
    """CPU time of an I/O in user mode and in all, for both and as a ratio."""
    return [
        *(f"{ns:.0f}" for ns in medians(pairs, "user_ns_per_io")),
        shown(ratio_of(pairs, lambda run: run.user_ns_per_io)),
        *(f"{ns:.0f}" for ns in medians(pairs, "cpu_ns_per_io")),
        shown(ratio_of(pairs, lambda run: run.cpu_ns_per_io)),
    ]


def latency_ns(run: Measured, *, name: str) -> float | None:
    """One percentile of a run."""
    return run.latency_ns[name]


def medians(pairs: Pairs, figure: str) -> tuple[float, float]:
    """Of the engine's runs, and of fio's."""
    ours, theirs = (median(getattr(run, figure) for run in side) for side in zip(*pairs, strict=True))
    return ours, theirs


if __name__ == "__main__":
    try:
        main()
    except MeasurementError as error:
        sys.exit(f"error: {error}")
