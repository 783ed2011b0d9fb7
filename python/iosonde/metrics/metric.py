"""A metric, and the arithmetic that their expressions share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from iosonde.results.run_facts.own_io import MOST

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: what it is called, what it means, which way is good."""

    name: str
    title: str
    """For axes and table heads, without the unit."""
    unit: str
    """`1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios."""
    formula: str
    better: Better
    kind: Literal[
        "rate", "count", "time", "latency", "concurrency", "cpu", "device", "spread", "sustained", "store", "named"
    ]
    expression: pl.Expr | None = field(default=None, compare=False, repr=False)
    """Formula over sums and facts of a scope; None if the facts already contain the metric under its name."""
    can_be_negative: bool = False
    """True if values below 0 are possible; otherwise confidence intervals are truncated at 0."""
    counted: str = ""
    """Unit of counted values in sentences: `operations/s`."""
    is_rate: bool = False
    """Of a feature: True for the rate by which a whole load is judged, as `iops` is for block I/O."""
    is_compared: bool = False
    """Of a feature: True if cases are compared by it."""
    per_interval: bool = False
    """True if counts, sums and percentiles suffice to compute it, also for each interval of a run."""


def store_metric(
    name: str,
    title: str,
    formula: str,
    expression: pl.Expr | None = None,
    better: Better = "lower",
    *,
    unit: str = "",
    per_interval: bool = True,
    is_compared: bool = False,
) -> Metric:
    """Return a metric of a store or server."""
    return Metric(
        name=name,
        title=title,
        unit=unit,
        formula=formula,
        better=better,
        kind="store",
        expression=expression,
        per_interval=per_interval,
        is_compared=is_compared,
    )


def over(numerator: pl.Expr | str, denominator: pl.Expr | str) -> pl.Expr:
    """Divide; no value where there is nothing to divide by."""
    above, below = (pl.col(each) if isinstance(each, str) else each for each in (numerator, denominator))
    return pl.when(below > 0).then(above / below)


def own(device_bytes: str, foreign_share: str) -> pl.Expr:
    """Return a device's bytes without those of other processes; null if these are too many to be subtracted."""
    foreign = pl.col(foreign_share).fill_null(0.0)
    return pl.when(foreign <= MOST).then(pl.col(device_bytes) * (1 - foreign))


def in_seconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Return nanoseconds as seconds, with the same digits for one row and for many.

    Polars divides a column of several rows by a constant by multiplying with its reciprocal, and that of one row not.
    """
    return nanoseconds * 1e-9
