"""Marks on what was measured on simulated storage: a banner on the report, a mark in every figure and export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from iosonde.report.material.result_sets import SIMULATED, WARNING

if TYPE_CHECKING:
    from iosonde.report.charts.figure import Figure
    from iosonde.report.material.result_sets import Source


def mark(sources: Sequence[Source]) -> str:
    """Return `simulated`, `partly simulated`, or nothing where all was measured."""
    count = sum(source.simulated for source in sources)
    if not count:
        return ""
    return SIMULATED if count == len(sources) else f"partly {SIMULATED}"


def figure(plain: Figure, sources: Sequence[Source]) -> Figure:
    """Return the figure with a mark, wherever it is drawn, and with a column that states which rows are simulated."""
    if not mark(sources):
        return plain
    names = [source.label for source in sources if source.simulated]
    of_model = pl.lit(True) if len(names) == len(sources) else pl.col("source").is_in(names)
    of_model = of_model & ~pl.col("published").fill_null(False)
    return replace(
        plain,
        simulated=mark(sources),
        description=f"{plain.description} Simulated: {WARNING}.",
        rows=plain.rows.with_columns(of_model.alias(SIMULATED)),
        heads={**plain.heads, SIMULATED: SIMULATED},
    )
