"""Time and memory for opening and querying a large result set: 2,000 runs of 60 intervals.

    python bench/large_result_set.py [DIRECTORY] [--runs 2000]

Fabricates the set with iosonde's own writer (log-normal latencies, about 300 buckets an interval, 36 million rows),
unless DIRECTORY holds it already, and prints time and peak memory of: opening it, the small tables, all intervals, and
one GROUP BY that merges the latency histograms of each run. Each is measured in a process of its own, from its start.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from iosonde.plan import Case, Cost, Plan, Run
from iosonde.results import ResultSet
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE, Record

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from buckets import bucket_of

INTERVAL_COUNT = 60
SAMPLES = 1000
REPEATS = 5
SECOND_NS = 10**9

STEPS = {
    "open": "result_set.records()",
    "small tables": "result_set.runs, result_set.cases, result_set.jobs",
    "intervals": "result_set.intervals",
    "merged histograms": "result_set.sql('SELECT run_id, stream, operation, latency, bucket, sum(count) AS count"
    " FROM histograms GROUP BY ALL')",
}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("directory", nargs="?", type=Path)
    arguments.add_argument("--runs", type=int, default=2000)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = chosen.directory or Path(scratch) / "set"
        if not (directory / "format.json").exists():
            begin = time.monotonic()
            fabricate(directory, chosen.runs)
            print(f"written in {time.monotonic() - begin:.1f} s")
        for name, step in STEPS.items():
            measure(name, step, directory)


def measure(name: str, step: str, directory: Path) -> None:
    program = (
        "import resource, sys, time\n"
        "begin = time.monotonic()\n"
        "from iosonde.results import ResultSet\n"
        "result_set = ResultSet.open(sys.argv[1])\n"
        f"answer = {step}\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "rows = answer.height if hasattr(answer, 'height') else len(answer)\n"
        "print(f'{time.monotonic() - begin:6.1f} s {peak:7.0f} MiB {rows:10,} rows')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, check=True)
    print(f"{name:18} {done.stdout.strip()}")


def fabricate(directory: Path, run_count: int) -> None:
    plan = large_plan(run_count)
    cases = {case.case_id: case for case in plan.cases}
    random = np.random.default_rng(1)
    result_set = ResultSet.create(directory, plan)
    with result_set.lock():
        for run in plan.runs:
            result_set.write(record_of(run, cases[run.case_id]), *tables(run.run_id, random))


def large_plan(run_count: int) -> Plan:
    """Queue depth by block size, five repeats, as a real study has it."""
    cost = Cost(seconds=60, write_bytes=0)
    cases = [
        Case(
            case_id=f"main/block_size={size}/queue_depth={depth}",
            part="main",
            control=False,
            levels={"block_size": size, "queue_depth": depth},
            parameters={"block_size": size, "queue_depth": depth, "jobs": 1},
            cost=cost,
        )
        for size in range(4096, 4096 * 41, 4096)
        for depth in range(1, -(-run_count // (40 * REPEATS)) + 1)
    ]
    runs = [
        Run(
            run_id=f"c{number:04d}-r{repeat}",
            case_id=case.case_id,
            repeat=repeat,
            order=(repeat - 1) * len(cases) + number - 1,
            spec=spec_of(case),
        )
        for repeat in range(1, REPEATS + 1)
        for number, case in enumerate(cases, start=1)
    ][:run_count]
    return Plan(
        study={
            "name": "large",
            "title": "A large result set",
            "question": "How long does it take?",
            "measurement": {"io_mode": "direct"},
            "parts": [
                {
                    "name": "main",
                    "factors": {
                        "block_size": sorted({case.levels["block_size"] for case in cases}),
                        "queue_depth": sorted({case.levels["queue_depth"] for case in cases}),
                    },
                }
            ],
            "profiles": {"quick": {}},
            "views": [
                {
                    "kind": "lines",
                    "title": "Bandwidth over block size",
                    "x": "block_size",
                    "y": "bandwidth",
                    "series": "queue_depth",
                }
            ],
            "analysis": [{"kind": "saturation", "over": "queue_depth", "metric": "iops", "by": ["block_size"]}],
        },
        study_name="large",
        profile="quick",
        target="null:1GiB",
        seed=1,
        repeats=REPEATS,
        cases=cases,
        runs=runs,
        destroys=[],
        layout_bytes=0,
        cost=Cost(seconds=60 * run_count, write_bytes=0),
        settings={},
    )


def spec_of(case: Case) -> dict[str, object]:
    stream = {
        "name": "main",
        "jobs": 1,
        "queue_depth": case.levels["queue_depth"],
        "block_sizes": [{"bytes": case.levels["block_size"], "weight": 1.0}],
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "arrival": {"kind": "closed"},
    }
    return {"workload": {"kind": "block", "streams": [stream], "interval_ns": SECOND_NS}}


def record_of(run: Run, case: Case) -> Record:
    usage = {"wall_ns": 60 * SECOND_NS, "user_ns": 10 * SECOND_NS, "system_ns": 20 * SECOND_NS}
    job = {
        "stream": "main",
        "job": 0,
        "operations": INTERVAL_COUNT * SAMPLES,
        "bytes": INTERVAL_COUNT * SAMPLES * 4096,
        "last_completion_ns": 60 * SECOND_NS,
        "usage": usage,
        "abandoned": 0,
    }
    result = {
        "outcome": "complete",
        "begin_ns": 0,
        "end_ns": INTERVAL_COUNT * SECOND_NS,
        "jobs": [job],
        "process": usage,
        "peak_memory_bytes": 1 << 24,
        "buffer_bytes": 1 << 20,
        "devices": [],
        "backend": {"kind": "null", "features": [], "fallbacks": []},
        "layout": {"written_bytes": 0, "kept_bytes": 0},
    }
    return Record(
        run_id=run.run_id,
        attempt=1,
        case_id=case.case_id,
        part=case.part,
        control=False,
        repeat=run.repeat,
        order=run.order,
        levels=case.levels,
        parameters=case.parameters,
        spec=run.spec,
        started_at="2026-01-02T03:04:05+00:00",
        ended_at="2026-01-02T03:05:05+00:00",
        outcome="complete",
        failure=None,
        engine={"engine": "fabricated", "version": "0", "clock": "tsc", "clock_read_ns": 10.0},
        phases=[],
        result=result,
        child={},
        target={},
        environment="",
        warnings=[],
    )


def tables(run_id: str, random: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    median_ns = 80_000 * np.exp(0.3 * random.standard_normal())
    values = random.lognormal(np.log(median_ns), 0.12, (INTERVAL_COUNT, SAMPLES)).astype(np.uint64)
    number = np.arange(INTERVAL_COUNT, dtype=np.uint64)
    # Interval and bucket in one key, so that one sort counts them all.
    keys = (number[:, None] << np.uint64(32)) + bucket_of(values)
    unique, counts = np.unique(keys, return_counts=True)
    place = {"run_id": run_id, "phase": "measure", "stream": "main", "operation": "read"}
    timed = {"begin_ns": number * np.uint64(SECOND_NS), "end_ns": (number + np.uint64(1)) * np.uint64(SECOND_NS)}
    histograms = shaped(
        HISTOGRAMS,
        **place,
        latency="completion",
        interval=unique >> np.uint64(32),
        bucket=unique & np.uint64(2**32 - 1),
        count=counts,
    )
    intervals = shaped(
        INTERVALS,
        **place,
        **timed,
        interval=number,
        count=SAMPLES,
        bytes=SAMPLES * 4096,
        errors=0,
        completion_latency_ns_sum=values.sum(axis=1),
        completion_latency_ns_min=values.min(axis=1),
        completion_latency_ns_max=values.max(axis=1),
        backlog_max=0,
    )
    usage = shaped(USAGE, **place, **timed, interval=number, device="process", wall_ns=SECOND_NS)
    return intervals, histograms, usage


def shaped(schema: pl.Schema, **columns: object) -> pl.DataFrame:
    """A frame of that schema; what is not given is null."""
    rows = max(len(column) for column in columns.values() if isinstance(column, np.ndarray))
    base = pl.DataFrame({name: column for name, column in columns.items() if isinstance(column, np.ndarray)})
    others = [pl.lit(columns.get(name)).alias(name) for name in schema if name not in base.columns]
    return base.with_columns(others).select(pl.col(name).cast(dtype) for name, dtype in schema.items()).head(rows)


if __name__ == "__main__":
    main()
