"""The tables of a result set by name, with the meaning of every column, and frames of those that are no files.

The tables of `iosonde sql`, exports and their READMEs, and the checks of records that are read follow from `TABLES`.
Facts only: rates, percentiles and other derived values are metrics (`iosonde.metrics.registry`).

Factors and parameters are columns too, of `runs` and `cases`; the study and the workload define them. One with the name
of a column in any table becomes `NAME_level`, so that joining runs with intervals stays unambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.base import foreign_text
from iosonde.base.foreign_text import cell
from iosonde.plan import Case
from iosonde.results import accounting, schema
from iosonde.results.column import FLAG, NUMBER, TEXT, U32, U64, Column, Table
from iosonde.results.run_facts import RUNS, values
from iosonde.results.schema import RESOURCES, RUN_ID, Record, stored

CASES = Table(
    "One row per case (one parameter set), with its factors and parameters",
    (
        Column("case_id", TEXT, "Case: `PART/FACTOR=LEVEL/...`, or `control`"),
        Column("part", TEXT, "Part of the study"),
        Column("control", FLAG, "Whether this is the control case, repeated to show drift of the machine"),
        Column(
            "device_state",
            TEXT,
            "Device state that the plan prepares: `fresh`, `preconditioned`, `steady`, `unknown` or `not_applicable`",
        ),
        Column("cost_s", NUMBER, "Planned time of ramp and measurement, s"),
        Column("cost_write_bytes", U64, "Planned upper bound of bytes written; null where only time limits them"),
    ),
)

JOBS = Table(
    "One row per job of a run, over the measurement; a job is one thread unless `threads` has another number",
    (
        RUN_ID,
        Column("stream", TEXT, "Stream of the job"),
        Column("job", U32, "Number in the stream, from 0"),
        *stored(
            U64,
            ("operations", "I/Os completed in the measurement"),
            ("bytes", "Bytes moved in the measurement"),
            ("last_completion_ns", "Completion time of its last counted I/O, ns since the run's time 0"),
            ("abandoned", "I/Os in flight that did not complete in time after the end"),
            ("due", "I/Os due from run start to the end of the load; null in closed loop"),
            ("started", "I/Os of these that were started; null in closed loop"),
            ("start_lag_ns_sum", "Sum of start delays, ns; null in closed loop"),
            ("start_lag_ns_max", "Largest start delay, ns; null in closed loop"),
            ("spun_ns", "CPU time spent polling the clock for the next start, ns; null in closed loop"),
            *RESOURCES.items(),
            ("threads", "Threads of the job; resources are their sums"),
            ("busiest_thread_cpu_ns", "CPU time of the busiest of them, ns"),
        ),
    ),
)

WARNINGS = Table(
    "One row per warning: a reason to distrust a run's numbers",
    (
        RUN_ID,
        Column("code", TEXT, "Stable name (docs/warnings.md)"),
        Column("message", TEXT, "Message"),
        Column("hint", TEXT, "What to do about it"),
    ),
)

EVIDENCE = Table(
    "One row per number that a run's verdict is based on",
    (
        RUN_ID,
        Column("number", TEXT, "Name of the number (docs/warnings.md)"),
        Column("value", NUMBER, "Value; a share from 0 to 1 if its name has `share`"),
    ),
)

FAULTS = Table(
    "One row per location where verification found wrong data, at most 64 per run",
    (
        RUN_ID,
        Column("fault", TEXT, "`lost`, `torn`, `misdirected`, `stale`, `flipped` or `foreign` (docs/verification.md)"),
        Column("path", TEXT, "File"),
        Column("offset_bytes", U64, "Offset in the file, bytes"),
        Column("bytes", U64, "Length, bytes"),
        Column("expected", TEXT, "Expected content, in words"),
        Column("found", TEXT, "Content found, in words"),
    ),
)

TABLES: dict[str, Table] = {
    "cases": CASES,
    "runs": RUNS,
    "jobs": JOBS,
    **schema.STORED_TABLES,
    "warnings": WARNINGS,
    "evidence": EVIDENCE,
    "faults": FAULTS,
}
"""Every table of facts by name."""

RESERVED = {column.name for table in TABLES.values() for column in table.columns} | {"result_set"}
"""Names that no factor or parameter keeps."""


def labelled(frame: pl.DataFrame, name: str, column: str = "result_set") -> pl.DataFrame:
    """Add a column in front, unless the name is empty."""
    return frame.select(pl.lit(name).alias(column), pl.all()) if name else frame


def stack(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One below the other; a factor that is a number here and text there becomes text."""
    kinds: dict[str, set[pl.DataType]] = {}
    for part in parts:
        for name, kind in part.schema.items():
            kinds.setdefault(name, set()).add(kind)
    mixed = {name for name, found in kinds.items() if len(found) > 1 and not all(kind.is_numeric() for kind in found)}
    cast = [part.cast({name: pl.String for name in mixed & set(part.columns)}) for part in parts]
    return pl.concat(cast, how="diagonal_relaxed")


