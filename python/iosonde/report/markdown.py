"""The report as Markdown, with its figures as SVG in a folder next to it: for repositories, wikis and mail.

The order is that of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.foreign_text import html, markdown_block, markdown_code, markdown_paragraph
from iosonde.foreign_text import markdown as escape
from iosonde.report.content import Chapter, Labelled, Report, Section, incomplete
from iosonde.report.figure import Figure, file_name, save
from iosonde.report.material import WARNING, Source
from iosonde.report.provenance import completion, headline, provenance, rerun
from iosonde.report.table import Cell, Table, folded
from iosonde.results.files import write_output

if TYPE_CHECKING:
    from iosonde.findings.finding import Finding

RUNS_NAMED = 20


def write(report: Report, path: Path, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Write the report and its figures; returns the files, the report first."""
    report.compute()
    folder = path.parent / "figures"
    drawn = save(report.figures, folder, "svg", result_sets=result_sets)
    text = "\n".join(_lines(report, folder.name)) + "\n"
    write_output(path, text.encode(), within=result_sets)
    return [path, *drawn]


def _lines(report: Report, folder: str) -> Iterator[str]:
    several = len(report.sources) > 1
    yield f"# {escape(report.title)}"
    if report.simulated:
        yield from ("", f"> **{report.simulated.capitalize()}:** {WARNING}.")
    for source in report.sources:
        if problem := incomplete(source):
            words, command = completion(source)
            yield from (
                "",
                f"> **This result set is incomplete.** {escape(problem)}. {words}: {markdown_code(command)}",
            )
    for chapter in report.chapters:
        yield from _answer(chapter, several)
        yield from _results(chapter, folder, several)
        yield from _method(chapter, folder, several)
        yield from _warnings(chapter)
        yield from _missing(chapter)
        yield from ("", "## All cases")
        for table in chapter.detail_tables:
            yield from _table(table)
    yield from ("", "## Reproduction", "")
    for source in report.sources:
        yield from markdown_block(rerun(source), language="sh")


def _answer(chapter: Chapter, several: bool) -> Iterator[str]:
    for table in chapter.required:
        yield from _table(table, heading=f"## {table.title}")
    yield from ("", "## Answer", "", markdown_paragraph(chapter.study.question), "")
    yield from (f"- {escape(line)}" for line in chapter.comparison)
    for label, answer in chapter.answers:
        yield from (["", f"### {escape(label)}", ""] if several else [""])
        trust = f"Trust: {escape(answer.trust.line)}."
        if answer.is_trust_first:
            yield from (trust, "")
        for finding in answer.summary:
            yield from (f"1. **{escape(finding.sentence)}.**", f"   {escape(finding.evidence)}")
        if not answer.summary:
            yield f"No answer: {chapter.no_answer}."
        if not answer.is_trust_first:
            yield from ("", trust)
    if chapter.summary:
        yield from _table(chapter.summary, heading="## Summary")


def _results(chapter: Chapter, folder: str, several: bool) -> Iterator[str]:
    yield from ("", "## Results")
    for section in chapter.sections:
        yield from _section(section, folder, several, chapter.open_findings)
    if chapter.further_findings:
        yield from (
            "",
            "### Further findings",
            "",
            *_listed(chapter.further_findings, several, shown=chapter.open_findings),
        )
    for table in chapter.comparison_tables:
        yield from _table(table)


def _section(section: Section, folder: str, several: bool, shown: Sequence[Finding]) -> Iterator[str]:
    yield from ("", f"### {escape(section.title)}")
    if section.figure:
        yield from _figure(section.figure, folder)
    if section.undrawn:
        yield from ("", f"No {section.undrawn.what}: {escape(section.undrawn.why)}.")
    if section.findings:
        yield from ("", *_listed(section.findings, several, shown=shown))
    for table in section.tables:
        if section.figure:
            summary = f"<summary>{html(table.title)}</summary>"
            yield from ("", "<details>", summary, *table_lines(table), "", "</details>")
        else:
            yield from table_lines(table)


