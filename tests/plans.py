"""Plans and records by hand, for tests of what comes after the study."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from buckets import bucket_of

from iosonde.engine import protocol
from iosonde.plan import Case, Cost, Plan, Run
from iosonde.results.reading import manifest
from iosonde.results.schema import HISTOGRAMS, INTERVALS, MANIFEST, USAGE, Failure, Record
from iosonde.study.workload import workloads

MIB = 1 << 20


def null_spec(run_id: str, *, target: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    """A spec of the null backend that an engine carries out in `duration_ns` (100 ms)."""
    stream = {
        **{"name": "main", "jobs": 1, "queue_depth": 4, "cpus": [], "limit_bytes": None, "limit_operations": None},
        "access": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": 4096, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": MIB, "sharing": "shared"},
        **{"io_mode": "direct", "durability": {"kind": "none"}},
        **{"arrival": {"kind": "closed"}, "payload": {"kind": "random"}},
    }
    block = {
        **{"kind": "block", "target": target or {"kind": "virtual", "size_bytes": MIB}, "backend": {"kind": "null"}},
        **{"layout": "never", "page_cache": "keep", "streams": [stream]},
        **{"ramp": {"duration_ns": 0, "bytes": None}, "duration_ns": 100_000_000, "interval_ns": 100_000_000},
        **workload,
    }
    spec = {"protocol": protocol.VERSION, "run_id": run_id, "seed": 1}
    return spec | {"workload": block, "observe": {"block_devices": []}}


def hand_plan(
    *,
    levels: tuple[Any, ...] = (1, 2),
    factor: str = "queue_depth",
    repeats: int = 2,
    target: dict[str, Any] | None = None,
    name: str = "null:",
    **workload: Any,
) -> Plan:
    cost = Cost(seconds=0.1, write_bytes=0)
    cases = []
    for level in levels:
        facts = {"levels": {factor: level}, "parameters": {factor: level, "block_size": 4096, "cpus": []}}
        cases.append(Case(case_id=f"main/{factor}={level}", part="main", control=False, cost=cost, **facts))
    runs = []
    for number, case in enumerate(cases, start=1):
        for repeat in range(1, repeats + 1):
            run_id, order = f"c{number:04d}-r{repeat}", (repeat - 1) * len(cases) + number - 1
            spec = null_spec(run_id, target=target, **workload)
            runs.append(Run(run_id=run_id, case_id=case.case_id, repeat=repeat, order=order, spec=spec))
    study = {"name": "by-hand", "title": "By hand", "question": "?", "parts": [{"name": "main"}], "profiles": {}}
    facts = {"study": study, "study_name": "by-hand", "profile": "quick", "settings": {}, "seed": 1}
    written = {"destroys": [], "layout_bytes": 0, "cost": cost}
    return Plan(target=name, repeats=repeats, cases=cases, runs=runs, **facts, **written)


def a_record(plan: Plan, run: Run, **changes: Any) -> Record:
    case = next(case for case in plan.cases if case.case_id == run.case_id)
    usage = dict.fromkeys(("wall_ns", "user_ns", "system_ns", "voluntary_switches", "involuntary_switches"), 1)
    usage |= dict.fromkeys(("minor_faults", "major_faults", "fs_inputs", "fs_outputs"), 0)
    job = {"stream": "main", "job": 0, "operations": 7, "bytes": 7 * 4096, "usage": usage}
    result = {
        **{"outcome": "complete", "begin_ns": 5, "end_ns": 100_000_005},
        "jobs": [job | {"last_completion_ns": 99_000_000, "abandoned": 0}],
        **{"process": usage, "peak_memory_bytes": MIB, "buffer_bytes": 4 * 4096, "devices": []},
        "backend": {"kind": "null", "features": [], "fallbacks": []},
        "layout": {"written_bytes": 0, "kept_bytes": 0},
    }
    of_case = {name: getattr(case, name) for name in ("case_id", "part", "control", "levels", "parameters")}
    of_run = {name: getattr(run, name) for name in ("run_id", "repeat", "order", "spec")}
    facts: dict[str, Any] = {
        **of_case,
        **of_run,
        **{"attempt": 1, "outcome": "complete", "failure": None, "result": result},
        "started_at": "2026-01-02T03:04:05+00:00",
        "ended_at": "2026-01-02T03:04:06+00:00",
        "engine": {"engine": "iosonde-engine", "version": "0", "clock": "tsc", "clock_read_ns": 9.5},
        "child": {"wall_ns": 100, "exit_status": 0},
        **{"phases": [], "target": {}, "environment": "", "warnings": []},
    }
    return Record(**(facts | changes))


def sign(record: Path) -> None:
    """Recompute the manifest of a record, as somebody who edits one would."""
    files = {path.name: path.read_bytes() for path in record.iterdir() if path.name != MANIFEST}
    (record / MANIFEST).write_bytes(manifest(files))


def sign_plan(directory: Path) -> None:
    """Recompute the checksum of the plan of a result set."""
    form = directory / "format.json"
    digest = hashlib.sha256((directory / "plan.json").read_bytes()).hexdigest()
    form.write_text(json.dumps({**json.loads(form.read_bytes()), "plan_sha256": digest}))


def a_failure(plan: Plan, run: Run, *, attempt: int = 1) -> Record:
    failure = Failure(code="io_error", message="the device answered with an error")
    return a_record(plan, run, attempt=attempt, outcome="failed", failure=failure, result=None)


def tables(run_id: str, latencies_ns: list[int] | None = None) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Intervals, histograms and usage of a run of one interval with these latencies."""
    values = np.array(latencies_ns if latencies_ns is not None else [1000, 2000, 3000], dtype=np.uint64)
    buckets, counts = np.unique(bucket_of(values), return_counts=True)
    place = {"run_id": run_id, "phase": "measure", "interval": 0}
    exact = {"sum": int(values.sum()), "min": int(values.min()), "max": int(values.max())}
    counted = {"count": len(values), "bytes": 4096 * len(values)}
    counted |= {f"completion_latency_ns_{name}": value for name, value in exact.items()}
    kind = {"stream": "main", "operation": "read", "errors": 0, "backlog_max": 0}
    intervals = pl.DataFrame([place | {"begin_ns": 0, "end_ns": 100_000_000} | kind | counted], schema=INTERVALS)
    rows = [
        {**place, "stream": "main", "operation": "read", "latency": "completion", "bucket": bucket, "count": count}
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True)
    ]
    histograms = pl.DataFrame(rows, schema=HISTOGRAMS)
    usage = pl.DataFrame([{**place, "begin_ns": 0, "end_ns": 100_000_000, "device": "process"}], schema=USAGE)
    return intervals, histograms, usage


def without_places(measurement: str) -> tuple[str, dict[str, str]]:
    """Separate what a study cannot set, since it names files: for `--set`."""
    places = {place for each in workloads().values() for place in each.places}
    found = {
        match["name"]: match["value"]
        for match in re.finditer(rf'(?m)^(?P<name>{"|".join(sorted(places))}) = "(?P<value>.*)"$', measurement)
        if match["name"] != "library" or "/" in match["value"]
    }
    kept = [line for line in measurement.splitlines() if line.partition(" = ")[0] not in found]
    return "\n".join(kept), found
