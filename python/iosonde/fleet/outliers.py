"""Robust tests of drives against the others of their group, exact for small groups of normally distributed values.

A drive is compared with the median of the others, in units of their scale: the k-th smallest difference of all pairs
(Qn, Rousseeuw and Croux 1993), which up to half of the drives cannot distort. Drives that are tested do not contribute
to what they are tested against. Median and scale of few values vary, so the probability of a deviation is its mean over
simulated groups of the same size: given median and scale of such a group, the tail of the normal distribution is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from iosonde.comparison.sessions import quantile, satterthwaite
from iosonde.metrics.statistics import CONFIDENCE, SEED

Floats = NDArray[np.float64]

MINIMUM_OTHERS = 3
MOST_OTHERS = 300
"""A larger group is represented by so many of its drives, chosen at random with a constant seed."""
_PAIRS = 10_000_000
_SMALLEST_SCALE = 1e-6
"""Relative: values that are all equal have a scale of 0."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The drives that one or more others are compared with."""

    count: int
    center: float
    """Median of the logarithms."""
    scale: float
    """Qn without its constant."""

    @property
    def deviation(self) -> float:
        """Standard deviation of one drive, if values are normally distributed."""
        return self.scale / _null(self.count).scale


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """Difference of one or more drives from a reference, of logarithms."""

    difference: float
    p_value: float
    half_width: float | None
    """Of the 95 % confidence interval; None where the repeats of a single drive are unknown."""

    @property
    def ratio(self) -> float:
        return math.exp(self.difference)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the confidence interval of the ratio."""
        if self.half_width is None:
            return None
        return math.exp(self.difference - self.half_width), math.exp(self.difference + self.half_width)


def reference(values: Sequence[float]) -> Reference:
    """Median and scale of the logarithms of drives; at least `MINIMUM_OTHERS`."""
    sample = np.asarray(values, dtype=float)
    if len(sample) > MOST_OTHERS:
        sample = np.random.default_rng(SEED).choice(sample, MOST_OTHERS, replace=False)
    scale = max(float(_scales(sample[np.newaxis, :])[0]), _SMALLEST_SCALE)
    return Reference(count=len(sample), center=float(np.median(sample)), scale=scale)


def drive_deviation(value: float, others: Reference, *, run_variance: float, runs: int) -> Deviation:
    """Compare one drive with the others of its group; the interval has its repeats and the median of the others."""
    difference = value - others.center
    own = run_variance / runs if runs > 1 else None
    return Deviation(
        difference=difference,
        p_value=_tail(difference / others.scale, others.count, 1),
        half_width=None if own is None else _half_width(own, runs - 1, others),
    )


def group_deviation(values: Sequence[float], others: Reference) -> Deviation:
    """Compare the median of a group of drives with another group, given that both vary alike."""
    difference = float(np.median(values)) - others.center
    own = others.deviation**2 * _median_variance(len(values))
    return Deviation(
        difference=difference,
        p_value=_tail(difference / others.scale, others.count, len(values)),
        half_width=_half_width(own, others.count - 1, others),
    )


def _half_width(own: float, degrees: int, others: Reference) -> float:
    """Half of the interval of a difference from the median of others; Satterthwaite's degrees of freedom."""
    of_median = others.deviation**2 * _median_variance(others.count)
    freedom = satterthwaite((own, degrees), (of_median, others.count - 1))
    return quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(own + of_median)


def excess_p_values(counts: Sequence[int], expected: Sequence[float]) -> list[float]:
    """Return, of each drive, the probability of so many events or more, if all drives have the same rate.

    `expected` are the events of each drive at the rate of all together. Given their number, those of one drive are
    binomial, whatever the rate is (Przyborowski and Wilenski 1940). Events that vary more than in a Poisson process, as
    the drives besides the tested one show it, count as fewer.
    """
    from scipy.special import bdtrc

    own, means = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    total = own.sum()
    found = []
    for place in range(len(own)):
        share = means[place] / total if total else 1.0
        others = np.delete(means, place) * ((total - own[place]) / max(total - means[place], 1e-12))
        squares = (np.delete(own, place) - others) ** 2 / np.maximum(others, 1e-12)
        dispersion = max(1.0, float(np.median(squares)) / _MEDIAN_SQUARE)
        several = math.floor(own[place] / dispersion)
        trials = several + math.ceil((total - own[place]) / dispersion)
        found.append(float(bdtrc(several - 1, trials, share)) if several else 1.0)
    return found


_MEDIAN_SQUARE = 0.4549
"""Median of the square of a standard normal value."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that with probability `level` no comparison below `level` is a false one (Holm 1979)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


@dataclass(frozen=True)
class _Null:
    """Medians and scales of simulated groups of normal values with a standard deviation of 1."""

    medians: Floats
    scales: Floats

    @property
    def scale(self) -> float:
        return float(self.scales.mean())


@lru_cache(maxsize=512)
def _null(count: int) -> _Null:
    groups = int(np.clip(_PAIRS / (count * (count - 1) / 2), 1000, 20_000))
    random = np.random.default_rng([SEED, count])
    parts = [random.standard_normal((min(200, groups - start), count)) for start in range(0, groups, 200)]
    return _Null(
        np.concatenate([np.median(part, axis=1) for part in parts]), np.concatenate([_scales(part) for part in parts])
    )


def _median_variance(count: int) -> float:
    """Variance of the median of so many normal values."""
    return 1.0 if count == 1 else float(_null(min(count, MOST_OTHERS)).medians.var())


def _tail(scaled: float, count: int, drives: int) -> float:
    """Probability that the median of so many drives is as far from that of `count` others, in units of their scale."""
    from scipy.special import ndtr

    null, error = _null(count), math.sqrt(_median_variance(drives))
    limits = abs(scaled) * null.scales
    return float((ndtr((null.medians - limits) / error) + ndtr((-null.medians - limits) / error)).mean())


def _scales(groups: Floats) -> Floats:
    """Qn of each row, without its constant."""
    count = groups.shape[1]
    first, second = np.triu_indices(count, k=1)
    half = count // 2 + 1
    rank = half * (half - 1) // 2 - 1
    return np.asarray(np.partition(np.abs(groups[:, first] - groups[:, second]), rank, axis=1)[:, rank])
