"""Figures of arrays: a surface of efficiency, and rates compared with the expected model of their level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.features.arrays.expected import level_name
from iosonde.features.arrays.rates import (
    ArrayRates,
    array_name,
    array_order,
    array_rates,
    load_name,
    set_name,
)
from iosonde.metrics.statistics import WELCH
from iosonde.report import vega
from iosonde.report.figure import Figure
from iosonde.report.material import Material
from iosonde.report.quantities import Scale, factor_title, interval_text, level_phrase, metric_scale, metric_title
from iosonde.report.sketch import UNKNOWN, Row, Sketch, factor_axis, finish, scaled, unique, x_value
from iosonde.report.vega import Axis, Frame, value_axis
from iosonde.study.model import View

MEASURED, EXPECTED = "measured", "expected"
_INTERVALS = f"95 % confidence intervals of the ratio to one device ({WELCH})"


def figures(material: Material, first: int) -> list[Figure]:
    """Draw the surface of efficiency and, for each level, measured and expected rates; numbered from `first`."""
    drawn: list[tuple[View, Sketch]] = []
    for found in array_rates(material):
        part, metric = found.analysis.part, found.analysis.metric
        efficiency = View(
            kind="heatmap",
            title="Array efficiency",
            y="efficiency",
            part=part,
            caption="Measured over expected throughput. Expected: the model of each level times the throughput of one "
            f"device under the same load. {_INTERVALS}, shown in the table.",
        )
        drawn.append((efficiency, _surface(found)))
        if curves := _curves(found):
            caption = f"Lines: expected. Points: measured. {_INTERVALS}."
            title = "Measured and expected throughput"
            drawn.append((View(kind="lines", title=title, y=metric, part=part, caption=caption), curves))
    return [finish(sketch, view, number, material) for number, (view, sketch) in enumerate(drawn, start=first)]


def _surface(found: ArrayRates) -> Sketch:
    """Draw the efficiency of every array under every load; over loads that differ in quantities, the worst."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.rows:
        place = (array_name(row), load_name(found, row))
        if place not in cells or row["efficiency"] < cells[place]["efficiency"]:
            cells[place] = row
    layouts = unique(array_name(row) for row in sorted(found.rows, key=array_order))
    rows = [
        {
            **_row(found, each, x=load, series=layout, y=100 * each["efficiency"], text=_efficiency_text(each)),
            "shade": round(max(-1.0, min(1.0, math.log2(max(each["efficiency"], 1e-9)))), 4),
            "label": f"{100 * each['efficiency']:.0f}",
        }
        for (layout, load), each in cells.items()
    ]
    frame = Frame(
        x=Axis(title="Load", kind="category", order=unique(row["x"] for row in rows)),
        y=Axis(title="Efficiency (%)"),
        series_title="Array",
        series=list(reversed(layouts)),
        graded=True,
        ratio=True,
        height=max(180, 26 * len(layouts)),
        tooltip=[("series", "Array"), ("x_text", "Load"), ("text", "Efficiency")],
    )
    heads = {"panel": "panel", "series": "array", "x_level": "load", "y": "efficiency_percent"}
    return Sketch(draw=vega.heatmap, rows=rows, frame=frame, heads=heads, notes=_worst_note(found))


def _worst_note(found: ArrayRates) -> list[str]:
    """State what a cell is where loads differ in quantities."""
    names = [factor_title(name).lower() for name in found.loads.quantities]
    return [f"Each cell: the lowest value over {' and '.join(names)}."] if names else []


def _curves(found: ArrayRates) -> Sketch | None:
    """Draw rates over the number of devices, a panel for each level and direction."""
    if found.loads.quantities or len({row["devices"] for row in found.rows}) < 2:
        return None
    metric = found.analysis.metric
    scale = metric_scale(metric, max(max(row["measured"], row["expected"]) for row in found.rows))
    x = factor_axis("devices", [row["devices"] for row in found.rows], categories=False)
    rows = [drawn for row in found.rows for drawn in _curve_rows(found, row, scale, x)]
    frame = Frame(
        x=x,
        y=value_axis(scale, kind="linear"),
        series_title="Load",
        series=unique(row["series"] for row in rows),
        tooltip=[("series", "Load"), ("role", "Value"), ("x_text", "Devices"), ("text", metric_title(metric))],
        height=200,
    )
    heads = {"panel": "panel", "x_level": "devices", "series": "load", "role": "value_is"}
    return Sketch(draw=vega.expectation, rows=rows, frame=frame, heads=heads | scale.columns)


def _curve_rows(found: ArrayRates, row: Mapping[str, Any], scale: Scale, x: Axis) -> Iterator[Row]:
    metric = found.analysis.metric
    panel = f"{level_name(row)} · {'writing' if row['writes_only'] else 'reading'}"
    ends = [None if row[end] is None else row[end] * row["expected"] for end in ("low", "high")]
    for role, value, (low, high) in (
        (EXPECTED, row["expected"], (None, None)),
        (MEASURED, row["measured"], ends),
    ):
        yield {
            **_row(found, row, x=x_value("devices", row["devices"], x), series=_load_here(found, row), y=None, text=""),
            "panel": " · ".join(filter(None, [set_name(found), panel])),
            "role": role,
            "y": scaled(value, scale),
            "low": scaled(low, scale),
            "high": scaled(high, scale),
            "text": interval_text(metric, value, low, high),
            "x_text": str(row["devices"]),
        }


def _load_here(found: ArrayRates, row: Mapping[str, Any]) -> str:
    """Name a load within its panel: by the factors that vary among loads of its direction."""
    alike = [each for each in found.rows if each["writes_only"] == row["writes_only"]]
    names = [name for name in found.loads.apart if len({str(each[name]) for each in alike}) > 1]
    return " · ".join(level_phrase(name, row[name]) for name in names) or "all loads"


def _row(found: ArrayRates, row: Mapping[str, Any], *, x: Any, series: str, y: float | None, text: str) -> Row:
    return {
        **UNKNOWN,
        "panel": set_name(found),
        "x": x,
        "x_level": x,
        "series": series,
        "source": found.source.label,
        "y": None if y is None else round(y, 2),
        "repeats": row["repeats"],
        "x_text": str(x),
        "text": text,
    }


def _efficiency_text(row: Mapping[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{100 * row['low']:.1f} .. {100 * row['high']:.1f} %]"
    return f"{100 * row['efficiency']:.1f} %{interval}"


FIGURES = (figures,)
