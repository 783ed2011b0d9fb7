"""Saturation: the smallest level of a factor that reaches 95 % of the peak along it.

The peak is the best median along the factor, wherever it is. Uncertainty comes from the repeats: medians of resampled
runs are evaluated thousands of times; the interval contains 95 % of these answers. Without repeats
(published values) there is an answer and no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Strength, Topic, weakest
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import BOOTSTRAP, MINIMUM_REPEATS, SEED, Floats, ratio, resampled_medians

SHARE_OF_PEAK = 0.95
P99 = "completion_latency_ns_p99"
NAMED = 3
"""Different answers along an axis that are listed; more are given as a range."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where one cell saturates."""

    axis_level: Any
    """Level of the factor that neighbouring cells differ in; None if there is none."""
    level: Any
    low: Any
    high: Any
    """Interval of the level; None without repeats."""
    agreement: float | None
    """Share of the resampled answers that agree with `level`."""
    value: float
    peak: float
    peak_level: Any
    saturates: bool
    """Whether the level is below the last one measured."""
    repeats: int

    @property
    def is_uncertain(self) -> bool:
        """Whether fewer than half of the resampled answers agree."""
        return self.agreement is not None and self.agreement < 0.5 and self.low != self.high


@dataclass(frozen=True, kw_only=True)
class Saturation(Finding):
    """Where a load saturates along a factor: one point, or one for each level of an axis."""

    kind: ClassVar[str] = "saturation"
    topic: ClassVar[Topic] = "scaling"
    load: str
    over: str
    metric: str
    axis: str | None
    points: tuple[Point, ...]
    last_level: Any
    p99_beyond: tuple[float, float] | None = None
    """p99 latency at the level and at the last level, if it rises; of a single point."""

    @property
    def is_unsaturated(self) -> bool:
        """Whether no point saturates, and the repeats agree."""
        return not any(point.saturates or point.is_uncertain for point in self.points)

    def _sentence(self) -> str:
        return self._single(self.points[0]) if len(self.points) == 1 else self._along_axis()

    def _evidence(self) -> str:
        repeats = min(point.repeats for point in self.points)
        runs = f"{wording.counted(repeats, 'run')} each"
        if len(self.points) == 1:
            point = self.points[0]
            value, peak = (wording.value_text(self.metric, each) for each in (point.value, point.peak))
            text = (
                f"{value} at {wording.level_words(self.over, point.level)}, peak {peak} at "
                f"{self._value(point.peak_level)}"
            )
            if point.low is None:
                return f"{text}; {runs}, too few for a confidence interval"
            interval = wording.range_text(self._value(point.low), self._value(point.high))
            return f"{text}; 95 % CI of the level {interval} ({BOOTSTRAP}); {runs}"
        listed = ", ".join(f"{self._axis_value(point)}: {self._value(point.level)}" for point in self.points)
        uncertain = sum(point.is_uncertain for point in self.points)
        note = f"; uncertain for {uncertain} of {len(self.points)}" if uncertain else ""
        return f"smallest {wording.factor_words(self.over)} with 95 % of the peak: {listed}; {runs}{note}"

    def _single(self, point: Point) -> str:
        level, peak = wording.level_words(self.over, point.level), wording.value_text(self.metric, point.peak)
        if point.is_uncertain:
            low, high = self._value(point.low), self._value(point.high)
            return (
                f"{self.load}: saturation point between {wording.factor_words(self.over)} {low} and {high}, "
                "repeats disagree"
            )
        if not point.saturates:
            return f"{self.load}: not saturated at {level}, the highest level measured ({peak})"
        text = f"{self.load} saturate at {level} ({wording.value_text(self.metric, point.value)})"
        if self.p99_beyond:
            at, last = (wording.value_text(P99, each) for each in self.p99_beyond)
            text += f"; p99 latency rises from {at} there to {last} at {self._value(self.last_level)}"
        return text

    def _along_axis(self) -> str:
        """Every clause is true for exactly the cells that it names."""
        axis = str(self.axis)
        levels = [point.axis_level for point in self.points]
        saturated, unsaturated = self._answers(saturates=True), self._answers(saturates=False)
        uncertain = [point.axis_level for point in self.points if point.is_uncertain]
        clauses = []
        if 0 < len(saturated) <= NAMED:
            listed = [
                f"at {wording.level_words(self.over, level)}{wording.range_words(axis, levels, chosen)}"
                for level, chosen in saturated.items()
            ]
            clauses.append(f"saturate {', '.join(listed)}")
        elif saturated:
            where = wording.range_words(axis, levels, [level for chosen in saturated.values() for level in chosen])
            where = where if unsaturated or uncertain else ""
            numeric = all(isinstance(level, int | float) for level in saturated)
            found = sorted(saturated) if numeric else list(saturated)
            ends = f"{self._value(found[0])} and {self._value(found[-1])}"
            clauses.append(
                f"saturate between {wording.factor_words(self.over)} {ends}{where}, "
                f"depending on {wording.factor_words(axis)}"
            )
        clauses += [
            f"are not saturated at {wording.level_words(self.over, last)}{wording.range_words(axis, levels, chosen)}"
            for last, chosen in unsaturated.items()
        ]
        if uncertain:
            clauses.append(f"repeats disagree on the saturation point{wording.range_words(axis, levels, uncertain)}")
        colon = "" if saturated or unsaturated else ":"
        return f"{self.load}{colon} {'; '.join(clauses)}"

    def _answers(self, *, saturates: bool) -> dict[Any, list[Any]]:
        """Return the axis levels of each answer that the repeats agree on."""
        found: dict[Any, list[Any]] = {}
        for point in self.points:
            if point.saturates == saturates and not point.is_uncertain:
                found.setdefault(point.level, []).append(point.axis_level)
        return found

    def _value(self, level: Any) -> str:
        return wording.level_value(self.over, level)

    def _axis_value(self, point: Point) -> str:
        return wording.level_value(str(self.axis), point.axis_level)


