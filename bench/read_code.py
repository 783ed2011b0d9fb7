"""Instructions and code of a read that the block cache serves, by the engine and by RocksDB's db_bench.

    python bench/read_code.py [--records 200000] [--reads 100000] [--directory DIR]

Both programs run under `valgrind --tool=callgrind --dump-instr=yes`, each with two numbers of reads; the difference is
that of the reads alone. No other work on the machine changes it. A read of RocksDB executes more code than a CPU's
instruction cache holds, so what a program adds to it costs less by its instructions than by its *lines*: stretches of
64 bytes with an instruction that is executed in each read. A line that is executed in one of N reads counts as 1/N, as
does that of a loop that the engine runs once for a row of N reads (`crates/kv/src/job/row.rs`).

Needs valgrind and Debian's db_bench (packages `valgrind` and `rocksdb-tools`). Prints a Markdown table.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shared import BenchError, measured, options, provenance, table
from vs_db_bench import CACHED, Bench, library_of_db_bench

from iosonde.execution.engine import find_engine
from iosonde.features.key_value_stores import shim

LINE_BYTES = 64
VALGRIND = ("valgrind", "--tool=callgrind", "--dump-instr=yes")
PARTS = (
    ("librocksdb", re.compile(r"librocksdb")),
    ("C and C++ libraries", re.compile(r"/(libc|libstdc\+\+|ld-linux)[^/]*$|^\?\?\?$")),
    ("the program and the shim", re.compile(r"")),
)
"""Parts of the code by the object files, of which the first that matches counts."""

ROW = 32
OF_ROWS = re.compile(r"Job>::draw$|JobPhases::record_row$")
"""Functions of the engine that are called once for a row of reads."""

Executed = Counter[tuple[str, str, int]]
"""Execution count of each instruction, by object file, function and address."""


def main() -> None:
    """Measure and print."""
    given = options(__doc__, records=200_000, reads=100_000, directory=Path())
    print(provenance(library_of_db_bench(), f"{given.records:,} records, {given.reads:,} reads"))
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch, shim.opened(shim.ROCKSDB, None) as descriptor:
        bench = Bench(scratch=Path(scratch), records=given.records, shim=descriptor)
        bench.fill(CACHED)
        ours, theirs = (
            per_read(run(bench, given.reads), run(bench, 2 * given.reads), given.reads)
            for run in (engine_run, db_bench_run)
        )
        rows = [[*key, f"{mine:,.0f}", f"{other:,.0f}"] for (*key, mine), (*_, other) in zip(ours, theirs, strict=True)]
    print(f"\n{table(('per cached read', 'in', 'engine, C++ shim', 'db_bench'), rows)}")


def engine_run(bench: Bench, reads: int) -> Executed:
    """Instructions that the engine executes in a run of so many reads, in one interval."""
    profile, program, engine = bench.scratch / "engine.out", bench.scratch / "engine", find_engine()
    command = " ".join([*VALGRIND, f"--callgrind-out-file={profile}", f"'{engine}'"])
    script = f'#!/bin/sh\ncase "$*" in *--version*) exec \'{engine}\' "$@" ;; esac\nexec {command} "$@" 2>/dev/null\n'
    program.write_text(script)
    program.chmod(0o755)
    spec = bench.spec(CACHED)
    workload = spec["workload"]
    del workload["duration_ns"]
    workload["streams"][0]["limit_operations"] = reads
    workload["interval_ns"] = 10**12
    done = measured(bench.run(spec, program)).operations
    if done != reads:
        raise BenchError(f"the engine read {done} times instead of {reads}")
    return executed(profile)


def db_bench_run(bench: Bench, reads: int) -> Executed:
    """Instructions that db_bench executes in so many reads."""
    profile = bench.scratch / "db_bench.out"
    command = [each for each in bench.command(CACHED) if not each.startswith("--duration=")]
    whole = [*VALGRIND, f"--callgrind-out-file={profile}", *command, f"--reads={reads}"]
    subprocess.run(whole, check=True, capture_output=True)
    return executed(profile)


def executed(profile: Path) -> Executed:
    """The instructions in a profile ("Callgrind Format Specification" in Valgrind's manual)."""
    found: Executed = Counter()
    for place, count in _costs(profile):
        found[place] += count
    return found


def _costs(profile: Path) -> Iterator[tuple[tuple[str, str, int], int]]:
    names: dict[tuple[str, str], str] = {}
    current = {"ob": "", "fn": ""}
    address, is_of_call = 0, False
    with profile.open() as lines:
        for line in lines:
            if named := re.match(r"(c?)(ob|fn)=(\(\d+\))(?: (.*))?$", line):
                is_called, kind, number, text = named.groups()
                name = names.setdefault((kind, number), text or "")
                if not is_called:
                    current[kind] = name
            elif line.startswith("calls="):
                is_of_call = True  # The next line has the costs of what was called.
            elif line[0] in "0+-*":
                place, _, *costs = line.split()
                address = _address(place, address)
                if costs and not is_of_call:
                    yield (current["ob"], current["fn"], address), int(costs[0])
                is_of_call = False


def _address(place: str, last: int) -> int:
    if place.startswith("0x"):
        return int(place, 16)
    return last + (0 if place == "*" else int(place, 0))


def per_read(fewer: Executed, more: Executed, reads: int) -> Iterator[tuple[str, str, float]]:
    """Unit, part of the code and value: instructions, and lines of code, of one read."""
    each = {place: (count - fewer[place]) / reads for place, count in more.items()}
    lines: dict[tuple[str, str, int], float] = {}
    for (file, function, address), times in each.items():
        line = (file, "", address // LINE_BYTES)
        loaded = min(1.0, times) / (ROW if OF_ROWS.search(function) else 1)
        lines[line] = max(lines.get(line, 0.0), loaded)
    for unit, counts in (("instructions", each), ("lines of code", lines)):
        sums = dict.fromkeys([part for part, _ in PARTS], 0.0)
        for (file, _, _), times in counts.items():
            sums[next(part for part, files in PARTS if files.search(file))] += times
        yield unit, "all", sum(sums.values())
        yield from ((unit, part, value) for part, value in sums.items())


if __name__ == "__main__":
    main()
