"""Effect of a factor on a metric: gain per doubling, whether the factor matters at all, growth of a latency percentile.

In a closed loop latency must grow once a target is saturated (Little's law: in flight = rate x latency), so growth in
step with the factor is no fault of the target. Of an overloaded target it grows with the length of the run: only rates
that were achieved are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Curve, OverFactor, Range, Rows, between, of_load, over_numbers, ranges
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.throughput import KEPT_UP
from iosonde.metrics import wording
from iosonde.metrics.statistics import MARGIN, MINIMUM_REPEATS, Estimate, pooled_ratio, ratio
from iosonde.study.model import STAGE

NEARLY_DOUBLE = 1.8
KNOWN = 1.5
"""Factor between the ends of the interval of a gain up to which an upper limit says something."""
MANY_CELLS = 6
PAYS = 1.1
"""A later step must gain a tenth for an earlier one without gain to be worth a finding."""


class NoGain(OverFactor, kind="no gain", topic="scaling"):
    """A step that gains less than 5 % in every cell named, although a later step gains."""

    lower: Any
    upper: Any
    axis: str | None
    axis_levels: tuple[Any, ...]
    cells: tuple[Any, ...]
    """Levels of the axis that it is true for."""
    ratios: tuple[float, ...]
    """Of each of these cells: the metric at `upper` over that at `lower`."""
    pooled: Estimate

    def _sentence(self) -> str:
        where = wording.range_words(self.axis, self.axis_levels, self.cells) if self.axis else ""
        step = f"{self._factor} from {self._level_value(self.lower)} to {self._level_value(self.upper)}"
        if max(self.ratios) < 1 - MARGIN:
            loss = wording.percent_range(1 - max(self.ratios), 1 - min(self.ratios))
            return f"{self.load}{where} lose {loss} of their {self._metric} by raising {step}"
        return f"{self.load}{where} gain less than {100 * MARGIN:.0f} % {self._metric} by raising {step}"

    def _evidence(self) -> str:
        each = wording.range_text(*(wording.ratio_text(end) for end in (min(self.ratios), max(self.ratios))))
        cells = f"{each} in {wording.counted(len(self.ratios), 'cell')}"
        return f"mean ratio {wording.ratio_estimate_text(self.pooled)}; {cells} ({self._runs})"


class Scaling(OverFactor, kind="scaling", topic="scaling"):
    """Gain from doubling a factor: up to where it nearly doubles the metric, else the most it brings."""

    lower: Any
    upper: Any
    nearly_doubles: bool
    """True if every cell gains at least `NEARLY_DOUBLE` per doubling, in every step from `lower` to `upper`."""
    gain: Estimate
    """Per doubling: the mean over the steps if it nearly doubles, else the largest of any step and cell, whose upper
    end is stated."""
    steps: tuple[tuple[Any, float], ...]
    """Upper level and mean gain per doubling of every step."""

    def _sentence(self) -> str:
        step = f"from {self._level_value(self.lower)} to {self._level_value(self.upper)}"
        if self.nearly_doubles:
            gain = wording.ratio_text(self.gain.value)
            return f"doubling {self._factor} nearly doubles {self._metric} of {self.load}, {step} ({gain} times)"
        most = wording.ratio_text(self.gain.value if self.gain.high is None else self.gain.high)
        average = " on average" if self.upper != 2 * self.lower else ""
        each = f"each doubling of {self._factor} multiplies {self._metric} of {self.load}"
        return f"{each} by at most {most}{average} (most {step})"

    def _evidence(self) -> str:
        listed = ", ".join(f"{self._level_value(upper)}: {gain:.2f}" for upper, gain in self.steps)
        return f"gain per doubling {wording.ratio_estimate_text(self.gain)}; by step: {listed}; {self._runs}"


@dataclass(frozen=True)
class Step:
    """A step from one level of a factor to the next, in several cells."""

    lower: Any
    upper: Any
    cells: Rows
    """With `pair` and `cases` at the upper and the lower level."""

    @cached_property
    def pooled(self) -> Estimate:
        return pooled_ratio([cell["pair"] for cell in self.cells])

    @cached_property
    def estimates(self) -> list[Estimate]:
        return [ratio(*cell["pair"]) for cell in self.cells]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(each.value for each in self.estimates)

    @property
    def gain(self) -> Estimate:
        """The pooled ratio for one doubling."""
        return self.per_doubling(self.pooled)

    @property
    def gains(self) -> list[Estimate]:
        """The same of each cell."""
        return [self.per_doubling(each) for each in self.estimates]

    def per_doubling(self, found: Estimate) -> Estimate:
        """Levels need not double: ratio ^ (1 / log2(upper / lower))."""
        power = 1 / math.log2(self.upper / self.lower)
        low, high = (None if end is None else end**power for end in (found.low, found.high))
        return Estimate(found.value**power, low, high, found.method, found.n)

    @property
    def repeats(self) -> int:
        return min(len(values) for cell in self.cells for values in cell["pair"])

    @property
    def is_known(self) -> bool:
        """True if there are repeats, or single runs of so many cells that their noise shows in how these differ."""
        return self.repeats >= MINIMUM_REPEATS or len(self.cells) >= MANY_CELLS

    @property
    def case_ids(self) -> list[str]:
        return [case_id for cell in self.cells for case_id in reversed(cell["cases"])]


def steps_of(group: Sequence[Curve]) -> list[Step]:
    """Return the steps of several curves, those between the same levels together."""
    found: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for curve in group:
        for lower, upper in pairwise(curve.levels):
            found.setdefault((lower, upper), []).extend(between([curve], upper, lower))
    return [Step(lower, upper, cells) for (lower, upper), cells in found.items()]


def gains(question: Question) -> Iterator[Finding]:
    """Return steps that gain nothing although later ones do, and up to where doubling nearly doubles."""
    levels = question.cells()[question.analysis.over]
    if not levels.dtype.is_numeric() or min(levels) <= 0 or not question.seeks_maximum:
        return
    for key, group in over_numbers(question, question.along):
        steps = steps_of(group)
        yield from _without_gain(question, key, steps)
        yield from _scaling(question, key, steps)


def _without_gain(question: Question, key: Mapping[str, Any], steps: Sequence[Step]) -> Iterator[Finding]:
    """Steps without gain before one that gains; those after the last gain follow from the saturation point."""
    axis = question.axis
    for i, step in enumerate(steps):
        pays_later = any(later.pooled.above(PAYS) for later in steps[i + 1 :])
        part = _cells_without_gain(step) if pays_later else None
        if part:
            yield NoGain(
                **of_load(question, key, part.case_ids, part.pooled),
                lower=step.lower,
                upper=step.upper,
                axis=axis,
                axis_levels=tuple(cell[axis] for cell in step.cells) if axis else (),
                cells=tuple(cell[axis] for cell in part.cells) if axis else (),
                ratios=part.ratios,
                pooled=part.pooled,
                repeats=step.repeats,
            )


def _cells_without_gain(step: Step) -> Step | None:
    """Return the cells that gain less than 5 %: all of the axis, else as much of either end as there is."""
    size = len(step.cells)
    if not step.is_known:
        return None
    smallest = 1 if size == 1 else max(3, size // 3)
    stretches = [step.cells]
    for length in range(size - 1, smallest - 1, -1):
        stretches += [step.cells[:length], step.cells[-length:]]
    parts = (Step(step.lower, step.upper, cells) for cells in stretches)
    return next((part for part in parts if part.pooled.below(1 + MARGIN) and max(part.ratios) < 1 + MARGIN), None)


def _scaling(question: Question, key: Mapping[str, Any], steps: Sequence[Step]) -> Iterator[Finding]:
    """The longest run of steps in which every cell nearly doubles, else the most that any step brings."""
    steps = [step for step in steps if step.is_known]
    good = [step.gain.above(NEARLY_DOUBLE) and min(each.value for each in step.gains) > NEARLY_DOUBLE for step in steps]
    start, end = _longest(good)
    run = steps[start:end]
    if not steps:
        return
    if run:
        gain = Estimate(_mean_gain(run, "value"), _mean_gain(run, "low"), _mean_gain(run, "high"))
    else:
        best = max(steps, key=lambda step: max(each.value for each in step.gains))
        run, gain = [best], max(best.gains, key=lambda each: each.value)
        if not best.gain.above(1 + MARGIN) or (gain.high or gain.value) > KNOWN * (gain.low or gain.value):
            return
    yield Scaling(
        **of_load(question, key, [case_id for step in run for case_id in step.case_ids], gain),
        lower=run[0].lower,
        upper=run[-1].upper,
        nearly_doubles=end > start,
        gain=gain,
        steps=tuple((step.upper, step.gain.value) for step in steps),
        repeats=min(step.repeats for step in run),
    )


def _mean_gain(run: Sequence[Step], name: str) -> float:
    """Return the gain per doubling over several steps; its interval is at most as wide as that of their ends."""
    product = math.prod(getattr(step.pooled, name) for step in run)
    doublings = sum(math.log2(step.upper / step.lower) for step in run)
    return float(product ** (1 / doublings))


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    best, start = (0, 0), 0
    for i, flag in enumerate([*flags, False]):
        if not flag:
            best = max(best, (start, i), key=lambda span: span[1] - span[0])
            start = i + 1
    return best


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


def dependences(question: Question) -> Iterator[Finding]:
    """Return True if the factor matters, for the cell in which it matters most."""
    for ratios, _, values in ranges(question, lambda curve: (int(curve.medians.argmin()), int(curve.medians.argmax()))):
        largest = values["ratio"]
        if all(each.below(FLAT) for each in ratios):
            yield Dependence(**values, decision="flat")
        elif largest.above(1 + MARGIN):
            yield Dependence(**values, decision="depends")
        else:
            yield Dependence(**{**values, "strength": "weak"}, decision="unclear")


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


def tail_growth(question: Question) -> Iterator[Finding]:
    """Return how a percentile grows from the first level to the last achieved, for the cell in which it grows most."""
    shares = question.runs.filter(pl.col("metric") == "achieved_rate_fraction").group_by("case_id")
    missed = set(shares.agg(pl.col("value").median()).filter(pl.col("value") < KEPT_UP)["case_id"])

    def achieved(curve: Curve) -> int:
        """Number of levels before the first one that was not."""
        return next((at for at, case in enumerate(curve.case_ids) if case in missed), len(curve.levels))

    for _, curve, values in ranges(question, lambda curve: (0, max(0, achieved(curve) - 1))):
        at = achieved(curve)
        if values["first_level"] != values["last_level"]:
            yield TailGrowth(**values, overloaded=curve.levels[at] if at < len(curve.levels) else None)


KINDS = (
    QuestionKind("gain_per_doubling", gains, compares_levels=True),
    QuestionKind("flatness", dependences, compares_levels=True, is_of_names=True),
    QuestionKind("tail_growth", tail_growth, compares_levels=True),
)
