"""Figures as static SVG: whole ones for files, single panels for a page, which lays them out and draws the legends.

A panel in a page has no legend and no background, its text takes the font of the page, and its coordinates have two
decimals: a tenth of a pixel is less than a reader can see, and fifteen digits are half of the size.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from importlib import metadata
from typing import Any

import polars as pl

from iosonde.cache import cache_directory, remember
from iosonde.foreign_text import printable_within
from iosonde.report.charts import theme
from iosonde.report.charts.figure import PAGE_WIDTHS, Figure, Panel

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
