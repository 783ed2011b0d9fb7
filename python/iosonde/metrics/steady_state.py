"""Steady state: whether a series of rounds has settled, since when, and what it fell from.

The rule is that of SNIA's Solid State Storage Performance Test Specification, stated there with a window of five
rounds: within the window the tracking variable spans at most 20 % of its mean, and the least-squares line through it
rises or falls by at most 10 % of its mean from the window's first round to its last. Two further values:
where the series dropped (`write_cliff`), and the confidence interval of the plateau's level (`plateau`).

Numbers in, numbers out: what a round is, and what is tracked, is decided by the caller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from iosonde.metrics.statistics import Estimate, Floats, series_interval

_ROUNDING = 1e-9
"""A bound is met when it is exceeded by no more than arithmetic does."""


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """When a window is steady."""

    window: int = 5
    """Rounds in it."""
    range: float = 0.20
    """Largest less smallest, as a share of the mean, at most."""
    slope: float = 0.10
    """Rise or fall of the fitted line over the window, as a share of the mean, at most."""
    min_length: int = 200_000_000
    """Shortest round, in nanoseconds."""
    min_written: float = 0.01
    """Share of the active range that each round of a run moves at least."""

    def __post_init__(self) -> None:
        assert self.window >= 2 and self.range > 0 and self.slope > 0, "a window has a range and a slope"

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Criteria:
        """Those that a case was made with (`Rounds.criteria`); SNIA's where it names none."""
        named = {"window": int, "range": float, "slope": float, "min_length": int, "min_written": float}
        given = {name: parameters.get(f"rounds.{name}") for name in named}
        return cls(**{name: named[name](value) for name, value in given.items() if value is not None})

    def has_enough(self, *, round_ns: float, moved_bytes: float, range_bytes: int | None) -> bool:
        """Whether a window that moved this many bytes is long enough to be judged."""
        least = self.window * self.min_written * (range_bytes or 0)
        return round_ns >= self.min_length and moved_bytes >= least


SNIA = Criteria()


@dataclass(frozen=True, kw_only=True)
class Window:
    """Consecutive rounds, and the result of the rule for them."""

    first: int
    """Number of the first round, from 1."""
    values: tuple[float, ...]
    mean: float
    slope: float
    """Of the least-squares line, per round."""
    intercept: float
    """Of the same line, at round 0 of the whole series."""
    criteria: Criteria

    @property
    def last(self) -> int:
        """Number of the last round, from 1."""
        return self.first + len(self.values) - 1

    @property
    def range(self) -> float:
        """Measured excursion of the data: largest less smallest."""
        return max(self.values) - min(self.values)

    @property
    def range_allowed(self) -> float:
        """The most that it may be."""
        return self.criteria.range * abs(self.mean)

    @property
    def drift(self) -> float:
        """Measured excursion of the fitted line, from the first round to the last, without its sign."""
        return abs(self.slope) * (len(self.values) - 1)

    @property
    def drift_allowed(self) -> float:
        """The most that it may be."""
        return self.criteria.slope * abs(self.mean)

    @property
    def range_holds(self) -> bool:
        """Whether the first criterion is met."""
        return self._within(self.range, self.range_allowed)

    @property
    def slope_holds(self) -> bool:
        """Whether the second criterion is met."""
        return self._within(self.drift, self.drift_allowed)

    @property
    def steady(self) -> bool:
        """Whether both criteria are met, by finite values of a load that made progress."""
        return all(map(math.isfinite, self.values)) and self.mean > 0 and self.range_holds and self.slope_holds

    @property
    def range_share(self) -> float:
        """Measured excursion as a share of the mean."""
        return self.range / self.mean if self.mean else math.inf

    @property
    def slope_share(self) -> float:
        """Excursion of the fitted line as a share of the mean."""
        return self.drift / self.mean if self.mean else math.inf

    @property
    def line(self) -> str:
        """The linear fit as a formula over the number of the round."""
        return f"y = {self.slope:.6g} x {'-' if self.intercept < 0 else '+'} {abs(self.intercept):.6g}"

    def _within(self, measured: float, allowed: float) -> bool:
        return measured <= allowed + _ROUNDING * abs(self.mean)


def window(values: ArrayLike, *, first: int = 1, criteria: Criteria = SNIA) -> Window:
    """Fit a line to consecutive rounds, of which the first has that number."""
    sample = np.asarray(values, dtype=np.float64)
    rounds = first + np.arange(len(sample))
    centred = rounds - rounds.mean()
    with np.errstate(invalid="ignore"):  # A value that is not finite makes the window not steady.
        slope = float(centred @ sample / (centred @ centred)) if len(sample) > 1 else 0.0
    mean = float(sample.mean())
    return Window(
        first=first,
        values=tuple(map(float, sample)),
        mean=mean,
        slope=slope,
        intercept=mean - slope * float(rounds.mean()),
        criteria=criteria,
    )


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """The result of the rule for a whole series."""

    rounds: int
    criteria: Criteria
    first: Window | None
    """The first steady window, also if the series left steady state after it; None if there is none."""
    measured: Window | None
    """The measurement window: the first one after which the series stayed steady, at the level of the last window, to
    the end. None if the last window is not steady."""
    latest: Window | None
    """The last window there is; None with too few rounds for one."""
    left: int | None
    """The round in which the series left the first steady window: the last of the first later window that is not
    steady, or that is at another level. None if it never left."""

    @property
    def achieved(self) -> bool:
        """Whether steady state was reached and held to the end."""
        return self.measured is not None

    @property
    def came_back(self) -> bool:
        """Whether it was left and reached again."""
        return self.measured is not None and self.measured is not self.first

    @property
    def lost(self) -> bool:
        """Whether it was reached once and does not hold at the end."""
        return self.first is not None and self.measured is None


