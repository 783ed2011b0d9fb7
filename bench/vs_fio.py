"""The engine against fio, in paired, interleaved runs on one pinned core.

    python bench/vs_fio.py [--pairs 7] [--seconds 3] [--cpu 1] [--only cached|direct] [--directory DIR]

Two comparisons, both 4 KiB reads at random in a file of 1 GiB in DIR, after a ramp of 0.5 s:

- from the page cache, where the program decides: IOPS and CPU time per I/O, at queue depth 1, 32 and 128, against fio
  as most people start it (`plain`) and with registered buffers and files and batches (`tuned`);
- direct, where the disk decides: IOPS and percentiles of latency, at queue depth 1, 8 and 32, which should be equal;
  and CPU time per I/O, most of which is the kernel's. How much of it is user time the kernel samples some hundred times
  a second, and a process that mostly waits is seldom met: judge that with `--seconds 20` or more.

Both count their I/Os and CPU time from the end of the ramp. The engine's CPU time holds that of its thread that keeps
time; fio's leaves its helper threads out. Prints Markdown tables (docs/performance.md holds them).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shared import (
    PERCENTILES,
    BenchError,
    Measured,
    block_spec,
    compared,
    interleaved,
    latencies,
    measured,
    of_measurement,
    options,
    provenance,
    random_reads,
    ratio_of,
    run_engine,
    shown,
    table,
)

FILE_BYTES = 1 << 30
BLOCK_BYTES = 4096
CACHED = [(depth, tuned) for depth in (1, 32, 128) for tuned in (False, True)]
DIRECT = [1, 8, 32]
TUNED = (
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=32",
    "--iodepth_batch_complete_min=1",
    "--iodepth_batch_complete_max=32",
)
"""fio's fastest settings at depth: 32 used the least CPU per I/O among batches of 8, 16, 32 and 64."""
FIO_PERCENTILES = {"p50": "50.000000", "p90": "90.000000", "p99": "99.000000", "p99_9": "99.900000"}

IOPS_HEAD = ("IOPS, engine", "IOPS, fio", "ratio")
CPU_HEAD = ("user CPU per I/O (ns), engine", "fio", "ratio", "CPU per I/O (ns), engine", "fio", "ratio")
Pairs = list[tuple[Measured, Measured]]


def main() -> None:
    given = options(__doc__, pairs=7, seconds=3.0, cpu=1, only=("all", "cached", "direct"), directory=Path())
    if not shutil.which("fio"):
        raise BenchError("`fio` is not found: install the package `fio`")
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(provenance(version, f"{given.pairs} pairs of {given.seconds:g} s"))
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        file = Path(scratch) / "data"
        lay_out(file, given.cpu)
        if given.only != "direct":
            rows = [cached_row(given, file, depth, tuned=tuned) for depth, tuned in CACHED]
            print(f"\nFrom the page cache:\n\n{table(('queue depth', 'fio', *IOPS_HEAD, *CPU_HEAD), rows)}")
        if given.only != "cached":
            direct = {str(depth): compare(given, file, "direct", depth) for depth in DIRECT}
            rows = [[depth, *compared(pairs, lambda run: run.rate), *tails(pairs)] for depth, pairs in direct.items()]
            head = ("queue depth", *IOPS_HEAD, "p50, ratio", "p90", "p99", "p99.9")
            print(f"\nDirect:\n\n{table(head, rows)}")
            rows = [[depth, *cpu_cells(pairs)] for depth, pairs in direct.items()]
            print(f"\nDirect, what it costs:\n\n{table(('queue depth', *CPU_HEAD), rows)}")


def compare(given: argparse.Namespace, file: Path, io_mode: str, depth: int, *, tuned: bool = False) -> Pairs:
    """Both programs in turn, on the same file in the same state."""
    spec = reads(file, io_mode, depth, given.seconds)
    ours = partial(checked, io_mode, lambda: engine_run(spec, given.cpu))
    theirs = partial(checked, io_mode, lambda: fio_run(given, file, io_mode, depth, TUNED if tuned else ()))
    title = f"{io_mode}, queue depth {depth}{', tuned' if tuned else ''}"
    return interleaved(ours, theirs, pairs=given.pairs, title=title)


