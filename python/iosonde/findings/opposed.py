"""Cells with opposite effects: a mean over cells hides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import MARGIN, ratio

Opposed = tuple[tuple[str, float], tuple[str, float]]
"""Words for the cells with the smallest and the largest ratio, and these ratios: one below 1, the other above."""


def opposed(
    question: Question, rows: Sequence[Mapping[str, Any]], pairs: Sequence[tuple[ArrayLike, ArrayLike]]
) -> Opposed | None:
    """Return the extreme cells if the ratio is below 1 in one and above 1 in another, both by more than the margin.

    `pairs` are the repeats of both sides of each row. A cell whose interval contains 1 does not count.
    """
    estimates = [ratio(top, bottom) for top, bottom in pairs]
    clear = [(each.value, row) for row, each in zip(rows, estimates, strict=True) if not each.is_noise]
    if not clear:
        return None
    (low, lowest), (high, highest) = (extreme(clear, key=lambda cell: cell[0]) for extreme in (min, max))
    if low >= 1 / (1 + MARGIN) or high <= 1 + MARGIN:
        return None
    return (question.numbers(lowest), low), (question.numbers(highest), high)


def opposed_text(cells: Opposed) -> str:
    """Write `depends on the cell, from 0.50 times with 4 KiB blocks to 2.0 times with 64 KiB blocks`."""
    low, high = (f"{wording.times_text(value)} with {words}" for words, value in cells)
    return f"depends on the cell, from {low} to {high}"
