"""What a view looks at: cases of result sets, and the values that the analysis gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from iosonde.report.material import Material, Source, loop_text
from iosonde.report.quantities import level_text, metric_title, metric_unit
from iosonde.study.model import View
from iosonde.study.plan import Case


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One line of evidence for a view: a case of a result set, and the operation looked at."""

    source: Source
    case: Case
    stream: str | None = None
    operation: str | None = None

    def level(self, factor: str | None) -> Any:
        """Return the level of a factor; `operation` and `stream` count as factors where the study has none so named."""
        facts = {"operation": self.operation, "stream": self.stream, **self.case.parameters, **self.case.levels}
        return facts.get(factor or "")

    @property
    def key(self) -> tuple[str, str, str | None, str | None]:
        """What its rows in the tables of the analysis are known by."""
        return (self.source.label, self.case.case_id, self.stream, self.operation)


def subjects(view: View, material: Material) -> list[Subject]:
    """Return what a view looks at."""
    chosen = [(source, case) for source, case in material.cases() if case.part == view.part]
    named = {view.x, view.series, view.facet, *view.where}
    apart = {"operation", "stream"} & named - {name for _, case in chosen for name in case.levels}
    found = [
        Subject(source=source, case=case, stream=stream, operation=operation)
        for source, case in chosen
        for stream, operation in (_streams(material, source, case) if apart else [(None, None)])
    ]
    return [s for s in found if all(same_level(name, s.level(name), wanted) for name, wanted in view.where.items())]


def same_level(factor: str, level: Any, wanted: Any) -> bool:
    """Compare a level with what a study file says, which may write `4KiB` for 4096."""
    return level == wanted or level_text(factor, level).replace(" ", "") == str(wanted).replace(" ", "")


class Values:
    """Medians with their intervals, by subject."""

    def __init__(self, material: Material, metric: str) -> None:
        from iosonde.analysis.metrics import overall

        table = material.summary.filter(pl.col("metric") == metric)
        columns = ("median", "low", "high", "repeats")
        self._of_case = {
            (r["result_set"], r["case_id"]): tuple(r[c] for c in columns) for r in overall(table).to_dicts()
        }
        self._of_operation = {
            (r["result_set"], r["case_id"], r["stream"], r["operation"]): tuple(r[c] for c in columns)
            for r in table.to_dicts()
        }

    def of(self, subject: Subject) -> tuple[float | None, float | None, float | None, int]:
        """Return median, low, high and repeats; None where there is no value."""
        found = (
            self._of_case.get((subject.source.label, subject.case.case_id))
            if subject.operation is None
            else self._of_operation.get(subject.key)
        )
        return found or (None, None, None, 0)


def largest(values: Values, found: Sequence[Subject]) -> float:
    """Return the largest of their values; 1 where there is none."""
    return max((v for s in found for v in [values.of(s)[0]] if v is not None), default=1.0)


def metric_title_of(metric: str, found: Sequence[Subject]) -> str:
    """Name a metric; beside every latency stands the loop it was measured in."""
    title = metric_title(metric)
    return f"{title} ({loop_text(specs(found))})" if metric_unit(metric) == "ns" else title


def specs(found: Sequence[Subject]) -> list[Mapping[str, Any]]:
    """Return an engine spec of each of their cases."""
    wanted = {(s.source.label, s.case.case_id) for s in found}
    return [
        spec
        for s in {id(x.source): x.source for x in found}.values()
        for case_id, spec in s.specs_by_case.items()
        if (s.label, case_id) in wanted
    ]


def _streams(material: Material, source: Source, case: Case) -> list[tuple[str, str]]:
    rows = material.summary.filter((pl.col("result_set") == source.label) & (pl.col("case_id") == case.case_id))
    return [row for row in rows.select("stream", "operation").unique(maintain_order=True).rows() if row[1] != "all"]
