"""A column of a table: name, type, meaning and origin; a table: what a row is, and its columns; latency buckets.

The definition of buckets is the protocol's (`crates/protocol/src/event.rs`, `Histogram`): bucket `i` below 1024 holds
exactly `i` ns; above, each power of two is divided into 512 equal buckets, so a bucket's midpoint is within 0.1 % of
every value in it. Here it is written twice, as NumPy for Python and as DuckDB macros for SQL; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

TEXT, FLAG, NUMBER = pl.String, pl.Boolean, pl.Float64
U32, U64, I64 = pl.UInt32, pl.UInt64, pl.Int64
DType = type[pl.DataType]

_RANGES: dict[DType, tuple[int, int]] = {U32: (0, 2**32 - 1), U64: (0, 2**64 - 1), I64: (-(2**63), 2**63 - 1)}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    dtype: DType
    text: str
    """Its meaning; units are in the name or here."""
    value: Callable[[Any], Any] | None = None
    """Function from the record's `RunFacts` to its value, for columns of `runs`."""
    computed: str = ""
    """SQL expression, for columns of stored tables that are not stored."""

    @property
    def is_number(self) -> bool:
        """Return True if its values are numbers to compute with."""
        return self.dtype not in (TEXT, FLAG)

    def check(self, value: Any) -> None:
        """Raise `ValueError` if the value is not of the column's type."""
        if value is not None and not self._fits(value):
            raise ValueError(f"`{self.name}` cannot be {str(value)[:40]!r}")

    def _fits(self, value: Any) -> bool:
        if self.dtype is TEXT:
            return isinstance(value, str)
        if isinstance(value, bool) or self.dtype is FLAG:
            return isinstance(value, bool) and self.dtype is FLAG
        if self.dtype is NUMBER:
            return isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)
        low, high = _RANGES[self.dtype]
        return isinstance(value, int) and low <= value <= high


def reader(where: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that reads a value: `where` itself, or of a path of attributes and keys such as `server.title`.

    There is no value where a part before the last one is missing or empty.
    """
    if not isinstance(where, str):
        return where
    names = where.split(".")

    def follow(found: Any) -> Any:
        for name in names:
            if not found:
                return None
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
        return found

    return follow


Row = tuple[str, DType, str] | tuple[str, DType, str, str | Callable[[Any], Any]]


def facts(part: Callable[[Any], Any], *rows: Row, prefix: str = "", words: str = "") -> tuple[Column, ...]:
    """Return columns of `runs` from rows of name, type, meaning, and what reads the value (the name, if left out).

    Values are read from a part of the record: `part` derives it, once a run. Without it there are no values.
    """

    def column(name: str, dtype: DType, text: str, where: str | Callable[[Any], Any] = "") -> Column:
        read = reader(where or name)
        return Column(
            f"{prefix}{name}",
            dtype,
            f"{words}{text}",
            lambda run: None if (found := run.of(part)) is None else read(found),
        )

    return tuple(column(*row) for row in rows)


def grown(before: Mapping[str, Any], after: Mapping[str, Any], *names: str) -> int | None:
    """Return the sum of the increases of counters; None if one is missing or was reset."""
    if any(name not in before or name not in after or after[name] < before[name] for name in names):
        return None
    return sum(int(after[name]) - int(before[name]) for name in names)


def any_of(names: Sequence[str]) -> str:
    """List possible values in a description: `` `a`, `b` or `c` ``."""
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} or {last}"


@dataclass(frozen=True)
class Table:
    """A table: what a row is, and its columns."""

    text: str
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pl.Schema:
        return pl.Schema({each.name: each.dtype for each in self.columns if not each.computed})

    def check(self, row: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a row has a value of the wrong type or an unknown column."""
        known = {each.name: each for each in self.columns}
        for name, value in row.items():
            if name not in known:
                raise ValueError(f"`{name[:40]}` is unknown")
            known[name].check(value)


EXACT = 1024
"""Buckets below this number hold one value each."""
PER_OCTAVE = 512
"""Buckets in each power of two above."""
BUCKETS = EXACT + PER_OCTAVE * (64 - 10)
"""Number of buckets: latencies have 64 bits."""

Buckets = npt.NDArray[np.uint64]

MACROS = (
    f"CREATE MACRO bucket_width_ns(bucket) AS CASE WHEN bucket < {EXACT} THEN 1::UBIGINT"
    f" ELSE 1::UBIGINT << ((bucket - {EXACT}) // {PER_OCTAVE} + 1)::UBIGINT END",
    f"CREATE MACRO bucket_lower_ns(bucket) AS CASE WHEN bucket < {EXACT} THEN bucket::UBIGINT"
    f" ELSE ({PER_OCTAVE} + (bucket - {EXACT}) % {PER_OCTAVE})::UBIGINT"
    f" << ((bucket - {EXACT}) // {PER_OCTAVE} + 1)::UBIGINT END",
    "CREATE MACRO bucket_midpoint_ns(bucket) AS bucket_lower_ns(bucket) + bucket_width_ns(bucket) // 2",
)
"""The same three functions in DuckDB's SQL."""


def lower_ns(buckets: npt.ArrayLike) -> Buckets:
    """Smallest value of each bucket."""
    number = np.asarray(buckets, dtype=np.uint64)
    octave, part = _octave(number), (number - np.uint64(EXACT)) % np.uint64(PER_OCTAVE)
    return np.where(number < EXACT, number, (np.uint64(PER_OCTAVE) + part) << (octave + np.uint64(1)))


def width_ns(buckets: npt.ArrayLike) -> Buckets:
    """Number of values in each bucket."""
    number = np.asarray(buckets, dtype=np.uint64)
    return np.where(number < EXACT, np.uint64(1), np.uint64(1) << (_octave(number) + np.uint64(1)))


def midpoint_ns(buckets: npt.ArrayLike) -> Buckets:
    """The value that represents each bucket."""
    return lower_ns(buckets) + width_ns(buckets) // np.uint64(2)


def _octave(number: Buckets) -> Buckets:
    """Octave of a bucket: power of two above `EXACT`, counted from 0; 0 for the exact buckets, too."""
    return (np.maximum(number, np.uint64(EXACT)) - np.uint64(EXACT)) // np.uint64(PER_OCTAVE)
