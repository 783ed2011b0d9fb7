"""The small tables of a result set: cases, runs, jobs, warnings, one row each, out of the plan and the records.

Facts only. Factors become columns under their own names; one whose name is a column of any of our tables becomes
`NAME_level`, so that joining runs with intervals stays unambiguous. What each column means stands in `columns.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.plan import Case
from iosonde.results import array_facts, drive_facts, store_facts
from iosonde.results.columns import COLUMNS
from iosonde.results.schema import Record

CASES = pl.Schema(
    {
        "case_id": pl.String,
        "part": pl.String,
        "control": pl.Boolean,
        "cost_s": pl.Float64,
        "cost_write_bytes": pl.UInt64,
    }
)
"""Columns of `cases` besides factors and parameters."""

USAGE_FIELDS = (
    "wall_ns",
    "user_ns",
    "system_ns",
    "voluntary_switches",
    "involuntary_switches",
    "minor_faults",
    "major_faults",
    "fs_inputs",
    "fs_outputs",
)
"""The protocol's `Usage`."""

SCHEDULE_FIELDS = ("due", "started", "start_lag_ns_sum", "start_lag_ns_max", "spun_ns")
"""The protocol's `ScheduleResult`."""

CHILD_FIELDS = (*USAGE_FIELDS, "max_rss_bytes", "exit_status")
"""The kernel's account of the engine process (execution/engine.py)."""

RUNS = pl.Schema(
    {
        "run_id": pl.String,
        "case_id": pl.String,
        "part": pl.String,
        "control": pl.Boolean,
        "repeat": pl.UInt32,
        "order": pl.UInt32,
        "attempt": pl.UInt32,
        "outcome": pl.String,
        "failure": pl.String,
        "failure_message": pl.String,
        "started_at": pl.String,
        "ended_at": pl.String,
        "measure_begin_ns": pl.UInt64,
        "measure_end_ns": pl.UInt64,
        "jobs_total": pl.UInt64,
        "concurrency": pl.UInt64,
        "loop": pl.String,
        "backend_in_effect": pl.String,
        "layout_written_bytes": pl.UInt64,
        "layout_kept_bytes": pl.UInt64,
        "verified_bytes": pl.UInt64,
        "wrong_sectors": pl.UInt64,
        "peak_memory_bytes": pl.UInt64,
        "buffer_bytes": pl.UInt64,
        **dict.fromkeys((f"process_{name}" for name in USAGE_FIELDS), pl.UInt64),
        **dict.fromkeys((f"child_{name}" for name in CHILD_FIELDS), pl.Int64),
        "clock": pl.String,
        "clock_read_ns": pl.Float64,
        "realtime_ns": pl.UInt64,
        "engine": pl.String,
        "engine_version": pl.String,
        "environment": pl.String,
        "target_bytes": pl.UInt64,
        "members": pl.String,
        "link_bytes_per_second": pl.Float64,
        "pcie_bytes_per_second": pl.Float64,
        "memory_copy_bytes_per_second": pl.Float64,
        "rebuild_share": pl.Float64,
        "rebuild_share_seconds": pl.Float64,
        "array_thread": pl.String,
        "array_thread_share": pl.Float64,
        "array_cpu_ns": pl.UInt64,
        "kernel_cpu_ns": pl.UInt64,
        "busiest_core_share": pl.Float64,
        "simulated": pl.Boolean,
        "warning_count": pl.UInt32,
        "verdict": pl.String,
        "verdict_because": pl.String,
        "workload": pl.String,
        "store_version": pl.String,
        "began_empty": pl.Boolean,
        "database_kept": pl.Boolean,
        "database_bytes": pl.UInt64,
        "record_bytes": pl.UInt64,
        "cached_bytes_at_begin": pl.UInt64,
        "cached_bytes_at_end": pl.UInt64,
        "settle_ns": pl.UInt64,
        "settle_at_end_ns": pl.UInt64,
        "close_ns": pl.UInt64,
        "writing_jobs": pl.UInt32,
        "stalled_ns": pl.UInt64,
        "values_checked": pl.UInt64,
        "values_missing": pl.UInt64,
        "values_corrupted": pl.UInt64,
        "memory_limit_bytes": pl.UInt64,
        "memory_peak_bytes": pl.UInt64,
        "memory_at_limit": pl.UInt64,
        "memory_oom_kills": pl.UInt64,
        "run_device_read_bytes": pl.UInt64,
        "run_device_write_bytes": pl.UInt64,
        "run_drive_write_bytes": pl.UInt64,
        "run_drive_units_written": pl.UInt64,
        "run_media_write_bytes": pl.UInt64,
        "run_media_step_bytes": pl.UInt64,
        "run_media_untold": pl.String,
    }
)
"""Columns of `runs` besides the factors."""

JOBS = pl.Schema(
    {
        "run_id": pl.String,
        "stream": pl.String,
        "job": pl.UInt32,
        "operations": pl.UInt64,
        "bytes": pl.UInt64,
        "last_completion_ns": pl.UInt64,
        "abandoned": pl.UInt64,
        **dict.fromkeys(SCHEDULE_FIELDS, pl.UInt64),
        **dict.fromkeys(USAGE_FIELDS, pl.UInt64),
    }
)

WARNINGS = pl.Schema({"run_id": pl.String, "code": pl.String, "message": pl.String, "hint": pl.String})

