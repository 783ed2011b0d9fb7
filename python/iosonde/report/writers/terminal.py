"""The report on a terminal: what a reader wants to know at once, at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from iosonde.report.content.provenance import headline, resume
from iosonde.report.content.report import Chapter, Report, incomplete
from iosonde.report.content.tables import SCOPE, VERDICT, Cell, Table
from iosonde.report.material.result_sets import Source

FINDINGS = 8
ROWS = 12
MARKS = {"strong": "●", "moderate": "◐", "weak": "○"}


def show(report: Report, console: Console, *, report_path: Path | None = None) -> None:
    """Print the report."""
    for chapter in report.chapters:
        console.print()
        console.print(Text(chapter.study.title + report.mark, style="bold"))
        for source in chapter.material.sources:
            _source(source, console)
        _findings(chapter, console)
        _cases(chapter, console)
        _warnings(chapter, console)
    if report_path is not None:
        console.print()
        console.print(Text.assemble("Report: ", (str(report_path), "bold")), soft_wrap=True)


def _source(source: Source, console: Console) -> None:
    grid = Grid.grid(padding=(0, 2))
    for name, value in headline(source):
        grid.add_row(Text(name, style="dim"), Text(value))
    console.print(grid)
    if problem := incomplete(source):
        console.print()
        console.print(Text(f"This result set is incomplete: {problem}.", style="bold yellow"))
        console.print(Text(f"Go on with it: {resume(source)}"), soft_wrap=True)


def _findings(chapter: Chapter, console: Console) -> None:
    for label, answer in chapter.answers:
        findings = answer.findings
        _heading(console, f"Findings: {label}" if len(chapter.answers) > 1 else "Findings")
        console.print(Text(f"{answer.trust.line}.", style="italic"))
        if not findings:
            console.print("Nothing can be said yet: there are not enough complete runs.")
        for finding in findings[:FINDINGS]:
            grid = Grid.grid(padding=(0, 1))
            grid.add_row(MARKS[finding.strength], Text(finding.sentence))
            grid.add_row("", Text(" ".join(finding.evidence.split()), style="dim"))
            console.print(grid)
        if len(findings) > FINDINGS:
            console.print(Text(f"  and {len(findings) - FINDINGS} more in the report", style="dim"))


def _cases(chapter: Chapter, console: Console) -> None:
    for table in chapter.case_tables:
        rows = _whole_load(table)
        loops = {row[table.heads.index("Loop")].text for row in rows}
        _heading(console, table.title)
        console.print(Text(f"{_kind(table)} latency, {' and '.join(sorted(loops))} loop", style="dim"))
        console.print(_grid(table, rows))
        if len(rows) > ROWS:
            console.print(Text(f"  and {len(rows) - ROWS} more in the report", style="dim"))


def _whole_load(table: Table) -> list[Sequence[Cell]]:
    """Leave what single operations did to the report."""
    if SCOPE not in table.heads:
        return list(table.rows)
    whole: dict[str, Sequence[Cell]] = {}
    for key, row in zip(table.keys, table.rows, strict=True):
        whole.setdefault(key, row)
    return list(whole.values())


def _grid(table: Table, rows: Sequence[Sequence[Cell]]) -> Grid:
    """Return the columns that fit: what names the case, its rates, and latency at the median and the tail."""
    metrics = (
        "Bandwidth",
        "IOPS",
        "Operations per second",
        *(f"{_kind(table)} latency, {statistic}" for statistic in ("p50", "p99", "p99.9")),
    )
    shown = (*metrics, VERDICT)
    places = [p for p, head in enumerate(table.heads) if head in shown or (p < table.labels and head != SCOPE)]
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place in places:
        width = max((len(row[place].text) for row in rows), default=0)
        justify: Literal["left", "right"] = "left" if place < table.labels else "right"
        grid.add_column(table.heads[place].rpartition(", ")[2], justify=justify, min_width=width, overflow="fold")
    for row in rows[:ROWS]:
        grid.add_row(*(Text(row[place].text) for place in places))
    return grid


def _kind(table: Table) -> str:
    """Response latency where there is some: in an open loop it is what a user waits for."""
    return "Response" if any(head.startswith("Response") for head in table.heads) else "Completion"


def _warnings(chapter: Chapter, console: Console) -> None:
    if not chapter.warnings:
        return
    _heading(console, "Warnings")
    for caution in chapter.warnings:
        line = Text.assemble(
            (caution.code, "bold yellow"), f" ({len(caution.runs)} of {caution.total} runs): {caution.message}"
        )
        console.print(line)
        if caution.hint:
            console.print(Padding(Text(f"hint: {caution.hint}", style="dim"), (0, 0, 0, 2)))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold underline"))
