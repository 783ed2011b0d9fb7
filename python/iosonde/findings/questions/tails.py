"""Tails: how a latency percentile grows along a factor, usually queue depth.

In a closed loop latency must grow once a target is saturated (Little's law: in flight = rate x latency), so growth in
step with the factor is no fault of the target. Of an overloaded target it grows with the length of the run: only rates
that were achieved are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Curve, Range, ranges
from iosonde.findings.observations.open_loop import KEPT_UP
from iosonde.findings.question import Question, QuestionKind


class TailGrowth(Range, kind="tail growth", topic="performance"):
    """A latency percentile at the first and the last level of a factor."""

    _ratio_of = "growth"
    overloaded: Any = None
    """The first level that was not achieved; None if all were."""

    def _sentence(self) -> str:
        first, last = self._value(self.first), self._value(self.last)
        at_first, at_last = self._level(self.first_level), self._level_value(self.last_level)
        subject = f"{self._metric} of {self.load}{f' with {self.where}' if self.where else ''}"
        if self.ratio.is_noise:
            return f"no statistically clear change in {subject}: {first} at {at_first}, {last} at {at_last}"
        if not self.ratio.certain:
            return f"{subject}: {first} at {at_first}, {last} at {at_last} (no confidence interval){self._overloaded}"
        verb = "rises" if self.last >= self.first else "falls"
        return f"{subject} {verb} from {first} at {at_first} to {last} at {at_last}{self._overloaded}"

    @property
    def _overloaded(self) -> str:
        return f"; overloaded from {self._level(self.overloaded)} on" if self.overloaded is not None else ""


def find(question: Question) -> Iterator[Finding]:
    """Return how a percentile grows from the first level to the last achieved, for the cell in which it grows most."""
    shares = question.runs.filter(pl.col("metric") == "achieved_rate_fraction").group_by("case_id")
    missed = set(shares.agg(pl.col("value").median()).filter(pl.col("value") < KEPT_UP)["case_id"])

    def achieved(curve: Curve) -> int:
        """Number of levels before the first one that was not."""
        return next((at for at, case in enumerate(curve.case_ids) if case in missed), len(curve.levels))

    curve_of: dict[str, Curve] = {}

    def ends(curve: Curve) -> tuple[int, int]:
        curve_of[curve.case_ids[0]] = curve
        return 0, max(0, achieved(curve) - 1)

    for _, values in ranges(question, ends):
        curve = curve_of[values["case_ids"][0]]
        at = achieved(curve)
        if values["first_level"] != values["last_level"]:
            yield TailGrowth(**values, overloaded=curve.levels[at] if at < len(curve.levels) else None)


KINDS = (QuestionKind("tail_growth", find, compares_levels=True),)
