"""Tables and figures of arrays: every number of every array, next to the expected value of its level."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from iosonde.features.arrays.loads import ArrayRates, Row, array_name, array_order, array_rates, load_name, set_name
from iosonde.features.arrays.performance import BOUND_WORDS, level_name
from iosonde.metrics.statistics import WELCH
from iosonde.report import vega
from iosonde.report.figure import Figure
from iosonde.report.material import Material
from iosonde.report.quantities import (
    Axis,
    Scale,
    factor_title,
    interval_text,
    level_phrase,
    level_text,
    metric_scale,
    metric_title,
)
from iosonde.report.sketch import UNKNOWN, Sketch, factor_axis, finish, scaled, unique, x_value
from iosonde.report.sketch import Row as SketchRow
from iosonde.report.table import Cell, Column, Table, metric_cell, tabulated
from iosonde.report.vega import Frame
from iosonde.study.model import View
from iosonde.units import format_bytes

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
    names = [factor_title(name).lower() for name in found.loads.quantities]
    notes = [f"Each cell: the lowest value over {' and '.join(names)}."] if names else []
    return Sketch(draw=vega.heatmap, rows=rows, frame=frame, heads=heads, notes=notes)


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
        y=replace(scale, kind="linear"),
        series_title="Load",
        series=unique(row["series"] for row in rows),
        tooltip=[("series", "Load"), ("role", "Value"), ("x_text", "Devices"), ("text", metric_title(metric))],
        height=200,
    )
    heads = {"panel": "panel", "x_level": "devices", "series": "load", "role": "value_is"}
    return Sketch(draw=vega.expectation, rows=rows, frame=frame, heads=heads | scale.columns)


def _curve_rows(found: ArrayRates, row: Mapping[str, Any], scale: Scale, x: Axis) -> Iterator[SketchRow]:
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


def _row(found: ArrayRates, row: Mapping[str, Any], *, x: Any, series: str, y: float | None, text: str) -> SketchRow:
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


def tables(material: Material) -> list[Table]:
    """Return every number of every array, a table for each question and result set."""
    return [_table(found) for found in array_rates(material)]


def _table(found: ArrayRates) -> Table:
    rows = sorted(found.rows, key=array_order)
    columns: list[Column] = [(head, [make(row) for row in rows]) for head, make in _columns(found)]
    labels = 1 + len(found.loads.factors)
    of = f" of {found.source.label}" if len(found.material.sources) > 1 else ""
    return tabulated(
        f"Measured and expected{of}",
        columns[:labels],
        columns[labels:],
        caption="Expected: the model of the level times one device under the same load. Bound: the maximum "
        "for requests of this size in this layout. Software overhead: 1 - efficiency. Members: I/Os and bytes of the "
        "members per I/O and byte of the host; imbalance is the busiest over the mean. Busiest thread (of the engine), "
        "array's thread (of the kernel) and busiest core (by any process): share of one core.",
        keys=[f"{found.source.label}\n{row['case_id']}" for row in rows],
    )


def _columns(found: ArrayRates) -> Iterator[tuple[str, Callable[[Row], Cell | str]]]:
    metric = found.analysis.metric
    yield "Array", array_name
    for name in found.loads.factors:
        yield factor_title(name), partial(_level, name)
    yield metric_title(metric), partial(_value, metric, "measured")
    yield "One device", partial(_value, metric, "baseline")
    yield "Expected", partial(_value, metric, "expected")
    yield "Efficiency", lambda row: _share("efficiency", row, row["low"], row["high"])
    yield "Software overhead", partial(_share, "overhead")
    yield "Speed-up", _speedup
    yield "Bound", partial(_value, metric, "bound")
    yield "Of bound", partial(_share, "of_bound")
    yield "Bound by", lambda row: BOUND_WORDS.get(row["bound_by"] or "", "-")
    for head, name in (("I/Os per I/O", "member_ios_per_operation"), ("bytes per byte", "member_bytes_per_byte")):
        yield f"Member {head}", partial(_value, name, name)
    yield "Members busy", partial(_share, "member_utilisation")
    yield "Imbalance", partial(_value, "member_imbalance", "member_imbalance")
    yield "CPU per byte", partial(_value, "cpu_ns_per_byte", "cpu_ns_per_byte")
    yield "Busiest thread", partial(_share, "core_utilisation")
    yield "Array's thread", partial(_share, "array_thread_utilisation")
    yield "Busiest core", partial(_share, "busiest_core_utilisation")
    yield "Capacity", partial(_bytes, "capacity")
    yield "Expected capacity", partial(_bytes, "expected_capacity")


def _level(name: str, row: Row) -> str:
    return level_text(name, row[name])


def _value(metric: str, name: str, row: Row) -> Cell:
    return metric_cell(metric, row[name])


def _share(name: str, row: Row, low: float | None = None, high: float | None = None) -> Cell:
    if (value := row[name]) is None:
        return Cell(text="-")
    interval = "" if low is None or high is None else f"{100 * low:.1f} .. {100 * high:.1f} %"
    return Cell(text=f"{100 * value:.1f} %", interval=interval, number=value)


def _speedup(row: Row) -> Cell:
    interval = "" if row["speedup_low"] is None else f"{row['speedup_low']:.2f} .. {row['speedup_high']:.2f}"
    return Cell(text=f"{row['speedup']:.2f}", interval=interval, number=row["speedup"])


def _bytes(name: str, row: Row) -> Cell:
    value = row[name]
    return Cell(text="-") if value is None else Cell(text=format_bytes(int(value)), number=value)


TABLES = (tables,)
