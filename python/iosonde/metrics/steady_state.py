"""Steady state: detection in a series of rounds, its start, and the level before it.

The criterion is that of SNIA's Solid State Storage Performance Test Specification, stated there with a window of five
rounds: within the window the tracking variable spans at most 20 % of its mean, and the least-squares line through it
rises or falls by at most 10 % of its mean from the window's first round to its last. Slow declines meet it too. So a
series is called steady only if its level lasts as well (`settling`), and if there are enough rounds to exclude a drift
of `DRIFT` a round: with 1 % noise, no other condition separates a fall of 0.5 % a round from a level in ten rounds.

Numbers in, numbers out: what a round is, and what is tracked, is decided by the caller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from iosonde.metrics.change_points import steps
from iosonde.metrics.settling import AGREEMENT, Settling, Trend, drift, extrapolated, settling
from iosonde.metrics.statistics import Estimate, Floats

_ROUNDING = 1e-9
"""A bound is met when it is exceeded by no more than arithmetic does."""
DRIFT = 0.005
"""Change per round, as a share of the level, that the rounds of a steady series exclude."""


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """Criteria of a steady window."""

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

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Criteria:
        """Those that a case was made with (`Rounds.criteria`); SNIA's where it names none."""
        named = {"window": int, "range": float, "slope": float, "min_length": int, "min_written": float}
        given = {name: parameters.get(f"rounds.{name}") for name in named}
        return cls(**{name: named[name](value) for name, value in given.items() if value is not None})

    def has_enough(self, *, round_ns: float, moved_bytes: float, range_bytes: int | None) -> bool:
        """Return True if the window suffices: rounds of `min_length`, which move `min_written` of the range each."""
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
    def steady(self) -> bool:
        """True if both criteria are met, by finite values of a load that made progress."""
        rounding = _ROUNDING * abs(self.mean)
        is_met = self.range <= self.range_allowed + rounding and self.drift <= self.drift_allowed + rounding
        return all(map(math.isfinite, self.values)) and self.mean > 0 and is_met

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
    """The result for a whole series: SNIA's criterion, and whether the level lasts."""

    rounds: int
    criteria: Criteria
    first: Window | None
    """The first window that meets the criterion, also if the series left that level later; None if there is none."""
    measured: Window | None
    """The first window that meets the criterion at the level of the end, since the last step. None if not steady."""
    latest: Window | None
    """The last window there is; None with too few rounds for one."""
    since: int
    """First round after the last step, from 1."""
    settling: Settling | None
    """Level at the end and halfway, since the last step; None with fewer rounds than a window there."""
    trend: Trend
    """Direction in which the series still changes at its end."""
    hidden: float | None
    """Drift per round that noise may hide, as a share, if that alone keeps the series from being steady."""
    earlier: Level | None
    """The last level before it; None if there was none."""
    forecast: Estimate | None
    """Level that a trend approaches; None without a trend, or if no level is in sight."""

    @property
    def achieved(self) -> bool:
        """True if steady state was reached and held to the end."""
        return self.measured is not None

    @property
    def level(self) -> float | None:
        """Mean of the last quarter since the last step, if that is steady."""
        return self.settling.level if self.settling and self.measured else None

    @property
    def drift_below(self) -> float | None:
        """Change across the second half since the last step that is excluded, as a share, if that is steady."""
        found = self.settling.drift_below if self.settling and self.measured else math.inf
        return found if math.isfinite(found) else None

    @property
    def quarter(self) -> tuple[int, int] | None:
        """First and last round of the last quarter since the last step, if that is steady."""
        return (self.since + self.settling.first, self.rounds) if self.settling and self.measured else None

    @property
    def middle(self) -> int:
        """First round of the levels that are compared: those around half of the time since the last step."""
        return self.since + (self.settling.middle if self.settling else 0)

    @property
    def left(self) -> int | None:
        """The last round of an earlier level. None if there was none."""
        return self.earlier.last if self.earlier else None

    @property
    def lost(self) -> bool:
        """Return True if a level was left by a step, and none is steady at the end."""
        return self.earlier is not None and self.measured is None and not self.trend


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level between two steps of a series."""

    first: int
    last: int
    """First and last round, from 1."""
    window: Window
    """The first window in it that meets the criterion."""
    mean: float


def steady_state(values: Sequence[float] | Floats, *, criteria: Criteria = SNIA) -> SteadyState:
    """Apply the rule to every window of a series, one value per round, and check that the level lasts to the end.

    A slow decline can pass the rule in every window. So the series is steady only if, since its last step, the level at
    half of the time agrees with that of the end, nothing shows a trend, at least half of the windows in the second half
    meet the criterion, and the rounds since the first window at that level exclude a drift of `DRIFT` per round.
    """
    sample = np.asarray(values, dtype=np.float64)
    windows = [_window_ending(sample, end, criteria) for end in range(criteria.window, len(sample) + 1)]
    known = np.flatnonzero(np.isfinite(sample))
    bounds = [0, *(int(known[at]) for at in steps(sample[known])), len(sample)]
    stretch = sample[bounds[-2] :]
    finite = np.isfinite(stretch)
    places = np.flatnonzero(finite)
    found = settling(stretch[finite], window=criteria.window) if len(places) >= criteria.window else None
    inside = [each for each in windows if each.first > bounds[-2]]
    at_level = (each for each in inside if found and each.steady and _same_level(each.mean, found.level, criteria))
    measured = next(at_level, None)
    lasts = found is not None and found.agrees and not found.trend and _enough_hold(inside)
    hidden, trend = None, found.trend if found else ""
    if found and measured and lasts:
        hidden, trend = _hidden(sample, measured.first - 1, found.level, late=len(stretch) // 2)
    level = found.level if found else float(np.nanmean(stretch)) if finite.any() else math.nan
    return SteadyState(
        rounds=len(sample),
        criteria=criteria,
        first=next((each for each in windows if each.steady), None),
        measured=measured if lasts and hidden is None else None,
        latest=windows[-1] if windows else None,
        since=bounds[-2] + 1,
        settling=found and replace(found, first=int(places[found.first]), middle=int(places[found.middle])),
        trend=trend,
        hidden=None if trend else hidden,
        earlier=_earlier(sample, bounds, windows, level),
        forecast=extrapolated(stretch[finite], last=len(sample) // 3) if trend else None,
    )


def _hidden(sample: Floats, begin: int, level: float, *, late: int) -> tuple[float | None, Trend]:
    """Return the drift per round that the rounds since `begin` may hide, as a share; None if they exclude `DRIFT`.

    The last `late` rounds may exclude it too: the tail of a fast start is in the others. Fewer than ten never do.
    """
    since = [sample[begin:], *([sample[-late:]] if late >= 10 else [])]
    found = [drift(each[np.isfinite(each)]) for each in since]
    hidden = min(change for _, change in found) / level
    return (None, "") if hidden < DRIFT else (hidden, found[0][0])


def _enough_hold(windows: Sequence[Window]) -> bool:
    """Return whether at least half of the windows in the second half meet the criterion, unknown rounds left out.

    Noise of 5 % fails one window in seven, so the last one alone decides nothing.
    """
    if not windows or not math.isfinite(windows[-1].mean):
        return False
    late = [each.steady for each in windows[len(windows) // 2 :] if math.isfinite(each.mean)]
    return 2 * sum(late) >= len(late)


def _earlier(sample: Floats, bounds: Sequence[int], windows: Sequence[Window], level: float) -> Level | None:
    """Return the last stretch between steps that met the criterion at another level than that of the end."""
    for begin, end in reversed(list(itertools.pairwise(bounds[:-1]))):
        inside = next((each for each in windows if each.first > begin and each.last <= end and each.steady), None)
        mean = float(np.nanmean(sample[begin:end]))
        if inside and abs(mean - level) > AGREEMENT * abs(level):
            return Level(first=begin + 1, last=end, window=inside, mean=mean)
    return None


def _same_level(one: float, other: float, criteria: Criteria) -> bool:
    """Return whether two levels differ by no more than the allowed slope."""
    return abs(one - other) <= (criteria.slope + _ROUNDING) * min(abs(one), abs(other))


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
        holds = all(
            each.steady and _same_level(each.mean, windows[0].mean, criteria) for windows in closing for each in windows
        )
        if not holds:
            continue
        moved = sum(map(moved_bytes, range(last - criteria.window, last))) if criteria.min_written else 0.0
        if criteria.has_enough(round_ns=math.inf, moved_bytes=moved, range_bytes=range_bytes):
            return last - criteria.window + 1, last
    return None


def _window_ending(values: Sequence[float] | Floats, last: int, criteria: Criteria) -> Window:
    return window(values[last - criteria.window : last], first=last - criteria.window + 1, criteria=criteria)