EVIDENCE = pl.Schema({"run_id": pl.String, "number": pl.String, "value": pl.Float64})


FAULTS = pl.Schema(
    {
        "run_id": pl.String,
        "fault": pl.String,
        "path": pl.String,
        "offset_bytes": pl.UInt64,
        "bytes": pl.UInt64,
        "expected": pl.String,
        "found": pl.String,
    }
)


def cases(cases: Sequence[Case]) -> pl.DataFrame:
    """One row a case: its factors, then every other parameter."""
    fixed = pl.DataFrame(
        [(case.case_id, case.part, case.control, case.cost.seconds, case.cost.write_bytes) for case in cases],
        schema=CASES,
        orient="row",
    )
    return _with_columns(fixed, [{**case.parameters, **case.levels} for case in cases])


def runs(records: Sequence[Record]) -> pl.DataFrame:
    """One row a record, in the order of execution."""
    fixed = pl.DataFrame([_run_row(record) for record in records], schema=RUNS)
    return _with_columns(fixed, [record.levels for record in records])


def jobs(records: Iterable[Record]) -> pl.DataFrame:
    """One row a job of each run that has a result."""
    rows = [
        {"run_id": record.run_id, **_without(job, "usage"), **(job.get("schedule") or {}), **job["usage"]}
        for record in records
        for job in (record.result or {}).get("jobs", [])
    ]
    return pl.DataFrame(rows, schema=JOBS)


def warnings(records: Iterable[Record]) -> pl.DataFrame:
    """One row a warning of each run."""
    rows = [{"run_id": record.run_id, **warning.model_dump()} for record in records for warning in record.warnings]
    return pl.DataFrame(rows, schema=WARNINGS)


def evidence(records: Iterable[Record]) -> pl.DataFrame:
    """One row a number that a run's verdict rests on."""
    rows = [
        (record.run_id, name, value)
        for record in records
        if record.verdict
        for name, value in record.verdict.evidence.items()
        if value is not None
    ]
    return pl.DataFrame(rows, schema=EVIDENCE, orient="row")


def faults(records: Iterable[Record]) -> pl.DataFrame:
    """One row a place where data did not come back as it was written."""
    found = [(record.run_id, (record.result or {}).get("verification") or {}) for record in records]
    rows = [{"run_id": run_id, **finding} for run_id, result in found for finding in result.get("findings", [])]
    return pl.DataFrame(rows, schema=FAULTS)


def _run_row(record: Record) -> dict[str, Any]:
    result = record.result or {}
    layout, backend = result.get("layout", {}), result.get("backend", {})
    verification = result.get("verification") or {}
    streams = record.spec["workload"].get("streams", [])
    return {
        "run_id": record.run_id,
        "case_id": record.case_id,
        "part": record.part,
        "control": record.control,
        "repeat": record.repeat,
        "order": record.order,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "failure": record.failure.code if record.failure else None,
        "failure_message": record.failure.message if record.failure else None,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "measure_begin_ns": result.get("begin_ns"),
        "measure_end_ns": result.get("end_ns"),
        "jobs_total": sum(stream["jobs"] for stream in streams),
        "concurrency": sum(stream["jobs"] * stream.get("queue_depth", stream.get("batch", 1)) for stream in streams),
        "loop": _loop(streams),
        "backend_in_effect": backend.get("kind"),
        "layout_written_bytes": layout.get("written_bytes"),
        "layout_kept_bytes": layout.get("kept_bytes"),
        "verified_bytes": verification.get("checked_bytes"),
        "wrong_sectors": sum(verification["faults"].values()) if verification else None,
        "peak_memory_bytes": result.get("peak_memory_bytes"),
        "buffer_bytes": result.get("buffer_bytes"),
        **{f"process_{name}": result.get("process", {}).get(name) for name in USAGE_FIELDS},
        **{f"child_{name}": record.child.get(name) for name in CHILD_FIELDS},
        "clock": record.engine.get("clock"),
        "clock_read_ns": record.engine.get("clock_read_ns"),
        "realtime_ns": record.engine.get("realtime_ns"),
        "engine": record.engine.get("engine"),
        "engine_version": record.engine.get("version"),
        "environment": record.environment,
        **array_facts.of(record),
        "simulated": bool(record.target.get("simulated", False)),
        **store_facts.of(record),
        **drive_facts.of(record),
        "warning_count": len(record.warnings),
        "verdict": record.verdict.kind if record.verdict else None,
        "verdict_because": "; ".join(record.verdict.because) if record.verdict else None,
    }


def _loop(streams: Iterable[Mapping[str, Any]]) -> str | None:
    """`closed`, `open`, or `mixed` when the streams differ."""
    kinds = {"closed" if stream["arrival"]["kind"] == "closed" else "open" for stream in streams}
    if not kinds:
        return None
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _with_columns(fixed: pl.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """`fixed` with one more column for every key of `rows`."""
    names = dict.fromkeys(name for row in rows for name in row)
    return fixed.with_columns(
        _column(f"{name}_level" if name in _OURS else name, [row.get(name) for row in rows]) for name in names
    )


_OURS = {name for columns in COLUMNS.values() for name in columns}


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """A column of the narrowest type that holds all values; text where they are of different kinds or composed."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return pl.Series(name, values, dtype=pl.String if not kinds else None)
    return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}
