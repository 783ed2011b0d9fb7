"""The report of a fleet as an HTML page that loads nothing and needs no script, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Literal

from iosonde.fleet.figure import figure
from iosonde.fleet.report import FleetReport
from iosonde.foreign_text import markdown as escape
from iosonde.foreign_text import printable
from iosonde.report.content.table import folded
from iosonde.report.writers.document import policy, stylesheet, template_of
from iosonde.report.writers.markdown import table_lines
from iosonde.results.files import write_output


def write(report: FleetReport, path: Path, format: Literal["html", "md"] = "html") -> None:
    """Write the report."""
    text = html(report) if format == "html" else "\n".join(markdown(report)) + "\n"
    write_output(path, printable(text).encode(errors="replace"), within=[report.root])


def html(report: FleetReport) -> str:
    """Return the page."""
    files = resources.files("iosonde.fleet") / "page_files"
    return str(
        template_of((files / "fleet.html").read_text(encoding="utf-8")).render(
            policy=policy(),
            style=stylesheet() + (files / "fleet.css").read_text(encoding="utf-8"),
            report=report,
            figures=[figure(each.fleet) for each in report.chapters],
            folded=folded,
        )
    )


def markdown(report: FleetReport) -> Iterator[str]:
    """Yield the lines of the report; the figure is on the page alone."""
    yield f"# {escape(report.title)}"
    if report.simulated:
        yield from ("", f"> **{report.simulated.capitalize()}.** Results of a device model, not of a device.")
    if report.missing:
        reasons = (f"- {escape(name)}: {escape(reason)}" for name, reason in report.missing.items())
        yield from ("", f"> **{report.missing_text}.**", "", *reasons)
    for chapter in report.chapters:
        yield from ("", f"## {escape(chapter.fleet.title)} ({escape(chapter.fleet.profile)})", "")
        yield from (f"- {escape(each)}." for each in [*chapter.answer, *chapter.fleet.excluded])
        for table in chapter.tables:
            yield from ("", f"### {escape(table.title)}", *table_lines(table))
        yield from ("", "### Method", "", escape(chapter.method))
    for title, lines in (("Targets", report.notes), ("Skipped", report.problems)):
        if lines:
            yield from ("", f"## {title}", "", *(f"- {escape(each)}" for each in lines))
