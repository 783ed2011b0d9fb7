"""Values of a question that compares levels of a factor, where only one level was measured."""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Value, best_of, selected
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import repeats_interval


class OneLevel(Value, kind="one level", topic="performance", place=5):
    """The value of a load at the only level of a factor, the best one if there are several."""

    factor: str
    cells: int
    unknown: int = 0
    """Other levels that were measured and have too few samples for this metric."""

    def _sentence(self) -> str:
        return self._stated()

    def _evidence(self) -> str:
        best = f"best median of {wording.counted(self.cells, 'case')}; " if self.cells > 1 else ""
        factor = wording.factor_words(self.factor)
        only = f"only one level of {factor} was measured, so its effect is unknown"
        if self.unknown:
            only = f"too few samples at {wording.counted(self.unknown, 'other level')} of {factor}"
        return f"{best}{self._runs}; {only}"


def find(question: Question) -> Iterator[Finding]:
    """Return the value of each load, the best one along the axis; nothing for several levels and open loops."""
    cells, over, metric = question.cells(), question.analysis.over, question.analysis.metric
    if cells[over].n_unique() != 1 or question.is_open_loop:
        return
    axis, downwards = question.axis, metric_of(metric).better == "lower"
    for key, group in groups(cells, question.apart):
        row = best_of(group, lowest=downwards)
        value = repeats_interval(row["values"]) if downwards else selected(row, group)
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