def as_csv(frame: pl.DataFrame, *, with_heads: bool = True) -> str:
    """Return a frame as CSV; lists and structures as JSON."""
    nested = [each for each in frame.get_columns() if each.dtype.is_nested() or each.dtype in (pl.Binary, pl.Object)]
    texts = frame.with_columns(map(_as_text, nested))
    safe = texts.with_columns(_marked(name) for name, kind in texts.schema.items() if kind == pl.String)
    # Two heads that differ in the apostrophe alone stay distinct.
    renamed = [cell(name) for name in safe.columns]
    if len(set(renamed)) == len(renamed):
        safe.columns = renamed
    return safe.write_csv(include_header=with_heads)


def select_of(table: str, columns: list[tuple[str, str]]) -> str:
    """Return the SELECT of DuckDB that reads a table for CSV, from the names and types of its columns."""
    parts = []
    for name, kind in columns:
        quoted = '"' + name.replace('"', '""') + '"'
        head = '"' + cell(name).replace('"', '""') + '"'
        parts.append(f"{_marked_in_sql(quoted) if kind == 'VARCHAR' else quoted} AS {head}")
    return f"SELECT {', '.join(parts)} FROM {table}"


def _marked(name: str) -> pl.Expr:
    column = pl.col(name)
    is_formula = column.str.contains(foreign_text.FORMULA) & ~column.str.contains(foreign_text.NUMBER)
    return pl.when(is_formula).then(pl.concat_str(pl.lit("'"), column)).otherwise(column).alias(name)


def _marked_in_sql(column: str) -> str:
    is_formula = (
        f"regexp_matches({column}, '{foreign_text.FORMULA}') AND NOT regexp_matches({column}, '{foreign_text.NUMBER}')"
    )
    return f"CASE WHEN {is_formula} THEN '''' || {column} ELSE {column} END"


def _as_text(column: pl.Series) -> pl.Series:
    texts = [value if value is None else json.dumps(value, default=str) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)


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
    return with_columns(fixed, [{name: row[name] for name in row if wanted(name)} for row in rows])


def runs(records: Sequence[Record], names: Sequence[str]) -> pl.DataFrame:
    """Some columns of `runs`."""
    columns = [each for each in RUNS.columns if each.name in names]
    rows = [values(record, columns) for record in records]
    return pl.DataFrame(rows, schema={each.name: each.dtype for each in columns})


def table(name: str, records: Iterable[Record]) -> pl.DataFrame:
    """A table whose rows are made from records; `runs` without the columns of factors."""
    return pl.DataFrame([row for record in records for row in _rows(name, record)], schema=TABLES[name].schema)


def check(record: Record) -> None:
    """Raise an error if any row cannot be made from the record, or has a value of the wrong type."""
    for name in _ROWS:
        for row in _rows(name, record):
            TABLES[name].check(row)


def _rows(name: str, record: Record) -> Iterator[Row]:
    """Yield the rows of a record, without what the table has no column for: newer engines may report more."""
    known = TABLES[name].schema
    for row in _ROWS[name](record):
        yield {key: value for key, value in {**row, "run_id": record.run_id}.items() if key in known}


def _jobs(record: Record) -> Iterator[Row]:
    for job in (record.result or {}).get("jobs", []):
        yield {
            **job,
            **(job.get("schedule") or {}),
            **job["usage"],
            "threads": accounting.thread_count(job),
            "busiest_thread_cpu_ns": accounting.busiest_thread_cpu_ns(job),
        }


def _evidence(record: Record) -> Iterator[Row]:
    found = record.verdict.evidence if record.verdict else {}
    return ({"number": name, "value": value} for name, value in found.items() if value is not None)


_ROWS: dict[str, Callable[[Record], Iterable[Row]]] = {
    "runs": lambda record: [values(record, RUNS.columns)],
    "jobs": _jobs,
    "warnings": lambda record: [each.model_dump() for each in record.warnings],
    "evidence": _evidence,
    "faults": lambda record: ((record.result or {}).get("verification") or {}).get("findings", []),
}


def with_columns(fixed: pl.DataFrame, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
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
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)