def checked(io_mode: str, run: Callable[[], Measured]) -> Measured:
    """Check that the I/O reached the target of the comparison: device or page cache."""
    before = fs_input_bytes()
    found = run()
    from_device = (fs_input_bytes() - before) / (found.operations * BLOCK_BYTES)
    if io_mode == "buffered" and from_device > 0.01:
        raise BenchError(f"{from_device:.0%} of the bytes came from the disk: the file left the page cache")
    if io_mode == "direct" and from_device < 0.95:
        raise BenchError(f"only {from_device:.0%} of the bytes came from the disk: direct I/O was not direct")
    return found


def fs_input_bytes() -> int:
    """Bytes read from file systems by terminated children, ramps included, by the kernel's account."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * 512


def reads(file: Path, io_mode: str, depth: int, seconds: float) -> dict[str, Any]:
    """The engine's side of a comparison."""
    target = {"kind": "file", "path": str(file), "size_bytes": FILE_BYTES}
    return block_spec(target, random_reads(FILE_BYTES, queue_depth=depth, io_mode=io_mode), seconds=seconds)


def engine_run(spec: dict[str, Any], cpu: int) -> Measured:
    events = run_engine(spec, cpu=cpu)
    return measured(events[-1], latency_ns=latencies(of_measurement(events)))


def fio_run(given: argparse.Namespace, file: Path, io_mode: str, depth: int, tuning: tuple[str, ...]) -> Measured:
    """Have fio do what `reads` describes."""
    command = [
        *("taskset", "-c", str(given.cpu), "fio", "--name=bench", "--readonly", "--rw=randread", "--norandommap"),
        *(f"--filename={file}", f"--size={FILE_BYTES}", f"--bs={BLOCK_BYTES}", f"--iodepth={depth}"),
        *("--ioengine=io_uring", f"--direct={int(io_mode == 'direct')}", "--invalidate=0"),
        *("--time_based", f"--runtime={round(given.seconds * 1000)}ms", "--ramp_time=500ms"),
        # The engine's latency begins before the submission, as fio's `lat` does and its `clat` does not.
        *("--clat_percentiles=0", "--lat_percentiles=1", "--percentile_list=50:90:99:99.9"),
        *("--output-format=json", *tuning),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"fio ended with status {done.returncode}: {done.stderr.strip()}")
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    read, cpu_ns = job["read"], job["job_runtime"] * 1e6 / 100
    beyond = {name: read["total_ios"] * (1 - part / 1e6) for name, part in PERCENTILES.items()}
    return Measured(
        operations=read["total_ios"],
        seconds=read["runtime"] / 1000,
        user_ns=job["usr_cpu"] * cpu_ns,
        system_ns=job["sys_cpu"] * cpu_ns,
        latency_ns={
            name: read["lat_ns"]["percentile"][key] if beyond[name] >= 10 else None
            for name, key in FIO_PERCENTILES.items()
        },
    )


def lay_out(file: Path, cpu: int) -> None:
    """Write the file and read it once, so that all of it lies on the disk and in the page cache."""
    run_engine(reads(file, "buffered", 1, 0.1), cpu=cpu)
    with file.open("rb") as data:
        while data.read(1 << 20):
            pass


def cached_row(given: argparse.Namespace, file: Path, depth: int, *, tuned: bool) -> list[str]:
    """IOPS and CPU time, each for both and as a ratio."""
    pairs = compare(given, file, "buffered", depth, tuned=tuned)
    return [str(depth), "tuned" if tuned else "plain", *compared(pairs, lambda run: run.rate), *cpu_cells(pairs)]


def tails(pairs: Pairs) -> list[str]:
    """Each percentile as a ratio."""
    return [shown(ratio_of(pairs, lambda run, name=name: run.latency_ns[name])) for name in PERCENTILES]  # type: ignore[misc]


def cpu_cells(pairs: Pairs) -> list[str]:
    """CPU time of an I/O in user mode and in all, for both and as a ratio."""
    user = compared(pairs, lambda run: run.user_ns_each, ".0f")
    return [*user, *compared(pairs, lambda run: run.cpu_ns_each, ".0f")]


if __name__ == "__main__":
    main()
