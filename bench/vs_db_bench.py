"""The engine against RocksDB's own db_bench, in paired, interleaved runs on the same library.

    python bench/vs_db_bench.py [--pairs 5] [--seconds 5] [--records 2000000] [--directory DIR] [--output FILE.json]
                                [--interface shim|c] [--only TEXT] [--histogram] [--baseline ENGINE]

Four comparisons, keys of 16 and values of 100 bytes, no compression, no statistics, every option that matters set on
both sides: `fillseq` into an empty database; `readrandom` from a block cache that holds everything, and past it with
direct reads and a small cache; `readwhilewriting` with 4 readers and one writer as fast as it goes. Loads that only
read use one database for both programs: their keys are alike. Ours keeps a full histogram of every interval and
compares every value read with what its key demands; db_bench does neither. What that costs is measured on the store
`null`, which does all of it and stores nothing, and stated beside the ratio as a part of the engine's time for a read.

The engine reads through the C++ shim (`--interface shim`), as iosonde does where it can compile it, or through
RocksDB's C interface (`--interface c`), which allocates an object for each read. With `--histogram` db_bench measures
every latency too (its option of the same name), and still verifies nothing. With `--baseline` another build of the
engine takes the place of db_bench: what a change of the engine gains.

Debian's db_bench (package `rocksdb-tools`) is linked to the same `librocksdb.so` that the engine loads; the library of
both is printed. Prints a Markdown table; `--output` keeps every run with its command.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pairs import interleaved, provenance, ratio_of, shown, table

from iosonde.execution.engine import drive, find_engine
from iosonde.execution.environment import capture
from iosonde.execution.stop import Stop
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


class BenchError(Exception):
    """A run did not give what it must."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run."""

    program: str
    ops_per_sec: float
    command: str


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


