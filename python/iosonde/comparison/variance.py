"""Variance of a cell's mean between sessions of the same system.

Each cell has few sessions, so its own variance is poorly known. The variances of all cells of a metric are moderated:
shrunk towards their common value by the empirical-Bayes method of Smyth (2004, "Linear models and empirical Bayes
methods for assessing differential expression in microarray experiments", sections 4 and 6.2), which estimates from the
data how far they may be pooled. The degrees of freedom gained by pooling are limited by the effective number of
independent cells, (sum of eigenvalues)^2 / (sum of squared eigenvalues) of the correlation between cells' session
effects (Bretherton 1999): a disturbance that shifts all cells of a session together is one observation, not many.

With fewer than five baseline sessions the variance is poorly known: a stated prior enters, the more the fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iosonde.metrics.distributions import chi2_quantile, chi2_tail
from iosonde.metrics.moderation import fitted
from iosonde.metrics.statistics import mean_moments, repeat_correlation

Floats = NDArray[np.float64]

PRIOR_STANDARD_DEVIATION = 0.02
"""Assumed relative standard deviation of a session mean where baselines cannot show it: 2 %."""
PRIOR_DEGREES = 4.0
"""Degrees of freedom of that assumption with one session; a quarter less with each further one."""


@dataclass(frozen=True, kw_only=True)
class SessionVariance:
    """Variance of a cell's session mean (natural logarithms), and the degrees of freedom behind it."""

    variance: float
    degrees: float


def session_variances(means: Floats) -> list[SessionVariance]:
    """Return the variance of each cell from its session means; `means` has one row per cell, one column per session."""
    cells, sessions = means.shape
    if sessions == 1:
        return [with_prior(0.0, degrees=0.0, sessions=1)] * cells
    own = means.var(axis=1, ddof=1)
    moderated, degrees = _moderated(own, sessions - 1, limit=(sessions - 1) * _independent_cells(means))
    return [with_prior(float(each), degrees=degrees, sessions=sessions) for each in moderated]


def prior_degrees(sessions: int) -> float:
    """Return the degrees of freedom of the assumed variance beside that of some sessions."""
    return PRIOR_DEGREES * max(0, 5 - sessions) / 4


def with_prior(variance: float, *, degrees: float, sessions: int) -> SessionVariance:
    """Return a variance of sessions, blended with the assumed one by their degrees of freedom."""
    prior = prior_degrees(sessions)
    blended = (prior * PRIOR_STANDARD_DEVIATION**2 + degrees * variance) / (prior + degrees)
    return SessionVariance(variance=blended, degrees=prior + degrees)


OUTLYING = 0.01
"""Probability below which a cell's variance does not belong to the common distribution."""


def pair_variances(differences: Floats) -> list[SessionVariance]:
    """Return the variance of a pair's difference for each cell, from one row per cell with one column per pair.

    Run noise of different cells is independent, so all cells count. Cells that are much noisier than the others keep
    their own variance and degrees of freedom, as in the robust method of Phipson et al. (2016).
    """
    cells, pairs = differences.shape
    if pairs < 2:
        return [SessionVariance(variance=0.0, degrees=0.0)] * cells
    degrees = pairs - 1
    own = differences.var(axis=1, ddof=1)
    typical = float(np.median(own)) / (chi2_quantile(0.5, degrees) / degrees)
    is_usual = chi2_tail(own * degrees / typical, degrees) >= OUTLYING if typical > 0 else own == 0
    # The common distribution is fitted to all cells: without the noisy ones it would seem narrower than it is.
    moderated, gained = _moderated(own, degrees, limit=float(cells * degrees))
    return [
        SessionVariance(variance=float(shrunk), degrees=gained)
        if is_common
        else SessionVariance(variance=float(each), degrees=float(degrees))
        for each, shrunk, is_common in zip(own, moderated, is_usual, strict=True)
    ]


