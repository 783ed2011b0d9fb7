"""SQL over result sets: one DuckDB connection with the tables of `columns.py`.

The large tables are views over the records' Parquet files, so nothing is copied and a percentile over any number of
runs is a GROUP BY. The small ones are made from plan and records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from iosonde.errors import ResultsError
from iosonde.results import frames, histogram
from iosonde.results.columns import TABLES
from iosonde.results.schema import ADDED, HISTOGRAMS, INTERVALS, STORE_STATISTICS, USAGE

if TYPE_CHECKING:
    from iosonde.results.result_set import ResultSet

_VIEWS = {"intervals": INTERVALS, "histograms": HISTOGRAMS, "usage": USAGE, "store_statistics": STORE_STATISTICS}
_WIDE = {"HUGEINT", "UHUGEINT"}


def connect(result_sets: ResultSet | Sequence[ResultSet]) -> duckdb.DuckDBPyConnection:
    """A connection to one result set, or to several, whose tables then begin with a column `result_set`."""
    several = isinstance(result_sets, Sequence)
    sets = list(result_sets) if isinstance(result_sets, Sequence) else [result_sets]
    names = labels(sets) if several else [""]
    connection = duckdb.connect()
    # By itself DuckDB draws one on standard output, where our data goes.
    connection.execute("SET enable_progress_bar = false")
    for macro in histogram.MACROS:
        connection.execute(macro)
    _make_tables(connection, sets, names)
    for table, schema in _VIEWS.items():
        parts = [_select(table, schema, result_set, name) for result_set, name in zip(sets, names, strict=True)]
        connection.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join(parts)}")
    return connection


def select(connection: duckdb.DuckDBPyConnection, text: str) -> pl.DataFrame:
    """The answer to one statement that a user wrote; only reading is allowed."""
    try:
        _check_reading(connection.extract_statements(text))
        return frame(connection, text)
    except duckdb.Error as error:
        raise ResultsError(
            f"the query cannot be answered: {str(error).strip()}", hint=f"there are the tables {_listing()}"
        ) from error


def frame(connection: duckdb.DuckDBPyConnection, text: str) -> pl.DataFrame:
    """The answer to a SELECT as a Polars frame.

    It goes through a Parquet file: DuckDB's own way needs pyarrow, and handing its Arrow stream to Polars leaves a
    reference behind that it complains about at exit.
    """
    query = text.strip().rstrip(";")
    answer = connection.sql(query)
    # Parquet has no 128-bit integers, which is what the sum of integers is.
    wide = [name for name, kind in zip(answer.columns, answer.types, strict=True) if str(kind) in _WIDE]
    casts = ", ".join(f"CAST({_column(name)} AS BIGINT) AS {_column(name)}" for name in wide)
    replace = f" REPLACE ({casts})" if casts else ""
    with tempfile.TemporaryDirectory(prefix="iosonde-") as scratch:
        path = Path(scratch) / "answer.parquet"
        connection.execute(f"COPY (SELECT *{replace} FROM (\n{query}\n)) TO {_quoted(path)} (FORMAT parquet)")
        return pl.read_parquet(path, memory_map=False)


def labels(result_sets: Sequence[ResultSet]) -> list[str]:
    """A name for each: its directory's, with as many parents as it takes to tell them apart."""
    paths = [result_set.directory for result_set in result_sets]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names


def _make_tables(connection: duckdb.DuckDBPyConnection, sets: Sequence[ResultSet], names: Sequence[str]) -> None:
    """The tables go through Parquet files, because DuckDB reads Polars frames only with pyarrow."""
    makers: dict[str, Callable[[ResultSet], pl.DataFrame]] = {
        "cases": lambda result_set: frames.cases(result_set.known_cases()),
        "runs": lambda result_set: frames.runs(result_set.records()),
        "jobs": lambda result_set: frames.jobs(result_set.records()),
        "warnings": lambda result_set: frames.warnings(result_set.records()),
        "evidence": lambda result_set: frames.evidence(result_set.records()),
        "faults": lambda result_set: frames.faults(result_set.records()),
    }
    with tempfile.TemporaryDirectory(prefix="iosonde-") as scratch:
        for table, make in makers.items():
            parts = [_labelled(make(result_set), name) for result_set, name in zip(sets, names, strict=True)]
            path = Path(scratch) / f"{table}.parquet"
            _stack(parts).write_parquet(path)
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet({_quoted(path)})")


def _labelled(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    return frame.select(pl.lit(name).alias("result_set"), pl.all()) if name else frame


def _stack(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One below the other; a factor that is a number here and text there becomes text."""
    kinds: dict[str, set[pl.DataType]] = {}
    for part in parts:
        for name, kind in part.schema.items():
            kinds.setdefault(name, set()).add(kind)
    mixed = {name for name, found in kinds.items() if len(found) > 1 and not all(kind.is_numeric() for kind in found)}
    cast = [part.cast({name: pl.String for name in mixed & set(part.columns)}) for part in parts]
    return pl.concat(cast, how="diagonal_relaxed")


def _select(table: str, schema: pl.Schema, result_set: ResultSet, name: str) -> str:
    """One result set's part of a view; a typed nothing when it has no records."""
    columns = [f"{_quoted(name)} AS result_set"] if name else []
    columns += [f'"{column}"' for column in schema]
    if table == "histograms":
        columns += ["bucket_lower_ns(bucket) AS lower_ns", "bucket_midpoint_ns(bucket) AS midpoint_ns"]
    paths = result_set.table_files(table)
    source = f"read_parquet([{', '.join(map(_quoted, paths))}])" if paths else _empty(schema)
    if paths and ADDED & set(schema):
        # Older files lack these columns: null there.
        files = f"read_parquet([{', '.join(map(_quoted, paths))}], union_by_name = true)"
        source = f"(SELECT * FROM {files} UNION ALL BY NAME SELECT * FROM {_empty(schema)})"
    return f"SELECT {', '.join(columns)} FROM {source}"


def _empty(schema: pl.Schema) -> str:
    types = {pl.String: "VARCHAR", pl.UInt32: "UINTEGER", pl.UInt64: "UBIGINT"}
    columns = ", ".join(f'NULL::{types[type(dtype)]} AS "{name}"' for name, dtype in schema.items())
    return f"(SELECT {columns} LIMIT 0)"


def _check_reading(statements: Sequence[duckdb.Statement]) -> None:
    if len(statements) != 1:
        raise ResultsError(
            f"the query has {len(statements)} statements, it must have one",
            hint='quote it as one argument, for example `"SELECT * FROM runs"`',
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise ResultsError(
            f"the query is a {statements[0].type.name}, and a result set is only read",
            hint="write a SELECT; `iosonde export` makes files of the tables",
        )


def _listing() -> str:
    return ", ".join(f"`{table}`" for table in TABLES)


def _quoted(text: str | Path) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
