"""The report of a fleet as an HTML page that loads nothing and needs no script, with its figure, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from markupsafe import Markup, escape

from iosonde.fleet.drives import Drive, FleetOfStudy
from iosonde.fleet.report import FleetReport
from iosonde.foreign_text import markdown as escaped
from iosonde.library.page import RowFigure, page_of, write_page
from iosonde.metrics.wording import metric_words
from iosonde.regression.sessions import CellKey
from iosonde.report.markdown import table_lines
from iosonde.report.table import folded

FIGURE = RowFigure(kind="fleet", labels=460, longest_label=62, margin=20)
ROWS = 60
"""Values that the figure shows, those with the largest deviation first; the table has all."""
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def write(report: FleetReport, path: Path, format: Literal["html", "md"] = "html") -> None:
    """Write the report."""
    text = html(report) if format == "html" else "\n".join(markdown(report)) + "\n"
    write_page(path, text, about=report.root)


def html(report: FleetReport) -> str:
    """Return the page."""
    figures = [figure(each.fleet) for each in report.chapters]
    return page_of("fleet", report=report, figures=figures, folded=folded)


def markdown(report: FleetReport) -> Iterator[str]:
    """Yield the lines of the report; the figure is on the page alone."""
    yield f"# {escaped(report.title)}"
    if report.simulated:
        yield from ("", f"> **{report.simulated.capitalize()}.** Results of a device model, not of a device.")
    if report.missing:
        reasons = (f"- {escaped(name)}: {escaped(reason)}" for name, reason in report.missing.items())
        yield from ("", f"> **{report.missing_text}.**", "", *reasons)
    for chapter in report.chapters:
        yield from ("", f"## {escaped(chapter.fleet.title)} ({escaped(chapter.fleet.profile)})", "")
        yield from (f"- {escaped(each)}." for each in [*chapter.answer, *chapter.fleet.excluded])
        for table in chapter.tables:
            yield from ("", f"### {escaped(table.title)}", *table_lines(table))
        yield from ("", "### Method", "", escaped(chapter.method))
    for title, lines in (("Targets", report.notes), ("Skipped", report.problems)):
        if lines:
            yield from ("", f"## {title}", "", *(f"- {escaped(each)}" for each in lines))


def figure(fleet: FleetOfStudy) -> Markup:
    """Draw the values of a fleet; nothing where no group has two drives."""
    rows = {cell: found for cell in fleet.cells if (found := list(_deviations(fleet, cell)))}
    if not rows:
        return Markup("")
    largest = {cell: max(abs(change) for _, change in found) for cell, found in rows.items()}
    if len(rows) > ROWS:
        kept = sorted(rows, key=lambda cell: -largest[cell])[:ROWS]
        rows = {cell: rows[cell] for cell in rows if cell in kept}
    most = max(0.01, *(largest[cell] for cell in rows)) * 1.08
    named = {(each.drive.summary.path, each.cell) for each in fleet.named if each.drive}
    return FIGURE.draw(
        f"Deviation of each drive from the median of its group, {len(rows)} values",
        _ticks(most),
        [
            (f"{fleet.loads.get(cell[0], cell[0])}: {metric_words(cell[1])}", partial(_marks, cell, found, named, most))
            for cell, found in rows.items()
        ],
    )


def _deviations(fleet: FleetOfStudy, cell: CellKey) -> Iterator[tuple[Drive, float]]:
    """Yield each drive of a group with several, and the logarithm of its ratio to the median."""
    for drives in fleet.groups.values():
        known = [(drive, drive.values[cell].mean_log) for drive in drives if cell in drive.values]
        if len(known) > 1:
            center = float(np.median([value for _, value in known]))
            yield from ((drive, value - center) for drive, value in known)


def _x(change: float, most: float) -> float:
    return FIGURE.labels + FIGURE.width / 2 * (1 + change / most)


def _ticks(most: float) -> Iterator[tuple[float, str, bool]]:
    step = next((each for each in STEPS if most / each <= 4), STEPS[-1])
    count = math.floor(math.expm1(most) / step)
    for percent in [step * each for each in range(-count, count + 1) if step * each > -1]:
        x = _x(math.log1p(percent), most)
        if FIGURE.labels <= x <= FIGURE.labels + FIGURE.width:
            yield x, f"{100 * percent:+g} %" if percent else "0 %", not percent


def _marks(
    cell: CellKey, found: list[tuple[Drive, float]], named: set[tuple[str, CellKey]], most: float, y: float
) -> Iterator[str]:
    # Without a title for each: in a fleet of thousands they would be most of the page.
    equal = "".join(
        f"M{_x(change, most):.1f},{y:.1f}h0" for drive, change in found if (drive.summary.path, cell) not in named
    )
    yield f'<path class="dots" d="{equal}"/>' if equal else ""
    for drive, change in found:
        if (drive.summary.path, cell) in named:
            x = _x(change, most)
            side, anchor = (-9, "end") if change > 0 else (9, "start")
            yield f'<circle class="named" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(drive.name)}</title></circle>'
            yield (
                f'<text class="name" x="{x + side:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">'
                f"{escape(drive.summary.path[-24:])}</text>"
            )
