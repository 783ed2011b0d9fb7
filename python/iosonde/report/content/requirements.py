"""The table of the study's requirements: the first of a report that has any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iosonde.report.content.table import RESULT, Cell, Table

if TYPE_CHECKING:
    from iosonde.findings.requirements import Result
    from iosonde.report.material.result_sets import Material
    from iosonde.study.model import RequirementSource

TITLE = "Requirements"
NAME = "Requirement"
SHOWN = ("Value", "Limit", "Margin", "Interval", "Level")
"""Heads of the columns that a terminal has room for, the most important first."""
REASON = "Reason"
CAPTION = (
    "Margin: distance from the limit, negative beyond it. Intervals are those of the sequential test "
    "(docs/requirements.md); a limit within one is undecided."
)


def requirements_table(material: Material) -> Table | None:
    """Return every requirement in each case, the worst first; None for a study without requirements."""
    from iosonde.findings.requirements import results_of

    if not material.study.requirement:
        return None
    found = [(source, results_of(source.results)) for source in material.sources]
    several_sources = len(found) > 1
    several_cases = any(len({each.case_id for each in results}) > 1 for _, results in found)
    labels = [*(["Result set"] if several_sources else []), RESULT, NAME, *(["Case"] if several_cases else [])]
    rows = [
        [
            *([Cell(text=source.label)] if several_sources else []),
            Cell(text=result.outcome),
            Cell(text=result.requirement.name),
            *([Cell(text=result.case_id)] if several_cases else []),
            *_values(result),
        ]
        for source, results in found
        for result in results
    ]
    return Table(
        title=TITLE,
        caption=CAPTION,
        heads=[*labels, *SHOWN, REASON, "Meaning", "Source"],
        labels=len(labels),
        rows=rows,
    )


def _values(result: Result) -> Sequence[Cell]:
    margin = "-" if result.margin is None else f"{100 * result.margin:+.0f} %"
    return [
        Cell(text=result.text(result.value), number=result.value),
        Cell(text=result.limit_text, number=result.limit),
        Cell(text=margin, number=result.margin),
        Cell(text=_interval(result)),
        Cell(text=result.requirement.level),
        Cell(text=result.reason or "-"),
        Cell(text=result.requirement.means),
        Cell(text=source_text(result.requirement.source)),
    ]


def _interval(result: Result) -> str:
    from iosonde.metrics.wording import range_text

    if result.low is None and result.high is None:
        return "-"
    if result.high is None:
        return f"≥ {result.text(result.low)}"
    return range_text(result.text(result.low), result.text(result.high))


def source_text(source: RequirementSource) -> str:
    """Write a source on one line."""
    return ", ".join(filter(None, (source.title, source.publisher, source.version, source.address)))
