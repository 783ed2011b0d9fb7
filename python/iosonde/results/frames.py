"""The small tables of a result set: cases, runs, jobs, warnings, one row each, from the plan and the records.

Facts only. Factors become columns under their own names; one with the name of a column in any table becomes
`NAME_level`, so that joining runs with intervals stays unambiguous. `columns.py` lists the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.plan import Case
from iosonde.results.column import Table
from iosonde.results.columns import CASES, EVIDENCE, FAULTS, JOBS, RESERVED, WARNINGS
from iosonde.results.run_facts import busiest_thread
from iosonde.results.run_facts.run import RUNS, values
from iosonde.results.schema import Record

Row = dict[str, Any]


def cases(cases: Sequence[Case], wanted: Callable[[str], bool] = lambda _: True) -> pl.DataFrame:
    """One row per case: its factors, then every other parameter; only those with a name that is wanted."""
    fixed = pl.DataFrame(
        [
            (case.case_id, case.part, case.control, case.device_state, case.cost.seconds, case.cost.write_bytes)
            for case in cases
        ],
        schema=CASES.schema,
        orient="row",
    )
    rows = ({**case.parameters, **case.levels} for case in cases)
    return _with_columns(fixed, [{name: row[name] for name in row if wanted(name)} for row in rows])


def with_levels(fixed: pl.DataFrame, records: Sequence[Record]) -> pl.DataFrame:
    """`runs`: one row per record with the columns of factors, from `fixed_runs` of the same records."""
    return _with_columns(fixed, [record.levels for record in records])


def fixed_runs(records: Sequence[Record]) -> pl.DataFrame:
    """`runs` without the columns of factors."""
    return pl.DataFrame([row for record in records for row in run_rows(record)], schema=RUNS.schema)


def jobs(records: Iterable[Record]) -> pl.DataFrame:
    """One row per job of each run that has a result."""
    return _table(JOBS, job_rows, records)


def warnings(records: Iterable[Record]) -> pl.DataFrame:
    """One row per warning of each run."""
    return _table(WARNINGS, warning_rows, records)


def evidence(records: Iterable[Record]) -> pl.DataFrame:
    """One row per number that a run's verdict is based on."""
    return _table(EVIDENCE, evidence_rows, records)


def faults(records: Iterable[Record]) -> pl.DataFrame:
    """One row per location where verification found wrong data."""
    return _table(FAULTS, fault_rows, records)


def check(record: Record) -> None:
    """Raise an error if any row cannot be made from the record, or has a value of the wrong type."""
    for table, rows in _ROWS:
        for row in rows(record):
            table.check(row)


def run_rows(record: Record) -> Iterator[Row]:
    """Yield the record's row of `runs`."""
    yield values(record, RUNS.columns)


def job_rows(record: Record) -> Iterator[Row]:
    """Yield the record's rows of `jobs`."""
    result = record.result or {}
    for job in result.get("jobs", []):
        rest = {name: value for name, value in job.items() if name not in ("usage", "schedule")}
        threads = {
            "threads": busiest_thread.count(job),
            "busiest_thread_cpu_ns": busiest_thread.cpu_ns(job),
        }
        yield _known(JOBS, {"run_id": record.run_id, **rest, **(job.get("schedule") or {}), **job["usage"], **threads})


def warning_rows(record: Record) -> Iterator[Row]:
    """Yield the record's rows of `warnings`."""
    for warning in record.warnings:
        yield _known(WARNINGS, {"run_id": record.run_id, **warning.model_dump()})


def evidence_rows(record: Record) -> Iterator[Row]:
    """Yield the record's rows of `evidence`."""
    for name, value in (record.verdict.evidence if record.verdict else {}).items():
        if value is not None:
            yield {"run_id": record.run_id, "number": name, "value": value}


def fault_rows(record: Record) -> Iterator[Row]:
    """Yield the record's rows of `faults`."""
    for finding in ((record.result or {}).get("verification") or {}).get("findings", []):
        yield _known(FAULTS, {"run_id": record.run_id, **finding})


_ROWS: tuple[tuple[Table, Callable[[Record], Iterator[Row]]], ...] = (
    (RUNS, run_rows),
    (JOBS, job_rows),
    (WARNINGS, warning_rows),
    (EVIDENCE, evidence_rows),
    (FAULTS, fault_rows),
)


def _table(table: Table, rows: Callable[[Record], Iterator[Row]], records: Iterable[Record]) -> pl.DataFrame:
    return pl.DataFrame([row for record in records for row in rows(record)], schema=table.schema)


def _known(table: Table, row: Mapping[str, Any]) -> Row:
    """Leave out what the table has no column for: newer engines may report more."""
    names = {column.name for column in table.columns}
    return {name: value for name, value in row.items() if name in names}


def _with_columns(fixed: pl.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return `fixed` with one more column for every key of `rows`."""
    names = dict.fromkeys(name for row in rows for name in row)
    return fixed.with_columns(
        _column(f"{name}_level" if name.lower() in RESERVED else name, [row.get(name) for row in rows])
        for name in names
    )


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of the narrowest type that holds all values; text where they are of different kinds or nested."""
    kinds = {type(value) for value in values if value is not None}
    if int in kinds and not all(-(2**63) <= value < 2**63 for value in values if isinstance(value, int)):
        kinds |= {object}
    if kinds == {int, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return pl.Series(name, values, dtype=pl.String if not kinds else None)
    return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
