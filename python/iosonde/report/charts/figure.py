"""A figure: title, caption, panels as Vega-Lite, and the rows that they show.

A page shows the panels one by one, so that they reflow on a phone; files have all of them side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from iosonde.results.csv_files import as_csv

PAPER_WIDTH = 640
"""Points across the plots of one row of panels."""
SPACING = 46
PAGE_WIDTHS = {1: 540, 2: 330, 3: 240}
"""Pixels across the plot of a panel on the page, by the number of panels side by side."""

Chart = dict[str, Any]
"""Vega-Lite of one panel, without rows, width and colours."""

Format = Literal["svg", "pdf", "png"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a report."""

    name: str
    """Stable in a report, fit for a file name."""
    title: str
    caption: str = ""
    description: str = ""
    """Description for readers who cannot see it."""
    part: str = ""
    """Part of the study that it shows."""
    metric: str = ""
    """Metric on its y axis, or of its colours."""
    kind: str = "lines"
    """Kind of the view."""
    x_title: str = ""
    series_title: str = ""
    step_title: str = ""
    """Factor whose levels label the points of a trade-off."""
    intervals: str = ""
    """Method and number of repeats of its confidence intervals; empty without any."""
    simulated: str = ""
    """`simulated`, `partly simulated` or nothing."""
    panels: Sequence[Panel]
    rows: pl.DataFrame
    heads: Mapping[str, str] = field(default_factory=dict)
    """Columns of the rows that make the CSV, and what they are called there."""
    one_legend: bool = True
    """True if panels share their colours; surfaces of different devices do not."""

    @property
    def columns(self) -> int:
        """Panels side by side, where there is room."""
        return columns(len(self.panels))

    @property
    def specification(self) -> dict[str, Any]:
        """Vega-Lite of the whole figure, without rows, colours and title."""
        sharing = "shared" if self.one_legend else "independent"
        return {
            "columns": self.columns,
            "spacing": SPACING,
            "concat": [_panel(panel, panel_width(self.columns)) for panel in self.panels],
            "resolve": {"scale": dict.fromkeys(("color", "strokeDash", "shape"), sharing)},
        }

    def csv(self) -> str:
        """Return the rows as CSV."""
        return as_csv(self.rows.select(pl.col(column).alias(head) for column, head in self.heads.items()))


@dataclass(frozen=True, kw_only=True)
class Undrawn:
    """A figure that would be nothing but axes, or a table without a value, and so is left out."""

    title: str
    what: str = "figure"
    why: str
    """A clause."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot of a figure."""

    title: str
    """Empty in a figure of one panel."""
    key: str
    """Rows of the panel have this in column `panel`."""
    chart: Chart


def columns(panels: int) -> int:
    """Return how many of so many panels are side by side, where there is room."""
    return 1 if panels == 1 else 2 if panels <= 4 or panels % 3 else 3


def panel_width(columns: int) -> int:
    """Return the width of a plot for a paper."""
    return (PAPER_WIDTH - SPACING * (columns - 1)) // columns


def least_width(columns: int) -> int:
    """Return the width of a plot where it is narrower, for a paper or on the page."""
    return min(panel_width(columns), PAGE_WIDTHS[columns])


def _panel(panel: Panel, width: int) -> dict[str, Any]:
    return {
        **({"title": panel.title} if panel.title else {}),
        "data": {"name": "figure"},
        "transform": [{"filter": {"field": "panel", "equal": panel.key}}],
        "width": width,
        **panel.chart,
    }
