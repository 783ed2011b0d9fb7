"""Traces of operations on a key-value store (docs/traces.md): checked row by row, and converted for the engine.

A trace is a foreign file. It is read in blocks, so memory does not grow with it, and the first wrong value is
reported with its row and column. The engine gets rows of fixed size (`crates/kv/src/trace.rs`), in which a hash
replaces the key. They are kept in the cache directory, under a name that changes with the trace.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from iosonde.base import text_files
from iosonde.base.cache import cache_directory, temporary_file
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
    """All columns; those that the trace does not have are empty."""
    first: int
    """Number of its first row; the row below the header is 1."""

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

    def refuse(self, wrong: pl.Series, column: str, why: str, *, is_missing: bool = False) -> None:
        """Raise for the first row that is wrong."""
        places = wrong.fill_null(value=True).arg_true()
        if not len(places):
            return
        row = int(places[0])
        value = self.table[column][row]
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
        tables = _of_parquet(path, f"/proc/self/fd/{file.fileno()}") if is_parquet else _of_csv(path)
        first = 1
        for table in tables:
            absent = [pl.lit(None, pl.String).alias(name) for name in COLUMNS if name not in table.columns]
            yield Block(path=path, table=table.with_columns(absent), first=first)
            first += len(table)


def _check_columns(path: str, names: Sequence[str]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    twice = [name for name in names if list(names).count(name) > 1]
    columns = ", ".join(f"`{name}`" for name in COLUMNS)
    if missing:
        what = f"the trace has no column `{missing[0]}`"
        hint = f"its columns are {columns}, of which the first three are required"
        raise invalid(path, what, place=", header", hint=hint)
    if unknown or twice:
        how = "unknown" if unknown else "there twice"
        what = f"the column `{(unknown or twice)[0][:SHOWN]}` of the trace is {how}"
        raise invalid(path, what, place=", header", hint=f"leave it out; columns are {columns}")


def _of_csv(path: str) -> Iterator[pl.DataFrame]:
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        header = file.readline(BLOCK_BYTES)
        names = _fields(path, 0, header) if header.strip() else []
        _check_columns(path, names)
        first = 1
        while content := file.read(BLOCK_BYTES):
            rest = b"" if content.endswith(b"\n") else file.readline(BLOCK_BYTES)
            if len(rest) == BLOCK_BYTES and not rest.endswith(b"\n"):
                what, number = f"a row is longer than {format_bytes(BLOCK_BYTES)}", first + content.count(b"\n")
                raise invalid(path, what, place=f", row {number}", hint="end rows with a line feed")
            content = (content + rest).replace(b"\r\n", b"\n")
            whole, _, last = content.rpartition(b"\n")
            if content := content if last.strip() else whole:
                rows = _checked(path, first, names, content)
                table = pl.read_csv(content, has_header=False, new_columns=names, infer_schema=False, eol_char="\n")
                yield table.with_columns(pl.col(names[-1]).replace("", None))
                first += rows


def _checked(path: str, first: int, names: list[str], content: bytes) -> int:
    """The number of rows; `StudyError` for the first that has not one value for each column."""
    try:
        is_plain = b'"' not in content and "\0" not in content.decode("utf-8")
    except UnicodeDecodeError:
        is_plain = False
    commas, lines = len(names) - 1, content.split(b"\n")
    for number, line in enumerate(lines, start=first):
        if not is_plain or line.count(b",") != commas or not line.strip():
            found = _fields(path, number, line)
            if len(found) != len(names):
                what = f"a row has {len(found)} values for {len(names)} columns"
                hint = "give each column a value, which may be empty"
                raise invalid(path, what, place=f", row {number}", hint=hint)
    return len(lines)


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


def _of_parquet(path: str, opened: str) -> Iterator[pl.DataFrame]:
    try:
        schema = pl.read_parquet_schema(opened)
        _check_columns(path, list(schema))
        _check_groups(path, opened)
        table = pl.scan_parquet(opened, glob=False, hive_partitioning=False)
        rows = int(table.select(pl.len()).collect().item())
        for first in range(0, rows, BLOCK_ROWS):
            yield table.slice(first, BLOCK_ROWS).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        words = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise invalid(path, f"the Parquet file cannot be read: {words}", hint="write it again") from None


def _check_groups(path: str, opened: str) -> None:
    """Raise for row groups that would take too much memory, by the footer of the file."""
    import duckdb

    sizes = "row_group_id, max(row_group_num_rows), sum(total_uncompressed_size)"
    statement = f"SELECT {sizes} FROM parquet_metadata(?) GROUP BY ALL ORDER BY ALL"
    try:
        found = duckdb.connect().execute(statement, [opened]).fetchall()
    except duckdb.Error as error:
        raise ValueError(str(error)) from None
    for group, rows, size in found:
        if rows > LONGEST_GROUP or size > LARGEST_GROUP:
            what = f"a row group has {rows:,} rows and {format_bytes(int(size))}"
            hint = f"write row groups of at most {LONGEST_GROUP:,} rows and {format_bytes(LARGEST_GROUP)}"
            raise invalid(path, what, place=f", row group {group}", hint=hint)


VERSION = 1
"""Of the converted rows; a change converts traces again."""

OPERATIONS = {"get": 0, "set": 1, "delete": 2}
PARAMETER = {"get": "read", "set": "update", "delete": "delete"}
"""Operations of a trace -> the same as parameters of a workload."""

LARGEST_KEY = 250
SMALLEST_KEY = 16
"""Shorter keys are lengthened: these bytes identify the key."""
LARGEST_VALUE = 64 << 20
LONGEST_TTL_S = 30 * 86400
LONGEST_S = 10 * 366 * 86400

ROW = np.dtype(
    [("at_ns", "<u8"), ("number", "<u8"), ("value_bytes", "<u4"), ("ttl_s", "<u4"), ("key_bytes", "<u2"),
     ("request", "u1"), ("unused", "u1", 5)]
)  # fmt: skip
_MAGIC = b"iostrace"
_HEAD_BYTES = 32
"""Before the rows; what is in them is known at the end."""

_COUNTERS = 1 << 24
"""Places in which different keys are counted: below 100 million keys the estimate is within 1 %."""


def directory() -> Path:
    """Return the directory of converted traces."""
    return cache_directory() / "traces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """A converted trace, and what it consists of."""

    path: str
    """Of the converted rows."""
    rows: int
    digest: str
    """SHA-256 of the trace."""
    gets: int
    sets: int
    deletes: int
    keys: int
    """Different keys, estimated."""
    loaded_keys: int
    """Of these, estimated, those that a get has a size for: a database is loaded with them."""
    seconds: float
    """From the first row to the last."""
    deleted_gets: int
    """Gets of a key that the trace itself has deleted, and not set since."""
    key_bytes: int
    """Mean of the rows."""
    value_bytes: int
    """Mean of the rows that have a size; 0 if none has."""
    largest_value: int
    largest_key: int
    has_ttl: bool

    @property
    def operations(self) -> str:
        """As the parameter `operations`: each with its number."""
        counts = {"get": self.gets, "set": self.sets, "delete": self.deletes}
        return ":".join(f"{PARAMETER[name]}/{count}" for name, count in counts.items() if count)


def converted(path: str) -> Trace:
    """The trace in a CSV or Parquet file; `StudyError` names the first row and column that is wrong."""
    try:
        descriptor = text_files.open_regular(path)
    except OSError as error:
        raise StudyError(
            f"cannot read the trace `{path}`: {error.strerror or error}",
            where="by the parameter `trace`",
            hint="name a CSV or Parquet file (docs/traces.md)",
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return _converted(str(Path(path).resolve()), identity)


@functools.lru_cache(maxsize=16)
def _converted(path: str, identity: tuple[int, ...]) -> Trace:
    name = hashlib.sha256(json.dumps([path, identity, VERSION, pl.__version__]).encode()).hexdigest()[:32]
    rows = directory() / f"{name}.rows"
    return _known(rows) or _convert(path, rows)


def _known(rows: Path) -> Trace | None:
    """A trace that was converted before."""
    with suppress(OSError, ValueError, TypeError):
        found = Trace(**json.loads(rows.with_suffix(".json").read_text(encoding="utf-8")))
        if found.path == str(rows) and rows.stat().st_size == _HEAD_BYTES + found.rows * ROW.itemsize:
            return found
    return None


def _convert(path: str, rows: Path) -> Trace:
    try:
        rows.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file() as file:
            try:
                totals = _Totals(path)
                file.write(bytes(_HEAD_BYTES))
                for block in blocks(path):
                    file.write(totals.add(block).tobytes())
                trace = totals.trace(rows)
                file.seek(0)
                numbers = np.array([VERSION, trace.largest_key, trace.largest_value, 0], dtype="<u4")
                file.write(_MAGIC + numbers.tobytes() + trace.rows.to_bytes(8, "little"))
                file.close()
                Path(file.name).replace(rows)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        rows.with_suffix(".json").write_text(json.dumps(dataclasses.asdict(trace)), encoding="utf-8")
    except OSError as error:
        raise StudyError(
            f"cannot convert the trace `{path}`: {error.strerror or error}",
            where=f"in `{rows.parent}`",
            hint="a converted trace takes 32 bytes per row; name another directory with `XDG_CACHE_HOME`",
        ) from error
    return trace


class _Totals:
    """Checks blocks one after the other, and adds up what a trace consists of."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._first: float | None = None
        self._last = 0.0
        self._rows = self._key_bytes = self._sized = self._value_bytes = 0
        self._largest_key, self._largest_value = SMALLEST_KEY, 0
        self._requests = np.zeros(len(OPERATIONS), dtype=np.int64)
        self._seen, self._loaded, self._deleted = (np.zeros(_COUNTERS, dtype=bool) for _ in range(3))
        self._deleted_gets = 0
        self._has_ttl = False

    def add(self, block: Block) -> np.ndarray[Any, np.dtype[np.void]]:
        """The rows of a block for the engine."""
        table = np.zeros(len(block.table), dtype=ROW)
        table["request"] = _requests(block)
        table["at_ns"] = self._instants(block)
        table["number"], table["key_bytes"] = _keys(block)
        table["value_bytes"] = _sizes(block, table["request"])
        table["ttl_s"] = _whole(block, "ttl", LONGEST_TTL_S)
        self._rows += len(table)
        self._requests += np.bincount(table["request"], minlength=len(OPERATIONS))
        places = (table["number"] % np.uint64(_COUNTERS)).astype(np.int64)
        self._seen[places] = True
        self._loaded[places[(table["request"] == OPERATIONS["get"]) & (table["value_bytes"] > 0)]] = True
        self._deleted_gets += self._gets_of_deleted(places, table["request"])
        self._key_bytes += int(table["key_bytes"].sum())
        self._value_bytes += int(table["value_bytes"].sum(dtype=np.int64))
        self._sized += int((table["value_bytes"] > 0).sum())
        self._largest_key = max(self._largest_key, int(table["key_bytes"].max()))
        self._largest_value = max(self._largest_value, int(table["value_bytes"].max()))
        self._has_ttl |= bool((table["ttl_s"] > 0).any())
        return table

    def trace(self, rows: Path) -> Trace:
        """The whole."""
        if not self._rows:
            raise invalid(self._path, "the trace has no rows", hint="give it at least one row below its header")
        with Path(self._path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Trace(
            path=str(rows),
            rows=self._rows,
            digest=digest,
            gets=int(self._requests[0]),
            sets=int(self._requests[1]),
            deletes=int(self._requests[2]),
            keys=max(1, min(_estimated(self._seen), self._rows)),
            loaded_keys=min(_estimated(self._loaded), self._rows),
            deleted_gets=self._deleted_gets,
            seconds=self._last - (self._first or 0.0),
            key_bytes=max(SMALLEST_KEY, round(self._key_bytes / self._rows)),
            value_bytes=round(self._value_bytes / self._sized) if self._sized else 0,
            largest_key=self._largest_key,
            largest_value=self._largest_value,
            has_ttl=self._has_ttl,
        )

    def _gets_of_deleted(self, places: np.ndarray[Any, np.dtype[np.int64]], requests: Any) -> int:
        """Number of gets of a key whose last change, in the rows before, is its deletion."""
        get, delete = OPERATIONS["get"], OPERATIONS["delete"]
        if not self._requests[delete]:
            return 0
        changed = pl.when(pl.col("request") != get).then(pl.col("request") == delete)
        rows = pl.DataFrame({"place": places, "request": requests, "before": self._deleted[places]})
        found = rows.select(pl.coalesce(changed.forward_fill().over("place"), "before") & (pl.col("request") == get))
        changes = requests != get
        self._deleted[places[changes]] = requests[changes] == delete  # The last row of a key decides.
        return int(found.to_series().sum())

    def _instants(self, block: Block) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Nanoseconds since the first row of the trace."""
        seconds = block.numbers("time")
        block.refuse(seconds.is_null(), "time", "is not a number of seconds")
        block.refuse(~seconds.is_finite(), "time", "is not a number of seconds")
        values = seconds.to_numpy()
        previous = np.concatenate([[self._last if self._first is not None else values[0]], values[:-1]])
        self._first = float(values[0]) if self._first is None else self._first
        block.refuse(pl.Series(values - self._first > LONGEST_S), "time", "is more than ten years after the first row")
        block.refuse(
            pl.Series(values < previous), "time", "is before the time of the row above: sort the trace by time"
        )
        self._last = float(values[-1])
        return np.rint((values - self._first) * 1e9).astype(np.uint64)


def _estimated(seen: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """Number of keys that have set so many places (linear counting)."""
    unseen = len(seen) - int(seen.sum())
    return round(-len(seen) * math.log(max(unseen, 1) / len(seen)))


def _requests(block: Block) -> np.ndarray[Any, np.dtype[np.uint8]]:
    names = block.texts("operation")
    codes = names.replace_strict(OPERATIONS, default=None, return_dtype=pl.UInt8)
    block.refuse(codes.is_null(), "operation", "is not an operation: `get`, `set` and `delete` are")
    return codes.to_numpy()


def _keys(block: Block) -> tuple[Any, Any]:
    """A number for each key, and its length."""
    keys = block.texts("key")
    block.refuse(keys.is_null(), "key", "is not a key")
    lengths = keys.str.len_bytes()
    block.refuse((lengths < 1) | (lengths > LARGEST_KEY), "key", f"is not a key: keys have 1 to {LARGEST_KEY} bytes")
    return keys.hash(seed=0).to_numpy(), np.maximum(lengths.to_numpy(), SMALLEST_KEY)


def _sizes(block: Block, requests: Any) -> Any:
    """Sizes of values; 0 where a get or a delete has none."""
    sizes = _whole(block, "value_size", LARGEST_VALUE)
    is_set = pl.Series(requests == OPERATIONS["set"])
    block.refuse(
        is_set & block.table["value_size"].is_null(),
        "value_size",
        "a `set` needs the size of its value",
        is_missing=True,
    )
    # A value of 0 bytes exists: the engine lengthens it, and 0 means that the size is not known.
    known = (~block.table["value_size"].is_null()).to_numpy() & (requests != OPERATIONS["delete"])
    return np.where(known, np.maximum(sizes, 1), 0)


def _whole(block: Block, column: str, largest: int) -> Any:
    """Whole numbers of a column; 0 where it is empty."""
    numbers = block.numbers(column)
    is_empty = block.table[column].is_null()
    is_whole = numbers.is_finite() & (numbers >= 0) & (numbers <= largest) & (numbers == numbers.floor())
    block.refuse(~is_empty & ~is_whole.fill_null(value=False), column, f"is not a whole number from 0 to {largest}")
    return numbers.fill_null(0).cast(pl.Int64).to_numpy()
