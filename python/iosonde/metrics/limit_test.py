"""Test of a ratio of sums against a limit, which may be repeated while a measurement continues; slow I/Os by slice.

The ratio is a share of slow operations, a mean latency or a rate. Neighbouring operations resemble each other, so the
unit is a block of time and not an operation: the variance of the sum is the long-run variance over blocks (Bartlett
weights over lags of up to 10 s), and for a share at least that of independent operations at the limit. The bounds are
so wide that the error rates hold although the test is repeated every second (`bench/limit_error_rates.py`).

Pass rules such as Aerospike's count the slow I/Os in each slice of a measurement (`slice_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Side = Literal["below", "above", "undecided"]

BLOCK_NS = 500_000_000
"""Length of a block."""
SHORTEST_NS = 10_000_000_000
"""Time before which nothing is decided: the longest period of a disturbance that every test must contain."""
USUAL_NS = 40_000_000_000
"""Time before which a value passes only if it is clear of the limit: the device may be in a good phase."""
CLEAR = 0.7
"""Factor between the limit and values that are clear of it."""
BELOW, ABOVE = (2.7, 1.5), (2.2, 0.6)
"""Standard errors between the ratio and a limit that it is below or above, and how many more after the shortest time.

The latter decrease with the reciprocal of the time, because the variance of few blocks is uncertain.
"""

_ROUNDING = 1e-6
"""Share of a value by which the ends of its intervals may be wrong: a constant rate is counted over inexact seconds."""
_LONGEST_LAG = 20
"""Blocks."""
_LEAST_SHARE = 0.25
"""Long-run variance, as a share of that of independent blocks, that regular disturbances can reduce it to."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Sums over blocks of time: of what is judged, and of what it is divided by."""

    amounts: Floats
    weights: Floats

    @property
    def length_ns(self) -> int:
        return len(self.amounts) * BLOCK_NS


def decide(at_limit: Comparison, clear: Comparison, blocks: Blocks, *, good: Side) -> bool | None:
    """Return whether a limit is met, whose `good` side is below or above; None while that is undecided.

    `clear` is the comparison with the limit that only clear values meet.
    """
    if at_limit.side != good:
        return None if at_limit.side == "undecided" else False
    return True if blocks.length_ns >= USUAL_NS or clear.side == good else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A ratio of sums, and on which side of its limit it is."""

    value: float
    low: float
    """The value is above limits below this."""
    high: float
    """The value is below limits above this."""
    side: Side
    """`undecided` if the limit is from `low` to `high`, or the measurement is too short."""


def blocks_of(begins_ns: Sequence[int], amounts: Sequence[float], weights: Sequence[float]) -> Blocks:
    """Sum up the intervals of one run by the block in which each begins; a last block that is not full is left out."""
    begins = np.asarray(begins_ns, dtype=np.int64)
    if not len(begins):
        return Blocks(amounts=np.empty(0), weights=np.empty(0))
    place = (begins - begins.min()) // BLOCK_NS
    usual = int(np.median(np.diff(begins))) if len(begins) > 1 else BLOCK_NS
    whole = max(1, int((begins.max() - begins.min() + usual) // BLOCK_NS))
    starts = np.searchsorted(place, np.arange(whole + 1))
    ends = [np.concatenate([[0.0], np.cumsum(np.asarray(each, dtype=np.float64))]) for each in (amounts, weights)]
    return Blocks(amounts=np.diff(ends[0][starts]), weights=np.diff(ends[1][starts]))


def joined(several: Sequence[Blocks]) -> Blocks:
    """Put the blocks of several runs one after the other."""
    return Blocks(
        amounts=np.concatenate([each.amounts for each in several]),
        weights=np.concatenate([each.weights for each in several]),
    )


def compare(blocks: Blocks, limit: float, *, is_share: bool = False) -> Comparison | None:
    """Return on which side of the limit the ratio is; None without anything to divide by."""
    total = float(blocks.weights.sum())
    if not total:
        return None
    value = float(blocks.amounts.sum()) / total
    variance = _long_run_variance(blocks.amounts - value * blocks.weights)
    if is_share:
        variance = max(variance, limit * (1 - limit) * total)
    error = math.sqrt(variance) / total
    low, high = (
        value + sign * (_errors(bound, blocks) * error + _ROUNDING * abs(value))
        for sign, bound in ((-1, ABOVE), (1, BELOW))
    )
    side: Side = "undecided"
    if blocks.length_ns >= SHORTEST_NS:
        side = "below" if high < limit else "above" if low > limit else "undecided"
    return Comparison(value=value, low=low, high=high, side=side)


def _errors(bound: tuple[float, float], blocks: Blocks) -> float:
    """Return how many standard errors a bound is from the value."""
    return bound[0] + bound[1] * min(1.0, SHORTEST_NS / blocks.length_ns)


def _long_run_variance(deviations: Floats) -> float:
    """Return the variance of the sum of a series whose values depend on their neighbours."""
    count = len(deviations)
    lags = min(_LONGEST_LAG, count // 3)
    independent = float(deviations @ deviations)
    variance = independent + 2 * sum(
        (1 - lag / (lags + 1)) * float(deviations[lag:] @ deviations[:-lag]) for lag in range(1, lags + 1)
    )
    return max(variance, _LEAST_SHARE * independent) * count / max(1.0, count - 1 - lags / 2)


def slice_of(slice_ns: int | None) -> pl.Expr:
    """Number the slices of runs whose rows are intervals.

    A slice is as many whole intervals as begin in it; a last one shorter than half belongs to the slice before, and
    without `slice_ns` the measurement is one.
    """
    if slice_ns is None:
        return pl.lit(0)
    since = pl.col("begin_ns") - pl.col("begin_ns").min().over("run_id")
    length = (pl.col("end_ns").max() - pl.col("begin_ns").min()).over("run_id")
    whole = ((length + slice_ns // 2) // slice_ns).clip(lower_bound=1)
    return (since // slice_ns).clip(upper_bound=whole - 1)
