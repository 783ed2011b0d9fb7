"""Quantiles and tails of distributions, false discovery control, and moderated variances.

`scipy.special` has the functions behind `scipy.stats` and is imported in a fraction of its time. It is imported where
it is needed: commands that plan and run studies import this module without calling it.

Moderated variances are the noise of a case with few repeats, estimated from all cases of a result set.
Variances of three repeats differ by a factor of 150 between their 2.5th and 97.5th percentile, so the interval of a
case alone must be wide. Smyth (2004, "Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments", sections 4 and 6.2; `squeezeVar` of limma) takes the true variances of the cases
as distributed around a common variance s0² with d0 degrees of freedom, which the data show. The variance s² of a case
with d degrees of freedom is shrunk towards it:

    (d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom

s0² and d0 follow from mean and variance of the logarithms of s². Three additions:

- A case much noisier than the typical one keeps its own variance and does not enter s0² and d0 (after Phipson et al.
  2016, "Robust hyperparameter estimation protects against hypervariable genes"). So does a case whose repeats differ by
  the rounding of counts only.
- The variance of the logarithms is raised by half its standard error: few cases seem equally noisy by chance.
- Cases whose repeats are run in turn share disturbances, so their variances resemble each other by chance. With the
  mean correlation r between K cases they count as K / (1 + (K - 1) r²) independent ones, which limits d0 + d.

Repeats of single cases without the others have no prior; their intervals are of their own variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Student's t: the value below which `probability` is."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t_tail(value: float, degrees: float) -> float:
    """Student's t: the probability of more than `value`."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -value))


def chi2_quantile(probability: float, degrees: float) -> float:
    """Chi-squared: the value below which `probability` is."""
    from scipy.special import chdtri

    return float(chdtri(degrees, 1 - probability))


def chi2_tail(values: np.ndarray, degrees: np.ndarray | float) -> np.ndarray:
    """Chi-squared: the probability of more than each of `values`."""
    from scipy.special import chdtrc

    return np.asarray(chdtrc(degrees, values))


def adjusted_for_discovery(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values: of those below q, at most the share q are false discoveries (Benjamini and Hochberg 1995)."""
    if not p_values:
        return []
    ordered = np.argsort(p_values, kind="stable")
    count = len(p_values)
    scaled = np.asarray(p_values, dtype=float)[ordered] * (count / np.arange(1, count + 1))
    adjusted = np.empty(count)
    adjusted[ordered] = np.clip(np.minimum.accumulate(scaled[::-1])[::-1], 0, 1)
    return [float(each) for each in adjusted]


Floats = NDArray[np.float64]

MINIMUM_CASES = 4
"""With fewer there is no prior."""
OUTLYING = 1e-4
"""Probability of a variance as large as that of a case, if its noise is typical, below which it keeps its own."""
ROUNDING = 1e-4
"""Relative spread of repeats up to which they differ by the rounding of counts only: a simulated drive at its limit."""
RAISED = 0.5
"""Standard errors by which the variance of the logarithms is raised: chosen by simulation (`bench/intervals.py`)."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The noise that the cases of a result set have in common, in one metric."""

    variance: float
    degrees: float
    """Infinite where the cases do not differ by more than chance."""
    typical: float
    """Median of the cases."""
    limit: float
    """Most degrees of freedom that a moderated variance can have."""
    cases: int

    def moderated(self, variances: Floats, degrees: float) -> tuple[Floats, Floats]:
        """Return moderated variances and their degrees of freedom; outliers are returned as they are."""
        share = self.degrees / (self.degrees + degrees) if math.isfinite(self.degrees) else 1.0
        shrunk = share * self.variance + (1 - share) * variances
        gained = max(degrees, min(self.degrees + degrees, self.limit))
        is_usual = _is_usual(variances, degrees, self.typical)
        return np.where(is_usual, shrunk, variances), np.where(is_usual, gained, degrees)


def prior_of(samples: Sequence[Floats]) -> Prior | None:
    """Return the prior of cases from the logarithms of their repeats, in the order of execution; None for too few."""
    from scipy.special import chdtri

    centred = [each - each.mean() for each in samples if len(each) > 1]
    degrees = np.array([len(each) - 1.0 for each in centred])
    variances = np.array([float((each**2).sum()) for each in centred]) / degrees
    kept = variances > ROUNDING**2
    if kept.sum() < MINIMUM_CASES:
        return None
    typical = float(np.median(variances[kept] / chdtri(degrees[kept], 0.5) * degrees[kept]))
    usual = np.flatnonzero(_is_usual(variances, degrees, typical))
    if len(usual) < MINIMUM_CASES - 1:
        return None
    variance, prior_degrees = fitted(variances[usual], degrees[usual], raised=RAISED)
    shared = correlation_between([centred[place] for place in usual])
    return Prior(
        variance=variance,
        degrees=prior_degrees,
        typical=typical,
        limit=float(degrees[usual].sum()) / (1 + (len(usual) - 1) * shared**2),
        cases=len(usual),
    )


def _is_usual(variances: Floats, degrees: Floats | float, typical: float) -> NDArray[np.bool_]:
    is_noise = chi2_tail(variances * degrees / typical, degrees) >= OUTLYING
    return np.asarray(is_noise & (variances > ROUNDING**2))


def fitted(variances: Floats, degrees: Floats, *, raised: float = 0.0) -> tuple[float, float]:
    """Return the common variance and its degrees of freedom by matching the moments of log variances."""
    from scipy.special import digamma, polygamma

    half = degrees / 2
    logs = np.log(variances) - digamma(half) + np.log(half)
    spread = float(logs.var(ddof=1)) * (1 + raised * math.sqrt(2 / (len(logs) - 1)))
    excess = spread - float(polygamma(1, half).mean())
    if excess <= 0:
        return float((variances * degrees).sum() / degrees.sum()), math.inf
    prior_half = _inverse_trigamma(excess)
    return float(np.exp(logs.mean() + digamma(prior_half) - np.log(prior_half))), 2 * prior_half


def _inverse_trigamma(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex and nearly linear (Smyth 2004, appendix).

    `scipy.optimize` would do the same, but its import takes longer than everything else here.
    """
    from scipy.special import polygamma

    at = 0.5 + 1 / value
    while True:
        trigamma = float(polygamma(1, at))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, at))
        at += step
        if -step < 1e-12 * at:
            return at


def correlation_between(centred: Sequence[Floats]) -> float:
    """Return the mean correlation of all pairs of cases, repeat by repeat; 0 where it is negative."""
    rows = np.zeros((len(centred), max(map(len, centred))))
    for row, each in zip(rows, centred, strict=True):
        row[: len(each)] = each / math.sqrt(float((each**2).sum()))
    count = len(rows)
    return max(0.0, float((rows.sum(axis=0) ** 2).sum() - count) / (count * (count - 1)))
