"""Fairness between hosts that share a rate."""

from __future__ import annotations

from collections.abc import Sequence


def jain_index(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index (Jain, Chiu, Hawe 1984): 1 for equal shares, 1/n if one host has all.

    None where nothing was done.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None