def find(question: Question) -> Iterator[Finding]:
    """Return where each load saturates, neighbours along the axis in one finding."""
    over, metric = question.analysis.over, question.analysis.metric
    cells = question.cells()
    if cells[over].n_unique() < 2 or metric_of(metric).better != "higher" or question.is_open_loop:
        return
    answers = saturation(cells, over=over, by=question.by)
    for key, group in question.along_axis(answers):
        rows = group.to_dicts()
        points = tuple(_point(question, row) for row in rows)
        case_ids = tuple(dict.fromkeys(case for row in rows for case in row["case_ids"]))
        yield Saturation(
            load=question.load(key, rows[0]["case_ids"][0]),
            over=over,
            metric=metric,
            axis=question.axis,
            points=points,
            last_level=rows[0]["last_level"],
            p99_beyond=_p99_beyond(question, rows[0]) if len(rows) == 1 else None,
            strength=weakest(question.support.of_cases(case_ids), _strength(points)),
            case_ids=case_ids,
            part=question.part.name,
        )


def _point(question: Question, row: Mapping[str, Any]) -> Point:
    names = ("level", "low", "high", "value", "peak", "peak_level", "saturates", "repeats")
    level = row[question.axis] if question.axis else None
    return Point(axis_level=level, agreement=row["share"], **{name: row[name] for name in names})


def _p99_beyond(question: Question, row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return p99 at the saturation point and at the last level, unless another question of the study covers it."""
    over = question.analysis.over
    asked = any(
        each.kind == "tail_growth" and each.part == question.analysis.part and each.over == over
        for each in question.study.analysis
    )
    if asked or not row["saturates"]:
        return None
    for found, group in groups(question.cells(P99), question.by):
        if all(row[name] == level for name, level in found.items()):
            medians = {level: values.median() for level, values in zip(group[over], group["values"], strict=True)}
            at, last = medians.get(row["level"]), medians.get(row["last_level"])
            return (at, last) if at is not None and last is not None and last >= 1.2 * at else None
    return None


def _strength(points: Sequence[Point]) -> Strength:
    """By the agreement of the repeats; the worst point decides, as a sentence covers all of them."""
    if any(point.agreement is None for point in points):
        return "weak"
    worst = min(point.agreement for point in points if point.agreement is not None)
    return "strong" if worst >= 0.9 else "moderate" if worst >= 0.5 else "weak"


def saturation(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return where each combination of `by` saturates along the factor `over`; none for one with a single level.

    Columns: those of `by`; `level` and its interval `low, high`; `share` (of the resampled answers that agree with
    `level`); `value` there; `peak` and `peak_level`; `last_level` and `last_value`; `saturates` (whether it is reached
    before the last level); `levels` (as text) and `shares_of_peak`, one for each level; `repeats` (fewest of any
    level); `case_ids` of level and peak.
    """
    several = [(key, group) for key, group in groups(cells, by) if group[over].n_unique() > 1]
    rows = [{**key, **_saturation(group, over)} for key, group in several]
    return pl.DataFrame(rows, infer_schema_length=None)


def _saturation(group: pl.DataFrame, over: str) -> dict[str, Any]:
    levels, values = along(group, over)
    medians = np.array([np.median(repeats) for repeats in values])
    at, peak = int(_first_saturated(medians[np.newaxis, :])[0]), int(medians.argmax())
    repeats = min(len(each) for each in values)
    low, high, share = _uncertainty(values, at) if repeats >= MINIMUM_REPEATS else (None, None, None)
    case_ids = group["case_id"].to_list()
    return {
        "level": levels[at],
        "low": None if low is None else levels[low],
        "high": None if high is None else levels[high],
        "share": share,
        "value": float(medians[at]),
        "peak": float(medians[peak]),
        "peak_level": levels[peak],
        "last_level": levels[-1],
        "last_value": float(medians[-1]),
        "saturates": at < len(levels) - 1,
        "levels": [str(level) for level in levels],
        "shares_of_peak": (medians / medians.max()).tolist(),
        "repeats": repeats,
        "case_ids": [case_ids[at], case_ids[peak]],
    }


def still_rises(best: Mapping[str, Any], lower: pl.DataFrame) -> bool:
    """Return whether a cell exceeds all cells of lower levels: by more than 5 %, and more than its repeats scatter.

    Cells have `median` and `values`. Without repeats the medians decide.
    """
    if lower.is_empty():
        return False
    second = lower.sort("median", maintain_order=True).row(-1, named=True)
    rise = ratio(best["values"], second["values"])
    return bool(second["median"] < SHARE_OF_PEAK * best["median"]) and (rise.above(1) or not rise.certain)


def _first_saturated(medians: Floats) -> NDArray[np.intp]:
    """Return the position of the first level that reaches the share of the peak, for each row."""
    reached = medians >= SHARE_OF_PEAK * medians.max(axis=1, keepdims=True)
    first: NDArray[np.intp] = np.argmax(reached, axis=1)
    return first


def _uncertainty(values: Sequence[Floats], at: int) -> tuple[int, int, float]:
    resampled = np.stack([resampled_medians(each, seed=SEED + i) for i, each in enumerate(values)], axis=1)
    positions = np.sort(_first_saturated(resampled))
    low, high = (int(positions[int(q * (len(positions) - 1))]) for q in (0.025, 0.975))
    return low, high, float((positions == at).mean())


KINDS = (QuestionKind("saturation", find, compares_levels=True),)
