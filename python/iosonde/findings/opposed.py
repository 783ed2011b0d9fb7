"""Cells with opposite effects: a mean over cells hides them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from iosonde.metrics import wording
from iosonde.metrics.statistics import MARGIN, ratio


@dataclass(frozen=True, kw_only=True)
class Opposed:
    """A ratio that is above 1 in some cells and below 1 in others."""

    smallest: tuple[str, float]
    largest: tuple[str, float]
    """Words for the cells with the smallest and the largest ratio, and these ratios."""
    above: int
    below: int
    """Cells on either side, by more than the margin, whose intervals do not contain 1."""
    cells: int

    @property
    def text(self) -> str:
        """`is higher in 3 and lower in 2 of 8 cells, from 0.50 times with 4 KiB blocks to 2.0 times with ...`."""
        low, high = (f"{wording.times_text(value)} with {words}" for words, value in (self.smallest, self.largest))
        return f"is higher in {self.above} and lower in {self.below} of {self.cells} cells, from {low} to {high}"


def opposed(words: Sequence[str], pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Opposed | None:
    """Return the extreme cells if the ratio is below 1 in one and above 1 in another, both by more than the margin.

    `words` name each cell, and `pairs` are the repeats of both of its sides. A cell whose interval contains 1 does not
    count.
    """
    estimates = [(name, ratio(top, bottom)) for name, (top, bottom) in zip(words, pairs, strict=True)]
    clear = sorted(((name, each.value) for name, each in estimates if not each.is_noise), key=lambda cell: cell[1])
    above = [cell for cell in clear if cell[1] > 1 + MARGIN]
    below = [cell for cell in clear if cell[1] < 1 / (1 + MARGIN)]
    if not above or not below:
        return None
    return Opposed(smallest=below[0], largest=above[-1], above=len(above), below=len(below), cells=len(estimates))
