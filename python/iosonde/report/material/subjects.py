"""Subjects of a view: cases of result sets, and the values that the analysis gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import polars as pl

from iosonde.plan import Case
from iosonde.report.material.quantities import level_text, metric_title, metric_unit
from iosonde.report.material.result_sets import Material, Source, loop_text
from iosonde.study.model import ROUND, STAGE, View


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One line of evidence for a view: a case of a result set, and the operation looked at."""

    source: Source
    case: Case
    stream: str | None = None
    operation: str | None = None
    in_window: bool = False
    """True if its value is the mean over the measurement window; its case is then the one of the last round."""

    def level(self, factor: str | None) -> Any:
        """Return the level of a factor; `operation` and `stream` count as factors where the study has none so named."""
        facts = {"operation": self.operation, "stream": self.stream, **self.case.parameters, **self.case.levels}
        return facts.get(factor or "")

    @property
    def key(self) -> tuple[str, str, str | None, str | None]:
        """Key of its rows in the tables of the analysis."""
        return (self.source.label, self.case.case_id, self.stream, self.operation)


def subjects(view: View, material: Material) -> list[Subject]:
    """Return what a view looks at."""
    if _is_of_window(view, material):
        found = _loads(view, material)
        return [s for s in found if all(same_level(name, s.level(name), wanted) for name, wanted in view.where.items())]
    chosen = [(source, case) for source, case in material.cases() if case.part == view.part]
    named = {view.x, view.series, view.facet, *view.where}
    # Rounds and the stages after them are cases of one part: what separates the ones leaves the others out.
    chosen = [(source, case) for source, case in chosen if {ROUND, STAGE} & named <= case.levels.keys()]
    apart = {"operation", "stream"} & named - {name for _, case in chosen for name in case.levels}
    found = [
        Subject(source=source, case=case, stream=stream, operation=operation)
        for source, case in chosen
        for stream, operation in (_streams(material, source, case) if apart else [(None, None)])
    ]
    return [s for s in found if all(same_level(name, s.level(name), wanted) for name, wanted in view.where.items())]


def _is_of_window(view: View, material: Material) -> bool:
    """Return True if a view draws one value per load of rounds: that of the measurement window."""
    part = next(part for part in material.study.parts if part.name == view.part)
    named = {view.x, view.series, view.facet, *view.where}
    one_value = view.kind in ("lines", "bars", "heatmap", "table")
    return bool(part.rounds and part.rounds.sought and one_value and not named & {ROUND, STAGE, "operation", "stream"})


def _loads(view: View, material: Material) -> list[Subject]:
    """Each load of the rounds once."""
    found: dict[tuple[str, str], Subject] = {}
    for source, case in material.cases():
        if case.part == view.part and ROUND in case.levels:
            levels = {name: level for name, level in case.levels.items() if name != ROUND}
            load = case.model_copy(update={"levels": levels})
            found[source.label, str(levels)] = Subject(source=source, case=load, in_window=True)
    return list(found.values())


def same_level(factor: str, level: Any, wanted: Any) -> bool:
    """Compare a level with its value in a study file, which may write `4KiB` for 4096."""
    return level == wanted or level_text(factor, level).replace(" ", "") == str(wanted).replace(" ", "")


class Values:
    """Medians with their intervals, by subject."""

    def __init__(self, material: Material, metric: str) -> None:
        from iosonde.metrics.scopes import overall

        self._material, self._metric = material, metric
        table = material.summary.filter(pl.col("metric") == metric)
        columns = ("median", "low", "high", "repeats")
        self._of_case = {
            (r["result_set"], r["case_id"]): tuple(r[c] for c in columns) for r in overall(table).to_dicts()
        }
        self._of_operation = {
            (r["result_set"], r["case_id"], r["stream"], r["operation"]): tuple(r[c] for c in columns)
            for r in table.to_dicts()
        }
        # The achieved share of a rate, for example, is of a stream and not of its operations.
        self._only_of_streams = table["operation"].eq("all").all()

    def estimate(self, subject: Subject) -> tuple[float | None, float | None, float | None, int]:
        """Return median, low, high and repeats; None where there is no value."""
        if subject.in_window:
            return self._of_window.get(_window_key(subject.source.label, subject.case.levels), (None, None, None, 0))
        label, case_id, stream, operation = subject.key
        if operation is None:
            found = self._of_case.get((label, case_id))
        else:
            operation_key = "all" if self._only_of_streams else operation
            found = self._of_operation.get((label, case_id, stream, operation_key))
        return found or (None, None, None, 0)

    @cached_property
    def _of_window(self) -> dict[WindowKey, tuple[float | None, float | None, float | None, int]]:
        """Means over the measurement window, the median of them over repeats."""
        from iosonde.findings.convergence import window_means

        runs, passes = self._material.run_metrics, dict[WindowKey, list[float]]()
        for source in self._material.sources:
            of_source = runs.filter(pl.col("result_set") == source.label)
            for part in self._material.study.parts:
                if part.rounds and part.rounds.sought:
                    names = [*part.factors, *part.rounds.factors]
                    for row in window_means(part, source.results.cases, of_source, [self._metric]).to_dicts():
                        levels = {name: row[name] for name in names}
                        passes.setdefault(_window_key(source.label, levels), []).append(row["value"])
        return {key: (median(values), None, None, len(values)) for key, values in passes.items()}


WindowKey = tuple[str, frozenset[tuple[str, Any]]]


def _window_key(label: str, levels: Mapping[str, Any]) -> WindowKey:
    return (label, frozenset(levels.items()))


def largest(values: Values, found: Sequence[Subject]) -> float:
    """Return the largest of their values; 1 where there is none."""
    return max((v for s in found for v in [values.estimate(s)[0]] if v is not None), default=1.0)


def metric_title_of(metric: str, found: Sequence[Subject]) -> str:
    """Name a metric; every latency with the loop it was measured in."""
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
    found = [row for row in rows.select("stream", "operation").unique(maintain_order=True).rows() if row[1] != "all"]
    single = [row for row in found if row[0] != "all"]  # without the sum over streams
    return single or found
