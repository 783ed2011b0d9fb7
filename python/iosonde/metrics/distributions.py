"""Quantiles and tails of distributions from SciPy, and false discovery control.

`scipy.special` has the functions behind `scipy.stats` and is imported in a fraction of its time. It is imported where
it is needed: commands that plan and run studies import this module without calling it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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


def chi2_median(degrees: np.ndarray) -> np.ndarray:
    """Chi-squared: the median."""
    from scipy.special import chdtri

    return np.asarray(chdtri(degrees, 0.5))


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
