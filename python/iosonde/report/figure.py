"""A figure: title, caption, panels as Vega-Lite and the rows that they show, drawn as SVG, PDF or PNG."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import polars as pl

from iosonde.base.cache import cache_directory, remember
from iosonde.base.foreign_text import printable_within
from iosonde.report import theme
from iosonde.results.files import write_output
from iosonde.results.frames import as_csv

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

    def title_of(self, panel: Panel) -> str:
        """Return the title of a panel, empty in a figure of one panel."""
        return panel.key if len(self.panels) > 1 else ""

    @property
    def specification(self) -> dict[str, Any]:
        """Vega-Lite of the whole figure, without rows, colours and title."""
        sharing = "shared" if self.one_legend else "independent"
        return {
            "columns": self.columns,
            "spacing": SPACING,
            "concat": [_part(panel, self.title_of(panel), panel_width(self.columns)) for panel in self.panels],
            "resolve": {"scale": dict.fromkeys(("color", "strokeDash", "shape"), sharing)},
        }

    def csv(self) -> str:
        """Return the rows as CSV."""
        return as_csv(self.rows.select(pl.col(column).alias(head) for column, head in self.heads.items()))


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot of a figure."""

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


def _part(panel: Panel, title: str, width: int) -> dict[str, Any]:
    return {
        **({"title": title} if title else {}),
        "data": {"name": "figure"},
        "transform": [{"filter": {"field": "panel", "equal": panel.key}}],
        "width": width,
        **panel.chart,
    }


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
LEGENDS = ("color", "strokeDash", "shape")
"""Channels whose legends the page writes as text, so that they wrap on a phone; a gradient stays in the drawing."""
MOST_DRAWINGS = 500
"""Drawings in the cache, of 10 to 200 KB each."""
_REFERENCE = re.compile(r'(\bid="|url\(#)(clip|gradient_)(\d+)')
_LONG = re.compile(r"(?<=[ ,\"(A-Za-z-])\d+\.\d{3,}(?=[^<>]*>)")
"""Coordinates: a hundredth of a pixel is less than a reader can see, and fifteen digits are half of the size."""
_ROLES = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')
"""Roles of single marks: on a page the drawing is one image with a name of its own."""


@dataclass(kw_only=True)
class Entry:
    """A line of a legend."""

    label: str
    colour: str = theme.MUTED
    dash: str = ""
    shape: str = "stroke"
    """`stroke`, or the name of a symbol."""
    filled: bool = True


def legends(figure: Figure) -> list[tuple[str, list[Entry]]]:
    """Return title and entries of each legend that the panels share; colours and dashes of the same things are one."""
    found: dict[frozenset[str], tuple[str, list[Entry]]] = {}
    encodings = [layer["encoding"] for panel in figure.panels for layer in panel.chart["layer"]]
    for channel, encoding in (each for channels in encodings for each in _with_legend(channels).items()):
        legend, scale = encoding["legend"], encoding["scale"]
        labels = [label for label in scale["domain"] if label in legend["values"]]
        named = (encoding["title"], [Entry(label=label) for label in labels])
        shown = dict(zip(scale["domain"], scale["range"], strict=False))
        for entry in found.setdefault(frozenset(labels), named)[1]:
            match channel:
                case "color":
                    entry.colour, entry.shape = shown[entry.label], legend["symbolType"]
                case "strokeDash":
                    entry.dash = " ".join(map(str, shown[entry.label]))
                case _:
                    entry.shape, entry.filled = shown[entry.label], False
    return list(found.values())


