"""From a study's views to figures: which cases, on which axes, next to which published values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from iosonde.metrics.registry import find
from iosonde.report.charts import stacked, timeseries, vega
from iosonde.report.charts.figure import Figure, Undrawn
from iosonde.report.charts.layout import (
    ChartLayout,
    Row,
    by_value,
    drawn_sources,
    factor_axis,
    in_order,
    row_of,
    series_tooltip,
    tooltip,
    unique,
    widened,
    x_value,
)
from iosonde.report.charts.published import PUBLISHED_TO_OVERLAY, measured_panels, published_panels, published_rows
from iosonde.report.charts.sketch import Draw, Sketch, drawn_metric, finish
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.quantities import (
    factor_column,
    factor_title,
    is_percentile,
    level_phrase,
    level_text,
    metric_scale,
    metric_text,
    metric_title,
    metric_unit,
)
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import Subject, Values, largest, metric_title_of, specs, subjects
from iosonde.study.model import View
from iosonde.workload import described

BARS_APART = 50
"""Bars that are further apart, as a ratio, are drawn on a logarithmic axis, as ticks: the small ones would vanish."""
COLUMNS_WITH_VALUES = 10
"""Columns of a heat map that leave room for the value in each cell."""
MEDIAN = 0.301
"""Position of 50 % on a nines axis; values below it are no tails."""


def figure(view: View, number: int, material: Material) -> Figure | Undrawn | None:
    """Draw a view of a study, or report why there is nothing to draw; None of tables and of parts without a case."""
    makers: dict[str, Callable[[View, list[Subject], Material], Sketch | None]] = {
        "lines": _lines,
        "heatmap": _heatmap,
        "bars": _bars,
        "stack": stacked.sketch,
        "tradeoff": _tradeoff,
        "percentiles": _percentiles,
        "timeseries": timeseries.sketch,
    }
    make = makers.get(view.kind)
    found = subjects(view, material)
    if make is None or not found:
        return None
    sketch = make(view, found, material)
    if sketch is None or all(row["y"] is None for row in sketch.rows):
        return Undrawn(title=view.title, why=_why_undrawn(view, found))
    return finish(sketch, view, number, material)


def _why_undrawn(view: View, found: list[Subject]) -> str:
    if all(subject.source.no_value(subject.case.case_id) for subject in found):
        return "no case has a result"
    metric = drawn_metric(view)
    if view.kind == "percentiles" or is_percentile(metric):
        return "a percentile needs at least ten samples beyond it, and no case has them"
    return f"no case has a value of this metric ({metric_title(metric)})"


def _lines(view: View, found: list[Subject], material: Material) -> Sketch:
    return _over_factor(view, found, material, draw=vega.lines, categories=False)


def _bars(view: View, found: list[Subject], material: Material) -> Sketch:
    return _over_factor(view, found, material, draw=vega.bars, categories=True)


def _over_factor(view: View, found: list[Subject], material: Material, *, draw: Draw, categories: bool) -> Sketch:
    values = Values(material, view.y)
    reduced = _without_role(view, found) if view.best else []
    found = _best(view, found, values) if view.best else found
    layout = ChartLayout.for_view(view, found, material, taken=reduced)
    scale = metric_scale(view.y, largest(values, found), title=metric_title_of(view.y, found))
    x = factor_axis(view.x, [s.level(view.x) for s in found], categories=categories)
    rows = [
        row_of(s, layout, values.estimate(s), view.y, scale, x=x_value(view.x, s.level(view.x), x), x_factor=view.x)
        | {"at": ", ".join(level_phrase(name, s.level(name)) for name in reduced)}
        for s in found
    ]
    cited, is_separate = published_rows(view, material, layout, scale, x), False
    if len({(r["source"], r["series"]) for r in cited}) > PUBLISHED_TO_OVERLAY:
        cited, rows, is_separate = published_panels(cited), measured_panels(rows, cited), True
    decades = _spread([*rows, *cited], shared=view.shared_y) > BARS_APART if categories else scale.logarithmic
    y = Axis(
        title=scale.title,
        kind="log" if decades else "linear",
        label=scale.label,
        format=scale.format,
    )
    frame = Frame(
        x=x if not cited else _widened(x, rows, cited),
        y=y,
        series_title=layout.series_title if layout.series else "Source",
        series=_series(layout, rows, cited),
        graded=layout.graded,
        sources=drawn_sources(layout, [] if is_separate else cited),
        published=unique(r["source"] for r in cited),
        tooltip=[*tooltip(view, layout, view.y), *([("at", "At")] if reduced else [])],
    )
    if cited and not layout.series:
        rows = [{**row, "series": row["source"]} for row in rows]
    rows += cited
    heads = {
        "panel": "panel",
        "x_level": factor_column(view.x or "x"),
        "series": factor_column(layout.series_factor),
        "source": "result_set",
    }
    heads |= {"y": scale.column, "low": f"{scale.column}_low", "high": f"{scale.column}_high", "repeats": "repeats"}
    heads |= {"at": "at"} if reduced else {}
    return Sketch(draw=draw, rows=rows, frame=frame, heads=heads)


def _without_role(view: View, found: list[Subject]) -> list[str]:
    """Return the factors that vary and that no axis, series or panel shows."""
    shown = {view.x, view.series, view.facet, *view.where}
    names = unique(name for subject in found for name in subject.case.levels if name not in shown)
    return [name for name in names if len({str(subject.level(name)) for subject in found}) > 1]


def _best(view: View, found: list[Subject], values: Values) -> list[Subject]:
    """Return the case with the best value of each place in a figure."""
    known = find(view.y)
    sign = -1 if known is not None and known.better == "lower" else 1
    best: dict[tuple[str, ...], tuple[float, Subject]] = {}
    for subject in found:
        value = values.estimate(subject)[0]
        place = (subject.source.label, *(str(subject.level(name)) for name in (view.x, view.series, view.facet)))
        if value is not None and (place not in best or sign * value > best[place][0]):
            best[place] = (sign * value, subject)
    return [subject for _, subject in best.values()]


def _widened(x: Axis, rows: list[Row], cited: list[Row]) -> Axis:
    """Make room for published values; the measured rows show which numbers the labels of categories represent."""
    order = widened(x, cited)
    return replace(order, order=by_value(order.order, [*rows, *cited], "x")) if order.kind == "category" else order


def _series(layout: ChartLayout, rows: list[Row], cited: list[Row]) -> list[str]:
    """Return one's own series and published ones, in the order of their values."""
    own = layout.series or (layout.sources if cited else [])
    return by_value([*own, *(row["series"] for row in cited)], [*rows, *cited], "series")


