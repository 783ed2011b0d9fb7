"""Change points of a series: where its level changes, which of them are abrupt, and the write cliff.

`change_points` partitions a series into segments of constant level. A decline without a step has change points too, so
`steps` returns only those that are steps beside the trend around them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iosonde.metrics.distributions import t_quantile
from iosonde.metrics.settling import settling
from iosonde.metrics.statistics import Floats

CLIFF = 0.8
"""A drop is a cliff when what follows is below so much of what was before: less is variation."""
PLATEAU = 5
"""Values that a level before or after a cliff has at least."""
SETTLED = 0.9
"""A level after a cliff has settled when no later level is below so much of it."""
_PENALTY = 3.0
"""Of a further change point, in units of variance x ln(n). The Bayesian information criterion takes 2, for a level and
a place; more is asked because neighbouring intervals resemble each other."""
_LONGEST = 2000
"""Longer series are thinned to this many points before change points are sought, which takes the square of that."""
STEP = 0.03
"""Smallest step, as a share of the smaller level."""
_REACH = 25
"""Values on each side of a change point beside which it must be a step."""
_CORRELATED = 0.9
"""Largest correlation of noise beside a step that is estimated."""
_CERTAIN = 0.9995
"""One-sided confidence of a step, beyond what finding its place has shown."""


def change_points(values: Sequence[float] | Floats) -> list[int]:
    """Return where the level of a series changes: the first index of each stretch but the first.

    The best partition into stretches of constant level under a penalty for each (optimal partitioning, Jackson et al.
    2005), exact in the square of the length. Noise is estimated from the differences of neighbours, so that the changes
    sought do not count as noise.
    """
    sample = np.asarray(values, dtype=np.float64)
    thin = _thinning(sample)
    if thin > 1:
        return [thin * place for place in change_points(_thinned(sample, thin))]
    count = len(sample)
    if count < 4:
        return []
    variance = _noise(sample) ** 2
    penalty = _PENALTY * max(variance, (1e-6 * max(abs(sample.mean()), 1e-300)) ** 2) * math.log(count)
    sums = np.concatenate([[0.0], np.cumsum(sample - sample.mean())])
    squares = np.concatenate([[0.0], np.cumsum((sample - sample.mean()) ** 2)])
    best, previous = np.zeros(count + 1), np.zeros(count + 1, dtype=int)
    best[0] = -penalty
    for end in range(1, count + 1):
        begin = np.arange(end)
        cost = squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin)
        total = best[:end] + cost + penalty
        previous[end] = int(np.argmin(total))
        best[end] = total[previous[end]]
    return _traced(previous, count)


def steps(values: Sequence[float] | Floats) -> list[int]:
    """Return the change points that are abrupt: the first index after each.

    Backward elimination: each change point is a step beside a parabola through its neighbourhood and the other change
    points there. The least significant one is dropped until all that remain are significant and large enough.
    """
    sample = np.asarray(values, dtype=np.float64)
    thin = _thinning(sample)
    if thin > 1:
        return [thin * place for place in steps(_thinned(sample, thin))]
    points = change_points(sample)
    found = _large(sample, points) if points else []
    while found:
        significances = [_significance(sample, at, found) for at in found]
        least = int(np.argmin(significances))
        if significances[least] >= 1:
            return found
        del found[least]
    return []


def _large(sample: Floats, points: list[int]) -> list[int]:
    """Change points between segments whose levels differ by at least `STEP`."""
    bounds = [0, *points, len(sample)]
    levels = [float(sample[begin:end].mean()) for begin, end in itertools.pairwise(bounds)]
    pairs = zip(points, itertools.pairwise(levels), strict=True)
    return [at for at, (before, after) in pairs if abs(after - before) >= STEP * min(abs(before), abs(after))]


def _significance(sample: Floats, at: int, points: Sequence[int]) -> float:
    """Return the height of a step beside a parabola, as a multiple of what it must be; 0 where that is unknown."""
    first, last = max(0, at - _REACH), min(len(sample), at + _REACH)
    near = [each for each in points if first + 1 < each < last - 1]
    y, x = sample[first:last], np.linspace(-1, 1, last - first)
    columns = np.stack([*(x**power for power in range(3)), *(x > x[each - first - 1] for each in near)], axis=1)
    count, parameters = columns.shape
    if at not in near or count <= parameters:
        return 0.0
    inverse = np.linalg.pinv(columns.T @ columns)
    fitted = inverse @ columns.T @ y
    residual = y - columns @ fitted
    place = 3 + near.index(at)
    height = abs(float(fitted[place]))
    total = float(residual @ residual)
    correlation = _upper_correlation(float(residual[1:] @ residual[:-1]) / total, count, parameters) if total else 0.0
    variance = total / (count - parameters) * (1 + correlation) / (1 - correlation)
    needed = t_quantile(_CERTAIN, count - parameters) * math.sqrt(variance * inverse[place, place])
    least = STEP * float(np.abs(y[at - first - 1 : at - first + 1]).min())
    return height / max(needed, least, 1e-300)


def _upper_correlation(found: float, count: int, parameters: int) -> float:
    """Return the lag-1 correlation of noise from that of a fit's residual, raised by a standard error.

    Correlated noise has steps of its own, and what was fitted hides correlation: (1 + 3r) / n behind a mean and
    (2 + 4r) / n behind a line (Kendall 1954).
    """
    unbiased = found + (parameters + (parameters + 2) * found) / count
    raised = unbiased + math.sqrt(max(0.05, 1 - unbiased**2) / count)
    return min(_CORRELATED, max(0.0, raised))


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """The largest lasting drop of a series."""

    index: int
    """The first value after the plateau, from 0."""
    before: float
    """Mean level of the plateau before."""
    after: float
    """Level that follows: mean of the last quarter since it was reached."""
    settled: bool
    """True if the level after it has settled."""

    @property
    def fraction(self) -> float:
        """Remaining throughput, as a fraction."""
        return self.after / self.before


def write_cliff(values: Sequence[float] | Floats) -> Cliff | None:
    """Find the plateau after which the level drops most and stays low; None where nothing drops by a fifth.

    Segments of fewer than `PLATEAU` values are transitions between others. The level after is that of the end, from the
    first level on that no later one is much below; it has settled if the end agrees with the middle of that time.
    """
    sample = np.asarray(values, dtype=np.float64)
    segments = _segments(sample)
    drops = [
        (float(sample[end : end + PLATEAU].mean()) / level, end, level)
        for begin, end, level in segments
        if end - begin >= PLATEAU and level > 0 and len(sample) - end >= PLATEAU and _is_flat(sample[begin:end])
    ]
    fraction, index, before = min(drops, default=(1.0, 0, 0.0))
    if fraction >= CLIFF:
        return None
    following = [each for each in segments if each[0] >= index]
    levels = [each for each in following if each[1] - each[0] >= PLATEAU] or following
    lowest = np.minimum.accumulate([level for *_, level in levels][::-1])[::-1]
    reached = next(each[0] for each, low in zip(levels, lowest, strict=True) if low >= SETTLED * each[2])
    after = settling(sample[reached:], window=PLATEAU)
    if after.level >= CLIFF * before:
        return None
    return Cliff(index=index, before=before, after=after.level, settled=after.agrees and not after.trend)


def _segments(sample: Floats) -> list[tuple[int, int, float]]:
    """Begin, end and level of the segments between change points; neighbours whose levels differ little are one."""
    found: list[tuple[int, int, float]] = []
    for begin, end in itertools.pairwise([0, *change_points(sample), len(sample)]):
        if end == begin:
            continue
        level = float(sample[begin:end].mean())
        if found and abs(level - found[-1][2]) <= (1 - SETTLED) * found[-1][2]:
            begin = found.pop()[0]
        found.append((begin, end, float(sample[begin:end].mean())))
    return found


def _is_flat(sample: Floats) -> bool:
    """Return whether the line through a level falls by less than the step to a lower level would."""
    slope = float(np.polyfit(np.arange(len(sample)), sample, 1)[0])
    return slope * (len(sample) - 1) > -(1 - SETTLED) * float(sample.mean())


def _thinning(sample: Floats) -> int:
    return max(1, -(-len(sample) // _LONGEST))


def _thinned(sample: Floats, thin: int) -> Floats:
    means: Floats = sample[: len(sample) // thin * thin].reshape(-1, thin).mean(axis=1)
    return means


def _noise(sample: Floats) -> float:
    """Standard deviation by the median difference of neighbours: a few jumps do not move it."""
    differences = np.abs(np.diff(sample))
    return float(np.median(differences)) / (0.6744897501960817 * math.sqrt(2))


def _traced(previous: np.ndarray[tuple[int], np.dtype[np.int64]], end: int) -> list[int]:
    points: list[int] = []
    while previous[end] > 0:
        end = int(previous[end])
        points.append(end)
    return points[::-1]
