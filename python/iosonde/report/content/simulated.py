"""Marks on whatever was measured on simulated storage, so that no sentence or figure leaves the report without one.

Simulated and measured result sets stay apart unless the user asks for both: `require_one_kind`. Beside each other, each
is named for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from iosonde.report.material.result_sets import SIMULATED, WARNING

if TYPE_CHECKING:
    from iosonde.report.charts.figure import Figure
    from iosonde.report.content.tables import Table
    from iosonde.report.material.result_sets import Source


def mark(sources: Sequence[Source]) -> str:
    """What follows a title; nothing where all was measured."""
    count = sum(source.simulated for source in sources)
    if not count:
        return ""
    return f" ({SIMULATED})" if count == len(sources) else f" (partly {SIMULATED})"


def table(plain: Table, sources: Sequence[Source]) -> Table:
    """The table with a mark in its title."""
    return replace(plain, title=plain.title + mark(sources))


def figure(plain: Figure, sources: Sequence[Source]) -> Figure:
    """The figure with a mark in its title, wherever it is drawn, and with a column that says of each row whether."""
    if not mark(sources):
        return plain
    names = [source.label for source in sources if source.simulated]
    of_model = pl.lit(True) if len(names) == len(sources) else pl.col("source").is_in(names)
    of_model = of_model & ~pl.col("published").fill_null(False)
    return replace(
        plain,
        title=plain.title + mark(sources),
        description=f"{plain.description} Simulated: {WARNING}.",
        rows=plain.rows.with_columns(of_model.alias(SIMULATED)),
        heads={**plain.heads, SIMULATED: SIMULATED},
    )
