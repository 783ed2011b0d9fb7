"""Change points: sessions at which the mean of a metric changes.

Candidates come from PELT (Killick, Fearnhead and Eckley 2012, "Optimal detection of changepoints with a linear
computational cost"), as implemented in `ruptures` (Truong, Oudre and Vayatis 2020), for changes of the mean of the
logarithms: cost `l2`, penalty `PENALTY` x ln n x variance. The variance is that of differences of consecutive sessions,
estimated by their median, which a few changes do not move.

A candidate is kept if Student's t test of the means of its two segments, with the pooled variance of all segments, is
significant at `LEVEL` after Bonferroni's correction for the n - 1 places where a change could be. The least significant
candidate is removed until all are. Two further steps keep the rate of false alarms where noise is not normal and
independent: outliers are first moved to bounds around the median of their neighbours (Hampel's identifier), and the
variance is inflated by the correlation between consecutive residuals. `bench/change_points.py` measures false alarms
and detection of the whole procedure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iosonde.errors import IosondeError
from iosonde.metrics.distributions import t_quantile, t_tail

Floats = NDArray[np.float64]

SEGMENT = 3
"""Fewest sessions at one level: a single outlier, or two, is no change."""
PENALTY = 5.0
LEVEL = 0.001
"""Probability of any change point in a series that has none, for independent normal noise."""
FEWEST = 2 * SEGMENT
CONFIDENCE = 0.95
OUTLIER = 3.0
"""Standard deviations from the median of the neighbours beyond which a value is moved to that bound."""
MOST_CORRELATION = 0.9
_TO_DEVIATION = 0.6744897501960817 * math.sqrt(2)
"""Median absolute difference of two normal values, in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The level of a series changed."""

    place: int
    """Position of the first value of the new level."""
    change: float
    """New level over old level, less 1."""
    low: float
    high: float
    """95 % confidence interval of the change, given its place."""
    p_value: float
    """Corrected for the number of places."""


def changes(logs: Sequence[float] | Floats) -> list[Change]:
    """Return the change points of a series of logarithms, in their order."""
    if len(logs) < FEWEST:
        return []
    values = _without_outliers(np.asarray(logs, dtype=np.float64))
    kept = _candidates(values)
    while kept:
        found = [_tested(values, kept, number) for number in range(len(kept))]
        weakest = max(range(len(found)), key=lambda number: found[number].p_value)
        if found[weakest].p_value <= LEVEL:
            return found
        kept = [place for number, place in enumerate(kept) if number != weakest]
    return []


def _deviation(values: Floats) -> float:
    return float(np.median(np.abs(np.diff(values)))) / _TO_DEVIATION


def _without_outliers(values: Floats) -> Floats:
    """Move values that are far from the median of their neighbours to the bounds; a new level stays one."""
    width = 2 * SEGMENT - 1
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    places = np.clip(np.arange(len(values)) - width // 2, 0, len(windows) - 1)
    medians = np.median(windows, axis=1)[places]
    reach = OUTLIER * _deviation(values)
    return np.clip(values, medians - reach, medians + reach) if reach else values


def _candidates(values: Floats) -> list[int]:
    try:
        from ruptures import KernelCPD
    except ImportError:
        raise IosondeError(
            "cannot look for change points: the package `ruptures` is not installed",
            hint="install it with `pip install ruptures`; it is available up to Python 3.13",
        ) from None
    deviation = _deviation(values) or float(values.std()) or 1.0
    scaled = (values - values.mean()) / deviation
    ends = KernelCPD(kernel="linear", min_size=SEGMENT).fit(scaled).predict(pen=PENALTY * math.log(len(values)))
    return [int(end) for end in ends[:-1]]


def _inflation(residuals: Floats) -> float:
    """Return by how much correlation between consecutive sessions inflates the variance of a mean: AR(1)."""
    squares = float((residuals**2).sum())
    correlation = float((residuals[1:] * residuals[:-1]).sum()) / squares if squares else 0.0
    bounded = min(max(correlation, 0.0), MOST_CORRELATION)
    return (1 + bounded) / (1 - bounded)


def _tested(values: Floats, places: Sequence[int], number: int) -> Change:
    """Test one of the candidates, given the others."""
    segments = np.split(values, places)
    before, after = segments[number], segments[number + 1]
    degrees = len(values) - len(segments)
    residuals = np.concatenate([each - each.mean() for each in segments])
    pooled = float((residuals**2).sum()) / degrees
    error = math.sqrt(pooled * _inflation(residuals) * (1 / len(before) + 1 / len(after)))
    difference = float(after.mean() - before.mean())
    score = abs(difference) / error if error else math.inf
    margin = error * t_quantile((1 + CONFIDENCE) / 2, degrees)
    return Change(
        place=places[number],
        change=math.expm1(difference),
        low=math.expm1(difference - margin),
        high=math.expm1(difference + margin),
        p_value=min(1.0, 2 * t_tail(score, degrees) * (len(values) - 1)),
    )