def _moderated(variances: Floats, degrees: int, *, limit: float) -> tuple[Floats, float]:
    """Return variances shrunk towards their common value, and their degrees of freedom, at most `limit`."""
    positive = variances[variances > 0]
    if len(positive) < 2:
        return variances, float(degrees)
    common, prior_degrees = fitted(positive, np.full(len(positive), float(degrees)))
    gained = min(prior_degrees, max(0.0, limit - degrees))
    # Where the limit cuts the degrees of freedom, the weight of the common value stays what the data support.
    weight = prior_degrees / (prior_degrees + degrees) if np.isfinite(prior_degrees) else 1.0
    return weight * common + (1 - weight) * variances, degrees + gained


def _independent_cells(means: Floats) -> float:
    """Return the effective number of independent cells, between 1 and the number of sessions less one."""
    centered = means - means.mean(axis=1, keepdims=True)
    scale = np.sqrt((centered**2).sum(axis=1))
    rows = centered[scale > 0] / scale[scale > 0][:, np.newaxis]
    if not len(rows):
        return 1.0
    # The non-zero eigenvalues of the cells' correlation matrix are those of this sessions x sessions matrix.
    eigenvalues = np.linalg.eigvalsh(rows.T @ rows)
    return float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


OF_PAIRS = 2.0
"""Doubt of a correlation of paired differences: what both runs of a pair share cancels, and wider intervals would cost
the power that pairs are for."""


def run_correlation(cells: Iterable[tuple[tuple[str, ...], Sequence[Floats]]], *, doubt: float = 1.0) -> float:
    """Return the correlation of consecutive repeats, pooled over sessions and cases (`repeat_correlation`).

    `cells` are keys (first the case, last the metric) with the logarithms of the repeats of each session. A case counts
    once, by its rate. `doubt` is that of `repeat_correlation`.
    """
    rates: dict[str, Sequence[Floats]] = {}
    for keys, sessions in cells:
        if keys[-1] in ("iops", "ops_per_sec"):
            rates.setdefault(keys[0], sessions)
    repeats = [np.exp(each) for sessions in rates.values() for each in sessions]
    return repeat_correlation(repeats, doubt=doubt)


def session_effects(cells: Sequence[Sequence[Sequence[Floats]]], *, correlation: float = 0.0) -> list[SessionVariance]:
    """Return the variance of session effects of each cell, without the noise of its runs.

    `cells` holds, per cell, the systems; per system, its sessions; per session, the logarithms of its runs. Cells
    whose systems have several sessions show the variance; it is moderated as in `session_variances`, less what run
    noise contributes, and never below zero. With one session per system the prior is all there is. `correlation` is
    that of consecutive runs.
    """
    sessions = min((sum(len(system) - 1 for system in cell) for cell in cells), default=0)
    if sessions == 0:
        return [SessionVariance(variance=PRIOR_STANDARD_DEVIATION**2, degrees=PRIOR_DEGREES)] * len(cells)
    residuals = np.array([_session_residuals(cell)[: _rows(cells)] for cell in cells])
    own = (residuals**2).sum(axis=1) / sessions
    moderated, degrees = _moderated(own, sessions, limit=sessions * _independent_cells(residuals))
    prior = PRIOR_DEGREES * max(0, 2 - sessions) / 2
    total = prior + degrees
    noise = np.array([_run_noise(cell, correlation) for cell in cells])
    effect = np.maximum(moderated - noise, 0)
    blended = (prior * PRIOR_STANDARD_DEVIATION**2 + degrees * effect) / total
    return [SessionVariance(variance=float(each), degrees=total) for each in blended]


def _rows(cells: Sequence[Sequence[Sequence[Floats]]]) -> int:
    return min(sum(len(system) for system in cell) for cell in cells)


def _session_residuals(cell: Sequence[Sequence[Floats]]) -> list[float]:
    """Return the deviation of each session mean from the mean of its system."""
    found = []
    for system in cell:
        means = [float(each.mean()) for each in system]
        found += [mean - sum(means) / len(means) for mean in means]
    return found


def _run_noise(cell: Sequence[Sequence[Floats]], correlation: float) -> float:
    """Return the variance that run noise gives to a session mean, averaged over sessions."""
    shares = [
        each.var(ddof=1) * mean_moments(len(each), correlation)[0]
        for system in cell
        for each in system
        if len(each) > 1
    ]
    return float(np.mean(shares)) if shares else 0.0
