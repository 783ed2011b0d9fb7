"""Settling: test whether the level at the end of a series is its final level.

A window of a few rounds cannot tell a slow decline from a level: within five rounds little happens. So the level at
half of the elapsed time is compared with that of the last quarter, and a change across the second half is tested. Where
it continues, an exponential through the last third gives the level that it approaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iosonde.metrics.distributions import t_quantile
from iosonde.metrics.statistics import CONFIDENCE, Estimate, Floats

AGREEMENT = 0.03
"""Two levels agree when they differ by no more than so much, and what noise explains."""
_NOISE = 2.0
"""Standard errors of a difference that noise explains."""
_SIGNIFICANCE = 0.99
"""Confidence with which a line is a trend."""
_ONE_SIDED = 0.90
"""The same of a two-sided interval whose upper end is exceeded with 5 %."""
_LINE = 4
"""Values that a line needs."""
_SELECTED = 0.999
"""The same of a curve, whose time constant was chosen."""
_OUTLYING = 0.999
"""Confidence with which the last value is not one of the others."""
_SEEN = 0.25
"""Share of the curve's change that the line through the second half must show."""
RATES = np.geomspace(0.1, 30, 60)
"""Decays across a series that are tried."""
_GROWTH = 5
"""Faster growth is not tried."""
_CORRELATED = 0.9
"""Largest correlation of noise that is estimated: above it, the remainder of a curve looks like noise."""
_EXTRAPOLATED = 8
"""Values that an extrapolation needs."""
FINE_RATES = np.geomspace(0.1, 30, 240)
_USEFUL = 0.25
"""Largest half-width of an extrapolated level, as a share of it."""

Trend = Literal["", "falling", "rising"]
EXTRAPOLATION = "exponential through the last third"


@dataclass(frozen=True, kw_only=True)
class Settling:
    """The level of a series at its end, and at half of its time."""

    level: float
    """Mean of the last quarter."""
    first: int
    """Index of its first value."""
    middle: int
    """Index of the first of as many values in the middle."""
    agrees: bool
    """True if the level at half of the time, that of the last values, and the last value agree with the level."""
    trend: Trend
    """Direction in which the second half changes, by more than `AGREEMENT` and more than noise does."""
    drift_below: float
    """Change of the level across the second half that is excluded, as a share of it: the 95 % bound of a line."""


