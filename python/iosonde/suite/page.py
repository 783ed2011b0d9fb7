"""The report of a suite as one HTML page that loads nothing and needs no script, with its figure as static SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from iosonde.library.page import page_of
from iosonde.results.files import write_output
from iosonde.suite.summary import Line, Summary

LABELS = 400
PLOT = 420
ROW = 30
TOP = 34
MARGIN = 12
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LONGEST_LABEL = 56
"""Longer labels are cut in the figure; the table next to it has them whole."""


def write(summary: Summary, path: Path) -> None:
    """Write the page."""
    write_output(path, render(summary).encode(errors="replace"), within=[summary.directory.path])


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
        reports=reports(summary),
    )


def reports(summary: Summary) -> dict[str, list[tuple[str, str]]]:
    """Links to the report of each result set, by entry: its directory's name, and the link."""
    return {
        study.entry.name: [(path.name, f"{path.name}/report.html") for path in study.result_sets]
        for study in summary.studies
    }


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
        return LABELS + PLOT * min(max(share, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        return [each for each in TICKS if self.low <= each <= self.high]


def plot(lines: Sequence[Line], *, description: str) -> Markup:
    """Draw the lines that have an improvement, in their order; nothing without any."""
    shown = [line for line in lines if line.improvement]
    if not shown:
        return Markup("")
    scale = Scale.over(shown)
    height = TOP + ROW * len(shown) + 8
    parts = [
        f'<svg class="improvements" viewBox="0 0 {LABELS + PLOT + MARGIN} {height}" role="img" '
        f'aria-label="{escape(description)}">'
    ]
    for tick in scale.ticks:
        x = scale.x(tick)
        style = "one" if tick == 1 else "tick"
        parts.append(f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 4}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{tick:g}×</text>')
    for place, line in enumerate(shown):
        parts.append(_row(line, scale, TOP + ROW * place + ROW / 2))
    parts.append("</svg>")
    return Markup("".join(parts))  # every text in it is escaped


def _row(line: Line, scale: Scale, y: float) -> str:
    assert line.improvement
    name = label(line)
    cut = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
    parts = [f'<text class="label" x="{LABELS - 14}" y="{y + 4:.1f}" text-anchor="end">{escape(cut)}</text>']
    if line.value.published_range:
        low, high = (scale.x(each) for each in line.value.published_range)
        parts.append(
            f'<rect class="published" x="{low - 2:.1f}" y="{y - 9:.1f}" width="{high - low + 4:.1f}" height="18" '
            'rx="3"/>'
        )
    if line.low and line.high:
        parts.append(
            f'<line class="interval" x1="{scale.x(line.low):.1f}" x2="{scale.x(line.high):.1f}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/>'
        )
    decided = " decided" if line.outcome in ("better", "worse", "same") else ""
    parts.append(f'<circle class="dot{decided}" cx="{scale.x(line.improvement):.1f}" cy="{y:.1f}" r="5"/>')
    return "".join(parts)


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
