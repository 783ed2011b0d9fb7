"""Sections of a report: one for each question that a study asks, with a figure, its findings and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iosonde.report.charts.figure import Figure, Undrawn
from iosonde.report.content.table import Table

if TYPE_CHECKING:
    from iosonde.findings.finding import Finding

MAX_FINDINGS = 3
"""Findings next to one figure; others of its kind follow the sections."""

SAME_METRIC = 10
"""Added to the fit of a figure of the finding's metric: where there is such a figure, no other shows the finding."""

Labelled = tuple[str, "Finding"]
"""A finding under the label of its result set."""

_VIEWS_OF_TOPIC: Mapping[str, Sequence[str]] = {
    "state": ("window", "timeseries", "lines"),
    "path": ("stack", "bars"),
    "performance": ("bars", "lines", "tradeoff", "heatmap", "timeseries"),
    "limits": ("lines", "tradeoff"),
    "scaling": ("lines", "tradeoff", "heatmap", "bars"),
    "comparison": ("bars", "lines", "heatmap"),
    "interference": ("timeseries", "lines", "percentiles"),
    "arrays": ("heatmap", "lines"),
    "caches": ("bars", "lines", "timeseries"),
    "stores": ("timeseries", "bars", "lines"),
    "transactions": ("lines", "bars", "timeseries"),
    "reference": ("lines", "bars", "heatmap"),
}
"""Kinds of figures that show the findings of a topic, the best first; of `integrity` and `quality` none does."""
_VIEWS_OF_KIND: Mapping[str, Sequence[str]] = {
    "tail growth": ("percentiles", "tradeoff", "lines"),
    "unloaded latency": ("percentiles", "tradeoff"),
    "durable writes": ("percentiles", "tradeoff"),
    "device write amplification": (),
    "unknown device write amplification": (),
}
"""The same for kinds of findings that differ from their topic."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A question with its answer: a figure, the findings that it shows, and its values."""

    title: str
    figure: Figure | None = None
    undrawn: Undrawn | None = None
    findings: Sequence[Labelled] = ()
    tables: Sequence[Table] = field(default_factory=tuple)
    """Folded below the figure; the content of a section without one."""


def assigned(sections: Sequence[Section], findings: Sequence[Labelled]) -> tuple[list[list[Labelled]], list[Labelled]]:
    """Return the findings of each section, and those that no section shows."""
    of_sections: list[list[Labelled]] = [[] for _ in sections]
    left: list[Labelled] = []
    for labelled in findings:
        fits = {place: _fit(section, labelled[1]) for place, section in enumerate(sections)}
        least = SAME_METRIC if max(fits.values(), default=0) > SAME_METRIC else 0
        ranked = sorted((place for place, fit in fits.items() if fit > least), key=lambda place: -fits[place])
        place = next((place for place in ranked if len(of_sections[place]) < MAX_FINDINGS), None)
        (left if place is None else of_sections[place]).append(labelled)
    return of_sections, left


def _fit(section: Section, finding: Finding) -> int:
    """Return how well a figure shows a finding; 0 where it does not."""
    figure = section.figure
    if figure is None or figure.part not in _parts(finding):
        return 0
    views = _VIEWS_OF_KIND.get(finding.kind, _VIEWS_OF_TOPIC.get(finding.topic, ()))
    if figure.kind not in views:
        return 0
    metric = SAME_METRIC if getattr(finding, "metric", "") == figure.metric else 0
    return metric + len(views) - views.index(figure.kind)


def _parts(finding: Finding) -> set[str]:
    """Return the parts of the study that a finding is about: its own, or those of its cases."""
    return {finding.part} if finding.part else {case_id.partition("/")[0] for case_id in finding.case_ids}
