"""Files of traces, read in blocks of bounded size: CSV, and Parquet with row groups of bounded size."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from iosonde import text_files
from iosonde.errors import StudyError
from iosonde.units import format_bytes

COLUMNS = ("time", "operation", "key", "value_size", "ttl")
REQUIRED = COLUMNS[:3]

BLOCK_BYTES = 8 << 20
"""Of a CSV file; the longest row too."""
BLOCK_ROWS = 1 << 18
"""Of a Parquet file."""
LARGEST_GROUP = 1 << 30
"""Uncompressed bytes of a row group."""
LONGEST_GROUP = 1 << 25
"""Rows of a row group."""
SHOWN = 40
"""Characters of a value that an error shows."""

PARQUET = b"PAR1"


def invalid(path: str, what: str, *, place: str = "", hint: str) -> StudyError:
    """An error about a trace, and a place in it."""
    where = f"in `{path}`{place}\n  by the parameter `trace`"
    return StudyError(what, where=where, hint=f"{hint} (docs/traces.md)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of a trace, one after the other."""

    path: str
    table: pl.DataFrame
    first: int
    """Number of its first row; the row below the header is 1."""

    @property
    def rows(self) -> int:
        return len(self.table)

    def has(self, column: str) -> bool:
        return column in self.table.columns

    def texts(self, column: str) -> pl.Series:
        """A column as text; null where it is empty."""
        found = self.table[column]
        return found if found.dtype == pl.String else found.cast(pl.String, strict=False)

    def numbers(self, column: str) -> pl.Series:
        """A column as numbers; null where it is none."""
        found = self.table[column]
        if found.dtype in (pl.Datetime, pl.Duration):
            return found.cast(pl.Int64).cast(pl.Float64) / _PARTS[getattr(found.dtype, "time_unit", None) or "us"]
        if found.dtype == pl.String:
            found = found.str.strip_chars()
        return found.cast(pl.Float64, strict=False)

    def is_empty(self, column: str) -> pl.Series:
        """Mask of the rows in which a column is empty; all rows if there is no such column."""
        return self.table[column].is_null() if self.has(column) else pl.repeat(value=True, n=self.rows, eager=True)

    def refuse(self, wrong: pl.Series, column: str, why: str, *, is_missing: bool = False) -> None:
        """Raise for the first row that is wrong."""
        places = wrong.fill_null(value=True).arg_true()
        if not len(places):
            return
        row = int(places[0])
        value = self.table[column][row] if self.has(column) else None
        shown = "nothing" if value is None else f"`{str(value)[:SHOWN]}`"
        raise invalid(
            self.path,
            why if is_missing else f"{shown} {why}",
            place=f", row {self.first + row}, column `{column}`",
            hint="correct the row, or leave it out",
        )


_PARTS = {"ms": 1e3, "us": 1e6, "ns": 1e9}


def blocks(path: str) -> Iterator[Block]:
    """The rows of a trace in blocks; `StudyError` for a file that is none."""
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        is_parquet = file.read(len(PARQUET)) == PARQUET
        # By its descriptor, since readers of Parquet files take a name such as `a[1]` for a pattern.
        yield from _of_parquet(path, f"/proc/self/fd/{file.fileno()}") if is_parquet else _of_csv(path)


