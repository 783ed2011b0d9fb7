"""Peak and saturation: the level of a factor that gives most, and the smallest one that reaches 95 % of the peak.

The peak is the best median along the factor, wherever it is. The uncertainty of the saturation point comes from the
repeats: medians that they permit are drawn and evaluated thousands of times; the interval has 95 % of these answers,
and is stated unless it is a single level. Of a load of which it has all levels nothing is stated. Without repeats
(published values) there is an answer and no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.findings import kinds
from iosonde.findings.cells import groups
from iosonde.findings.finding import Bounds, Fact, Finding, Strength, bounds_of
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import statistics, wording
from iosonde.metrics.registry import metric as metric_of


class OneLevel(kinds.Value, kind="one level", topic="performance", place=5):
    """The value of a load at the only level of a factor, the best one if there are several."""

    factor: str
    cells: int
    unknown: int = 0
    """Other levels that were measured and have too few samples for this metric."""
    specificity = 0

    @property
    def superseded_by(self) -> set[Fact]:
        return self.facts

    def _sentence(self) -> str:
        return self._stated()

    def _evidence(self) -> str:
        best = f"best median of {wording.counted(self.cells, 'case')}; " if self.cells > 1 else ""
        factor = wording.factor_words(self.factor)
        only = f"only one level of {factor} was measured, so its effect is unknown"
        if self.unknown:
            only = f"too few samples at {wording.counted(self.unknown, 'other level')} of {factor}"
        return f"{best}{self._runs}; {only}"


def value_of_one_level(question: Question) -> Iterator[Finding]:
    """Return the value of each load, the best one along the axis; nothing for several levels and open loops."""
    cells, over, metric = question.cells(), question.analysis.over, question.analysis.metric
    if cells[over].n_unique() != 1 or question.is_open_loop:
        return
    axis, downwards = question.axis, metric_of(metric).better == "lower"
    for key, group in groups(cells, [name for name in question.by if name != axis]):
        row = kinds.best_of(group, lowest=downwards)
        value = statistics.repeats_interval(row["values"]) if downwards else kinds.selected(row, group)
        level = wording.level_words(over, row[over])
        is_number = cells.schema[over].is_numeric()
        numbers = [*([level] if is_number else []), *([wording.level_words(axis, row[axis])] if axis else [])]
        name = "" if is_number else f" ({level})"
        what = "" if metric_of(metric).kind == "rate" else f", {wording.metric_words(metric)}"
        yield OneLevel(
            load=f"{question.load(key, row['case_id'])}{name}{what}",
            metric=metric,
            value=value,
            factor=over,
            setting=f"at {wording.listing(numbers)}" if numbers else "",
            cells=len(group),
            unknown=question.measured_levels - 1,
            repeats=len(row["values"]),
            **question.claim([row["case_id"]], value),
        )


class Peak(kinds.Highest, kind="peak", topic="performance", place=3):
    """The highest value along a factor with numeric levels, over all other factors."""

    reached: str
    """First setting with 95 % of the peak."""
    reached_value: float
    is_last: bool = False
    """True if it is the last level measured: no level shows that it is a peak."""

    @property
    def facts(self) -> set[Fact]:
        unsaturated = {("unsaturated", self.part, self.metric, self.load, self.setting)} if self.unsaturated else set()
        return super().facts | {self.highest_fact} | unsaturated

    def _sentence(self) -> str:
        reach = "reach at least" if self.lower_bound else "reach" if self.is_last else "peak at"
        reached = "" if self.reached == self.setting else f"; at least 95 % of it with {self.reached}"
        value = wording.estimate_text(self.metric, self.value)
        return "; ".join([f"{self.load} {reach} {value} with {self.setting}{reached}", *self._limits])

    def _evidence(self) -> str:
        reached = f"; {wording.value_text(self.metric, self.reached_value)} with {self.reached}"
        return f"{self._selection}{reached if self.reached != self.setting else ''}{self._other_verdicts}"


class Fastest(Finding, kind="fastest", topic="comparison"):
    """The largest of several named levels."""

    load: str
    metric: str
    levels: tuple[tuple[str, statistics.Estimate], ...]
    """Words for every level (and for the other factors that it is best with) and its value, the largest first."""
    lead: statistics.Estimate | None
    """Ratio of the largest to the second; None with a single level."""
    bounds: Bounds = ()
    """Bounds that it is if the device may be better with one of them."""
    may_be_higher: tuple[str, ...] = ()
    """Other levels with which the device may be better than measured."""
    tied: int
    """Number of levels that do not differ measurably from the largest, itself included."""
    repeats: int
    unclear: tuple[str, ...] = ()
    """Levels with too few runs for an interval of the lead over them."""

    def _sentence(self) -> str:
        names = [name for name, _ in self.levels]
        first = wording.value_text(self.metric, self.levels[0][1].value)
        if self.lead is None:
            return f"{self.load}: {first} with {names[0]}"
        if not self.lead.certain:
            return f"{self.load}: highest value with {names[0]} ({first}), too few runs to compare it with {names[1]}"
        few = wording.listing(self.unclear) if self.unclear else ""
        runs = f"; too few runs for a confidence interval with {few}" if few else ""
        if self.tied > 1:
            tied, value = wording.listing(names[: self.tied]), self.levels[0][1].value
            behind = [
                f"{wording.percent_text(each.value / value)} of it with {name}"
                for name, each in self.levels[self.tied :]
            ]
            rest = f"; {wording.listing(behind)}" if behind else ""
            return f"{self.load}: {tied} do not differ measurably ({first} with {names[0]}){rest}{runs}"
        if self.unclear:
            return f"{self.load}: highest value with {names[0]} ({first}){runs}"
        bound = f"{self.bounds[0]} " if len(self.bounds) == 1 else ""
        lead = f"{first}, {bound}{wording.ratio_estimate_text(self.lead)} the value with {names[1]}"
        if self.may_be_higher:
            higher = f"the device may be faster than measured with {wording.listing(self.may_be_higher)}"
            return f"{self.load}: highest value with {names[0]}: {lead}; {higher}"
        return f"{self.load} are fastest with {names[0]}: {lead}"

    def _evidence(self) -> str:
        listed = "; ".join(f"{name} {wording.estimate_text(self.metric, value)}" for name, value in self.levels)
        return f"{listed}; {wording.counted(self.repeats, 'run')} each"


def peaks(question: Question) -> Iterator[Finding]:
    """Return the peak, or of levels that are names the fastest.

    Unlike other questions this one maximises over factors that the study does not name in `by`.
    """
    if not question.seeks_maximum:
        return
    cells, over = question.cells().with_columns(median=pl.col("values").list.median()), question.analysis.over
    make = _peak if cells.schema[over].is_numeric() else _fastest
    for key, group in groups(cells, [name for name in question.analysis.by if name != over]):
        yield make(question, key, group)


def _peak(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over = question.analysis.over
    rest = [name for name in question.by if name not in key]
    highest_first = group.sort(pl.col("median").round_sig_figs(3), descending=True, maintain_order=True)
    best = highest_first.row(0, named=True)  # Levels are in their order: of equal values the one with the least effort.
    # Levels are in the order of the factor, so the first that is near the peak is where it is reached.
    reached = group.filter(pl.col("median") >= kinds.SHARE_OF_PEAK * best["median"]).row(0, named=True)
    return Peak(
        **kinds.highest(best, group, question.support, case_ids=[reached["case_id"]]),
        load=question.load(key, best["case_id"], without=[over, *rest]),
        metric=question.analysis.metric,
        setting=_setting(over, rest, best),
        reached=_setting(over, rest, reached),
        reached_value=reached["median"],
        unsaturated=_is_unsaturated(over, rest, best, group),
        is_last=best[over] == group[over].max() and not over.endswith("_fraction"),
        part=question.part.name,
    )


def _is_unsaturated(over: str, rest: Sequence[str], best: Mapping[str, Any], group: pl.DataFrame) -> bool:
    """Return True if the value rises up to the largest level, and no lower level of any cell is near it."""
    alike = {row[over] for row in group.iter_rows(named=True) if all(row[name] == best[name] for name in rest)}
    if over.endswith("_fraction") or best[over] < group[over].max() or len(alike) < 2:
        return False
    return kinds.still_rises(best, group.filter(pl.col(over) < best[over]))


def _fastest(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over = question.analysis.over
    rest = [name for name in question.by if name not in key]
    ordered = group.sort("median", descending=True, maintain_order=True)
    rows = [
        {**row, "setting": _named(over, rest, row)}
        for row in ordered.unique(over, keep="first", maintain_order=True).to_dicts()
    ]
    best = rows[0]
    leads = [statistics.ratio(best["values"], row["values"]) for row in rows[1:]]
    tied = 1 + sum(lead.certain and not lead.above(1) for lead in leads)
    uncertain = [lead for lead in leads if not lead.certain]
    return Fastest(
        load=question.load(key, best["case_id"], without=rest),
        metric=question.analysis.metric,
        levels=tuple((row["setting"], statistics.repeats_interval(row["values"])) for row in _tied_first(rows, leads)),
        lead=leads[0] if leads else None,
        **_bounds(question, rows),
        tied=tied,
        repeats=min(len(row["values"]) for row in rows),
        unclear=tuple(row["setting"] for row, lead in zip(rows[1:], leads, strict=True) if not lead.certain),
        **question.claim([row["case_id"] for row in rows], *leads[:1], *uncertain),
    )


def _bounds(question: Question, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of `Fastest` about levels whose values are lower bounds; those of rates and latencies."""
    top, *others = (question.support.is_lower_bound(row["case_id"]) for row in rows)
    bounds = bounds_of(question.analysis.metric, top=top, bottom=any(others[:1]))
    is_known = bool(bounds_of(question.analysis.metric, top=True, bottom=True))
    names = [row["setting"] for row, is_bound in zip(rows[1:], others, strict=True) if is_bound and is_known]
    return {"bounds": bounds, "may_be_higher": tuple(names)}


