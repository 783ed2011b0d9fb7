"""The report as Markdown, with its figures as SVG in a folder beside it: for repositories, wikis and mail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from iosonde.report.charts.figure import Figure, save
from iosonde.report.content.provenance import headline, provenance, rerun, resume
from iosonde.report.content.report import Chapter, Report, incomplete
from iosonde.report.content.tables import Cell, Table
from iosonde.report.material.result_sets import Source
from iosonde.results.files import write_output

RUNS_NAMED = 20


def write(report: Report, path: Path, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Write the report and its figures; returns the files, the report first."""
    folder = path.parent / "figures"
    drawn = save(report.figures, folder, "svg", result_sets=result_sets)
    text = "\n".join(_lines(report, folder.name)) + "\n"
    write_output(path, text.encode(), result_sets=result_sets)
    return [path, *drawn]


def _lines(report: Report, folder: str) -> Iterator[str]:
    several = len(report.sources) > 1
    yield f"# {escape(report.title + report.mark)}"
    for chapter in report.chapters:
        yield from ("", escape(chapter.study.question))
    for source in report.sources:
        yield from _headline(source, several)
    for chapter in report.chapters:
        yield from _chapter(chapter, folder, several)
    yield from ("", "## What was measured on what")
    for source in report.sources:
        yield from _provenance(source, several)
    yield from ("", "## Run it again", "")
    for source in report.sources:
        yield from ("```sh", rerun(source), "```")


def _headline(source: Source, several: bool) -> Iterator[str]:
    yield from ("", *([f"## {escape(source.label)}", ""] if several else []))
    yield from (f"- **{name}:** {escape(value)}" for name, value in headline(source))
    if problem := incomplete(source):
        yield from ("", f"> **This result set is incomplete.** {escape(problem)}. Go on with it: `{resume(source)}`")


def _chapter(chapter: Chapter, folder: str, several: bool) -> Iterator[str]:
    yield from ("", "## Findings", "", *(f"- {escape(line)}" for line in chapter.comparison))
    for label, answer in chapter.answers:
        findings = answer.findings
        yield from ("", *([f"### {escape(label)}", ""] if several else []))
        yield from (f"*{escape(answer.trust.line)}.*", "")
        for finding in findings:
            yield f"1. {escape(finding.sentence)}."
            yield from (f"   {escape(line)}" for line in [f"({finding.strength}) {finding.evidence}"] if line)
        if not findings:
            yield "Nothing can be said yet: there are not enough complete runs."
    yield from ("", "## Figures")
    for figure in chapter.all_figures:
        yield from _figure(figure, folder)
    for left_out in chapter.undrawn:
        yield from ("", f"**{escape(left_out.title)}** is not drawn: {escape(left_out.why)}.")
    yield from ("", "## Tables")
    for table in chapter.tables:
        yield from _table(table)
    if chapter.verdicts:
        yield from ("", "## Verdicts")
    for table in chapter.verdicts:
        yield from _table(table)
    yield from _warnings(chapter)
    yield from _holes(chapter)


def _figure(figure: Figure, folder: str) -> Iterator[str]:
    yield from ("", f"### {escape(figure.title)}", "", f"![{escape(figure.description)}]({folder}/{figure.name}.svg)")
    if figure.caption:
        yield from ("", escape(figure.caption))


def _table(table: Table) -> Iterator[str]:
    yield from ("", f"### {escape(table.title)}", "", escape(table.caption), "")
    yield _row([escape(head) for head in table.heads])
    yield _row(["---" if place < table.labels else "---:" for place in range(len(table.heads))])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)


def _cell(cell: Cell) -> str:
    return escape(f"{cell.text} [{cell.interval}]" if cell.interval else cell.text)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _warnings(chapter: Chapter) -> Iterator[str]:
    yield from ("", "## Warnings", "")
    for caution in chapter.warnings:
        named = ", ".join(run_id for _, run_id, _ in caution.runs[:RUNS_NAMED])
        more = f" and {len(caution.runs) - RUNS_NAMED} more" if len(caution.runs) > RUNS_NAMED else ""
        yield f"- `{caution.code}` ({len(caution.runs)} of {caution.total} runs): {escape(caution.message)}"
        if caution.hint:
            yield f"  Hint: {escape(caution.hint)}"
        yield f"  Runs: {escape(named)}{more}"
    if not chapter.warnings:
        yield "No run had a warning."
    for source in chapter.material.sources:
        yield from (f"- {escape(problem)}" for problem in source.results.problems)


def _holes(chapter: Chapter) -> Iterator[str]:
    if not chapter.holes:
        return
    yield from ("", "## Holes: runs without a result", "")
    yield from (_row(["Run", "Case", "What happened", "Why", "What to do"]), _row(["---"] * 5))
    for hole in chapter.holes:
        yield _row([escape(text) for text in (hole.run_id, hole.case_id, hole.kind, hole.why, hole.hint)])


def _provenance(source: Source, several: bool) -> Iterator[str]:
    if several:
        yield from ("", f"### {escape(source.label)}")
    for facts in provenance(source):
        yield from ("", f"**{escape(facts.title)}**", "")
        yield from (f"- {escape(name)}: {escape(value)}" for name, value in facts.rows)


def escape(text: str) -> str:
    """Write text so that Markdown shows it as it is: no markup, no HTML, one line; code spans stay."""
    pieces = re.split(r"(`[^`\n]+`)", " ".join(text.split()))
    return "".join(_code(piece) if piece.startswith("`") and len(piece) > 1 else _plain(piece) for piece in pieces)


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|!#~])", r"\\\1", text)


def _code(text: str) -> str:
    return text.replace("|", "\\|")
