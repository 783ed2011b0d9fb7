"""Quantiles and tails of distributions, and false discovery control, from SciPy.

`scipy.special` has the functions behind `scipy.stats` and is imported in a tenth of its time. Both are imported where
they are needed: commands that plan and run studies import this module without calling it.
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


def chi2_tail(values: np.ndarray, degrees: np.ndarray | float) -> np.ndarray:
    """Chi-squared: the probability of more than each of `values`."""
    from scipy.special import chdtrc

    return np.asarray(chdtrc(degrees, values))


def adjusted_for_discovery(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values: of those below q, at most the share q are false discoveries (Benjamini and Hochberg 1995)."""
    if not p_values:
        return []
    from scipy.stats import false_discovery_control

    return [float(each) for each in false_discovery_control(list(p_values), method="bh")]
