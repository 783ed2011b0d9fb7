"""Runs made of raw samples, written through the real writer, so that results of the analysis can be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from buckets import bucket_of
from plans import a_record, hand_plan

from iosonde.plan import Plan, Run
from iosonde.results import ResultSet
from iosonde.results.schema import HISTOGRAMS, INTERVALS, STORE_STATISTICS, USAGE

SECOND = 10**9
Latencies = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The operations of one kind that one stream completed in one interval of a run."""

    interval: int = 0
    phase: str = "measure"
    stream: str = "main"
    operation: str = "read"
    completion_ns: Sequence[int] | Latencies
    response_ns: Sequence[int] | Latencies | None = None
    block_size: int = 4096
    errors: int = 0
    backlog_max: int = 0


def write(
    results: ResultSet,
    run: Run,
    samples: Sequence[Samples],
    *,
    intervals: int = 1,
    last_ns: int = SECOND,
    device_bytes: tuple[int, int] | None = None,
    further_devices: Mapping[str, tuple[int, int]] | None = None,
    parts: Mapping[str, Any] | None = None,
    statistics: Sequence[Mapping[str, int]] = (),
    **changes: Any,
) -> None:
    """Write a run of one-second intervals with these samples; the last interval may be shorter.

    `statistics` are readings at the ends of its intervals, and `parts` is what features have added to its record.
    """
    end_ns = (intervals - 1) * SECOND + last_ns
    usage = [_usage(run.run_id, "process", interval) for interval in range(intervals)]
    if device_bytes is not None:
        read, written = device_bytes
        usage.append({**_usage(run.run_id, "259:0", 0), "read_bytes": read, "write_bytes": written})
        usage.append({**_usage(run.run_id, "259:1", 0), "read_bytes": read // 2, "write_bytes": written // 2})
    for device, (read, written) in (further_devices or {}).items():
        usage.append({**_usage(run.run_id, device, 0), "read_bytes": read, "write_bytes": written})
    record = a_record(results.plan, run)
    assert record.result is not None
    result = record.result | {"begin_ns": 0, "end_ns": end_ns} | changes
    readings = [
        {"run_id": run.run_id, "phase": "measure", "interval": number, "end_ns": (number + 1) * SECOND}
        | {"statistic": name, "value": value}
        for number, reading in enumerate(statistics)
        for name, value in reading.items()
    ]
    results.write(
        record.model_copy(update={"result": result, "parts": dict(parts or {})}),
        _ended(pl.DataFrame([_interval(run.run_id, sample) for sample in samples], schema=INTERVALS), end_ns),
        pl.DataFrame([row for sample in samples for row in _buckets(run.run_id, sample)], schema=HISTOGRAMS),
        _ended(pl.DataFrame(usage, schema=USAGE), end_ns),
        pl.DataFrame(readings, schema=STORE_STATISTICS),
    )


def _ended(table: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    return table.with_columns(pl.min_horizontal("end_ns", pl.lit(end_ns, pl.UInt64)).alias("end_ns"))


def result_set(directory: Path, runs: Sequence[Sequence[Samples]], *, intervals: int = 1, **changes: Any) -> ResultSet:
    plan = hand_plan(levels=(4,), repeats=len(runs))
    results = ResultSet.create(directory, plan)
    with results.lock():
        for run, samples in zip(plan.runs, runs, strict=True):
            write(results, run, samples, intervals=intervals, **changes)
    return results


def jobs(*, streams: Sequence[str], cpu_ns: int = 0) -> list[dict[str, Any]]:
    usage = dict.fromkeys(USAGE.names()[6:13], 0) | {"wall_ns": SECOND, "user_ns": cpu_ns}
    usage |= {"system_ns": 0, "fs_outputs": 0}
    facts = {"job": 0, "operations": 0, "bytes": 0, "last_completion_ns": 0, "abandoned": 0, "usage": usage}
    return [{"stream": stream, **facts} for stream in streams]


def with_concurrency(plan: Plan, **parameters: int) -> Plan:
    """Return the plan with parameters such as `queue_depth` or `reader.queue_depth` in every case."""
    cases = [case.model_copy(update={"parameters": case.parameters | parameters}) for case in plan.cases]
    return plan.model_copy(update={"cases": cases})


def _interval(run_id: str, sample: Samples) -> dict[str, Any]:
    completion = np.asarray(sample.completion_ns, dtype=np.uint64)
    begin_ns = sample.interval * SECOND
    row = _place(run_id, sample) | {"begin_ns": begin_ns, "end_ns": begin_ns + SECOND}
    row |= {"count": len(completion), "bytes": len(completion) * sample.block_size, "errors": sample.errors}
    row |= {"backlog_max": sample.backlog_max, **_exact("completion", completion)}
    return row if sample.response_ns is None else row | _exact("response", np.asarray(sample.response_ns, np.uint64))


def _place(run_id: str, sample: Samples) -> dict[str, Any]:
    place = {"run_id": run_id, "phase": sample.phase, "interval": sample.interval}
    return place | {"stream": sample.stream, "operation": sample.operation}


def _exact(name: str, values: Latencies) -> dict[str, int]:
    found = {"sum": values.sum(), "min": values.min(), "max": values.max()}
    return {f"{name}_latency_ns_{what}": int(value) for what, value in found.items()}


def _buckets(run_id: str, sample: Samples) -> list[dict[str, Any]]:
    rows = []
    for latency, values in (("completion", sample.completion_ns), ("response", sample.response_ns)):
        if values is not None:
            buckets, counts = np.unique(bucket_of(np.asarray(values, dtype=np.uint64)), return_counts=True)
            rows += [
                {**_place(run_id, sample), "latency": latency, "bucket": bucket, "count": count}
                for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True)
            ]
    return rows


def _usage(run_id: str, device: str, interval: int) -> dict[str, Any]:
    place = {"run_id": run_id, "phase": "measure", "interval": interval, "device": device}
    return place | {"begin_ns": interval * SECOND, "end_ns": (interval + 1) * SECOND}
