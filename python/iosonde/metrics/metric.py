"""A metric, and the arithmetic that their expressions share."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Literal

import polars as pl

from iosonde.results.accounting import COUNTED_NS, MOST

Better = Literal["higher", "lower", "neither"]


Kind = Literal[
    "rate", "count", "time", "latency", "concurrency", "cpu", "device", "spread", "sustained", "store", "named"
]


@dataclass(frozen=True)
class Metric:
    """A metric: what it is called, what it means, which way is good. One row of a table of metrics."""

    name: str
    title: str
    """For axes and table heads, without the unit."""
    unit: str
    """`1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios."""
    better: Better
    kind: Kind
    formula: str
    derived: InitVar[pl.Expr | str | None] = None
    """Expression over sums and facts of a scope; as text a column, or a ratio of two: `bytes / seconds` (`over`)."""
    expression: pl.Expr | None = field(init=False, compare=False, repr=False)
    """The same as an expression; None if the facts already contain the metric under its name."""
    _: KW_ONLY
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

    def __post_init__(self, derived: pl.Expr | str | None) -> None:
        if isinstance(derived, str):
            above, _, below = derived.partition(" / ")
            derived = over(above, below) if below else pl.col(above)
        object.__setattr__(self, "expression", derived)


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


SERVER_SECONDS = in_seconds(pl.col(COUNTED_NS))
"""Time between the readings of a server's counters, for their rates."""
