"""Flatness: how much a metric depends on a factor at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Range, ranges
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics.statistics import MARGIN
from iosonde.study.model import STAGE

FLAT = 1.10


class Dependence(Range, kind="dependence", topic="scaling"):
    """The smallest and the largest median along a factor, in this order, and whether the factor matters."""

    decision: Literal["flat", "depends", "unclear"]
    _ratio_of = "largest over smallest"

    def _sentence(self) -> str:
        subject = f"{self._metric} of {self.load}"
        if self.decision == "flat":
            return f"{subject} varies by less than {100 * (FLAT - 1):.0f} % with {self._factor}"
        if self.decision == "unclear":
            effect = "No clear effect" if self.ratio.certain else "Too few runs to show the effect"
            return f"{effect} of {self._factor} on {subject}"
        first, last = self._at(self.first, self.first_level), self._at(self.last, self.last_level)
        where = f", most with {self.where}" if self.where else ""
        return f"{subject} depends on {self._factor}: {first} to {last}{where}"

    def _at(self, value: float, level: Any) -> str:
        if self.over == STAGE:
            return f"{self._value(value)} ({self._level(level)})"
        return f"{self._value(value)} {'at' if isinstance(level, int | float) else 'with'} {self._level(level)}"


def find(question: Question) -> Iterator[Finding]:
    """Return True if the factor matters, for the cell in which it matters most."""
    for ratios, values in ranges(question, lambda curve: (int(curve.medians.argmin()), int(curve.medians.argmax()))):
        largest = values["ratio"]
        if all(each.below(FLAT) for each in ratios):
            yield Dependence(**values, decision="flat")
        elif largest.above(1 + MARGIN):
            yield Dependence(**values, decision="depends")
        else:
            yield Dependence(**{**values, "strength": "weak"}, decision="unclear")


KINDS = (QuestionKind("flatness", find, compares_levels=True, is_of_names=True),)
