"""Percentiles out of bucket counts.

A percentile is the smallest latency that at least that share of all samples did not exceed (nearest rank), read as the
midpoint of its bucket and therefore within 0.1 % of the sample itself. Whether it has enough samples is
decided here, for every percentile that iosonde prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
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
"""A percentile is given only when at least this many samples are beyond it."""


def percentiles(histograms: pl.DataFrame, *, by: Sequence[str], parts: Mapping[str, int] = PERCENTILES) -> pl.DataFrame:
    """Return the percentiles of each group of `bucket, count` rows; null where too few samples are beyond one.

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
    found = ranked.group_by(by, maintain_order=True).agg(_expressions(tuple(parts.items())))
    return found.select(*by).with_columns(_latency_ns(found[name], found[f"{name}_supported"]) for name in parts)


@cache
def _expressions(parts: tuple[tuple[str, int], ...]) -> list[pl.Expr]:
    """The bucket that reaches each percentile, and whether it is supported."""
    reached = [pl.col("bucket").filter(pl.col("upto") >= _rank(part)).first().alias(name) for name, part in parts]
    return reached + [_supported(part).first().alias(f"{name}_supported") for name, part in parts]


def _rank(part: int) -> pl.Expr:
    """Return how many samples must not exceed the percentile: the share of the total, rounded up."""
    return (pl.col("total") * part + MILLION - 1) // MILLION


def _supported(part: int) -> pl.Expr:
    """Return whether enough samples are beyond a percentile: the one place with this rule."""
    return pl.col("total") - _rank(part) >= SAMPLES_BEYOND


def _latency_ns(buckets: pl.Series, supported: pl.Series) -> pl.Series:
    """Return the midpoints of buckets; null where not supported."""
    midpoints = midpoint_ns(np.nan_to_num(buckets.to_numpy())).astype(np.float64)
    return pl.Series(buckets.name, np.where(supported.to_numpy(), midpoints, np.nan), nan_to_null=True)
