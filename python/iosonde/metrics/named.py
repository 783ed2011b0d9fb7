"""Metrics that a study of external commands names: from the values in the records to rows of metrics.

Their definitions are in the table `named_values`, so that a result set needs nothing else to be read. The value of a
run follows from its values by the metric's `aggregate`; a metric with one value a run is that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.errors import ResultsError
from iosonde.metrics.registry import declare
from iosonde.metrics.scopes import ALL

if TYPE_CHECKING:
    from iosonde.metrics.facts import Facts

STREAM = "main"
"""A command has one stream."""

_AGGREGATES: Mapping[str, pl.Expr] = {
    "mean": pl.col("value").mean(),
    "median": pl.col("value").median(),
    "minimum": pl.col("value").min(),
    "maximum": pl.col("value").max(),
    "last": pl.col("value").sort_by("point").last(),
    "sum": pl.col("value").sum(),
}

_SCOPE = (pl.lit(STREAM).alias("stream"), pl.lit(ALL).alias("operation"))


def run_values(facts: Facts) -> pl.DataFrame:
    """Return one row per run and named metric: `result_set, run_id, stream, operation, metric, value`."""
    rows = values(facts)
    keys = ("result_set", "run_id", "metric")
    if rows.is_empty():
        return rows.select("result_set", "run_id", *_SCOPE, "metric", "value").clear()
    chosen = pl.coalesce(
        pl.when(pl.col("aggregate").first() == name).then(expression) for name, expression in _AGGREGATES.items()
    )
    return (
        rows.group_by(keys, maintain_order=True)
        .agg(value=chosen)
        .select("result_set", "run_id", *_SCOPE, "metric", "value")
    )


def interval_values(facts: Facts) -> pl.DataFrame:
    """Return one row per value of lines over time: `..., begin_ns, end_ns, stream, operation, metric, value`."""
    several = pl.len().over("result_set", "run_id", "metric") > 1
    return (
        values(facts)
        .filter(several)
        .select(
            "result_set",
            "run_id",
            pl.lit("measure").alias("phase"),
            pl.col("point").alias("interval"),
            "begin_ns",
            "end_ns",
            *_SCOPE,
            "metric",
            "value",
        )
    )


def values(facts: Facts) -> pl.DataFrame:
    """Return the named values of complete runs, and declare their metrics.

    `ResultsError` if two result sets define a metric differently: their values cannot be in one table.
    """
    rows = facts.named_values()
    if rows.is_empty():
        return rows
    known: dict[str, tuple[str, str]] = {}
    for each in rows.select("metric", "title", "unit", "better").unique(maintain_order=True).iter_rows(named=True):
        definition = (each["unit"], each["better"])
        if known.setdefault(each["metric"], definition) != definition:
            raise ResultsError(
                f"the metric `{each['metric']}` has another unit or direction in each of these result sets",
                hint="combine result sets of the same study, or give the metrics different names",
            )
        declare(each["metric"], title=each["title"], unit=each["unit"], better=each["better"])
    return rows


def declare_all(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Declare the metrics of a study."""
    for name, each in metrics.items():
        declare(name, title=each["title"], unit=each["unit"], better=each["better"])
