"""Gain per doubling: what each step along a factor brings, and what that is for each doubling of the factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import MARGIN, Estimate, pooled_ratio, ratio

NEARLY_DOUBLE = 1.8
PAYS = 1.1
"""A later step must gain a tenth for an earlier one without gain to be worth a finding."""


@dataclass(frozen=True, kw_only=True)
class NoGain(Finding):
    """A step that gains less than 5 % in every cell named, although a later step gains."""

    kind: ClassVar[str] = "no gain"
    topic: ClassVar[Topic] = "scaling"
    load: str
    over: str
    metric: str
    lower: Any
    upper: Any
    axis: str | None
    axis_levels: tuple[Any, ...]
    cells: tuple[Any, ...]
    """Levels of the axis that it is true for."""
    ratios: tuple[float, ...]
    """Of each of these cells: the metric at `upper` over that at `lower`."""
    pooled: Estimate
    repeats: int

    def _sentence(self) -> str:
        where = wording.range_words(self.axis, self.axis_levels, self.cells) if self.axis else ""
        lower, upper = (wording.level_value(self.over, level) for level in (self.lower, self.upper))
        words = f"{wording.factor_words(self.over)} from {lower} to {upper}"
        if max(self.ratios) < 1 - MARGIN:
            loss = wording.percent_range(1 - max(self.ratios), 1 - min(self.ratios))
            return f"{self.load}{where} lose {loss} of their {self._metric} by raising {words}"
        return f"{self.load}{where} gain less than {100 * MARGIN:.0f} % {self._metric} by raising {words}"

    def _evidence(self) -> str:
        each = wording.range_text(*(wording.ratio_text(end) for end in (min(self.ratios), max(self.ratios))))
        return (
            f"mean ratio {wording.ratio_estimate_text(self.pooled)}; {each} in "
            f"{wording.counted(len(self.ratios), 'cell')}"
            f" ({wording.counted(self.repeats, 'run')} each)"
        )

    @property
    def _metric(self) -> str:
        return wording.metric_words(self.metric)


@dataclass(frozen=True, kw_only=True)
class Scaling(Finding):
    """What a doubling of a factor brings: up to where it nearly doubles the metric, else the most it brings."""

    kind: ClassVar[str] = "scaling"
    topic: ClassVar[Topic] = "scaling"
    load: str
    over: str
    metric: str
    lower: Any
    upper: Any
    nearly_doubles: bool
    """Whether every cell gains at least `NEARLY_DOUBLE` per doubling, in every step from `lower` to `upper`."""
    gain: Estimate
    """Per doubling: the mean over the steps if it nearly doubles, else the largest of any step and cell."""
    steps: tuple[tuple[Any, float], ...]
    """Upper level and mean gain per doubling of every step."""
    repeats: int

    def _sentence(self) -> str:
        lower, upper = (wording.level_value(self.over, level) for level in (self.lower, self.upper))
        factor, metric = wording.factor_words(self.over), wording.metric_words(self.metric)
        if self.nearly_doubles:
            return (
                f"doubling {factor} nearly doubles {metric} of {self.load}, from {lower} to {upper} "
                f"({wording.ratio_text(self.gain.value)} times)"
            )
        average = " on average" if self.upper != 2 * self.lower else ""
        return (
            f"each doubling of {factor} multiplies {metric} of {self.load} by at most "
            f"{wording.ratio_text(self.gain.value)}{average} (from {lower} to {upper})"
        )

    def _evidence(self) -> str:
        listed = ", ".join(f"{wording.level_value(self.over, upper)}: {gain:.2f}" for upper, gain in self.steps)
        interval = wording.ratio_estimate_text(self.gain)
        return f"gain per doubling {interval}; by step: {listed}; {wording.counted(self.repeats, 'run')} each"


@dataclass(frozen=True)
class _Step:
    lower: Any
    upper: Any
    pooled: Estimate
    rows: pl.DataFrame

    @property
    def gain(self) -> Estimate:
        """The pooled ratio for one doubling; levels need not double."""
        power = 1 / math.log2(self.upper / self.lower)
        low, high = (None if end is None else end**power for end in (self.pooled.low, self.pooled.high))
        return Estimate(self.pooled.value**power, low, high)

    @property
    def repeats(self) -> int:
        """Fewest of any cell."""
        return min(len(values) for column in ("before", "after") for values in self.rows[column])


def find(question: Question) -> Iterator[Finding]:
    """Return steps that gain nothing although later ones do, and up to where doubling nearly doubles."""
    over, metric = question.analysis.over, question.analysis.metric
    cells = question.cells()
    if not cells.schema[over].is_numeric() or cells[over].n_unique() < 2:
        return
    if metric_of(metric).better != "higher" or question.is_open_loop or min(cells[over]) <= 0:
        return
    for _, group in question.along_axis(gain_per_doubling(cells, over=over, by=question.by)):
        key = {name: group[name][0] for name in question.apart}
        steps = [_step(rows) for _, rows in groups(group, ["from_level", "to_level"])]
        yield from _without_gain(question, key, steps)
        yield from _scaling(question, key, steps)


def _step(rows: pl.DataFrame) -> _Step:
    return _Step(rows["from_level"][0], rows["to_level"][0], _pooled(rows), rows)


def _pooled(rows: pl.DataFrame) -> Estimate:
    return pooled_ratio([(row["after"], row["before"]) for row in rows.iter_rows(named=True)])


def _without_gain(question: Question, key: Mapping[str, Any], steps: Sequence[_Step]) -> Iterator[Finding]:
    """Steps without gain before one that gains; those after the last gain follow from the saturation point."""
    for i, step in enumerate(steps):
        pays_later = any(later.pooled.above(PAYS) for later in steps[i + 1 :])
        rows = _cells_without_gain(step) if pays_later else None
        if rows is None:
            continue
        case_ids = _case_ids(rows)
        pooled = _pooled(rows)
        yield NoGain(
            load=question.load(key, rows["case_ids"][0][0]),
            over=question.analysis.over,
            metric=question.analysis.metric,
            lower=step.lower,
            upper=step.upper,
            axis=question.axis,
            axis_levels=tuple(step.rows[question.axis]) if question.axis else (),
            cells=tuple(rows[question.axis]) if question.axis else (),
            ratios=tuple(rows["ratio"]),
            pooled=pooled,
            repeats=step.repeats,
            strength=question.support.strength(case_ids, pooled),
            case_ids=case_ids,
            part=question.part.name,
        )


def _cells_without_gain(step: _Step) -> pl.DataFrame | None:
    """Return the cells that gain less than 5 %: all of the axis, else as much of either end as there is."""
    size = len(step.rows)
    smallest = 1 if size == 1 else max(3, size // 3)
    stretches = [step.rows]
    for length in range(size - 1, smallest - 1, -1):
        stretches += [step.rows.head(length), step.rows.tail(length)]
    for rows in stretches:
        if _pooled(rows).below(1 + MARGIN) and float(rows["ratio"].max()) < 1 + MARGIN:  # type: ignore[arg-type]  # numbers
            return rows
    return None


def _scaling(question: Question, key: Mapping[str, Any], steps: Sequence[_Step]) -> Iterator[Finding]:
    """The longest run of steps in which every cell nearly doubles, else the most that any step brings."""
    good = [
        step.gain.above(NEARLY_DOUBLE) and float(step.rows["gain"].min()) > NEARLY_DOUBLE  # type: ignore[arg-type]
        for step in steps
    ]
    start, end = _longest(good)
    run = steps[start:end]
    if run:
        value, low, high = (_mean_gain(run, name) for name in ("value", "low", "high"))
        gain = Estimate(value, low, high)
        rows = pl.concat([step.rows for step in run])
    else:
        best = max(steps, key=lambda step: float(step.rows["gain"].max()))  # type: ignore[arg-type]
        run, rows = [best], best.rows
        row = rows.sort("gain", maintain_order=True).row(-1, named=True)
        gain = Estimate(row["gain"], row["gain_low"], row["gain_high"])
        if not best.gain.above(1 + MARGIN):
            return
    case_ids = _case_ids(rows)
    yield Scaling(
        load=question.load(key, rows["case_ids"][0][0]),
        over=question.analysis.over,
        metric=question.analysis.metric,
        lower=run[0].lower,
        upper=run[-1].upper,
        nearly_doubles=end > start,
        gain=gain,
        steps=tuple((step.upper, step.gain.value) for step in steps),
        repeats=min(step.repeats for step in run),
        strength=question.support.strength(case_ids, gain),
        case_ids=case_ids,
        part=question.part.name,
    )


def _mean_gain(run: Sequence[_Step], name: str) -> float:
    """Return the gain per doubling over several steps; its interval is at most as wide as that of their ends."""
    product, doublings = 1.0, 0.0
    for step in run:
        product *= getattr(step.pooled, name)
        doublings += math.log2(step.upper / step.lower)
    return float(product ** (1 / doublings))


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    best, start = (0, 0), 0
    for i, flag in enumerate([*flags, False]):
        if not flag:
            best = max(best, (start, i), key=lambda span: span[1] - span[0])
            start = i + 1
    return best


def _case_ids(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(dict.fromkeys(case for cases in rows["case_ids"] for case in cases))


def gain_per_doubling(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return one row for each step from one level of the factor `over` to the next, for each combination of `by`.

    Columns: those of `by`; `from_level, to_level`; `ratio, low, high` of the metric over that step; `gain, gain_low,
    gain_high`: the same for one doubling, ratio ^ (1 / log2(to / from)); `before, after` (the repeats), `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        for i, (lower, upper) in enumerate(pairwise(levels)):
            step, doublings = ratio(values[i + 1], values[i]), math.log2(upper / lower)
            rows.append(
                {
                    **key,
                    "from_level": lower,
                    "to_level": upper,
                    "ratio": step.value,
                    "low": step.low,
                    "high": step.high,
                    "gain": step.value ** (1 / doublings),
                    "gain_low": None if step.low is None else step.low ** (1 / doublings),
                    "gain_high": None if step.high is None else step.high ** (1 / doublings),
                    "before": values[i].tolist(),
                    "after": values[i + 1].tolist(),
                    "case_ids": group["case_id"].to_list()[i : i + 2],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


KINDS = (QuestionKind("gain_per_doubling", find, compares_levels=True),)
