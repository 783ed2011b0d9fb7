"""CPU time of the coordinator for a run on N hosts, and of the report: their records merged, written and reported.

    python bench/hosts_scale.py [--hosts 8 64 250 500] [--runs 3]

Two hosts of this machine measure (`--hosts local:2`). Their records are those of N hosts on machines of their own:
merging, writing and reporting are the code of a study on N hosts. Connections and messages are not measured.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from iosonde.execution import execute
from iosonde.execution.session import HostOptions
from iosonde.features.many_hosts.merge import HostRun, total
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.reading import record_name
from iosonde.results.schema import MANIFEST, RECORD_TABLES, Record
from iosonde.storage import open_target
from iosonde.study.model import Study

STUDY = {
    "name": "hosts",
    "title": "Hosts",
    "question": "?",
    "measurement": {
        "access": "random",
        "block_size": "4KiB",
        "arrival": "constant",
        "rate": 200,
        "span": "4MiB",
        "ramp": "0s",
        "duration": "10s",
        "interval": "1s",
    },
    "parts": [{"factors": {"read_fraction": [1.0]}}],
    "profiles": {"quick": {}},
}


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[8, 64, 250, 500])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "target"
        place.mkdir()
        study = Study.model_validate(STUDY | {"repeats": options.runs})
        plan = expand(study, open_target(str(place)), profile="quick")
        measured = execute(plan, Path(scratch) / "measured", hosts=HostOptions(hosts="local:2"))
        for count in options.hosts:
            merge(measured, Path(scratch) / f"of-{count}", count)


def merge(measured: ResultSet, directory: Path, count: int) -> None:
    """Merge the runs of so many hosts, write and report them, and print what that took."""
    names = [f"host{number}" for number in range(count)]
    results = ResultSet.create(directory, measured.plan.model_copy(update={"hosts": names}))
    environment = next(iter(measured.environments().values()))
    begin = time.process_time()
    with results.lock():
        name = results.write_environment(environment)
        for number, run in enumerate(measured.plan.runs):
            if number == 1:
                begin = time.process_time()  # After the first use of each data type.
            record = record_name(run.run_id, 1)
            parts = [
                _host_run(measured.directory / "hosts" / f"host{i % 2}" / "records" / record, host)
                for i, host in enumerate(names)
            ]
            done = total(parts, run, 1, session="s", environment=environment, name=name, study=measured.plan.study)
            results.write(done.record, done.done.intervals, done.done.histograms, done.done.usage)
    runs = len(measured.plan.runs)
    cpu = (time.process_time() - begin) / (runs - 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / runs
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "iosonde", "report", str(directory)]
    reported = subprocess.run(command, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{count:4} hosts: {cpu:6.2f} s of CPU for each run ({1e3 * cpu / count:.1f} ms for each host), "
        f"{size / 1e6:.2f} MB for each run, {memory:.0f} MiB; report {report:.1f} s of CPU, at most "
        f"{after.ru_maxrss / 1024:.0f} MiB; load average {os.getloadavg()[0]:.1f}",
        reported.stderr.decode()[-300:] if reported.returncode else "",
        flush=True,
    )


def _host_run(directory: Path, name: str) -> HostRun:
    """A record as that of a host, read as the coordinator reads it."""
    tables = {table: pl.read_parquet(directory / f"{table}.parquet") for table in RECORD_TABLES}
    return HostRun(
        host=name,
        machine=name,
        clock_offset_ns=0,
        clock_bound_ns=0,
        record=Record.model_validate_json((directory / "record.json").read_bytes()),
        manifest_sha256=hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest(),
        **tables,
    )


if __name__ == "__main__":
    main()
