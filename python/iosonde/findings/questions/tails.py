"""Tails: how a latency percentile grows along a factor, usually queue depth.

In a closed loop latency must grow once a target is saturated (Little's law: in flight = rate x latency), so growth in
step with the factor, an exponent of 1, is no fault of the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval


@dataclass(frozen=True, kw_only=True)
class TailGrowth(Finding):
    """A latency percentile at the first and the last level of a factor."""

    kind: ClassVar[str] = "tail growth"
    topic: ClassVar[Topic] = "performance"
    load: str
    over: str
    metric: str
    first_level: Any
    first: float
    last_level: Any
    last: float
    growth: Estimate
    where: str
    """The cell with the largest growth, where there are several."""
    cells: int
    repeats: int

    def _sentence(self) -> str:
        first, last = (wording.value_text(self.metric, value) for value in (self.first, self.last))
        at_first = wording.level_words(self.over, self.first_level)
        at_last = wording.level_value(self.over, self.last_level)
        where = f" with {self.where}" if self.where else ""
        what = f"{wording.metric_words(self.metric)} of {self.load}{where}"
        if self.growth.is_noise:
            return f"{what} does not change clearly: {first} at {at_first}, {last} at {at_last}"
        verb = "rises" if self.last >= self.first else "falls"
        return f"{what} {verb} from {first} at {at_first} to {last} at {at_last}"

    def _evidence(self) -> str:
        cells = f"; largest growth of {self.cells} cells" if self.cells > 1 else ""
        return f"growth {wording.ratio_estimate_text(self.growth)}{cells}; {wording.counted(self.repeats, 'run')} each"


def find(question: Question) -> Iterator[Finding]:
    """Return how a percentile grows along the factor, for the cell in which it grows most."""
    answers = tail_growth(question.cells(), over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(answers):
        yield _growth(question, key, group)


def _growth(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> TailGrowth:
    row = max(group.to_dicts(), key=lambda each: float(each["growth"]))
    growth = Estimate(row["growth"], row["low"], row["high"])
    case_ids = tuple(row["case_ids"])
    return TailGrowth(
        load=question.load(key, row["case_ids"][0]),
        over=question.analysis.over,
        metric=question.analysis.metric,
        first_level=row["first_level"],
        first=row["first"],
        last_level=row["last_level"],
        last=row["last"],
        growth=growth,
        where=question.numbers(row) if len(group) > 1 else "",
        cells=len(group),
        repeats=row["repeats"],
        strength=question.support.strength(case_ids, growth),
        case_ids=case_ids,
        part=question.part.name,
    )


def tail_growth(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return how a latency percentile grows from the first to the last level of the factor `over`.

    Columns: those of `by`; `first_level, last_level` (with values); `first, last` and `first_low, first_high, last_low,
    last_high`; `growth, low, high` (last / first); `exponent` (log growth / log of the factor's growth: 1 is in step
    with the factor; null where levels are not numbers); `first_values, last_values` (the repeats); `repeats`;
    `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        if len(levels) < 2:
            continue
        first, last, growth = repeats_interval(values[0]), repeats_interval(values[-1]), ratio(values[-1], values[0])
        rows.append(
            {
                **key,
                "first_level": levels[0],
                "last_level": levels[-1],
                "first": first.value,
                "first_low": first.low,
                "first_high": first.high,
                "last": last.value,
                "last_low": last.low,
                "last_high": last.high,
                "growth": growth.value,
                "low": growth.low,
                "high": growth.high,
                "exponent": _exponent(levels[0], levels[-1], growth.value),
                "first_values": values[0].tolist(),
                "last_values": values[-1].tolist(),
                "repeats": min(len(values[0]), len(values[-1])),
                "case_ids": [group["case_id"][0], group["case_id"][-1]],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _exponent(first: object, last: object, growth: float) -> float | None:
    numbers = [level for level in (first, last) if isinstance(level, (int, float)) and level > 0]
    return math.log(growth) / math.log(numbers[1] / numbers[0]) if len(numbers) == 2 else None


KINDS = (QuestionKind("tail_growth", find, compares_levels=True),)
