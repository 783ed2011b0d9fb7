"""Tails: how a latency percentile grows along a factor, usually queue depth.

In a closed loop latency must grow once a target is saturated (Little's law: in flight = rate x latency), so growth in
step with the factor is no fault of the target.
"""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.findings.finding import Finding
from iosonde.findings.kinds.curve import Range, ranges
from iosonde.findings.question import Question, QuestionKind


class TailGrowth(Range, kind="tail growth", topic="performance"):
    """A latency percentile at the first and the last level of a factor."""

    _ratio_of = "growth"

    def _sentence(self) -> str:
        first, last = self._value(self.first), self._value(self.last)
        at_first, at_last = self._level(self.first_level), self._level_value(self.last_level)
        subject = f"{self._metric} of {self.load}{f' with {self.where}' if self.where else ''}"
        if self.ratio.is_noise:
            return f"no statistically clear change in {subject}: {first} at {at_first}, {last} at {at_last}"
        verb = "rises" if self.last >= self.first else "falls"
        return f"{subject} {verb} from {first} at {at_first} to {last} at {at_last}"


def find(question: Question) -> Iterator[Finding]:
    """Return how a percentile grows from the first level to the last, for the cell in which it grows most."""
    for _, values in ranges(question, lambda curve: (0, len(curve.levels) - 1)):
        yield TailGrowth(**values)


KINDS = (QuestionKind("tail_growth", find, compares_levels=True),)
