"""The engine against RocksDB's own db_bench, in paired, interleaved runs on the same library.

    python bench/vs_db_bench.py [--pairs 5] [--seconds 5] [--records 2000000] [--directory DIR]
                                [--interface shim|c] [--only TEXT] [--histogram]

Four comparisons, keys of 16 and values of 100 bytes, no compression, no statistics, every option that matters set on
both sides: `fillseq` into an empty database; `readrandom` from a block cache that holds everything, and past it with
direct reads and a small cache; `readwhilewriting` with 4 readers and one writer as fast as it goes. Loads that only
read use one database for both programs: their keys are alike. Ours keeps a full histogram of every interval and
compares every value read with what its key demands; db_bench does neither. What that costs is measured on the store
`null`, which does all of it and stores nothing, and stated beside the ratio as a part of the engine's time for a read.

The engine reads through the C++ shim (`--interface shim`), as iosonde does where it can compile it, or through
RocksDB's C interface (`--interface c`), which allocates an object for each read. With `--histogram` db_bench measures
every latency too (its option of the same name), and still verifies nothing.

Debian's db_bench (package `rocksdb-tools`) is linked to the same `librocksdb.so` that the engine loads; the library of
both is printed. Prints a Markdown table.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared import (
    BenchError,
    compared,
    driven,
    interleaved,
    measured,
    medians,
    options,
    provenance,
    table,
    values_checked,
)

from iosonde.features.key_value_stores import shim
from iosonde.features.key_value_stores.workload import KV
from iosonde.storage import open_target

READERS = 4
OPTIONS: Mapping[str, int | bool] = {
    "write_buffer_size": 64 << 20,
    "max_write_buffer_number": 2,
    "max_background_jobs": 2,
    "max_open_files": -1,
    "block_size": 4096,
    "target_file_size_base": 64 << 20,
    "max_bytes_for_level_base": 256 << 20,
    "enable_pipelined_write": False,
}
"""Of RocksDB, by its own names, alike on both sides."""
DB_BENCH_NAMES = {"max_open_files": "open_files"}
"""Options whose name in db_bench differs."""
FOUND = re.compile(r"\((\d+) of (\d+) found\)")
"""Reads of `readrandom` that returned a value, and all."""
LINE = re.compile(r"^(\w+)\s*:\s*([\d.]+) micros/op (\d+) ops/sec", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load of both programs."""

    name: str
    phase: str
    """Of a study, and db_bench's name of it."""
    cache_bytes: int
    direct_reads: bool = False
    jobs: int = 1
    stream: str = "main"

    @property
    def is_read_only(self) -> bool:
        """True if the load leaves the files of the database unchanged."""
        return self.phase == "readrandom"


