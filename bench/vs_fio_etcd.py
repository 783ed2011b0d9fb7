"""The load of `iosonde qualify etcd` against the fio command that etcd's documentation refers to, in paired runs.

    python bench/vs_fio_etcd.py [--pairs 8] [--directory DIR]

Both write 22 MiB in blocks of 2,300 bytes, each followed by fdatasync, to a new file on the same file system.
Two comparisons, since fio allocates the blocks of its file beforehand, which iosonde does not:

- the command as documented;
- the same with `--fallocate=truncate`: both files are then sparse, and each fdatasync allocates blocks.

Prints a Markdown table of times of fdatasync, ratios with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from statistics import median

from pairs import interleaved, provenance, ratio_of, shown, table

from iosonde.execution import execute
from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture
from iosonde.planning import expand
from iosonde.qualify import load_application
from iosonde.storage import open_target

FIO = ("fio", "--rw=write", "--ioengine=sync", "--fdatasync=1", "--size=22m", "--bs=2300", "--name=mytest")
SETTINGS = {"span": "22MiB", "limit_operations": str((22 << 20) // 2300), "ramp": "0s", "duration": "none"}
HEAD = ("fio", "fdatasync", "iosonde, µs", "fio, µs", "ratio")
FIGURES = ("p50", "p99", "mean")

Times = Mapping[str, float]
"""Times of fdatasync in nanoseconds, by figure."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The load of etcd against fio, in paired, interleaved runs.")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of runs in each comparison")
    parser.add_argument("--directory", type=Path, default=Path(), help="where files of 22 MiB are written and removed")
    options = parser.parse_args()
    if not shutil.which("fio"):
        sys.exit("error: `fio` is not found: install the package `fio`")
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        target = Path(scratch, "target")
        target.mkdir()
        for name, more in (("as documented", ()), ("--fallocate=truncate", ("--fallocate=truncate",))):
            pairs = interleaved(lambda: ours(target), lambda more=more: theirs(target, *more), pairs=options.pairs)
            for figure in FIGURES:
                sides = [f"{median(each[figure] for each in side) / 1e3:.0f}" for side in zip(*pairs, strict=True)]
                rows.append([name, figure, *sides, shown(ratio_of(pairs, itemgetter(figure)))])
    print(provenance(capture(find_engine()), version, f"{options.pairs} pairs"))
    print(f"\n{table(HEAD, rows)}")


def ours(directory: Path) -> Times:
    """The load of etcd with as many writes as fio's."""
    plan = expand(load_application("etcd"), open_target(str(directory)), settings=SETTINGS)
    with tempfile.TemporaryDirectory(dir=directory.parent) as place:
        found = execute(plan, Path(place, "set")).sql("SELECT metric, value FROM metrics WHERE operation = 'flush'")
        return {figure: dict(found.rows())[f"completion_latency_ns_{figure}"] for figure in FIGURES}


def theirs(directory: Path, *options: str) -> Times:
    """fio's times of fdatasync."""
    command = [*FIO, f"--directory={directory}", "--output-format=json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (directory / "mytest.0.0").unlink()
    times = json.loads(done.stdout)["jobs"][0]["sync"]["lat_ns"]
    percentiles = times["percentile"]
    return {"p50": percentiles["50.000000"], "p99": percentiles["99.000000"], "mean": times["mean"]}


if __name__ == "__main__":
    main()