def _listed(findings: Sequence[Labelled], several: bool, *, shown: Sequence[Finding] | None = None) -> Iterator[str]:
    """Yield a line for each finding, those that are not `shown` at once in a fold."""
    lines: dict[bool, list[str]] = {True: [], False: []}
    for label, finding in findings:
        name = f"{escape(label)}: " if several else ""
        line = f"- {name}{escape(finding.sentence)}. {escape(finding.evidence)} ({finding.strength} evidence)"
        lines[shown is None or finding in shown].append(line)
    yield from lines[True]
    if folded := lines[False]:
        summary = f"<summary>{len(folded)} more finding{'s' * (len(folded) > 1)}</summary>"
        yield from ("", "<details>", summary, "", *folded, "", "</details>")


def _figure(figure: Figure, folder: str) -> Iterator[str]:
    yield from ("", f"![{escape(figure.description)}]({folder}/{file_name(figure)}.svg)")
    if figure.caption:
        yield from ("", markdown_paragraph(figure.caption))


def _table(table: Table, *, heading: str = "") -> Iterator[str]:
    yield from ("", heading or f"### {escape(table.title)}", *table_lines(table))


def table_lines(plain: Table) -> Iterator[str]:
    """Yield the lines of a table, its caption first."""
    table = folded(plain)
    yield from ("", markdown_paragraph(table.caption), "")
    yield _row([escape(head) for head in table.heads])
    yield _row(["---" if place < table.labels else "---:" for place in range(len(table.heads))])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)


def _cell(cell: Cell) -> str:
    return escape(f"{cell.text} [{cell.interval}]" if cell.interval else cell.text)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _method(chapter: Chapter, folder: str, several: bool) -> Iterator[str]:
    yield from ("", "## Method and machine", "")
    if chapter.study.source:
        yield from (f"Method: {escape(chapter.study.source)}", "")
    for source in chapter.sources:
        yield from ([f"### {escape(source.label)}", ""] if several else [])
        yield from (
            f"- **{escape(name)}:** {escape(value)}"
            for name, value in headline(source, chapter.material, chapter.omitted)
        )
        yield from _provenance(source)
    if chapter.quality_findings:
        yield from ("", *_listed(chapter.quality_findings, several))
    for table in chapter.verdicts:
        yield from _table(table)
    if chapter.drift:
        yield from ("", f"### {escape(chapter.drift.title)}", *_figure(chapter.drift, folder))


def _provenance(source: Source) -> Iterator[str]:
    for facts in provenance(source):
        yield from ("", f"**{escape(facts.title)}**", "")
        yield from (f"- {escape(name)}: {escape(value)}" for name, value in facts.rows)


def _warnings(chapter: Chapter) -> Iterator[str]:
    yield from ("", "## Warnings", "")
    for caution in chapter.warnings:
        named = ", ".join(run_id for _, run_id, _ in caution.runs[:RUNS_NAMED])
        more = f" and {len(caution.runs) - RUNS_NAMED} more" if len(caution.runs) > RUNS_NAMED else ""
        affected = f"{len(caution.runs)} of {caution.total} runs"
        yield f"- {markdown_code(caution.code)} ({affected}): {escape(caution.title)}"
        _, run_id, message = caution.runs[0]
        if message != caution.title:
            yield f"  Example: {escape(run_id)}: {escape(message)}"
        if caution.hint:
            yield f"  Hint: {escape(caution.hint)}"
        yield f"  Runs: {escape(named)}{more}"
    if not chapter.warnings:
        yield "No run had a warning."
    for part in chapter.omitted:
        yield f"- **{escape(part.title)} is missing:** {escape(part.why)}"
        yield f"  Hint: {escape(part.hint)}"
    for source in chapter.material.sources:
        yield from (f"- {escape(problem)}" for problem in source.results.problems)


def _missing(chapter: Chapter) -> Iterator[str]:
    if not chapter.missing_runs:
        return
    yield from ("", "## Missing runs", "")
    yield from (_row(["Run", "Case", "Outcome", "Cause", "Hint"]), _row(["---"] * 5))
    for run in chapter.missing_runs:
        yield _row([escape(text) for text in (run.run_id, run.case_id, run.kind, run.why, run.hint)])