FILL = Load(name="fillseq", phase="fillseq", cache_bytes=32 << 20)
CACHED = Load(name="readrandom, cached", phase="readrandom", cache_bytes=4 << 30)
LOADS = (
    FILL,
    CACHED,
    Load(name="readrandom, not cached", phase="readrandom", cache_bytes=8 << 20, direct_reads=True),
    Load(
        name=f"readwhilewriting, {READERS} readers",
        phase="readwhilewriting",
        cache_bytes=4 << 30,
        jobs=READERS,
        stream="readers",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by all comparisons."""

    scratch: Path
    records: int
    seconds: float = 1.0
    histogram: bool = False
    shim: int | None
    """Descriptor of the C++ shim; None for the C interface."""

    def ours(self, load: Load) -> float:
        """Operations per second of the engine."""
        if load.phase == "fillseq":
            emptied(self.scratch / "ours")
        result = values_checked(self.run(self.spec(load)))
        interface = result["store"]["build"]["interface"]
        if self.shim is not None and not interface.startswith("C++ shim"):
            raise BenchError(f"the shim was not used: {interface}")
        return measured(result, load.stream).rate

    def run(self, spec: dict[str, Any], engine: Path | None = None) -> dict[str, Any]:
        """The engine's result."""
        result: dict[str, Any] = driven(spec, engine=engine, shims={"rocksdb": self.shim} if self.shim else {}).result
        return result

    def harness_ns(self) -> float:
        """Time of a read on the store `null`: choosing the record, verifying its value, recording its latency."""
        stream = KV.build({"store": "null", "records": self.records, "duration": f"{self.seconds}s"})
        spec = KV.resolve({"main": stream}, open_target("null:"), seed=1, run_id="bench")
        return 1e9 / measured(driven(spec).result, "main").rate

    def theirs(self, load: Load) -> float:
        """Operations per second of db_bench."""
        if load.phase == "fillseq":
            emptied(self.scratch / "theirs")
        done = subprocess.run(self.command(load), capture_output=True, text=True, check=False)
        rates = [float(rate) for name, _, rate in LINE.findall(done.stdout.replace("\r", "\n")) if name == load.phase]
        if not rates:
            raise BenchError(f"db_bench printed no rate:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        counts = FOUND.findall(done.stdout)
        if load.is_read_only and (not counts or any(found != read for found, read in counts)):
            raise BenchError(f"db_bench did not find every record that it read: {counts}")
        return rates[-1]

    def fill(self, load: Load) -> None:
        """Fresh databases, so that neither program has what a comparison before it has left.

        One that both only read is as iosonde loads it before a run.
        """
        if load.is_read_only:
            emptied(self.scratch / "ours")
            self.ours(load)
            return
        filled = Load(name="fill", phase="fillseq", cache_bytes=load.cache_bytes)
        self.ours(filled)
        self.theirs(filled)

    def spec(self, load: Load) -> dict[str, Any]:
        """The engine's spec of a load."""
        is_fill = load.phase == "fillseq"
        rocksdb = {
            **OPTIONS,
            # db_bench keeps no part of it for blocks of high priority, a cache given as a number half of it.
            "block_cache": f"{{capacity={load.cache_bytes};high_pri_pool_ratio=0}}",
            "use_direct_reads": load.direct_reads,
            "compression": "kNoCompression",
            "statistics": False,
        }
        parameters = {
            "store": "rocksdb",
            "phase": load.phase,
            "records": self.records,
            "value_compression_ratio": 0.5,
            "jobs": load.jobs,
            "rocksdb": rocksdb,
            "page_cache": "keep",
            "duration": "none" if is_fill else f"{self.seconds}s",
            "limit_operations": self.records if is_fill else "none",
        }
        target = open_target(str(self.scratch))
        spec = KV.resolve({"main": KV.build(parameters)}, target, seed=1, run_id="bench")
        spec["workload"]["target"]["path"] = str(self.scratch / "ours")
        spec["observe"]["block_devices"] = []
        return spec

    def command(self, load: Load) -> list[str]:
        """The command of db_bench for a load."""
        settings = {
            "db": self.scratch / ("ours/database" if load.is_read_only else "theirs"),
            "benchmarks": load.phase,
            "num": self.records,
            "threads": load.jobs,
            "key_size": 16,
            "value_size": 100,
            "compression_ratio": 0.5,
            "compression_type": "none",
            "cache_size": load.cache_bytes,
            # RocksDB's own default; db_bench shortens successors too.
            "index_shortening_mode": 1,
            "use_direct_reads": load.direct_reads,
            "use_existing_db": load.phase != "fillseq",
            "seed": 1,
            **({"histogram": True} if self.histogram else {}),
            **({} if load.phase == "fillseq" else {"duration": round(self.seconds)}),
            **{DB_BENCH_NAMES.get(name, name): value for name, value in OPTIONS.items()},
        }
        return ["db_bench", *(f"--{name}={flag(value)}" for name, value in settings.items())]


def flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def emptied(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()


def library_of_db_bench() -> str:
    """Name of the RocksDB that db_bench is linked to."""
    program = shutil.which("db_bench")
    if not program:
        raise BenchError("`db_bench` is not found: install the package `rocksdb-tools`")
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.search(r"=> (\S*librocksdb\S*)", listed)
    if not found:
        raise BenchError("db_bench is linked to no shared RocksDB, so it cannot be compared with: use Debian's")
    return Path(found[1]).resolve().name


def main() -> None:
    given = options(
        __doc__,
        pairs=5,
        seconds=5.0,
        records=2_000_000,
        directory=Path(),
        interface=("shim", "c"),
        only="",
        histogram=False,
    )
    settings = f"{given.pairs} pairs, {given.records:,} records, {given.seconds:g} s of reads"
    print(provenance(library_of_db_bench(), settings))
    through, rows = "C++ shim" if given.interface == "shim" else "C", []
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch, ExitStack() as closing:
        descriptor = closing.enter_context(shim.opened(shim.ROCKSDB, None)) if given.interface == "shim" else None
        bench = Bench(
            scratch=Path(scratch),
            records=given.records,
            seconds=given.seconds,
            histogram=given.histogram,
            shim=descriptor,
        )
        harness_ns = bench.harness_ns()
        for load in LOADS:
            if given.only not in load.name:
                continue
            if load is not FILL:
                bench.fill(load)
            pairs = interleaved(
                lambda load=load: bench.ours(load),  # type: ignore[misc]
                lambda load=load: bench.theirs(load),  # type: ignore[misc]
                pairs=given.pairs,
                title=load.name,
            )
            ours, theirs, ratio = compared(pairs, float)
            # Of one job that only reads: otherwise the rate does not give the time for a read.
            part = harness_ns * medians(pairs, float)[0] / 1e9
            rows.append([load.name, through, ours, theirs, f"{part:.1%}" if load.is_read_only else "-", ratio])
    sides = ("operations/s, engine", "operations/s, db_bench")
    print(f"\n{table(('load', 'interface', *sides, 'verification and histograms', 'ratio'), rows)}")
    print(f"\nChoosing a record, verifying its value and recording its latency take {harness_ns:.0f} ns per read.")


if __name__ == "__main__":
    main()
