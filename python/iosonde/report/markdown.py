"""The report as Markdown, with its figures as SVG in a folder next to it: for repositories, wikis and mail.

The order is that of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from iosonde.base.foreign_text import html, markdown_block, markdown_code, markdown_paragraph
from iosonde.base.foreign_text import markdown as escape
from iosonde.report.content import Report
from iosonde.report.document import asset, template_of
from iosonde.report.figure import file_name, save
from iosonde.report.provenance import IN_TEMPLATES
from iosonde.report.table import Cell, Table, folded
from iosonde.results.files import write_output


def write(report: Report, path: Path, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Write the report and its figures; returns the files, the report first."""
    report.compute()
    drawn = save(report.figures, path.parent / "figures", "svg", result_sets=result_sets)
    text = template_of(asset("report.md"), **_FILTERS).render(report=report, file_name=file_name, **IN_TEMPLATES)
    write_output(path, text.encode(), within=result_sets)
    return [path, *drawn]


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


def _writing(write: Callable[[Any], str]) -> Callable[[Any], Markup]:
    """Return a filter whose result is Markdown, which is not escaped again."""
    return lambda value: value if isinstance(value, Markup) else Markup(write(value))


_FILTERS = {
    "finalize": _writing(lambda value: escape(str(value))),
    "paragraph": _writing(markdown_paragraph),
    "code": _writing(markdown_code),
    "html": _writing(html),
    "block": _writing(lambda command: "\n".join(markdown_block(command, language="sh"))),
    "lines": _writing(lambda table: "\n".join(table_lines(table))),
}
"""Filters of the template; `finalize` is applied to every value without one."""
