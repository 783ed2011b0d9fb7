"""CSV for people and their spreadsheets: texts that a spreadsheet would evaluate are marked (`foreign_text.cell`).

The rule is for texts and heads of columns, never for numbers. Programs that need
texts as they are read Parquet or JSON.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from iosonde.foreign_text import FORMULA, NUMBER, cell


def as_csv(frame: pl.DataFrame, *, with_heads: bool = True) -> str:
    """Return a frame as CSV; lists and structures as JSON."""
    texts = frame.with_columns(_as_text(column) for column in frame.get_columns() if _is_nested(column.dtype))
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
    is_formula = column.str.contains(FORMULA) & ~column.str.contains(NUMBER)
    return pl.when(is_formula).then(pl.concat_str(pl.lit("'"), column)).otherwise(column).alias(name)


def _marked_in_sql(column: str) -> str:
    is_formula = f"regexp_matches({column}, '{FORMULA}') AND NOT regexp_matches({column}, '{NUMBER}')"
    return f"CASE WHEN {is_formula} THEN '''' || {column} ELSE {column} END"


def _is_nested(kind: pl.DataType) -> bool:
    return kind.is_nested() or kind in (pl.Binary, pl.Object)


def _as_text(column: pl.Series) -> pl.Series:
    return pl.Series(column.name, [_text(value) for value in column.to_list()], dtype=pl.String)


def _text(value: Any) -> str | None:
    return value if value is None else json.dumps(value, default=str)
