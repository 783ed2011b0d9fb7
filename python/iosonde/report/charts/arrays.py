"""Figures of arrays: a surface of efficiency, and rates beside the expected model of their level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.report.charts import vega
from iosonde.report.charts.figure import Figure
from iosonde.report.charts.layout import Row, factor_axis, scaled, unique, x_value
from iosonde.report.charts.sketch import Sketch, finish
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.arrays import (
    ArrayRates,
    array_name,
    array_order,
    array_rates,
    level_name,
    load_name,
    set_name,
)
from iosonde.report.material.quantities import interval_text, metric_scale, metric_title
from iosonde.report.material.result_sets import Material
from iosonde.study.model import View

BRIGHTEST = 120
"""Percent of the promise from which on a surface has its brightest colour."""
MEASURED, PROMISED, BOUND = "measured", "promised", "bound"


def figures(material: Material, *, first: int) -> list[Figure]:
    """Draw the surface of efficiency and, for each level, measured beside promised; numbered from `first`."""
    sketches = [
        sketch for found in array_rates(material) for sketch in (_surface(found), _curves(found)) if sketch.rows
    ]
    return [
        finish(sketch, _view(sketch, found=number), first + number, material) for number, sketch in enumerate(sketches)
    ]


def _view(sketch: Sketch, *, found: int) -> View:
    surface = sketch.draw is vega.heatmap
    return View(
        kind="heatmap" if surface else "lines",
        title="Efficiency: measured over promised" if surface else "Measured beside promised",
        caption="The promise is the expected model of each level times what one device gave under the same load."
        if surface
        else "The bound is sharper than the promise: it knows block size, chunk and I/Os in flight (docs/arrays.md).",
    )


def _surface(found: ArrayRates) -> Sketch:
    """Draw the efficiency of every array under every load; over loads that differ in quantities, the worst."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.rows:
        place = (array_name(row), load_name(found, row))
        if place not in cells or row["efficiency"] < cells[place]["efficiency"]:
            cells[place] = row
    layouts = unique(array_name(row) for row in sorted(found.rows, key=array_order))
    rows = [
        _row(found, each, x=load, series=layout, y=100 * each["efficiency"], text=_efficiency_text(each))
        for (layout, load), each in cells.items()
    ]
    frame = Frame(
        x=Axis(title="Load", kind="category", order=unique(row["x"] for row in rows)),
        y=Axis(title="Efficiency (%)", domain=(0, BRIGHTEST)),
        series_title="Array",
        series=list(reversed(layouts)),
        graded=True,
        tooltip=[("series", "Array"), ("x_text", "Load"), ("text", "Measured of promised")],
    )
    heads = {"panel": "panel", "series": "array", "x_level": "load", "y": "efficiency_percent"}
    labelled = [{**row, "label": f"{row['y']:.0f}"} for row in rows]
    return Sketch(draw=vega.heatmap, rows=labelled, frame=frame, heads=heads)


def _curves(found: ArrayRates) -> Sketch:
    """Draw the rate over the number of devices, a panel for each level and load, beside promise and bound."""
    if found.quantities or len({row["devices"] for row in found.rows}) < 2:
        return Sketch(draw=vega.lines, rows=[], frame=_NOTHING, heads={})
    metric = found.analysis.metric
    largest = max(max(row["measured"], row["promised"]) for row in found.rows)
    scale = metric_scale(metric, largest)
    x = factor_axis("devices", [row["devices"] for row in found.rows], categories=False)
    rows = [drawn for row in found.rows for drawn in _curve_rows(found, row, scale, x)]
    frame = Frame(
        x=x,
        y=Axis(title=scale.title, label=scale.label, format=scale.format),
        series_title="Load",
        series=unique(load_name(found, row) for row in found.rows),
        sources=[MEASURED, PROMISED, BOUND],
        source_title="Of which",
        tooltip=[("series", "Load"), ("source", "Of which"), ("x_text", "Devices"), ("text", metric_title(metric))],
    )
    heads = {"panel": "panel", "x_level": "devices", "series": "load", "source": "of_which"}
    heads |= {"y": scale.column, "low": f"{scale.column}_low", "high": f"{scale.column}_high"}
    return Sketch(draw=vega.lines, rows=rows, frame=frame, heads=heads)


def _curve_rows(found: ArrayRates, row: Mapping[str, Any], scale: Any, x: Axis) -> Iterator[Row]:
    metric = found.analysis.metric
    panel = f"{level_name(row)} · {'writing' if row['writes_only'] else 'reading'}"
    ends = [None if row[end] is None else row[end] * row["promised"] for end in ("low", "high")]
    for source, value, interval in (
        (MEASURED, row["measured"], ends),
        (PROMISED, row["promised"], [None, None]),
        (BOUND, row["bound"], [None, None]),
    ):
        if value is not None:
            low, high = interval
            yield {
                **_row(
                    found, row, x=x_value("devices", row["devices"], x), series=load_name(found, row), y=None, text=""
                ),
                "panel": " · ".join(filter(None, [set_name(found), panel])),
                "source": source,
                "y": scaled(value, scale),
                "low": scaled(low, scale),
                "high": scaled(high, scale),
                "text": interval_text(metric, value, low, high),
                "x_text": str(row["devices"]),
            }


_NOTHING = Frame(x=Axis(title=""), y=Axis(title=""))


def _row(found: ArrayRates, row: Mapping[str, Any], *, x: Any, series: str, y: float | None, text: str) -> Row:
    return {
        "panel": set_name(found),
        "x": x,
        "x_level": x,
        "series": series,
        "source": found.source.label,
        "published": False,
        "y": None if y is None else round(y, 2),
        "low": None,
        "high": None,
        "repeats": row["repeats"],
        "x_text": str(x),
        "text": text,
        "hole": "",
        "verdict": "",
    }


def _efficiency_text(row: Mapping[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{100 * row['low']:.1f} .. {100 * row['high']:.1f} %]"
    return f"{100 * row['efficiency']:.1f} %{interval}"