LOADS = (
    Load(name="fillseq", phase="fillseq", cache_bytes=32 << 20),
    Load(name="readrandom, cached", phase="readrandom", cache_bytes=4 << 30),
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

    engine: Path
    scratch: Path
    records: int
    seconds: float
    pairs: int
    histogram: bool
    shim: int | None
    """Descriptor of the C++ shim; None for the C interface."""
    baseline: Path | None = None
    """Another engine to compare with, instead of db_bench."""

    def compare(self, load: Load) -> list[tuple[Measured, Measured]]:
        """Both programs in turn: on one database if they only read, otherwise each on its own of the same records."""
        print(load.name, file=sys.stderr)
        if load.phase != "fillseq":
            self.fill(load)
        return interleaved(lambda: self.ours(load), lambda: self.other(load), pairs=self.pairs)

    def other(self, load: Load) -> Measured:
        """Run the other side of the comparison: a baseline engine if one is given, otherwise db_bench."""
        return replace(self, engine=self.baseline).ours(load) if self.baseline else self.theirs(load)

    def ours(self, load: Load) -> Measured:
        """The engine."""
        place = self.scratch / "ours"
        if load.phase == "fillseq":
            _emptied(place)
        spec = self.spec(load, place)
        result = self.driven(spec)
        checks = result["store"]["checks"]
        if any(check["missing"] or check["corrupted"] for check in checks):
            raise BenchError(f"values are missing or wrong: {checks}")
        if self.shim is not None and not result["store"]["build"]["interface"].startswith("C++ shim"):
            raise BenchError(f"the shim was not used: {result['store']['build']['interface']}")
        return Measured(program="engine", ops_per_sec=_rate(result, load.stream), command=json.dumps(spec))

    def harness_ns(self) -> float:
        """Time of a read on the store `null`: choosing the record, verifying its value, recording its latency."""
        stream = KV.build({"store": "null", "records": self.records, "duration": f"{self.seconds}s"})
        result = self.driven(KV.resolve({"main": stream}, open_target("null:"), seed=1, run_id="bench"))
        return 1e9 / _rate(result, "main")

    def driven(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The result of a run of the engine."""
        stop = Stop()
        is_used = self.shim is not None and spec["workload"]["store"]["kind"] == "rocksdb"
        shims = {"rocksdb": self.shim} if is_used else {}
        try:
            done = drive(spec, on_event=lambda _: None, stop=stop, engine=self.engine, shims=shims)
        finally:
            stop.close()
        if done.result is None:
            raise BenchError(f"the engine failed: {done.failure}")
        return done.result

    def theirs(self, load: Load, *, num: int | None = None) -> Measured:
        """db_bench."""
        place = self.scratch / ("ours/database" if load.is_read_only else "theirs")
        if load.phase == "fillseq":
            _emptied(place)
        command = self.command(load, place, num or self.records)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = LINE.findall(done.stdout.replace("\r", "\n"))
        rates = [float(rate) for name, _, rate in found if name == load.phase]
        if not rates:
            raise BenchError(f"db_bench gave no figure:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        counts = [(int(found), int(all_)) for found, all_ in FOUND.findall(done.stdout)]
        if load.is_read_only and (not counts or any(found != all_ for found, all_ in counts)):
            raise BenchError(f"db_bench did not find every record that it read: {counts}")
        return Measured(program="db_bench", ops_per_sec=rates[-1], command=" ".join(command))

    def fill(self, load: Load) -> None:
        """Fresh databases, so that neither program has what a comparison before it has left.

        One that both only read is as iosonde loads it before a run.
        """
        if load.is_read_only:
            _emptied(self.scratch / "ours")
            self.ours(load)
            return
        filled = Load(name="fill", phase="fillseq", cache_bytes=load.cache_bytes)
        self.ours(filled)
        self.theirs(filled)

    def spec(self, load: Load, place: Path) -> dict[str, Any]:
        """The engine's spec of a load on a database in a directory."""
        is_fill = load.phase == "fillseq"
        options = {
            **OPTIONS,
            # db_bench keeps no part of it for blocks of high priority, a cache given as a number half of it.
            "block_cache": f"{{capacity={load.cache_bytes};high_pri_pool_ratio=0}}",
            "use_direct_reads": load.direct_reads,
            "compression": "kNoCompression",
            "statistics": False,
        }
        stream = KV.build(
            {
                "store": "rocksdb",
                "phase": load.phase,
                "records": self.records,
                "value_compression_ratio": 0.5,
                "jobs": load.jobs,
                "rocksdb": options,
                "page_cache": "keep",
                "duration": "none" if is_fill else f"{self.seconds}s",
                "limit_operations": self.records if is_fill else "none",
            }
        )
        spec = KV.resolve({"main": stream}, open_target(str(self.scratch)), seed=1, run_id="bench")
        spec["workload"]["target"]["path"] = str(place)
        spec["observe"]["block_devices"] = []
        return spec

    def command(self, load: Load, place: Path, num: int) -> list[str]:
        """The command of db_bench for a load on a database of `num` records in a directory."""
        options = {
            "db": place,
            "benchmarks": load.phase,
            "num": num,
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
        return ["db_bench", *(f"--{name}={_flag(value)}" for name, value in options.items())]


def _flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rate(result: Mapping[str, Any], stream: str) -> float:
    """Operations per second of a stream."""
    operations = sum(job["operations"] for job in result["jobs"] if job["stream"] == stream)
    return float(operations / ((result["end_ns"] - result["begin_ns"]) / 1e9))


def _emptied(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()


def library_of_db_bench() -> str:
    """The RocksDB that db_bench is linked to."""
    listed = subprocess.run(["ldd", shutil.which("db_bench") or ""], capture_output=True, text=True, check=True).stdout
    found = re.search(r"=> (\S*librocksdb\S*)", listed)
    if not found:
        raise BenchError("db_bench is linked to no shared RocksDB, so it cannot be compared with: use Debian's")
    return str(Path(found[1]).resolve())


def rows(
    comparisons: Mapping[str, list[tuple[Measured, Measured]]], interface: str, harness_ns: float
) -> list[list[str]]:
    """A row for each comparison."""
    rate: Callable[[Measured], float] = lambda run: run.ops_per_sec  # noqa: E731
    found = []
    for name, pairs in comparisons.items():
        ours, theirs = (median(map(rate, side)) for side in zip(*pairs, strict=True))
        # Of one job that only reads: otherwise the rate does not give the time for a read.
        is_read = name.startswith("readrandom")
        share = f"{harness_ns * ours / 1e9:.1%}" if is_read else "-"
        found.append([name, interface, f"{ours:,.0f}", f"{theirs:,.0f}", share, shown(ratio_of(pairs, rate))])
    return found


def main() -> None:
    chosen = arguments()
    if not shutil.which("db_bench"):
        raise BenchError("`db_bench` is not found: install the package `rocksdb-tools`")
    engine = find_engine()
    library = library_of_db_bench()
    environment = capture(engine)
    about = f"{chosen.pairs} pairs, {chosen.records:,} records, {chosen.seconds:g} s of reads"
    print(provenance(environment, Path(library).name, about))
    with tempfile.TemporaryDirectory(dir=chosen.directory) as scratch, ExitStack() as closing:
        bench = Bench(
            engine=engine,
            scratch=Path(scratch),
            records=chosen.records,
            seconds=chosen.seconds,
            pairs=chosen.pairs,
            histogram=chosen.histogram,
            shim=closing.enter_context(shim.opened(shim.ROCKSDB, None)) if chosen.interface == "shim" else None,
            baseline=chosen.baseline,
        )
        comparisons = {load.name: bench.compare(load) for load in LOADS if chosen.only in load.name}
        harness_ns = bench.harness_ns()
    other = chosen.baseline or "db_bench"
    interface = "C++ shim" if chosen.interface == "shim" else "C"
    head = (
        "load",
        "interface",
        "operations/s, engine",
        f"operations/s, {other}",
        "verification and histograms",
        "ratio",
    )
    print(f"\n{table(head, rows(comparisons, interface, harness_ns))}")
    print(f"\nChoosing a record, verifying its value and recording its latency take {harness_ns:.0f} ns per read.")
    if chosen.output:
        runs = {name: [[asdict(run) for run in pair] for pair in pairs] for name, pairs in comparisons.items()}
        facts = {
            "command": sys.argv,
            "interface": chosen.interface,
            "histogram_of_db_bench": chosen.histogram,
            "harness_ns": harness_ns,
            "environment": environment,
            "library": library,
        }
        chosen.output.write_text(json.dumps({**facts, "comparisons": runs}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The engine against db_bench, in paired, interleaved runs.")
    parser.add_argument(
        "--pairs", type=int, default=5, help="pairs of runs in each comparison (from 3 on with intervals)"
    )
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement of reads")
    parser.add_argument("--records", type=int, default=2_000_000, help="records of the database")
    parser.add_argument("--directory", type=Path, default=Path(), help="where databases are made and removed")
    parser.add_argument("--interface", choices=("shim", "c"), default="shim", help="what the engine reads through")
    parser.add_argument("--only", default="", help="only comparisons whose name holds this text")
    parser.add_argument("--histogram", action="store_true", help="let db_bench measure every latency, too")
    parser.add_argument("--baseline", type=Path, help="another engine to compare with, instead of db_bench")
    parser.add_argument("--output", type=Path, help="JSON file for every run with its command")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except (BenchError, shim.UnavailableError) as error:
        sys.exit(f"error: {error}")
