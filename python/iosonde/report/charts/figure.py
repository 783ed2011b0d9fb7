"""A figure: what it says, the chart it is drawn as, and the rows it is drawn from.

One description serves every use. The page takes the panels of `specification` one by one, so that they reflow on a
phone; `save` and the page's SVG button draw the whole of it, side by side and light, as a paper wants it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from iosonde.report.charts import theme
from iosonde.results.files import write_output

PAPER_WIDTH = 640
"""Points across the plots of one row of panels."""
SPACING = 46

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
    """What a reader who cannot see it should know."""
    panels: Sequence[Panel]
    rows: pl.DataFrame
    heads: Mapping[str, str] = field(default_factory=dict)
    """Columns of the rows that make the CSV, and what they are called there."""
    one_legend: bool = True
    """Whether panels share their colours; surfaces of different devices do not."""

    @property
    def columns(self) -> int:
        """Panels side by side, where there is room."""
        return 1 if len(self.panels) == 1 else 2 if len(self.panels) <= 4 or len(self.panels) % 3 else 3

    @property
    def specification(self) -> dict[str, Any]:
        """Vega-Lite of the whole figure, without rows, colours and title."""
        sharing = "shared" if self.one_legend else "independent"
        width = (PAPER_WIDTH - SPACING * (self.columns - 1)) // self.columns if self.columns > 1 else PAPER_WIDTH
        return {
            "columns": self.columns,
            "spacing": SPACING,
            "concat": [_panel(panel, width) for panel in self.panels],
            "resolve": {"scale": dict.fromkeys(("color", "strokeDash", "shape"), sharing)},
        }

    def csv(self) -> str:
        """Return the rows as CSV."""
        return self.rows.select(pl.col(column).alias(head) for column, head in self.heads.items()).write_csv()


@dataclass(frozen=True, kw_only=True)
class Undrawn:
    """A figure that would be nothing but axes, and so is left out."""

    title: str
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


def draw(figure: Figure, format: Format) -> bytes:
    """Draw a figure for a paper."""
    import vl_convert

    specification = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": figure.title, "anchor": "start", "fontSize": 15, "offset": 18},
        **figure.specification,
        "datasets": {"figure": figure.rows.to_dicts()},
        "config": theme.configuration("light", font=theme.PAPER_FONT),
    }
    if format == "svg":
        return str(vl_convert.vegalite_to_svg(specification, allowed_base_urls=[])).encode()
    if format == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(specification, allowed_base_urls=[]))
    return bytes(vl_convert.vegalite_to_png(specification, scale=2, allowed_base_urls=[]))


def save(figures: Sequence[Figure], directory: Path, format: Format, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Draw figures into files named after them; inside one of these result sets no link is followed."""
    # Names contain those of parts, which a study file chooses.
    paths = [directory / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', figure.name)}.{format}" for figure in figures]
    for figure, path in zip(figures, paths, strict=True):
        write_output(path, draw(figure, format), result_sets=result_sets)
    return paths


def _panel(panel: Panel, width: int) -> dict[str, Any]:
    return {
        **({"title": panel.title} if panel.title else {}),
        "data": {"name": "figure"},
        "transform": [{"filter": {"field": "panel", "equal": panel.key}}],
        "width": width,
        **panel.chart,
    }
