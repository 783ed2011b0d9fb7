"""Time of library, history, fleet report and SQL over a large library, with its records read and with the cache.

    python bench/compacted_library.py [--read 100] [--cached 10000]

Two result sets of 101 runs each are measured by the engine on a simulated drive (ten intervals a run). A library of
`--read` result sets has hard links to their records; `iosonde library` is measured without and with the cache. Then a
library of `--cached` result sets with the cache that they would have: their directories have a plan and no records,
which nothing reads as long as the cache is valid. `--cached 0` leaves that part out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
from sessions import STUDY

from iosonde.execution import execute
from iosonde.library import index
from iosonde.library.indexing import Cache, state_of
from iosonde.library.summary import Device
from iosonde.planning import expand
from iosonde.storage import open_target
from iosonde.study.model import Study

DRIVE = "sim:p900"
BASES, RUNS, AT_ONCE, DRIVES = 2, 101, 25, 100
QUERY = (
    "SELECT model, metric, count(*) AS runs, median(value) AS median FROM metrics JOIN result_sets USING (result_set) "
    "WHERE operation = 'all' GROUP BY ALL ORDER BY ALL"
)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=int, default=100)
    parser.add_argument("--cached", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")
        bases = [Path(scratch) / "bases" / f"set-{number}" for number in range(BASES)]
        for base in bases:
            study = Study.model_validate(STUDY | {"measurement": STUDY["measurement"] | {"duration": "1s"}})
            execute(expand(study, open_target(DRIVE), profile="quick", repeats=24), base)
        library = Path(scratch) / "library"
        for number in range(options.read):
            shutil.copytree(bases[number % BASES], library / f"set-{number:05}", copy_function=os.link)
        print(f"{options.read} result sets, {options.read * RUNS:,} runs")
        for name in ("records read", "cache"):
            measure(name, "library", str(library), "--output", str(Path(scratch) / "page.html"))
        measure("cache", "history", str(library), "--output", str(Path(scratch) / "page.html"))
        shutil.rmtree(library)
        fill(library, bases, options.cached)
        print(f"{options.cached} result sets, {options.cached * RUNS:,} runs")
        for command in (("library",), ("history",), ("report", "--fleet")):
            name, *rest = command
            measure(f"cache, {name}", name, str(library), *rest, "--output", str(Path(scratch) / "page.html"))
        measure("cache, sql", "sql", str(library), QUERY)


def fill(library: Path, bases: list[Path], count: int) -> None:
    """Create result sets without records, and their cache: of so many drives, one session an hour each in turn."""
    found = index(bases[0].parent, compact=True)
    [file] = Cache.of(found.root).metric_files(_segments(found.root))
    metrics = pl.read_parquet(file, glob=False).drop("segment", "study")
    tables = {each.path: metrics.filter(pl.col("result_set") == each.path) for each in found.summaries}
    cache = Cache.of(library)
    for start in range(0, count, AT_ONCE):
        summaries, rows = {}, []
        for number in range(start, min(start + AT_ONCE, count)):
            base = found.summaries[number % BASES]
            name = f"set-{number:05}"
            (library / name / "records").mkdir(parents=True)
            for part in ("plan.json", "format.json"):
                os.link(bases[0].parent / base.path / part, library / name / part)
            device = Device(name="nvme0n1", model=base.devices[0].model, firmware="1", serial=f"{number % DRIVES:08x}")
            started = datetime(2026, 1, 1) + timedelta(hours=number)
            changes = {"path": name, "devices": [device], "started_at": f"{started.isoformat()}+00:00"}
            summaries[name] = (state_of(library / name), base.model_copy(update=changes))
            rows.append(tables[base.path].with_columns(result_set=pl.lit(name)))
        cache.add(summaries, pl.concat(rows))
    size = sum(path.stat().st_size for path in cache.path.rglob("*.parquet"))
    print(f"cache: {size / 1e6:.0f} MB in {len(list(cache.path.rglob('*.parquet')))} files")


def _segments(root: Path) -> list[str]:
    states = {each.name: state_of(each) for each in root.iterdir()}
    return Cache.of(root).current(states)["segment"].unique().to_list()


def measure(name: str, *command: str) -> None:
    """Run iosonde and print time, CPU time, and the largest resident memory of any process so far."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "iosonde", *command], capture_output=True, check=False)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{command[0]:8} {name:16} {wall:6.1f} s, {cpu:6.1f} s of CPU, at most {after.ru_maxrss / 1024:.0f} MiB, load "
        f"average {os.getloadavg()[0]:.1f}",
        json.dumps(done.stderr.decode()[-300:]) if done.returncode else "",
        flush=True,
    )


if __name__ == "__main__":
    main()
