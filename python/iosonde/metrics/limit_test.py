"""Test of a ratio of sums against a limit, which may be repeated while a measurement continues; slow I/Os by slice.

The ratio is a share of slow operations, a mean latency or a rate. Neighbouring operations resemble each other, so the
unit is a block of time and not an operation: the variance of the sum is the long-run variance over blocks (Bartlett
weights over lags of up to 10 s), and for a share at least that of independent operations at the limit. The bounds are
so wide that the error rates hold although the test is repeated every second (`bench/limit_error_rates.py`).

Pass rules such as Aerospike's count the slow I/Os in each slice of a measurement (`Measured.slices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.metrics.scopes import MIXED
from iosonde.units import format_duration

if TYPE_CHECKING:
    from iosonde.results import ResultSet

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
        value + sign * ((errors + more * min(1.0, SHORTEST_NS / blocks.length_ns)) * error + _ROUNDING * abs(value))
        for sign, (errors, more) in ((-1, ABOVE), (1, BELOW))
    )
    side: Side = "undecided"
    if blocks.length_ns >= SHORTEST_NS:
        side = "below" if high < limit else "above" if low > limit else "undecided"
    return Comparison(value=value, low=low, high=high, side=side)


def _long_run_variance(deviations: Floats) -> float:
    """Return the variance of the sum of a series whose values depend on their neighbours."""
    count = len(deviations)
    lags = min(_LONGEST_LAG, count // 3)
    independent = float(deviations @ deviations)
    variance = independent + 2 * sum(
        (1 - lag / (lags + 1)) * float(deviations[lag:] @ deviations[:-lag]) for lag in range(1, lags + 1)
    )
    return max(variance, _LEAST_SHARE * independent) * count / max(1.0, count - 1 - lags / 2)


def _slice(slice_ns: int | None) -> pl.Expr:
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


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a limit."""

    holds: bool | None
    comparison: Comparison
    length_ns: int
    """Length of the measurement, in whole blocks."""
    is_clear: bool
    """True if the value also meets the limit that only clear values meet."""

    @property
    def reason(self) -> str:
        """Reason for an undecided outcome."""
        length, shortest, usual = map(format_duration, (self.length_ns, SHORTEST_NS, USUAL_NS))
        if self.length_ns < SHORTEST_NS:
            return f"measured for {length}; at least {shortest} required"
        if self.comparison.side != "undecided":
            clear = f"{100 * (1 - CLEAR):.0f} % from the limit"
            return f"measured for {length}; before {usual} only values {clear} pass"
        return "the interval contains the limit"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Ratio that a condition limits, and its scope."""

    kind: Literal["share", "mean", "rate"]
    limit: float
    """Of the ratio: a share, nanoseconds, or a number per second."""
    is_upper: bool
    """True if the ratio must be below."""
    stream: str
    operation: str
    latency: str = ""
    """`completion_latency` or `response_latency`."""
    threshold_ns: float = 0.0
    """Of a share: how long operations may take."""
    column: str = ""
    """Of a rate: `count` or `bytes`."""

    @property
    def clear(self) -> Limit:
        """The limit that only values clear of this one meet."""
        if self.kind == "share":
            return replace(self, threshold_ns=CLEAR * self.threshold_ns)
        return replace(self, limit=self.limit * CLEAR if self.is_upper else self.limit / CLEAR)

    def decide(self, blocks_of: Callable[[Limit], Blocks]) -> Decision | None:
        """Judge the blocks that a limit has; None without operations."""
        blocks = blocks_of(self)
        is_share = self.kind == "share"
        at_limit = compare(blocks, self.limit, is_share=is_share)
        clear = compare(blocks_of(self.clear), self.clear.limit, is_share=is_share)
        if at_limit is None or clear is None:
            return None
        good: Literal["below", "above"] = "below" if self.is_upper else "above"
        holds = decide(at_limit, clear, blocks, good=good)
        return Decision(
            holds=holds, comparison=at_limit, length_ns=blocks.length_ns, is_clear=bool(holds) and clear.side == good
        )

    def fails_without(self, share: float, blocks: Blocks) -> bool:
        """Return True if the limit is certainly not met even if this share of operations, or of the time, is excused.

        Excused operations of a percentile count as fast, and excused time lengthens each latency and stops each rate.
        """
        limit = self.limit
        if self.kind == "share":
            limit = min(1.0, limit + share)
        elif self.is_upper:
            limit = math.inf if share >= 1 else limit / (1 - share) if self.kind == "mean" else limit
        else:
            limit *= 1 - share
        found = compare(blocks, limit, is_share=self.kind == "share")
        return found is not None and found.side == ("above" if self.is_upper else "below")


@dataclass(frozen=True)
class Measured:
    """The measurements of recorded runs: of each what its intervals contribute."""

    intervals: pl.DataFrame
    histograms: pl.DataFrame
    _blocks: dict[Limit, dict[str, Blocks]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, results: ResultSet) -> Measured:
        """Read the measurements of all runs of a result set."""
        return cls(*(table.filter(pl.col("phase") == "measure") for table in (results.intervals, results.histograms)))

    def each(self, limits: Iterable[Limit]) -> Mapping[str, Measured]:
        """Return the measurement of each run by its id, with the blocks of some limits, computed for all at once."""
        histograms = self.histograms.partition_by("run_id", as_dict=True)
        none = self.histograms.clear()
        intervals = self.intervals.partition_by("run_id", as_dict=True)
        found = {str(key[0]): Measured(rows, histograms.get(key, none)) for key, rows in intervals.items()}
        for limit in limits:
            for run_id, blocks in self.blocks(limit).items():
                found[run_id]._blocks[limit] = {run_id: blocks}
        return found

    def blocks(self, limit: Limit) -> Mapping[str, Blocks]:
        """Return the blocks of each run, by its id."""
        if limit not in self._blocks:
            times = self.intervals.select("run_id", "interval", "begin_ns", "end_ns").unique()
            rows = times.join(self._sums(limit), on=["run_id", "interval"], how="left").fill_null(0)
            seconds = (pl.col("end_ns") - pl.col("begin_ns")) / 1e9
            weight = seconds if limit.kind == "rate" else pl.col("weight")
            rows = rows.with_columns(pl.col("amount").cast(pl.Float64), weight=weight.cast(pl.Float64))
            self._blocks[limit] = {
                str(key[0]): blocks_of(*(run[name].to_list() for name in ("begin_ns", "amount", "weight")))
                for key, run in rows.sort("run_id", "interval").partition_by("run_id", as_dict=True).items()
            }
        return self._blocks[limit]

    def slices(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        """Return of each slice of all runs the operations that took longer than the threshold, and all of them.

        A slice in which nothing completed has no operations, which is not the same as none that are slow.
        """
        if self.intervals.filter(_covered(limit)).is_empty():
            return []
        times = self.intervals.select("run_id", "interval", "begin_ns", "end_ns").unique()
        sliced = (
            times.with_columns(slice=_slice(slice_ns))
            .join(self._sums(limit), on=["run_id", "interval"], how="left")
            .group_by("run_id", "slice")
            .agg(pl.col("amount", "weight").fill_null(0).sum())
            .sort("run_id", "slice")
        )
        return sliced.select("amount", "weight").rows()

    def distribution(self, limit: Limit) -> tuple[Floats, Floats]:
        """Return the latencies of a limited share in ascending order, and how many operations of all runs took each."""
        merged = self._buckets(limit).group_by("midpoint_ns").agg(pl.col("count").sum()).sort("midpoint_ns")
        latencies, counts = (merged[name].cast(pl.Float64).to_numpy() for name in ("midpoint_ns", "count"))
        return latencies, counts

    def _sums(self, limit: Limit) -> pl.DataFrame:
        """Sum up each interval with covered operations."""
        if limit.kind == "share":
            slow = pl.col("count").filter(pl.col("midpoint_ns") > limit.threshold_ns).sum()
            buckets = self._buckets(limit).group_by("run_id", "interval")
            return buckets.agg(amount=slow, weight=pl.col("count").sum())
        amount = pl.col(limit.column or f"{limit.latency}_ns_sum")
        covered = self.intervals.filter(_covered(limit)).group_by("run_id", "interval")
        return covered.agg(amount=amount.sum(), weight=pl.col("count").filter(amount.is_not_null()).sum())

    def _buckets(self, limit: Limit) -> pl.DataFrame:
        kind = limit.latency.removesuffix("_latency")
        return self.histograms.filter(pl.col("latency") == kind, _covered(limit))


def _covered(limit: Limit) -> pl.Expr:
    operations = [limit.operation] if limit.operation else list(MIXED)
    return pl.col("operation").is_in(operations) & ((pl.col("stream") == limit.stream) | (limit.stream == ""))