def _tied_first(rows: Sequence[dict[str, Any]], leads: Sequence[statistics.Estimate]) -> list[dict[str, Any]]:
    """Put the levels that do not differ measurably from the largest right after it."""
    others = list(zip(rows[1:], leads, strict=True))
    tied = [row for row, lead in others if lead.certain and not lead.above(1)]
    return [rows[0], *tied, *(row for row, _ in others if row not in tied)]


def _setting(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    return wording.listing([wording.level_words(name, row[name]) for name in (over, *rest)])


def _named(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    """`ext4 (queue depth 8)`: a name, and what it is best with."""
    others = f" ({wording.listing([wording.level_words(name, row[name]) for name in rest])})" if rest else ""
    return wording.level_words(over, row[over]) + others


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


class Saturation(kinds.OverFactor, kind="saturation", topic="scaling"):
    """Saturation of a load along a factor: one point, or one for each level of an axis."""

    axis: str | None
    points: tuple[Point, ...]
    last_level: Any
    p99_beyond: tuple[float, float] | None = None
    """p99 latency at the level and at the last level, if it rises; of a single point."""
    specificity = 1

    @property
    def superseded_by(self) -> set[Fact]:
        """A highest rate or peak may state that it is the last level measured, and not saturated there."""
        if len(self.points) > 1 or not self.is_unsaturated:
            return set()
        rising = ("unsaturated", self.part, self.metric, self.load)
        return {rising, (*rising, wording.level_words(self.over, self.points[0].level))}

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
        return f"{text}; 95 % CI of the {factor} {interval} ({statistics.SIMULATED}); {self._runs}"

    def _single(self, point: Point) -> str:
        if point.is_uncertain:
            between = wording.between_levels(self.over, point.low, point.high)
            if point.high == self.last_level:  # Whether they saturate there is not known.
                return f"{self.load}: 95 % of the peak reached {between}, the highest level measured"
            return f"{self.load} saturate {between}"
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


def saturations(question: Question) -> Iterator[Finding]:
    """Return where each load saturates, neighbours along the axis in one finding."""
    if not question.seeks_maximum:
        return
    axis = question.axis
    for key, group in kinds.over_numbers(question, question.along):
        points = tuple(saturation(curve, axis_level=curve.key[axis] if axis else None) for curve in group)
        if all(point.is_unknown for point in points):
            continue
        case_ids = [case for point in points for case in point.case_ids]
        yield Saturation(
            **kinds.of_load(question, key, case_ids, at_most=_strength(points)),
            axis=axis,
            points=points,
            last_level=group[0].levels[-1],
            p99_beyond=_p99_beyond(question, group[0], points[0]) if len(group) == 1 else None,
            repeats=min(curve.repeats for curve in group),
        )


def _p99_beyond(question: Question, curve: kinds.Curve, point: Point) -> tuple[float, float] | None:
    """Return p99 at the saturation point and at the last level, unless another question of the study covers it."""
    over = question.analysis.over
    asked = any(
        (each.kind, each.part, each.over) == ("tail_growth", question.analysis.part, over)
        for each in question.study.analysis
    )
    if asked or point.is_last:
        return None
    for tail in kinds.curves(question.cells(P99), over=over, by=question.by):
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


def saturation(curve: kinds.Curve, *, axis_level: Any = None) -> Point:
    """Return the saturation point of a curve; the interval of the level is None with too few repeats."""
    at, peak = int(_first_saturated(curve.medians[np.newaxis, :])[0]), int(curve.medians.argmax())
    low, high, agreement = None, None, None
    if curve.repeats >= statistics.MINIMUM_REPEATS:
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


def _first_saturated(medians: statistics.Floats) -> NDArray[np.intp]:
    """Return the position of the first level that reaches the share of the peak, for each row."""
    reached = medians >= kinds.SHARE_OF_PEAK * medians.max(axis=1, keepdims=True)
    first: NDArray[np.intp] = np.argmax(reached, axis=1)
    return first


def _uncertainty(values: Sequence[statistics.Floats], at: int) -> tuple[int, int, float]:
    drawn = np.stack(
        [statistics.plausible_medians(each, seed=statistics.SEED + i) for i, each in enumerate(values)], axis=1
    )
    positions = np.sort(_first_saturated(drawn))
    low, high = (int(positions[int(q * (len(positions) - 1))]) for q in (0.025, 0.975))
    return low, high, float((positions == at).mean())


KINDS = (
    QuestionKind("peak", peaks, compares_levels=True, is_of_names=True),
    QuestionKind("saturation", saturations, compares_levels=True),
)