def steady_state(values: Sequence[float] | Floats, *, criteria: Criteria = SNIA) -> SteadyState:
    """Apply the rule to every window of a series, one value per round, and check that it holds to the end.

    A slow decline can pass the rule in every window. So a window counts only if its mean, and those of all later
    windows, are within the allowed slope of the mean of the last window.
    """
    sample = np.asarray(values, dtype=np.float64)
    ends = range(criteria.window, len(sample) + 1)
    windows = [
        window(sample[end - criteria.window : end], first=end - criteria.window + 1, criteria=criteria) for end in ends
    ]
    first = next((each for each in windows if each.steady), None)
    held = _held(windows)
    measured = held[-1] if held else None
    later = [each for each in windows if first and each.last > first.last and measured is not first]
    return SteadyState(
        rounds=len(sample),
        criteria=criteria,
        first=first,
        measured=measured,
        latest=windows[-1] if windows else None,
        left=next((each.last for each in later if first and not (each.steady and _same_level(each, first))), None),
    )


def _held(windows: Sequence[Window]) -> list[Window]:
    """The windows, from the last one backwards, that are steady at the level of the last one."""
    if not windows:
        return []
    closing = windows[-1]
    backwards = reversed(windows)
    return list(itertools.takewhile(lambda each: each.steady and _same_level(each, closing), backwards))


def _same_level(one: Window, other: Window) -> bool:
    """Whether the means of two windows differ by no more than the allowed slope."""
    lower = min(abs(one.mean), abs(other.mean))
    return abs(one.mean - other.mean) <= (one.criteria.slope + _ROUNDING) * lower


def steady_windows(values: Sequence[float] | Floats, *, criteria: Criteria = SNIA) -> int:
    """Return how many consecutive windows up to the last one are steady at its level; 0 if the last is not steady."""
    sample = np.asarray(values, dtype=np.float64)
    ends = range(criteria.window, len(sample) + 1)
    return len(_held([window(sample[end - criteria.window : end], criteria=criteria) for end in ends]))


def held_window(
    series: Sequence[Sequence[float]],
    *,
    criteria: Criteria,
    hold: int = 0,
    moved_bytes: Callable[[int], float] = lambda index: 0.0,
    range_bytes: int | None = None,
) -> tuple[int, int] | None:
    """Return first and last round of the first window that is steady for every series and passes the closing check.

    The closing check: the windows that end in each of the `hold` rounds after it are steady too, at its level. The
    window counts only if its rounds moved enough of the active range (`Criteria.min_written`). `moved_bytes` returns
    the bytes of a round by its index, and is called only for windows that are steady.
    """
    count = min(map(len, series), default=0)
    for last in range(criteria.window, count - hold + 1):
        closing = [[_window_ending(values, end, criteria) for end in range(last, last + hold + 1)] for values in series]
        holds = all(each.steady and _same_level(each, windows[0]) for windows in closing for each in windows)
        if not holds:
            continue
        moved = sum(map(moved_bytes, range(last - criteria.window, last))) if criteria.min_written else 0.0
        if criteria.has_enough(round_ns=math.inf, moved_bytes=moved, range_bytes=range_bytes):
            return last - criteria.window + 1, last
    return None


def _window_ending(values: Sequence[float], last: int, criteria: Criteria) -> Window:
    return window(values[last - criteria.window : last], first=last - criteria.window + 1, criteria=criteria)


CLIFF = 0.8
"""A drop is a cliff when what follows is below so much of what was before: less is variation."""
_PENALTY = 3.0
"""Of a further change point, in units of variance x ln(n). The Bayesian information criterion takes 2, for a level and
a place; more is asked because neighbouring intervals resemble each other."""
_LONGEST = 2000
"""Longer series are thinned to this many points before change points are sought, which takes the square of that."""


@dataclass(frozen=True, kw_only=True)
class Cliff:
    """The largest lasting drop of a series."""

    index: int
    """The first value after it, from 0."""
    before: float
    """Mean level of the stretch before."""
    after: float
    """Mean level of the stretch after."""

    @property
    def fraction(self) -> float:
        """Remaining throughput, as a fraction."""
        return self.after / self.before


def write_cliff(values: Sequence[float] | Floats) -> Cliff | None:
    """Find the change point across which the level drops most; None where nothing drops by a fifth."""
    sample = np.asarray(values, dtype=np.float64)
    bounds = [0, *change_points(sample), len(sample)]
    levels = [float(sample[begin:end].mean()) for begin, end in itertools.pairwise(bounds) if end > begin]
    drops = [
        Cliff(index=bounds[place + 1], before=before, after=after)
        for place, (before, after) in enumerate(itertools.pairwise(levels))
        if before > 0
    ]
    deepest = min(drops, key=lambda each: each.fraction, default=None)
    return deepest if deepest and deepest.fraction < CLIFF else None


def change_points(values: Sequence[float] | Floats) -> list[int]:
    """Return where the level of a series changes: the first index of each stretch but the first.

    The best partition into stretches of constant level under a penalty for each (optimal partitioning, Jackson et al.
    2005), exact in the square of the length. Noise is estimated from the differences of neighbours, so that the changes
    sought do not count as noise.
    """
    sample = np.asarray(values, dtype=np.float64)
    thin = max(1, -(-len(sample) // _LONGEST))
    if thin > 1:
        usable = len(sample) // thin * thin
        return [thin * place for place in change_points(sample[:usable].reshape(-1, thin).mean(axis=1))]
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


def plateau(values: Sequence[float] | Floats) -> Estimate:
    """Return the mean level of a stretch with an interval that respects its correlation in time."""
    return series_interval(values)