def _with_legend(channels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channels whose legend the page writes, with their encodings."""
    known = {name: channels[name] for name in LEGENDS if channels.get(name)}
    return {name: encoding for name, encoding in known.items() if "columns" in (encoding.get("legend") or {})}


def on_page(figure: Figure, panel: Panel) -> dict[str, Any]:
    """Return Vega-Lite of a panel as a page shows it: without the legends, which are text there, and marked itself."""
    layers = []
    for layer in panel.chart["layer"]:
        bare = {name: {**encoding, "legend": None} for name, encoding in _with_legend(layer["encoding"]).items()}
        layers.append({**layer, "encoding": {**layer["encoding"], **bare}})
    shown = figure.rows.filter(pl.col("panel") == panel.key)
    if figure.simulated and not shown["published"].fill_null(False).all():
        at = {"x": "width", "y": -30, "align": "right", "fontSize": 10, "style": "quiet"}
        layers.append(
            {"data": {"values": [{}]}, "mark": {"type": "text", "text": figure.simulated, **at}, "encoding": {}}
        )
    return {**panel.chart, "layer": layers}


def drawings(figure: Figure) -> list[tuple[Panel, str]]:
    """Return each panel of a figure with its drawing for a page, which needs no background, and fonts of the page."""
    found = []
    for place, panel in enumerate(figure.panels):
        drawn = {
            "$schema": SCHEMA,
            "data": {"values": figure.rows.filter(pl.col("panel") == panel.key).to_dicts()},
            "width": PAGE_WIDTHS[figure.columns],
            **on_page(figure, panel),
            "config": theme.configuration() | {"background": None, "aria": False},
        }
        described = figure.description if len(figure.panels) == 1 else ""
        name = escape(". ".join(filter(None, [figure.title, figure.title_of(panel), described])))
        # The name of a figure contains that of a part, chosen by a study file.
        text = as_svg(drawn, prefix=re.sub(r"\W+", "-", f"{figure.name}-{place}-"))
        named = f'<svg role="img" aria-label="{name}"'
        found.append((panel, _ROLES.sub("", text).replace("<svg", named, 1)))
    return found


def specification(figure: Figure) -> dict[str, Any]:
    """Return Vega-Lite of a whole figure with its rows, colours and title."""
    return {
        "$schema": SCHEMA,
        "title": {
            "text": figure.title,
            **({"subtitle": figure.simulated} if figure.simulated else {}),
            **{"anchor": "start", "fontSize": 15, "subtitleFontSize": 12, "subtitlePadding": 4, "offset": 18},
        },
        **figure.specification,
        "datasets": {"figure": figure.rows.to_dicts()},
        "config": theme.configuration(font=theme.PAPER_FONT),
    }


def as_svg(specification: Mapping[str, Any], *, prefix: str = "") -> str:
    """Draw Vega-Lite; ids of the drawing start with `prefix`, and are numbered from 1.

    Drawings are kept in the cache: vl-convert's start takes a sixth of the CPU time of a report.
    """
    content = printable_within(specification)
    version = metadata.version("vl-convert-python")
    digest = hashlib.sha256(f"{version} {prefix} {json.dumps(content)}".encode()).hexdigest()
    path = cache_directory() / "report" / "drawings" / f"{digest}.svg"
    with suppress(OSError, ValueError):
        return path.read_bytes().decode()
    import vl_convert

    numbers: dict[str, int] = {}  # vl-convert counts on from what it has drawn before.

    def renumbered(it: re.Match[str]) -> str:
        return f"{it[1]}{prefix}{it[2]}{numbers.setdefault(it[2] + it[3], len(numbers) + 1)}"

    text = _REFERENCE.sub(renumbered, str(vl_convert.vegalite_to_svg(content, allowed_base_urls=[])))
    text = _LONG.sub(lambda number: f"{float(number[0]):.2f}", text)
    remember(path, text.encode(), most=MOST_DRAWINGS)
    return text


def draw(figure: Figure, format: Format) -> bytes:
    """Draw a whole figure."""
    if format == "svg":
        return as_svg(specification(figure)).encode()
    import vl_convert

    drawn = printable_within(specification(figure))
    if format == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(drawn, allowed_base_urls=[]))
    return bytes(vl_convert.vegalite_to_png(drawn, scale=2, allowed_base_urls=[]))


def file_name(figure: Figure) -> str:
    """Return the name of a figure's file without its ending: it contains names that a study file chooses."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", figure.name)


def save(figures: Sequence[Figure], directory: Path, format: Format, *, result_sets: Sequence[Path] = ()) -> list[Path]:
    """Draw figures into files named after them; inside one of these result sets no link is followed."""
    paths = [directory / f"{file_name(figure)}.{format}" for figure in figures]
    for figure, path in zip(figures, paths, strict=True):
        write_output(path, draw(figure, format), within=result_sets)
    return paths
