"""Values of a question that compares levels of a factor, where only one level was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import Estimate, maximum_interval, repeats_interval


@dataclass(frozen=True, kw_only=True)
class OneLevel(Finding):
    """The value of a load at the only level of a factor, the best one if there are several."""

    kind: ClassVar[str] = "one level"
    topic: ClassVar[Topic] = "performance"
    load: str
    metric: str
    value: Estimate
    factor: str
    name: str
    """The level, if it is a name; else empty."""
    setting: str
    """The levels that are numbers: the only one, and that of the axis that has this value."""
    cells: int
    repeats: int

    def _sentence(self) -> str:
        value = wording.value_text(self.metric, self.value.value)
        interval = wording.estimate_text(self.metric, self.value).removeprefix(value)
        name = f" ({self.name})" if self.name else ""
        metric = "" if metric_of(self.metric).kind == "rate" else f", {wording.metric_words(self.metric)}"
        setting = f" at {self.setting}" if self.setting else ""
        return f"{self.load}{name}{metric}: {value}{setting}{interval}"

    def _evidence(self) -> str:
        best = f"best median of {wording.counted(self.cells, 'case')}; " if self.cells > 1 else ""
        only = f"only one level of {wording.factor_words(self.factor)} was measured, so its effect is unknown"
        return f"{best}{wording.counted(self.repeats, 'run')}; {only}"


def find(question: Question) -> Iterator[Finding]:
    """Return the value of each load, the best one along the axis; nothing for several levels and open loops."""
    cells, over, metric = question.cells(), question.analysis.over, question.analysis.metric
    if cells[over].n_unique() != 1 or question.is_open_loop:
        return
    axis = question.axis
    downwards = metric_of(metric).better == "lower"
    for key, group in groups(cells, question.apart):
        medians = group["values"].list.median()
        row = group.row(int((medians.arg_min() if downwards else medians.arg_max()) or 0), named=True)
        several = len(group) > 1 and not downwards
        value = maximum_interval(group["values"].to_list()) if several else repeats_interval(row["values"])
        level = wording.level_words(over, row[over])
        is_number = cells.schema[over].is_numeric()
        numbers = [*([level] if is_number else []), *([wording.level_words(axis, row[axis])] if axis else [])]
        yield OneLevel(
            load=question.load(key, row["case_id"]),
            metric=metric,
            value=value,
            factor=over,
            name="" if is_number else level,
            setting=wording.listing(numbers) if numbers else "",
            cells=len(group),
            repeats=len(row["values"]),
            strength=question.support.strength([row["case_id"]], value),
            case_ids=(row["case_id"],),
            part=question.part.name,
        )
