"""Intervals of confidence: how sure a number is, from its repeats or from the course of one run.

All intervals are 95 % percentile bootstraps of a median, seeded, so that the same results always give the same report.
What they can promise with few repeats is said in docs/metrics.md: three repeats give the range of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
RESAMPLES = 4000
MINIMUM_REPEATS = 3
"""With fewer there is no interval."""
MARGIN = 0.05
"""Two figures within 5 % of each other are the same for anyone who chooses storage by them."""
SEED = 20251

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "same", "unclear"]


@dataclass(frozen=True)
class Estimate:
    """A value and its interval of confidence; `low` and `high` are None where nothing supports one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Whether there is an interval at all."""
        return self.low is not None and self.high is not None

    def above(self, limit: float) -> bool:
        """Whether the whole interval lies above the limit."""
        return self.low is not None and self.low > limit

    def below(self, limit: float) -> bool:
        """Whether the whole interval lies below the limit."""
        return self.high is not None and self.high < limit


def median_interval(values: ArrayLike) -> Estimate:
    """Return the median of a sample with its bootstrap interval."""
    sample = np.asarray(values, dtype=np.float64)
    low, high = median_intervals(sample[np.newaxis, :])
    if np.isnan(low[0]):
        return Estimate(float(np.median(sample)))
    return Estimate(float(np.median(sample)), float(low[0]), float(high[0]))


def median_intervals(rows: Floats) -> tuple[Floats, Floats]:
    """Return the interval of the median of each row; NaN where a row has fewer than `MINIMUM_REPEATS` values.

    Each possible median of a resample is a mean of two ranks with a known share, so one draw serves all rows.
    """
    count = rows.shape[1]
    if count < MINIMUM_REPEATS:
        nothing = np.full(rows.shape[0], np.nan)
        return nothing, nothing
    lower, upper, weight = _median_ranks(count)
    ordered = np.sort(rows, axis=1)
    medians = (ordered[:, lower] + ordered[:, upper]) / 2
    order = np.argsort(medians, axis=1)
    share = np.cumsum(weight[order], axis=1)
    sorted_medians = np.take_along_axis(medians, order, axis=1)
    tail = (1 - CONFIDENCE) / 2
    return _first_reaching(sorted_medians, share, tail), _first_reaching(sorted_medians, share, 1 - tail)


@lru_cache(maxsize=64)
def _median_ranks(count: int) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """Return the pairs of ranks whose mean is the median of a resample, and how often each pair comes up."""
    drawn = np.stack(_middle_ranks(count, 5 * RESAMPLES, SEED), axis=1)
    pairs, times = np.unique(drawn, axis=0, return_counts=True)
    return pairs[:, 0], pairs[:, 1], times / times.sum()


@lru_cache(maxsize=1024)
def _middle_ranks(count: int, resamples: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the two middle ranks of each resample: all that its median depends on, so drawn once for every sample."""
    drawn = np.sort(_resamples(count, resamples, seed=seed), axis=1)
    return drawn[:, (count - 1) // 2].astype(np.int32), drawn[:, count // 2].astype(np.int32)


def _first_reaching(values: Floats, share: Floats, wanted: float) -> Floats:
    column = np.argmax(share >= wanted - 1e-12, axis=1)
    return np.take_along_axis(values, column[:, np.newaxis], axis=1)[:, 0]


def _resamples(count: int, resamples: int = RESAMPLES, *, seed: int = SEED) -> NDArray[np.intp]:
    return np.random.default_rng(seed).integers(0, count, size=(resamples, count), dtype=np.intp)


def resampled_medians(values: ArrayLike, *, seed: int = SEED, resamples: int = RESAMPLES) -> Floats:
    """Return the medians of bootstrap resamples of a sample."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    lower, upper = _middle_ranks(len(ordered), resamples, seed)
    medians: Floats = (ordered[lower] + ordered[upper]) / 2
    return medians


def percentile_interval(value: float, resampled: Floats) -> Estimate:
    """Return an estimate from a statistic and its bootstrap distribution."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


def ratio(numerator: ArrayLike, denominator: ArrayLike, *, paired: bool = False) -> Estimate:
    """Return the ratio of two groups, with its interval.

    Unpaired: ratio of the medians, each group resampled by itself. Paired (runs that were interleaved, one by one):
    median of the ratios, pairs resampled together, so that what both members of a pair suffered cancels.
    """
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if paired:
        assert len(top) == len(bottom), "paired groups are of equal length"
        return median_interval(top / bottom)
    value = float(np.median(top) / np.median(bottom))
    if min(len(top), len(bottom)) < MINIMUM_REPEATS:
        return Estimate(value)
    return percentile_interval(value, resampled_medians(top) / resampled_medians(bottom, seed=SEED + 1))


def pooled_ratio(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Estimate:
    """Return the geometric mean of the ratios of several pairs of groups, with its interval.

    Where every group has repeats, they are resampled within their groups. Where they have not (published figures, a
    single run a case), the pairs themselves are resampled: the interval then says how the ratio varies among them.
    """
    groups = [(np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)) for top, bottom in pairs]
    ratios = np.array([np.median(top) / np.median(bottom) for top, bottom in groups])
    value = float(np.exp(np.mean(np.log(ratios))))
    if all(min(len(top), len(bottom)) >= MINIMUM_REPEATS for top, bottom in groups):
        logs = [
            np.log(resampled_medians(top, seed=SEED + 2 * i)) - np.log(resampled_medians(bottom, seed=SEED + 2 * i + 1))
            for i, (top, bottom) in enumerate(groups)
        ]
        return percentile_interval(value, np.exp(np.mean(logs, axis=0)))
    if len(pairs) < MINIMUM_REPEATS:
        return Estimate(value)
    return percentile_interval(value, np.exp(np.mean(np.log(ratios)[_resamples(len(pairs))], axis=1)))


def verdict(ratio: Estimate, *, better: Literal["higher", "lower"], margin: float = MARGIN) -> Verdict:
    """Judge a ratio of contender to baseline.

    `same` when the whole interval lies within the margin, even if it excludes 1: a real difference too small to
    matter. `better` or `worse` when the whole interval lies on one side of 1. Else, or without an interval, `unclear`.
    """
    if ratio.low is None or ratio.high is None:
        return "unclear"
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return "same"
    if ratio.low > 1:
        return "better" if better == "higher" else "worse"
    if ratio.high < 1:
        return "worse" if better == "higher" else "better"
    return "unclear"


def runs_needed(ratio: Estimate, repeats: int) -> str:
    """Say how many repeats would tell a ratio from 1, if the spread stays: an interval narrows with their root."""
    if ratio.low is None or ratio.high is None or repeats < MINIMUM_REPEATS:
        return f"at least {MINIMUM_REPEATS} repeats are needed"
    half_width, distance = np.log(ratio.high / ratio.low) / 2, abs(np.log(ratio.value))
    needed = repeats * (half_width / max(distance, np.log1p(MARGIN))) ** 2
    return f"about {max(repeats + 1, int(np.ceil(needed)))} repeats would settle it"


def block_bootstrap(series: ArrayLike, *, seed: int = SEED, resamples: int = RESAMPLES) -> Estimate:
    """Return the mean of one run's interval series with an interval that respects its correlation in time.

    Circular moving blocks of length n^(1/3) (Kuensch 1989; the rate that minimises the error of a variance): what one
    second does the next one often repeats, and resampling single intervals would make the mean look surer than it is.
    """
    values = np.asarray(series, dtype=np.float64)
    count = len(values)
    if count < 2 * MINIMUM_REPEATS:
        return Estimate(float(values.mean()) if count else float("nan"))
    length = max(1, round(count ** (1 / 3)))
    starts = np.random.default_rng(seed).integers(0, count, size=(resamples, -(-count // length)))
    indices = (starts[:, :, np.newaxis] + np.arange(length)) % count
    means = values[indices.reshape(resamples, -1)[:, :count]].mean(axis=1)
    return percentile_interval(float(values.mean()), means)


def slope(x: ArrayLike, y: ArrayLike) -> Estimate:
    """Return the slope of y over x by Theil and Sen (the median of all pairs' slopes), with a bootstrap interval.

    A single outlier among a handful of control runs does not turn it, as it would a least-squares line.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    value = _theil_sen(xs[np.newaxis, :], ys[np.newaxis, :])[0]
    if len(xs) < MINIMUM_REPEATS + 1:
        return Estimate(float(value))
    drawn = _resamples(len(xs), max(100, min(1000, 2_000_000 // len(xs) ** 2)))
    slopes = _theil_sen(xs[drawn], ys[drawn])
    return percentile_interval(float(value), slopes[~np.isnan(slopes)])


def _theil_sen(xs: Floats, ys: Floats) -> Floats:
    first, second = np.triu_indices(xs.shape[1], k=1)
    run = xs[:, second] - xs[:, first]
    rise = ys[:, second] - ys[:, first]
    slopes = np.divide(rise, run, out=np.full_like(rise, np.nan), where=run != 0)
    enough = ~np.isnan(slopes).all(axis=1)
    medians = np.full(len(xs), np.nan)
    medians[enough] = np.nanmedian(slopes[enough], axis=1)
    return medians
