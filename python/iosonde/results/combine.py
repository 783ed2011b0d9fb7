"""Several result sets in one table: a name for each, and rows one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from iosonde.plan import Case, Plan
from iosonde.results.schema import Record


class Source(Protocol):
    """Interface of the source of tables."""

    @property
    def directory(self) -> Path: ...

    @property
    def label(self) -> str:
        """Name of the arm, where it is one of two."""

    @property
    def plan(self) -> Plan: ...

    def known_cases(self) -> list[Case]:
        """All cases, including those that procedures decided on."""

    def records(self) -> list[Record]:
        """The latest attempt of each run that has a record."""

    @property
    def runs(self) -> pl.DataFrame:
        """One row per run that has a record."""

    def table_files(self, name: str) -> list[str]:
        """Parquet files of one table, relative to `records`."""

    def hosts(self) -> list[Any]:
        """The result sets of hosts, in the directories of their names."""

    def refuse(self, record: Record, problem: str) -> None:
        """Skip a record from now on, and add the reason to its problems."""


def labels(result_sets: Sequence[Source]) -> list[str]:
    """Return a name for each: its directory's, with as many parents as needed to make them distinct."""
    paths = [result_set.directory for result_set in result_sets]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    alone = len(set(paths)) == 1
    return [
        name if not each.label else each.label if alone else f"{name} {each.label}"
        for name, each in zip(names, result_sets, strict=True)
    ]


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
