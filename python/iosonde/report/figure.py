"""A figure: title, caption, panels as Vega-Lite and the rows that they show, drawn as SVG, PDF or PNG."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import polars as pl

from iosonde.cache import cache_directory, remember
from iosonde.foreign_text import printable_within
from iosonde.report import theme
from iosonde.results.csv_files import as_csv
from iosonde.results.files import write_output

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


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
LEGENDS = ("color", "strokeDash", "shape")
"""Channels whose legends the page draws."""
MOST_DRAWINGS = 500
"""Drawings in the cache, of 10 to 200 KB each."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of a legend."""

    label: str
    colour: str
    dash: str = ""
    shape: str = "circle"
    """`line`, or the name of a symbol."""
    filled: bool = True


@dataclass(frozen=True, kw_only=True)
class Legend:
    """Meaning of the colours, dashes or symbols of a figure."""

    title: str
    entries: Sequence[Entry]


def panels(figure: Figure) -> list[tuple[Panel, str]]:
    """Return each panel of a figure with its drawing."""
    return [(panel, _drawing(figure, panel, place)) for place, panel in enumerate(figure.panels)]


def legends(figure: Figure) -> list[Legend]:
    """Return the legends that the panels of a figure share, each once."""
    found: dict[tuple[str, str], Legend] = {}
    for panel in figure.panels:
        for layer in panel.chart["layer"]:
            for channel in LEGENDS:
                encoding = layer["encoding"].get(channel)
                if _has_legend(encoding):
                    legend = _legend(channel, encoding, layer)
                    found.setdefault((channel, legend.title), legend)
    return _without_repetition(list(found.values()))


def _without_repetition(found: list[Legend]) -> list[Legend]:
    """Merge a legend of colours and one of dashes that have the same entries."""
    merged: dict[tuple[str, ...], Legend] = {}
    for legend in found:
        labels = tuple(sorted(entry.label for entry in legend.entries))
        known = merged.get(labels)
        if known is None:
            merged[labels] = legend
        else:
            dashes = {entry.label: entry.dash for entry in legend.entries}
            entries = [replace(entry, dash=entry.dash or dashes[entry.label]) for entry in known.entries]
            merged[labels] = replace(known, entries=entries)
    return list(merged.values())


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


def _drawing(figure: Figure, panel: Panel, place: int) -> str:
    rows = figure.rows.filter(pl.col("panel") == panel.key)
    drawn = {
        "$schema": SCHEMA,
        "data": {"values": rows.to_dicts()},
        "width": PAGE_WIDTHS[figure.columns],
        **without_legends(panel.chart),
        "config": theme.configuration() | {"background": None, "aria": False},
    }
    name = re.sub(r"\W+", "-", figure.name)  # which contains the name of a part, chosen by a study file
    return _mark(_compact(as_svg(drawn), prefix=f"{name}-{place}"), figure, panel)


def as_svg(specification: Mapping[str, Any]) -> str:
    """Draw Vega-Lite. Drawings are kept in the cache: vl-convert's start takes a sixth of the CPU time of a report."""
    content = printable_within(specification)
    version = metadata.version("vl-convert-python")
    digest = hashlib.sha256(f"{version} {json.dumps(content)}".encode()).hexdigest()
    path = cache_directory() / "report" / "drawings" / f"{digest}.svg"
    with suppress(OSError, ValueError):
        return path.read_bytes().decode()
    import vl_convert

    text = _renumbered(str(vl_convert.vegalite_to_svg(content, allowed_base_urls=[])))
    remember(path, text.encode(), most=MOST_DRAWINGS)
    return text


def _renumbered(text: str) -> str:
    """Number the definitions of a drawing from 1: vl-convert counts on from what it has drawn before."""
    numbers: dict[str, int] = {}
    return _REFERENCE.sub(lambda it: f"{it[1]}{it[2]}{numbers.setdefault(it[2] + it[3], len(numbers) + 1)}", text)


def without_legends(chart: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart without the legends that the page draws."""
    bare = copy.deepcopy(dict(chart))
    for layer in bare["layer"]:
        for channel in LEGENDS:
            if _has_legend(layer["encoding"].get(channel)):
                layer["encoding"][channel]["legend"] = None
    return bare


def _has_legend(encoding: Any) -> bool:
    """Return True if an encoding has a legend of symbols: a gradient stays in the drawing."""
    named = isinstance(encoding, Mapping) and encoding.get("legend", "") is not None
    return named and "range" in encoding.get("scale", {}) and encoding.get("type") in ("nominal", "ordinal")


def _legend(channel: str, encoding: Mapping[str, Any], layer: Mapping[str, Any]) -> Legend:
    neutral = theme.PALETTES["light"].muted
    mark = layer["mark"]["type"]
    entries = []
    listed = encoding["legend"]["values"]
    for label, shown in zip(encoding["scale"]["domain"], encoding["scale"]["range"], strict=False):
        if label not in listed:
            continue
        match channel:
            case "color":
                shape = {"bar": "square", "tick": "square", "line": "line", "area": "line"}.get(mark, "circle")
                entries.append(Entry(label=str(label), colour=shown, shape=shape))
            case "strokeDash":
                dash = "" if list(shown) == [1, 0] else " ".join(map(str, shown))
                entries.append(Entry(label=str(label), colour=neutral, dash=dash, shape="line"))
            case _:
                entries.append(Entry(label=str(label), colour=neutral, shape=shown, filled=False))
    return Legend(title=encoding.get("title") or "", entries=entries)


_REFERENCE = re.compile(r'(\bid="|url\(#)(clip|gradient_)(\d+)')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_EMPTY = re.compile(r'<path class="(?:back|fore)ground" aria-hidden="true" d="[^"]*"(?: [a-z-]+="none")*/>')
_SUPERFLUOUS = re.compile(
    r' (?:pointer-events="none"|aria-hidden="true"|opacity="1"|role="[^"]*"|aria-roledescription="[^"]*"'
    r'|font-family="[^"]*"|xmlns:xlink="[^"]*"|version="1.1")'
)


def _compact(text: str, *, prefix: str) -> str:
    text = _SUPERFLUOUS.sub("", _EMPTY.sub("", text))
    text = re.sub(r"<[^>]*>", lambda tag: _LONG.sub(lambda number: f"{float(number[0]):.2f}", tag[0]), text)
    return _REFERENCE.sub(rf"\g<1>{prefix}-\2\3", text)


def _mark(text: str, figure: Figure, panel: Panel) -> str:
    """Describe the drawing for screen readers, and mark what was simulated."""
    name = ". ".join(filter(None, [figure.title, panel.title, figure.description if len(figure.panels) == 1 else ""]))
    opened = f'<svg role="img" aria-label="{escape(name)}"'
    text = text.replace("<svg", opened, 1)
    shown = figure.rows.filter(pl.col("panel") == panel.key)
    if not figure.simulated or shown["published"].fill_null(False).all():
        return text
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    muted = theme.PALETTES["light"].muted
    at = f'x="{width[1] if width else 0}" y="11" text-anchor="end" font-size="10px" fill="{muted}"'
    return text.replace("</svg>", f"<text {at}>{escape(figure.simulated)}</text></svg>")


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
