"""A column of a table: name, type, meaning and origin, and a table: what a row is, and its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
    """Its value, for columns of `runs`: from the record's `RunFacts`."""
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