def _check_columns(path: str, names: Sequence[str]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise invalid(
            path,
            f"the trace has no column `{missing[0]}`",
            place=", header",
            hint=f"its columns are {', '.join(f'`{name}`' for name in COLUMNS)}, of which the first three are required",
        )
    unknown = [name for name in names if name not in COLUMNS]
    twice = [name for name in names if list(names).count(name) > 1]
    if unknown or twice:
        name = (unknown or twice)[0]
        raise invalid(
            path,
            f"the column `{name[:SHOWN]}` of the trace is {'unknown' if unknown else 'there twice'}",
            place=", header",
            hint=f"leave it out; columns are {', '.join(f'`{name}`' for name in COLUMNS)}",
        )


def _of_csv(path: str) -> Iterator[Block]:
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        header = file.readline(BLOCK_BYTES)
        names = _fields(path, 0, header) if header.strip() else []
        _check_columns(path, names)
        first, left = 1, b""
        while read := file.read(BLOCK_BYTES):
            whole, _, left = (left + read).rpartition(b"\n")
            if len(left) > BLOCK_BYTES:
                rows = whole.count(b"\n") + 1 if whole else 0
                raise invalid(
                    path,
                    f"a row is longer than {format_bytes(BLOCK_BYTES)}",
                    place=f", row {first + rows}",
                    hint="end rows with a line feed",
                )
            if whole:
                yield (block := _csv_block(path, first, names, whole + b"\n"))
                first += block.rows
        if left.strip():
            yield _csv_block(path, first, names, left + b"\n")


def _csv_block(path: str, first: int, names: list[str], content: bytes) -> Block:
    _check_lines(path, first, names, content)
    table = pl.read_csv(
        io.BytesIO(content),
        has_header=False,
        new_columns=names,
        infer_schema=False,
        eol_char="\n",
    )
    if table.width and table.columns[-1] == names[-1] and table[names[-1]].dtype == pl.String:
        # A file with CR LF: the CR belongs to the end of the row.
        last = pl.col(names[-1]).str.strip_suffix("\r")
        table = table.with_columns(pl.when(last == "").then(None).otherwise(last).alias(names[-1]))
    return Block(path=path, table=table, first=first)


def _check_lines(path: str, first: int, names: list[str], content: bytes) -> None:
    """Raise for the first row that has not one value for each column."""
    try:
        content.decode("utf-8")
        is_plain = b'"' not in content and b"\0" not in content
    except UnicodeDecodeError:
        is_plain = False
    lines = content.split(b"\n")[:-1]
    commas = len(names) - 1
    for number, line in enumerate(lines, start=first):
        if not is_plain or line.count(b",") != commas or not line.strip():
            found = _fields(path, number, line)
            if len(found) != len(names):
                raise invalid(
                    path,
                    f"a row has {len(found)} values for {len(names)} columns",
                    place=f", row {number}",
                    hint="give each column a value, which may be empty",
                )


def _fields(path: str, number: int, line: bytes) -> list[str]:
    """The values of a row; row 0 is the header."""
    place = f", row {number}" if number else ", header"
    try:
        text = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise invalid(path, "a row is not UTF-8", place=place, hint="write the trace as UTF-8") from None
    if text.count('"') % 2 or "\0" in text:
        hint = "a key cannot contain a line feed or a null character"
        raise invalid(path, "a row has a quote without its end, or a null character", place=place, hint=hint)
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise invalid(path, f"a row is not CSV: {error}", place=place, hint="quote values as in RFC 4180") from None


def _of_parquet(path: str, opened: str) -> Iterator[Block]:
    try:
        schema = pl.read_parquet_schema(opened)
        _check_columns(path, list(schema))
        _check_groups(path, opened)
        table = pl.scan_parquet(opened, glob=False, hive_partitioning=False)
        rows = int(table.select(pl.len()).collect().item())
        for first in range(0, rows, BLOCK_ROWS):
            yield Block(path=path, table=table.slice(first, BLOCK_ROWS).collect(), first=first + 1)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        words = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise invalid(path, f"the Parquet file cannot be read: {words}", hint="write it again") from None


def _check_groups(path: str, opened: str) -> None:
    """Raise for row groups that would take too much memory, by the footer of the file."""
    import duckdb

    try:
        found = (
            duckdb.connect()
            .execute(
                "SELECT row_group_id, max(row_group_num_rows), sum(total_uncompressed_size) FROM parquet_metadata(?) "
                "GROUP BY ALL ORDER BY ALL",
                [opened],
            )
            .fetchall()
        )
    except duckdb.Error as error:
        raise ValueError(str(error)) from None
    for group, rows, size in found:
        if rows > LONGEST_GROUP or size > LARGEST_GROUP:
            raise invalid(
                path,
                f"a row group has {rows:,} rows and {format_bytes(int(size))}",
                place=f", row group {group}",
                hint=f"write row groups of at most {LONGEST_GROUP:,} rows and {format_bytes(LARGEST_GROUP)}",
            )
