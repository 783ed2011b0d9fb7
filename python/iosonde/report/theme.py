"""Style of figures: colours that colour-blind readers can distinguish, type sizes, axes, legends.

Figures are always drawn in light colours. On a dark page, `dark_style` replaces each of them by its dark counterpart
through CSS, so a static SVG follows the colour scheme of the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Light = Literal["light", "dark"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', sans-serif"
PAPER_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
"""For files: a generic name such as `system-ui` does not survive in an SVG that travels to another program."""


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colours of one light."""

    background: str
    text: str
    muted: str
    grid: str
    alarm: str
    category: tuple[str, ...]
    """Okabe and Ito's set (2008) without the yellow that is invisible on white, and further colours."""
    graded: tuple[str, ...]
    """Steps of one quantity, such as queue depths, from low to high."""
    diverging: tuple[str, ...]


PALETTES: dict[Light, Palette] = {
    "light": Palette(
        background="#ffffff",
        text="#1b2026",
        muted="#5a6572",
        grid="#e4e7eb",
        alarm="#c2410c",
        category=(
            *("#0072b2", "#d55e00", "#009e73", "#b4508a", "#b97f00", "#3a9bd9"),
            *("#6a4c93", "#7f8c1f", "#8c4a2f", "#2f4b7c", "#e377c2", "#5b6570"),
        ),
        graded=(
            *("#fdb14e", "#f79a4b", "#ee8450", "#e27058", "#d35e62", "#c14e6c"),
            *("#ac4276", "#95387e", "#7c3083", "#632984", "#4a2380", "#321c73"),
        ),
        diverging=("#b35806", "#f1a340", "#f3f4f5", "#74a9cf", "#045a8d"),
    ),
    "dark": Palette(
        background="#171b20",
        text="#e4e8ec",
        muted="#9aa5b1",
        grid="#2b323a",
        alarm="#fb923c",
        category=(
            *("#56b4e9", "#f0843c", "#2ec49a", "#dd93bd", "#e6b13a", "#8fd0ff"),
            *("#b39ddb", "#c0ca5a", "#d08a6e", "#8da3d6", "#f0a6dc", "#aab4bf"),
        ),
        graded=(
            *("#5b4a9e", "#7050a8", "#8657ad", "#9c5eac", "#b166a8", "#c46fa2"),
            *("#d57a9a", "#e38791", "#ee9788", "#f6a97f", "#fbbd7a", "#fdd27c"),
        ),
        diverging=("#f5a25d", "#a8632a", "#2b323a", "#2f6f9f", "#69b7ea"),
    ),
}


def configuration(light: Light = "light", *, font: str = FONT) -> dict[str, Any]:
    """Return the Vega-Lite `config` that gives charts their look."""
    colours = PALETTES[light]
    return {
        "background": colours.background,
        "font": font,
        "padding": {"top": 26, "right": 14, "bottom": 4, "left": 4},
        "view": {"stroke": None, "continuousHeight": 300, "discreteHeight": 300},
        "range": _ranges(colours),
        **_axes(colours),
        **_guides(colours),
        **_marks(colours),
        "style": {
            "alarm": {"color": colours.alarm, "fontWeight": 700},
            "published": {"color": colours.text},
            "quiet": {"color": colours.muted},
            "on-dark": {"color": "#ffffff"},
            "on-bright": {"color": "#14171a"},
        },
    }


def _ranges(colours: Palette) -> dict[str, Any]:
    """Ranges of scales that have none of their own."""
    ramp = {"scheme": "viridis", "extent": [0.0, 0.88]}
    return {
        "category": list(colours.category),
        "ordinal": ramp,
        "ramp": ramp,
        "heatmap": ramp,
        "diverging": list(colours.diverging),
        "symbol": ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"],
    }


def category(count: int) -> list[str]:
    """Return a colour for each of several different things; they repeat only after the twelfth."""
    colours = PALETTES["light"].category
    return [colours[place % len(colours)] for place in range(count)]


def graded(count: int) -> list[str]:
    """Return a colour for each step of one quantity, from low to high."""
    colours = PALETTES["light"].graded
    last = len(colours) - 1
    return [colours[round(place * last / max(1, count - 1))] for place in range(count)]


def dark_style() -> str:
    """Return CSS that replaces the light colours of a drawing by dark ones."""
    light, dark = PALETTES["light"], PALETTES["dark"]
    pairs = [
        (light.text, dark.text),
        (light.muted, dark.muted),
        (light.grid, dark.grid),
        (light.alarm, dark.alarm),
        *zip(light.category, dark.category, strict=True),
        *zip(light.graded, dark.graded, strict=True),
    ]
    rules = [f'svg [{what}="{old}"] {{ {what}: {new} }}' for old, new in pairs for what in ("fill", "stroke")]
    return "\n".join(rules)


def _axes(colours: Palette) -> dict[str, Any]:
    return {
        "axis": {
            "domain": False,
            "gridColor": colours.grid,
            "gridWidth": 1,
            "labelColor": colours.muted,
            "labelFontSize": 11,
            "labelPadding": 6,
            "labelSeparation": 8,
            "tickColor": colours.grid,
            "tickSize": 4,
            "titleColor": colours.text,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "titlePadding": 10,
        },
        "axisX": {
            "domain": True,
            "domainColor": colours.muted,
            "grid": False,
            "ticks": True,
            "tickColor": colours.muted,
        },
        # The title of a y axis is horizontal, above the axis, where it is read first and takes no width on a phone.
        "axisY": {
            "titleAngle": 0,
            "titleAlign": "left",
            "titleAnchor": "end",
            "titleBaseline": "bottom",
            "titleX": 0,
            "titleY": -12,
            "ticks": False,
        },
    }


def _guides(colours: Palette) -> dict[str, Any]:
    """Return the style of legends, titles and panel heads."""
    return {
        "legend": {
            "labelColor": colours.text,
            "labelFontSize": 11,
            "titleColor": colours.muted,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "symbolStrokeWidth": 2.5,
            "orient": "top",
            "offset": 32,
            "columnPadding": 12,
            "layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 6}},
        },
        "title": {
            "anchor": "start",
            "color": colours.text,
            "fontSize": 13,
            "fontWeight": 600,
            "offset": 24,
            "frame": "group",
        },
        "header": {"labelColor": colours.text, "titleColor": colours.muted},
    }


def _marks(colours: Palette) -> dict[str, Any]:
    return {
        "line": {"strokeWidth": 1.8, "strokeCap": "round", "strokeJoin": "round", "color": colours.category[0]},
        "point": {"filled": True, "size": 36, "color": colours.category[0]},
        "bar": {"color": colours.category[0]},
        "area": {"color": colours.category[0]},
        "rule": {"color": colours.muted},
        "text": {"color": colours.text, "fontSize": 11},
    }
