"""The report of a suite as one HTML page that loads nothing and needs no script, with its figure as static SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup

from iosonde.collections.library.page import RowFigure, page_of, write_page
from iosonde.collections.suite.summary import Line, Summary

FIGURE = RowFigure(kind="improvements", labels=400, longest_label=56, margin=12)
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def write(summary: Summary, path: Path) -> None:
    """Write the page."""
    write_page(path, render(summary), about=summary.directory.path)


def render(summary: Summary) -> str:
    """Return the page; links to the studies' reports are relative to the directory of the suite."""
    description = summary.directory.description
    lines = summary.lines if summary.compares else [line for study in summary.studies for line in study.lines]
    return page_of(
        "suite",
        suite=description.suite,
        target=description.target,
        against=description.against,
        summary=summary,
        figure=plot(
            summary.lines if summary.compares else [],
            description=f"Improvement of {description.against} over {description.target} for each application",
        ),
        lines=lines,
        published=any(line.value.published for line in lines),
        words=WORDS,
        label=label,
        ratio=ratio_text,
        percent=percent_text,
    )


def ratio_text(line: Line) -> str:
    """The improvement with its interval; empty without one."""
    if line.improvement is None:
        return ""
    interval = f" ({line.low:.2f} to {line.high:.2f})" if line.low and line.high else ""
    return f"{line.improvement:.2f}×{interval}"


def percent_text(share: float | None) -> str:
    """A share of the time; a dash where nothing was reported."""
    return "–" if share is None else f"{100 * share:.0f} %"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Improvements to pixels."""

    low: float
    high: float

    @classmethod
    def over(cls, lines: Sequence[Line]) -> Scale:
        """The scale that has every dot, interval and published range, and 1."""
        numbers = [1.0]
        for line in lines:
            numbers += [each for each in (line.improvement, line.low, line.high) if each and math.isfinite(each)]
            numbers += line.value.published_range or ()
        return cls(low=min(0.5, min(numbers) / 1.15), high=max(2.0, max(numbers) * 1.15))

    def x(self, number: float) -> float:
        """Pixels from the left."""
        share = (math.log(number) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return FIGURE.labels + FIGURE.width * min(max(share, 0.0), 1.0)


def plot(lines: Sequence[Line], *, description: str) -> Markup:
    """Draw the lines that have an improvement, in their order; nothing without any.

    A dot is the improvement, a line its 95 % confidence interval, a grey band the published range. Filled dots are
    decided differences, hollow ones are not.
    """
    shown = [line for line in lines if line.improvement]
    if not shown:
        return Markup("")
    scale = Scale.over(shown)
    ticks = [(scale.x(each), f"{each:g}×", each == 1) for each in TICKS if scale.low <= each <= scale.high]
    return FIGURE.draw(description, ticks, [(label(line), partial(_marks, line, scale)) for line in shown])


def _marks(line: Line, scale: Scale, y: float) -> Iterator[str]:
    assert line.improvement
    if line.value.published_range:
        low, high = (scale.x(each) for each in line.value.published_range)
        yield (
            f'<rect class="published" x="{low - 2:.1f}" y="{y - 9:.1f}" width="{high - low + 4:.1f}" height="18" '
            'rx="3"/>'
        )
    if line.low and line.high:
        yield (
            f'<line class="interval" x1="{scale.x(line.low):.1f}" x2="{scale.x(line.high):.1f}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/>'
        )
    decided = " decided" if line.outcome in ("better", "worse", "same") else ""
    yield f'<circle class="dot{decided}" cx="{scale.x(line.improvement):.1f}" cy="{y:.1f}" r="5"/>'


def label(line: Line) -> str:
    """Return the subject of a line."""
    return ", ".join(filter(None, (line.entry.title, line.value.title, line.case)))


WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "same within 5 %",
    "unexplained": "not by the device",
    "unclear": "unclear",
    "excluded": "excluded",
    "missing": "not measured",
    "value": "",
}
