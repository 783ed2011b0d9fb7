"""Limits that searches found, as values of a suite: on one target, or compared between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from iosonde.metrics.statistics import MARGIN

if TYPE_CHECKING:
    from iosonde.procedure.search import SearchConclusion
    from iosonde.report.material.result_sets import Source

LIMIT = "limit"
"""Metric of a value that quotes the limit of a search."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Ratio by which a limit is higher, with the bounds that follow from the precision of both searches."""

    ratio: float
    low: float
    high: float

    @property
    def outcome(self) -> Literal["better", "worse", "same", "unclear"]:
        """The verdict, with the same margin as other comparisons."""
        if self.low > 1:
            return "better"
        if self.high < 1:
            return "worse"
        return "same" if self.low >= 1 - MARGIN and self.high <= 1 + MARGIN else "unclear"


def limit_of(source: Source, part: str) -> SearchConclusion | None:
    """The search of a part, if it found a limit."""
    from iosonde.procedure.search import SearchConclusion

    found = (each for case, each in source.procedures if case.part == part and isinstance(each, SearchConclusion))
    return next((each for each in found if each.reached and each.value and each.fails_at), None)


def text(found: SearchConclusion) -> str:
    """A limit with the value that failed: `16 to 22.6`."""
    return f"{found.value:,.3g} to {found.fails_at:,.3g}"


def improvement(before: SearchConclusion, after: SearchConclusion) -> Improvement:
    """Return the ratio of both limits, second to first, each between its highest pass and lowest failure."""
    assert before.value and before.fails_at and after.value and after.fails_at, "both searches found a limit"
    return Improvement(
        ratio=after.value / before.value, low=after.value / before.fails_at, high=after.fails_at / before.value
    )