def _spread(rows: list[Row], *, shared: bool) -> float:
    """Return the ratio of the largest to the smallest value; 1 where one of them is 0, which has no logarithm."""
    ratios = []
    for panel in {row["panel"] for row in rows} if not shared else {None}:
        inside = [row for row in rows if panel in (None, row["panel"])]
        values = [row["y"] for row in inside if row["y"] is not None]
        ratios.append(max(values) / min(values) if values and min(values) > 0 else 1.0)
    return max(ratios, default=1.0)


def _heatmap(view: View, found: list[Subject], material: Material) -> Sketch:
    layout = ChartLayout.for_view(view, found, material, surface=True)
    values = Values(material, view.y)
    scale = metric_scale(view.y, largest(values, found), title=metric_title_of(view.y, found))
    x = factor_axis(view.x, [s.level(view.x) for s in found], categories=True)
    rows = [
        row_of(s, layout, values.estimate(s), view.y, scale, x=x_value(view.x, s.level(view.x), x), x_factor=view.x)
        for s in found
    ]
    cited = published_panels(published_rows(view, material, layout, scale, x))
    rows = measured_panels(rows, cited)
    frame = Frame(
        x=_widened(x, rows, cited),
        y=Axis(
            title=scale.title, kind="log" if scale.logarithmic else "linear", label=scale.label, format=scale.format
        ),
        series_title=layout.series_title,
        series=_series(layout, rows, cited),
        graded=True,
        tooltip=tooltip(view, layout, view.y),
    )
    heads = {
        "panel": "panel",
        "x_level": factor_column(view.x or "x"),
        "series": factor_column(view.series or "series"),
        "source": "result_set",
    }
    heads |= {"y": scale.column, "low": f"{scale.column}_low", "high": f"{scale.column}_high", "repeats": "repeats"}
    columns = Counter(panel for panel, _ in {(row["panel"], row["x"]) for row in rows + cited})
    rows = [
        {**row, "label": _short(row["y"], view.y) if columns[row["panel"]] <= COLUMNS_WITH_VALUES else ""}
        for row in rows + cited
    ]
    return Sketch(draw=vega.heatmap, rows=rows, frame=frame, heads=heads, zero=False)


