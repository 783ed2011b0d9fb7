"""Saturation: the smallest level of a factor that reaches 95 % of the peak along it.

The peak is the best median along the factor, wherever it is. Uncertainty comes from the repeats: medians that they
permit are drawn and evaluated thousands of times; the interval has 95 % of these answers, and is stated unless it is a
single level. Of a load of which it has all levels nothing is stated. Without repeats (published values) there is an
answer and no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.findings.finding import Finding, Strength
from iosonde.findings.kinds import Curve, OverFactor, along_axis, curves, of_load
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import MINIMUM_REPEATS, SEED, SIMULATED, Floats, plausible_medians, ratio

SHARE_OF_PEAK = 0.95
P99 = "completion_latency_ns_p99"
NAMED = 3
"""Different answers along an axis that are listed; more are given as a range."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Saturation point of one cell."""

    axis_level: Any
    """Level of the factor that neighbouring cells differ in; None if there is none."""
    level: Any
    low: Any
    high: Any
    """Interval of the level; None without repeats."""
    agreement: float | None
    """Share of the drawn answers that agree with `level`."""
    value: float
    peak: float
    peak_level: Any
    is_last: bool
    """True if the level is the last one measured."""
    is_unknown: bool = False
    """True if the interval has all levels."""
    case_ids: tuple[str, ...] = ()
    """At the level, and at the peak."""

    @property
    def is_uncertain(self) -> bool:
        """True if the interval has several levels."""
        return bool(self.low != self.high)

    @property
    def is_rising(self) -> bool:
        """True if the last level exceeds all others, by its repeats."""
        return self.is_last and self.low is not None and not self.is_uncertain


class Saturation(OverFactor, kind="saturation", topic="scaling"):
    """Saturation of a load along a factor: one point, or one for each level of an axis."""

    axis: str | None
    points: tuple[Point, ...]
    last_level: Any
    p99_beyond: tuple[float, float] | None = None
    """p99 latency at the level and at the last level, if it rises; of a single point."""

    @property
    def is_unsaturated(self) -> bool:
        """True if every load rises up to the last level."""
        return all(point.is_rising for point in self.points)

    def _sentence(self) -> str:
        return self._single(self.points[0]) if len(self.points) == 1 else self._along_axis()

    def _evidence(self) -> str:
        factor = wording.quantity_words(self.over)
        if len(self.points) > 1:
            levels = ", ".join(f"{self._axis_value(point)}: {self._level_value(point.level)}" for point in self.points)
            uncertain = sum(point.is_uncertain for point in self.points)
            note = f"; uncertain for {uncertain} of {len(self.points)}" if uncertain else ""
            return f"smallest {factor} with 95 % of the peak: {levels}; {self._runs}{note}"
        [point] = self.points
        value, peak = (self._value(each) for each in (point.value, point.peak))
        text = f"{value} {self._at(point.level)}, peak {peak} at {self._level_value(point.peak_level)}"
        if point.low is None:
            return f"{text}; {self._runs}, too few for a confidence interval"
        interval = wording.range_text(self._level_value(point.low), self._level_value(point.high))
        return f"{text}; 95 % CI of the {factor} {interval} ({SIMULATED}); {self._runs}"

    def _single(self, point: Point) -> str:
        if point.is_uncertain:
            return f"{self.load} saturate {wording.between_levels(self.over, point.low, point.high)}"
        if point.is_last:
            last = f"{self._level(point.level)}, the highest level measured"
            verb = "rising to" if point.is_rising else "highest at"
            return f"{self.load}: {verb} {last} ({self._value(point.peak)})"
        text = f"{self.load} saturate {self._at(point.level)} ({self._value(point.value)})"
        if self.p99_beyond:
            at, last = (wording.value_text(P99, each) for each in self.p99_beyond)
            text += f"; p99 latency rises from {at} there to {last} {self._at(self.last_level)}"
        return text

    def _along_axis(self) -> str:
        """Every clause is true for exactly the cells that it names."""
        axis = str(self.axis)
        levels = [point.axis_level for point in self.points]
        saturated, unsaturated = self._answers(saturates=True), self._answers(saturates=False)
        uncertain = [point.axis_level for point in self.points if point.is_uncertain]
        clauses = []
        if 0 < len(saturated) <= NAMED:
            listed = [self._cells(self._at(level), points) for level, points in saturated.items()]
            clauses.append(f"saturated {', '.join(listed)}")
        elif saturated:
            points = [point for each in saturated.values() for point in each]
            where = wording.range_words(axis, levels, [point.axis_level for point in points])
            where = where if unsaturated or uncertain else ""
            numeric = all(isinstance(level, int | float) for level in saturated)
            found = sorted(saturated) if numeric else list(saturated)
            between = wording.between_levels(self.over, found[0], found[-1])
            clauses.append(f"saturated {between}{where}, depending on {wording.factor_words(axis)}")
        for last, points in unsaturated.items():
            verb = "rising to" if all(point.is_rising for point in points) else "highest at"
            clauses.append(f"{verb} {self._cells(self._level(last), points)}")
        if uncertain:
            clauses.append(f"repeats disagree on the saturation point{wording.range_words(axis, levels, uncertain)}")
        return f"{self.load}: {'; '.join(clauses)}"

    def _cells(self, level: str, points: Sequence[Point]) -> str:
        """Write a level, the cells that it is true for, and their values: `with 2 hosts for reads (90 k IOPS)`."""
        levels, chosen = ([each.axis_level for each in some] for some in (self.points, points))
        ends = [self._value(end(each.value for each in points)) for end in (min, max)]
        where = wording.range_words(str(self.axis), levels, chosen)
        return f"{level}{where} ({wording.range_text(*ends)})"

    def _answers(self, *, saturates: bool) -> dict[Any, list[Point]]:
        """Return the points of each answer that the repeats agree on."""
        found: dict[Any, list[Point]] = {}
        for point in self.points:
            if point.is_last != saturates and not point.is_uncertain:
                found.setdefault(point.level, []).append(point)
        return found

    def _at(self, level: Any) -> str:
        return wording.at_level(self.over, level)

    def _axis_value(self, point: Point) -> str:
        words = wording.level_words if self.axis == "read_fraction" else wording.level_value
        return words(str(self.axis), point.axis_level)


