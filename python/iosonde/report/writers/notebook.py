"""A result set in a notebook: answer, trust, summary table and figures as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from iosonde.foreign_text import printable
from iosonde.report.charts.files import draw
from iosonde.report.material.result_sets import WARNING

if TYPE_CHECKING:
    from iosonde.report.content.report import Chapter, Report
    from iosonde.report.content.table import Table


def render(report: Report) -> str:
    """The report as a fragment of HTML."""
    simulated = (
        f"<p><strong>{escape(report.simulated.capitalize())}: {WARNING}.</strong></p>" if report.simulated else ""
    )
    return printable(simulated + "".join(part for chapter in report.chapters for part in _parts(chapter)))


def _parts(chapter: Chapter) -> Iterator[str]:
    yield f"<h3>{escape(chapter.study.title)}</h3>"
    for _, answer in chapter.answers:
        claims = "<ul>" + "".join(f"<li>{escape(finding.sentence)}.</li>" for finding in answer.summary) + "</ul>"
        trust = f"<p>Trust: {escape(answer.trust.line)}.</p>"
        yield trust + claims if answer.is_trust_first else claims + trust
    if chapter.summary:
        yield _table(chapter.summary)
    for figure in chapter.all_figures:
        yield f"<figure>{draw(figure, 'svg').decode()}</figure>"
    for part in chapter.omitted:
        yield f"<p>{escape(part.title)} is missing: {escape(part.why)}. Hint: {escape(part.hint)}</p>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