def _tradeoff(view: View, found: list[Subject], material: Material) -> Sketch:
    x_metric = view.x or "iops"
    y_metric = drawn_metric(view)
    step = _step_factor(view, found)
    layout = ChartLayout.for_view(view, found, material, taken={step} if step else set())
    xs, ys = Values(material, x_metric), Values(material, y_metric)
    x_scale = metric_scale(x_metric, largest(xs, found))
    y_scale = metric_scale(y_metric, largest(ys, found), title=metric_title_of(y_metric, found))
    steps = in_order([s.level(step) for s in found]) if step else []
    rows = []
    for subject in found:
        x, y = xs.estimate(subject)[0], ys.estimate(subject)
        if x is None or y[0] is None:
            continue
        level = level_text(step, subject.level(step)) if step else ""
        row = row_of(subject, layout, y, y_metric, y_scale, x=x / x_scale.divisor)
        position = steps.index(subject.level(step)) if step else 0
        rows.append({**row, "label": level, "step": position, "x_text": metric_text(x_metric, x)})
    tooltip = [
        *([("label", factor_title(step))] if step else []),
        ("x_text", metric_title(x_metric)),
        ("text", metric_title(y_metric)),
    ]
    frame = Frame(
        x=Axis(
            title=x_scale.title,
            format=x_scale.format,
            label=x_scale.label,
            domain=(0, 1.06 * max((r["x"] for r in rows), default=1)),
        ),
        y=Axis(title=y_scale.title, kind="log", label=y_scale.label),
        series_title=layout.series_title,
        series=layout.series,
        graded=layout.graded,
        sources=drawn_sources(layout, []),
        tooltip=[*series_tooltip(layout), *tooltip],
    )
    heads = {
        "panel": "panel",
        "series": factor_column(layout.series_factor),
        "source": "result_set",
        "label": factor_column(step or "step"),
    }
    heads |= {
        "x": x_scale.column,
        "y": y_scale.column,
        "low": f"{y_scale.column}_low",
        "high": f"{y_scale.column}_high",
    }
    title = factor_title(step) if step else ""
    notes = [f"Labels: {title.lower()}."] if step else []
    return Sketch(draw=vega.tradeoff, rows=rows, frame=frame, heads=heads, notes=notes, step_title=title)


def _percentiles(view: View, found: list[Subject], material: Material) -> Sketch:
    layout = ChartLayout.for_view(view, found, material)
    metric = drawn_metric(view)
    latency, _, _ = metric.partition("_")
    points = _curve_points(material, latency)
    rows = []
    for subject in found:
        for fraction, nines, nanoseconds in points.get(subject.key, []):
            if nines < MEDIAN:
                continue
            row = row_of(
                subject,
                layout,
                (nanoseconds, None, None, 0),
                metric,
                metric_scale(metric, 1),
                x=nines,
            )
            rows.append({**row, "x_text": f"{100 * fraction:.6g} %"})
    deepest = max((row["x"] for row in rows), default=1)
    scale = metric_scale(metric, 1, title=metric_title_of(metric, found))
    frame = Frame(
        x=Axis(
            title=f"Percentile of {_counted(found)}",
            kind="nines",
            domain=(MEDIAN, max(deepest, 1)),
            values=[MEDIAN, *range(1, int(deepest + 0.01) + 1)],
        ),
        y=Axis(title=scale.title, kind="log", label=scale.label),
        series_title=layout.series_title,
        series=layout.series,
        graded=layout.graded,
        sources=drawn_sources(layout, []),
        tooltip=[*series_tooltip(layout), ("x_text", "Percentile"), ("text", "Latency")],
    )
    heads = {
        "panel": "panel",
        "series": factor_column(layout.series_factor),
        "source": "result_set",
        "x_text": "percentile",
        "y": scale.column,
    }
    notes = ["Percentiles need at least ten samples beyond them. Repeats are merged."]
    return Sketch(draw=vega.percentiles, rows=rows, frame=frame, heads=heads, notes=notes)


def _counted(found: list[Subject]) -> str:
    """Name the operations whose latencies are measured."""
    names = {described(spec["workload"]).counted for spec in specs(found)}
    return names.pop() if len(names) == 1 else "I/Os"


def _step_factor(view: View, found: list[Subject]) -> str | None:
    """Return the factor along a trade-off curve: the one that varies most and has no other role."""
    varying = {
        name: len({str(s.level(name)) for s in found})
        for name in unique(name for s in found for name in s.case.levels)
        if name not in (view.series, view.facet)
    }
    best = max(varying, key=lambda name: varying[name], default=None)
    return best if best and varying[best] > 1 else None


def _curve_points(
    material: Material, latency: str
) -> dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]]:
    """Return fraction, nines and nanoseconds of every curve; under no stream and operation, those of the whole load."""
    from iosonde.metrics.scopes import overall

    table = material.curves.filter(pl.col("latency") == latency).sort("nines")
    points: dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]] = {}
    for row in overall(table).to_dicts():
        points.setdefault((row["result_set"], row["case_id"], None, None), []).append(
            (row["fraction"], row["nines"], row["latency_ns"])
        )
    for row in table.to_dicts():
        points.setdefault((row["result_set"], row["case_id"], row["stream"], row["operation"]), []).append(
            (row["fraction"], row["nines"], row["latency_ns"])
        )
    return points


def _short(value: float | None, metric: str) -> str:
    """Write a value for a cell of a heat map: in the axis's unit, three digits."""
    if value is None:
        return ""
    if metric_unit(metric) == "ns":
        return metric_text(metric, value).replace(" ", "")
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