def find(question: Question) -> Iterator[Finding]:
    """Return where each load saturates, neighbours along the axis in one finding."""
    if not question.seeks_maximum:
        return
    axis = question.axis
    for key, group in along_axis(question):
        points = tuple(saturation(curve, axis_level=curve.key[axis] if axis else None) for curve in group)
        if all(point.is_unknown for point in points):
            continue
        case_ids = [case for point in points for case in point.case_ids]
        yield Saturation(
            **of_load(question, key, case_ids, at_most=_strength(points)),
            axis=axis,
            points=points,
            last_level=group[0].levels[-1],
            p99_beyond=_p99_beyond(question, group[0], points[0]) if len(group) == 1 else None,
            repeats=min(curve.repeats for curve in group),
        )


def _p99_beyond(question: Question, curve: Curve, point: Point) -> tuple[float, float] | None:
    """Return p99 at the saturation point and at the last level, unless another question of the study covers it."""
    over = question.analysis.over
    asked = any(
        (each.kind, each.part, each.over) == ("tail_growth", question.analysis.part, over)
        for each in question.study.analysis
    )
    if asked or point.is_last:
        return None
    for tail in curves(question.cells(P99), over=over, by=question.by):
        if tail.key == curve.key and {point.level, curve.levels[-1]} <= set(tail.levels):
            at, last = (float(tail.medians[tail.levels.index(each)]) for each in (point.level, curve.levels[-1]))
            return (at, last) if last >= 1.2 * at else None
    return None


def _strength(points: Sequence[Point]) -> Strength:
    """By the agreement of the draws; the worst point decides, as a sentence covers all of them."""
    if any(point.agreement is None for point in points):
        return "weak"
    worst = min(point.agreement for point in points if point.agreement is not None)
    return "strong" if worst >= 0.9 else "moderate" if worst >= 0.5 else "weak"


def saturation(curve: Curve, *, axis_level: Any = None) -> Point:
    """Return the saturation point of a curve; the interval of the level is None with too few repeats."""
    at, peak = int(_first_saturated(curve.medians[np.newaxis, :])[0]), int(curve.medians.argmax())
    low, high, agreement = None, None, None
    if curve.repeats >= MINIMUM_REPEATS:
        first, last, agreement = _uncertainty(curve.values, at)
        low, high = curve.levels[first], curve.levels[last]
    return Point(
        axis_level=axis_level,
        level=curve.levels[at],
        low=low,
        high=high,
        agreement=agreement,
        value=float(curve.medians[at]),
        peak=float(curve.medians[peak]),
        peak_level=curve.levels[peak],
        is_last=at == len(curve.levels) - 1,
        is_unknown=(low, high) == (curve.levels[0], curve.levels[-1]),
        case_ids=(curve.case_ids[at], curve.case_ids[peak]),
    )


def still_rises(best: Mapping[str, Any], lower: pl.DataFrame) -> bool:
    """Return True if a cell exceeds all cells of lower levels: by more than 5 %, and more than its repeats scatter.

    Cells have `median` and `values`. Without repeats that is not known.
    """
    if lower.is_empty():
        return False
    second = lower.sort("median", maintain_order=True).row(-1, named=True)
    rise = ratio(best["values"], second["values"])
    return bool(second["median"] < SHARE_OF_PEAK * best["median"]) and rise.above(1)


def _first_saturated(medians: Floats) -> NDArray[np.intp]:
    """Return the position of the first level that reaches the share of the peak, for each row."""
    reached = medians >= SHARE_OF_PEAK * medians.max(axis=1, keepdims=True)
    first: NDArray[np.intp] = np.argmax(reached, axis=1)
    return first


def _uncertainty(values: Sequence[Floats], at: int) -> tuple[int, int, float]:
    drawn = np.stack([plausible_medians(each, seed=SEED + i) for i, each in enumerate(values)], axis=1)
    positions = np.sort(_first_saturated(drawn))
    low, high = (int(positions[int(q * (len(positions) - 1))]) for q in (0.025, 0.975))
    return low, high, float((positions == at).mean())


KINDS = (QuestionKind("saturation", find, compares_levels=True),)
