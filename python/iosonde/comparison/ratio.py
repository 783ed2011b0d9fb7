"""The ratio of two systems in one case, from the repeats of one or more sessions of each.

A session is a result set. Logarithms of the repeats are compared by Student's t with two components of variance: that
of a run within its session, and that of a session, which repeats within one session cannot show. Their degrees of
freedom are combined by Satterthwaite (1946). Pairs measured in one session, run by run, need no second component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from iosonde.comparison.variance import SessionVariance, pair_variances
from iosonde.metrics.distributions import t_quantile, t_tail
from iosonde.metrics.statistics import mean_moments

Floats = NDArray[np.float64]
Sessions = Sequence[Floats]
"""Natural logarithms of the repeats of each session."""
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Contender over baseline: the logarithm of the ratio, its standard error and the degrees of freedom of that."""

    log: float
    error: float | None
    """None where neither repeats nor an assumption support one."""
    degrees: float = math.inf

    @property
    def value(self) -> float:
        """The ratio of the geometric means."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the ratio."""
        if self.error is None:
            return None, None
        margin = self.error * _quantile(0.5 + CONFIDENCE / 2, self.degrees)
        return math.exp(self.log - margin), math.exp(self.log + margin)

    @property
    def p_value(self) -> float:
        """Two-sided, of the hypothesis that the ratio is 1."""
        if self.error is None:
            return 1.0
        if self.error == 0:
            return 0.0 if self.log else 1.0
        return 2 * t_tail(abs(self.log) / self.error, self.degrees)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Components of the variance of a cell, as they enter its ratio."""

    runs: float
    run_degrees: float
    sessions: float
    session_degrees: float

    def ratio(self, log: float) -> Ratio:
        """Return the ratio with the standard error of both components."""
        if self.run_degrees <= 0:
            return Ratio(log=log, error=None)
        degrees = _satterthwaite((self.runs, self.run_degrees), (self.sessions, self.session_degrees))
        return Ratio(log=log, error=math.sqrt(self.runs + self.sessions), degrees=degrees)


def log_ratio(baseline: Sessions, contender: Sessions) -> float:
    """Return the difference of the means over sessions of the means over runs."""
    return float(np.mean([each.mean() for each in contender]) - np.mean([each.mean() for each in baseline]))


def spread(
    baseline: Sessions,
    contender: Sessions,
    session: SessionVariance | None,
    *,
    drift: float = 0.0,
    correlation: float = 0.0,
) -> Spread:
    """Return the components of variance of the difference of two groups of sessions.

    `session` is the variance of a session's own effect, without that of its runs; None leaves it out. `drift` is the
    variance of the difference that comes from drift within the sessions, `correlation` that of consecutive repeats.
    """
    everyone = [*baseline, *contender]
    degrees = sum(len(each) - 1 for each in everyone)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in everyone) / degrees if degrees else 0.0
    weights = [sum(run_weight(len(each), correlation) for each in group) / len(group) ** 2
               for group in (baseline, contender)]  # fmt: skip
    return Spread(
        runs=within * sum(weights),
        run_degrees=sum(run_degrees(len(each), correlation) for each in everyone),
        sessions=drift + (session.variance * (1 / len(baseline) + 1 / len(contender)) if session else 0.0),
        session_degrees=session.degrees if session else math.inf,
    )


def run_weight(count: int, correlation: float) -> float:
    """Return the variance of a mean of repeats over the variance of the sample: 1/n for independent ones."""
    return mean_moments(count, correlation)[0] if correlation and count > 1 else 1 / count


def run_degrees(count: int, correlation: float) -> float:
    """Return the degrees of freedom of the variance of a sample of repeats: n - 1 for independent ones."""
    return mean_moments(count, correlation)[1] if correlation and count > 1 else count - 1


def paired_spreads(differences: Sequence[Floats], *, correlation: float = 0.0) -> list[Spread]:
    """Return the variance of the mean difference of each cell whose runs were measured in pairs within one session.

    `differences` has, per cell, contender less baseline of each pair, in logarithms. What both runs of a pair share
    cancels, so there is no component of sessions. A few pairs know their own variance badly: it is moderated over the
    cells of the metric (Smyth 2004, see `variance.py`). `correlation` is that of consecutive differences.
    """
    by_count: dict[int, list[int]] = {}
    for place, each in enumerate(differences):
        by_count.setdefault(len(each), []).append(place)
    found: dict[int, Spread] = {}
    for count, places in by_count.items():
        rows = np.array([differences[place] for place in places])
        for place, moderated in zip(places, pair_variances(rows), strict=True):
            share = run_degrees(count, correlation) / (count - 1) if count > 1 else 1.0
            found[place] = Spread(
                runs=moderated.variance * run_weight(count, correlation),
                run_degrees=moderated.degrees * share,
                sessions=0.0,
                session_degrees=math.inf,
            )
    return [found[place] for place in range(len(differences))]


def pooled(spreads: Sequence[Spread], logs: Sequence[float]) -> Ratio:
    """Return the geometric mean over cells.

    Run noise of different cells is independent and averages out. A session may shift all its cells together, so its
    component does not become smaller with the number of cells.
    """
    count = len(spreads)
    runs = sum(each.runs for each in spreads) / count**2
    sessions = float(np.mean([each.sessions for each in spreads]))
    whole = Spread(
        runs=runs,
        run_degrees=sum(each.run_degrees for each in spreads),
        sessions=sessions,
        session_degrees=min(each.session_degrees for each in spreads),
    )
    return whole.ratio(float(np.mean(logs)))


def _satterthwaite(*components: tuple[float, float]) -> float:
    """Return the degrees of freedom of a sum of independent variances, each given with its own."""
    whole = sum(variance for variance, _ in components)
    squares = sum(variance**2 / degrees for variance, degrees in components if variance)
    return whole**2 / squares if squares else math.inf


@lru_cache(maxsize=1024)
def _quantile(probability: float, degrees: float) -> float:
    return t_quantile(probability, degrees)
