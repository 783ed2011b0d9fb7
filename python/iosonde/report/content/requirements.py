"""The tables of the study's requirements: the first of a report that has any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from iosonde.report.content.table import RESULT, Cell, Table

if TYPE_CHECKING:
    from iosonde.findings.outcome import Result, Window
    from iosonde.report.material.result_sets import Material
    from iosonde.study.model import RequirementSource

TITLE = "Requirements"
NAME = "Requirement"
SHOWN = ("Value", "Limit", "Margin", "Interval", "Level")
"""Heads of the columns of values, the most important first."""
NOTES = "Reasons and sources"
REASON, MEANING = "Reason", "Meaning"
CAPTION = (
    "Margin: distance from the limit, negative beyond it. Intervals are those of the sequential test "
    "(docs/requirements.md); a limit within one is undecided."
)

WINDOWS = "Worst windows"
START = "Start"
OBSERVED = "Observed"
SHOWN_OF_WINDOWS = (START, RESULT, NAME, "Value", "Margin")
"""Heads of the columns of windows that a terminal has room for."""
WORST = 50
"""Windows in the table."""


def requirements_tables(material: Material) -> list[Table]:
    """Return every requirement in each case, the worst first, with its values, and with reason and source."""
    from iosonde.findings.requirements import results_of

    if not material.study.requirement:
        return []
    found = [(source.label, result) for source in material.sources for result in results_of(source.results)]
    several_sources = len(material.sources) > 1
    several_cases = len({result.case_id for _, result in found}) > 1
    names = [
        [
            *([Cell(text=label)] if several_sources else []),
            Cell(text=result.outcome),
            Cell(text=result.requirement.name),
            *([Cell(text=result.case_id)] if several_cases else []),
        ]
        for label, result in found
    ]
    labels = [*(["Result set"] if several_sources else []), RESULT, NAME, *(["Case"] if several_cases else [])]
    values = [[*name, *_values(result)] for name, (_, result) in zip(names, found, strict=True)]
    notes = [[*name, *_notes(result)] for name, (_, result) in zip(names, found, strict=True)]
    return [
        Table(title=_title(material, found), caption=CAPTION, heads=[*labels, *SHOWN], labels=len(labels), rows=values),
        Table(title=NOTES, heads=[*labels, REASON, MEANING, "Source"], labels=len(labels), rows=notes),
    ]


def _title(material: Material, found: Sequence[tuple[str, Result]]) -> str:
    """Start with the result of all: `FAIL: Requirements`."""
    from iosonde.findings.requirements import overall

    wrong = any(record.has_wrong_data for source in material.sources for record in source.records)
    return f"{'FAIL' if wrong else overall([result for _, result in found]).upper()}: {TITLE}"


def windows_table(material: Material) -> Table | None:
    """Return the worst windows of requirements that each run must meet; None without any."""
    from iosonde.findings.requirements import badness, results_of

    found = [
        (replace(result, outcome=window.outcome, value=window.value, margin=window.margin), window, source.label)
        for source in material.sources
        for result in results_of(source.results)
        for window in result.windows
    ]
    found.sort(key=lambda each: badness(each[0]))
    if not found:
        return None
    several = len(material.sources) > 1
    heads = [*(["Result set"] if several else []), START, RESULT, NAME, "Value", "Margin", OBSERVED, "Run"]
    return Table(
        title=WINDOWS,
        caption=f"The worst {WORST} of {len(found):,}." if len(found) > WORST else "",
        heads=heads,
        labels=3 + several,
        rows=[
            [*([Cell(text=label)] if several else []), *_window(result, window)]
            for result, window, label in found[:WORST]
        ],
    )


def _window(result: Result, window: Window) -> Sequence[Cell]:
    return [
        Cell(text=f"{datetime.fromisoformat(window.started_at):%Y-%m-%d %H:%M:%S}"),
        Cell(text=result.outcome),
        Cell(text=result.requirement.name),
        Cell(text=result.text(result.value), number=result.value),
        Cell(text=margin_text(result), number=result.margin),
        Cell(text=_observed(window)),
        Cell(text=window.run_id),
    ]


def _observed(window: Window) -> str:
    """Write why a window is undecided and what else happened; a verdict with its reasons."""
    verdict, _, because = window.reason.partition(": ")
    reason = verdict if because in window.observed else window.reason
    return ": ".join(filter(None, (reason, "; ".join(window.observed)))) or "-"


def margin_text(result: Result) -> str:
    """Write the distance from the limit."""
    return "-" if result.margin is None else f"{100 * result.margin:+.0f} %"


def _values(result: Result) -> Sequence[Cell]:
    return [
        Cell(text=result.text(result.value), number=result.value),
        Cell(text=result.limit_text, number=result.limit),
        Cell(text=margin_text(result), number=result.margin),
        Cell(text=_interval(result)),
        Cell(text=result.requirement.level),
    ]


def _notes(result: Result) -> Sequence[Cell]:
    return [
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
