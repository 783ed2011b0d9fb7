"""Style of figures: colours that colour-blind readers can distinguish, and the look of charts (`page/charts.json`).

Figures are always drawn in light colours. On a dark page, `dark_style` replaces each of them by its dark counterpart
through CSS, so a static SVG follows the colour scheme of the reader.
"""

from __future__ import annotations

import json
from string import Template
from typing import Any

from iosonde.report.document import asset

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', sans-serif"
PAPER_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
"""For files: a generic name such as `system-ui` does not survive in an SVG that travels to another program."""

COLOURS = {
    "text": ("#1b2026", "#e4e8ec"),
    "muted": ("#5a6572", "#9aa5b1"),
    "grid": ("#e4e7eb", "#2b323a"),
    "alarm": ("#c2410c", "#fb923c"),
}
"""Light and dark colours by their names in `charts.json`."""
MUTED = COLOURS["muted"][0]
CATEGORY = (
    *("#0072b2", "#d55e00", "#009e73", "#b4508a", "#b97f00", "#3a9bd9"),
    *("#6a4c93", "#7f8c1f", "#8c4a2f", "#2f4b7c", "#e377c2", "#5b6570"),
)
"""Okabe and Ito's set (2008) without the yellow that is invisible on white, and further colours."""
_DARK_CATEGORY = (
    *("#56b4e9", "#f0843c", "#2ec49a", "#dd93bd", "#e6b13a", "#8fd0ff"),
    *("#b39ddb", "#c0ca5a", "#d08a6e", "#8da3d6", "#f0a6dc", "#aab4bf"),
)
GRADED = (
    *("#fdb14e", "#f79a4b", "#ee8450", "#e27058", "#d35e62", "#c14e6c"),
    *("#ac4276", "#95387e", "#7c3083", "#632984", "#4a2380", "#321c73"),
)
"""Steps of one quantity, such as queue depths, from low to high."""
_DARK_GRADED = (
    *("#5b4a9e", "#7050a8", "#8657ad", "#9c5eac", "#b166a8", "#c46fa2"),
    *("#d57a9a", "#e38791", "#ee9788", "#f6a97f", "#fbbd7a", "#fdd27c"),
)
DIVERGING = ("#b35806", "#f1a340", "#f3f4f5", "#74a9cf", "#045a8d")


def configuration(font: str = FONT) -> dict[str, Any]:
    """Return the Vega-Lite `config` that gives charts their look."""
    colours = {name: light for name, (light, _) in COLOURS.items()}
    text = Template(asset("charts.json")).substitute(colours, first=CATEGORY[0])
    config: dict[str, Any] = json.loads(text) | {"font": font}
    config["range"] |= {"category": list(CATEGORY), "diverging": list(DIVERGING)}
    return config


def category(count: int) -> list[str]:
    """Return a colour for each of several different things; they repeat only after the twelfth."""
    return [CATEGORY[place % len(CATEGORY)] for place in range(count)]


def graded(count: int) -> list[str]:
    """Return a colour for each step of one quantity, from low to high."""
    last = len(GRADED) - 1
    return [GRADED[round(place * last / max(1, count - 1))] for place in range(count)]


def dark_style() -> str:
    """Return CSS that replaces the light colours of a drawing by dark ones."""
    pairs = [
        *COLOURS.values(),
        *zip(CATEGORY, _DARK_CATEGORY, strict=True),
        *zip(GRADED, _DARK_GRADED, strict=True),
    ]
    rules = [f'svg [{what}="{old}"] {{ {what}: {new} }}' for old, new in pairs for what in ("fill", "stroke")]
    return "\n".join(rules)