def settling(sample: Floats, *, window: int) -> Settling:
    """Compare the end of a series with its middle; `window` is the number of last values that must agree with both."""
    count = len(sample)
    quarter = min(count, max(2, math.ceil(count / 4)))
    middle = (count - quarter) // 2
    level = float(sample[-quarter:].mean())
    halfway, last = float(sample[middle : middle + quarter].mean()), float(sample[-window:].mean())
    noise = math.sqrt(float((np.diff(sample) ** 2).mean()) / 2) if count > 1 else 0.0
    allowed = [
        AGREEMENT * abs(level) + _NOISE * noise * math.sqrt(share)
        for share in (2 / quarter, abs(1 / min(window, count) - 1 / quarter))
    ]
    agrees = abs(halfway - level) <= allowed[0]
    half = sample[count // 2 :]
    change, error, freedom = _line(half)
    excluded = abs(change) + _quantile(freedom, CONFIDENCE) * error
    return Settling(
        level=level,
        first=count - quarter,
        middle=middle,
        agrees=agrees and abs(last - level) <= allowed[1] and not _ends_apart(sample),
        trend=_trend(sample, level) or ("" if agrees else _monotone(half)),
        drift_below=excluded / abs(level) if level else math.inf,
    )


def _ends_apart(sample: Floats) -> bool:
    """Return True if the last value is not one of the others: it may be the first of another level."""
    others = sample[:-1]
    apart = abs(float(sample[-1] - others.mean())) if len(others) > 1 else 0.0
    noise = float(others.std(ddof=1)) * math.sqrt(1 + 1 / len(others)) if apart else 0.0
    return apart > max(AGREEMENT * abs(float(others.mean())), _quantile(len(others) - 1, _OUTLYING) * noise)


def _monotone(half: Floats) -> Trend:
    """Direction of the eighths of a series in its second half, if it is the same throughout."""
    if len(half) < 4:
        return ""
    changes = np.diff([float(eighth.mean()) for eighth in np.array_split(half, 4)])
    return "falling" if (changes < 0).all() else "rising" if (changes > 0).all() else ""


def _trend(sample: Floats, level: float) -> Trend:
    """Direction of a significant change across the second half of a series, by a line or by the curve of all values."""
    half = sample[len(sample) // 2 :]
    slope, error, freedom = _line(half)
    line, curve = (slope, abs(slope) > _quantile(freedom, _SIGNIFICANCE) * error), _change_of_curve(sample)
    # A curve that misses a fast start changes where the series does not.
    changes = [line, (curve[0], curve[1] and line[0] / curve[0] >= _SEEN)]
    significant = [change for change, is_significant in changes if is_significant]
    largest = max(significant, key=abs, default=0.0)
    if abs(largest) <= AGREEMENT * abs(level):
        return ""
    return "falling" if largest < 0 else "rising"


def drift(sample: Floats) -> tuple[Trend, float]:
    """Return how a line through all values changes, and the largest change per value that it does not exclude.

    The first is a direction only if it is significant and above `AGREEMENT`, the second a one-sided bound of 95 %.
    """
    change, error, freedom = _line(sample)
    bound = (abs(change) + _quantile(freedom, _ONE_SIDED) * error) / max(1, len(sample) - 1)
    if abs(change) <= max(_quantile(freedom, _SIGNIFICANCE) * error, AGREEMENT * abs(float(sample.mean()))):
        return "", bound
    return "falling" if change < 0 else "rising", bound


def _line(sample: Floats) -> tuple[float, float, float]:
    """Return how much the line through some values changes across them, its standard error and degrees of freedom."""
    count = len(sample)
    if count < _LINE:
        return 0.0, math.inf, 1.0
    x = np.arange(count) - (count - 1) / 2
    slope = float(x @ sample / (x @ x))
    variance, effective = _noise_of(sample - sample.mean() - slope * x, 2)
    error = math.sqrt(variance * count / effective / float(x @ x))
    return slope * (count - 1), error * (count - 1), effective - 2


def _change_of_curve(sample: Floats) -> tuple[float, bool]:
    """Return how much the exponential through all values changes across their second half, and if it is significant."""
    count = len(sample)
    if count < _EXTRAPOLATED:
        return 0.0, False
    x = np.linspace(0, 1, count)
    decays = [np.exp(-rate * x) for rate in (*RATES, *-RATES[RATES < _GROWTH])]
    best = min(decays, key=lambda decay: _exponential(sample, decay)[1])
    variance, effective = _noise_of(_exponential(sample, best)[2], 3)
    centred = best - best.mean()
    spread = float(centred @ centred)
    amplitude = float(centred @ sample) / spread
    error = math.sqrt(variance * count / effective / spread)
    change = amplitude * float(best[-1] - best[count // 2])
    return change, abs(amplitude) > _quantile(effective - 3, _SELECTED) * error


def _quantile(freedom: float, confidence: float) -> float:
    return t_quantile((1 + confidence) / 2, max(1.0, freedom))


def _noise_of(residual: Floats, parameters: int) -> tuple[float, float]:
    """Return the variance about a fit, and the number of independent values whose mean is as precise."""
    total, count = float((residual**2).sum()), len(residual)
    if total == 0:
        return 0.0, float(count)
    correlation = float(residual[1:] @ residual[:-1]) / total
    correlation = min(_CORRELATED, max(0.0, correlation + (1 + 3 * correlation) / count))
    return total / max(1, count - parameters), count * (1 - correlation) / (1 + correlation)


def extrapolated(sample: Floats, *, last: int) -> Estimate | None:
    """Return the level that a series approaches, by an exponential through so many last values.

    The interval has every level for which some rate fits nearly as well as the best one (profile likelihood). It
    assumes a single exponential: it misses the end of a decay with a second, slower rate. None where a line fits nearly
    as well too, because it approaches no level.
    """
    third = sample[-max(_EXTRAPOLATED, last) :]
    count = len(third)
    if count < _EXTRAPOLATED:
        return None
    x = np.linspace(0, 1, count)
    fits = [_exponential(third, np.exp(-rate * x)) for rate in FINE_RATES]
    level, least, residual = min(fits, key=lambda fit: fit[1])
    variance, effective = _noise_of(residual, 3)
    unit = variance * count / effective
    excess = np.array([total for _, total, _ in fits]) - least
    # Noise decides too whether a line is excluded, so the levels are those of the same confidence: with 95 %, half of
    # the intervals missed the end of decays that are seldom distinguished from a line.
    spare = _quantile(effective - 3, _SELECTED) ** 2 * unit - excess
    if spare[0] >= 0 or level < 0 <= sample.min():
        return None
    reached = [
        each + sign * math.sqrt(room * _level_variance(np.exp(-rate * x)))
        for (each, *_), room, rate in zip(fits, spare, FINE_RATES, strict=True)
        for sign in (-1, 1)
        if room >= 0
    ]
    low, high = min(reached, default=level), max(reached, default=level)
    if sample.min() >= 0:  # A rate or a latency approaches no level below 0.
        low = max(0.0, low)
    if high - low > 2 * _USEFUL * abs(level):
        return None
    return Estimate(level, low, high, EXTRAPOLATION, count)


def _level_variance(decay: Floats) -> float:
    """Return the variance of the level that is fitted with a decay of a known rate, for noise of variance 1."""
    centred = decay - decay.mean()
    return 1 / len(decay) + float(decay.mean() ** 2 / (centred @ centred))


def _exponential(sample: Floats, decay: Floats) -> tuple[float, float, Floats]:
    """Return level, sum of squares and residual of the best level and amplitude for a decay."""
    centred = decay - decay.mean()
    amplitude = float(centred @ sample) / float(centred @ centred)
    level = float(sample.mean()) - amplitude * float(decay.mean())
    residual: Floats = sample - level - amplitude * decay
    return level, float(residual @ residual), residual
