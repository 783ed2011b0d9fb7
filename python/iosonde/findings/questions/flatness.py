"""Flatness: how much a metric depends on a factor at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import MARGIN, Estimate, ratio
from iosonde.study.model import STAGE

FLAT = 1.10


@dataclass(frozen=True, kw_only=True)
class Dependence(Finding):
    """Whether a metric depends on a factor, for the cell in which it varies most."""

    kind: ClassVar[str] = "dependence"
    topic: ClassVar[Topic] = "scaling"
    load: str
    over: str
    metric: str
    decision: Literal["flat", "depends", "unclear"]
    ratio: Estimate
    """Largest over smallest median."""
    largest: tuple[Any, float]
    smallest: tuple[Any, float]
    """Level and value."""
    where: str
    """The cell, where there are several."""
    cells: int
    repeats: int

    def _sentence(self) -> str:
        subject = f"{wording.metric_words(self.metric)} of {self.load}"
        factor = wording.factor_words(self.over)
        if self.decision == "flat":
            return f"{subject} varies by less than {100 * (FLAT - 1):.0f} % with {factor}"
        if self.decision == "unclear":
            return f"No clear effect of {factor} on {subject}"
        where = f", most with {self.where}" if self.where else ""
        ends = (
            f"{wording.value_text(self.metric, value)} {self._at(level)}"
            for level, value in (self.smallest, self.largest)
        )
        return f"{subject} depends on {factor}: {' to '.join(ends)}{where}"

    def _at(self, level: Any) -> str:
        words = wording.level_words(self.over, level)
        if self.over == STAGE:
            return f"({words})"
        return f"{'at' if isinstance(level, int | float) else 'with'} {words}"

    def _evidence(self) -> str:
        cells = f"; largest ratio of {self.cells} cells" if self.cells > 1 else ""
        return (
            f"largest over smallest {wording.ratio_estimate_text(self.ratio)}{cells}; "
            f"{wording.counted(self.repeats, 'run')} each"
        )


def find(question: Question) -> Iterator[Finding]:
    """Return whether the factor matters, for the cell along the axis where it matters most."""
    cells = question.cells()
    if cells[question.analysis.over].n_unique() < 2:
        return
    answers = flatness(cells, over=question.analysis.over, by=question.by)
    if answers.is_empty():
        return
    for key, group in question.over_numbers(answers):
        yield _dependence(question, key, group)


def _dependence(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Dependence:
    row = group.sort("ratio", maintain_order=True).row(-1, named=True)
    estimate = Estimate(row["ratio"], row["low"], row["high"])
    every = [Estimate(*values) for values in group.select("ratio", "low", "high").iter_rows()]
    decision: Literal["flat", "depends", "unclear"] = "unclear"
    if all(each.below(FLAT) for each in every):
        decision = "flat"
    elif estimate.above(1 + MARGIN) or (not estimate.certain and estimate.value >= FLAT):
        decision = "depends"
    case_ids = tuple(row["case_ids"])
    return Dependence(
        load=question.load(key, row["case_ids"][0]),
        over=question.analysis.over,
        metric=question.analysis.metric,
        decision=decision,
        ratio=estimate,
        largest=(row["best_level"], row["best"]),
        smallest=(row["worst_level"], row["worst"]),
        where=question.numbers(row) if question.numeric and len(group) > 1 else "",
        cells=len(group),
        repeats=row["repeats"],
        strength="weak" if decision == "unclear" else question.support.strength(case_ids, estimate),
        case_ids=case_ids,
        part=question.part.name,
    )


def flatness(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the ratio of the best to the worst level of the factor `over`, for each combination of `by`.

    Columns: those of `by`; `best_level, best, worst_level, worst`; `ratio, low, high` (best / worst); `repeats`;
    `case_ids` of both.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        if len(levels) < 2:
            continue
        medians = np.array([np.median(repeats) for repeats in values])
        best, worst = int(medians.argmax()), int(medians.argmin())
        estimate = ratio(values[best], values[worst])
        rows.append(
            {
                **key,
                "best_level": levels[best],
                "best": float(medians[best]),
                "worst_level": levels[worst],
                "worst": float(medians[worst]),
                "ratio": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "repeats": min(len(values[best]), len(values[worst])),
                "case_ids": [group["case_id"][best], group["case_id"][worst]],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


KINDS = (QuestionKind("flatness", find, compares_levels=True),)
