"""Percentiles out of bucket counts.

A percentile is the smallest latency that at least that share of all samples did not exceed (nearest rank), read as the
midpoint of its bucket and therefore within 0.1 % of the sample itself. Whether it has enough samples is
decided here, for every percentile that iosonde prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from iosonde.results.histogram import midpoint_ns

MILLION = 1_000_000

PERCENTILES: Mapping[str, int] = {
    "p50": 500_000,
    "p90": 900_000,
    "p95": 950_000,
    "p99": 990_000,
    "p99_9": 999_000,
    "p99_99": 999_900,
    "p99_999": 999_990,
    "p99_9999": 999_999,
}
"""The percentiles that are metrics, in parts per million: whole numbers, so that no rounding moves a rank."""

SAMPLES_BEYOND = 10
"""A percentile is given only when at least so many samples lie beyond it."""


def percentiles(histograms: pl.DataFrame, *, by: Sequence[str], parts: Mapping[str, int] = PERCENTILES) -> pl.DataFrame:
    """Return the percentiles of each group of `bucket, count` rows; null where too few samples lie beyond one.

    Columns: those of `by`, and one for each of `parts`, in nanoseconds. A bucket may occur in several rows.
    """
    ranked = (
        histograms.select(*by, "bucket", pl.col("count").cast(pl.Int64))
        .sort(*by, "bucket")
        .with_columns(
            upto=pl.col("count").cum_sum().over(by, mapping_strategy="group_to_rows"),
            total=pl.col("count").sum().over(by),
        )
    )
    reached = {name: pl.col("bucket").filter(pl.col("upto") >= _rank(part)).first() for name, part in parts.items()}
    supported = {f"{name}_supported": _supported(part).first() for name, part in parts.items()}
    found = ranked.group_by(by, maintain_order=True).agg(**reached, **supported)
    return found.select(
        *by, *(pl.when(f"{name}_supported").then(_latency_ns(found[name])).alias(name) for name in parts)
    )


def _rank(part: int) -> pl.Expr:
    """Return how many samples must not exceed the percentile: the share of the total, rounded up."""
    return (pl.col("total") * part + MILLION - 1) // MILLION


def _supported(part: int) -> pl.Expr:
    """Return whether enough samples lie beyond a percentile: the one place with this rule."""
    return pl.col("total") - _rank(part) >= SAMPLES_BEYOND


def _latency_ns(buckets: pl.Series) -> pl.Series:
    return pl.Series(buckets.name, midpoint_ns(buckets.fill_null(0).to_numpy())).cast(pl.Float64)
