"""The figures of a study: one for each of its views, the measurement window of rounds, and drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from iosonde.findings.device_state import Convergence, Tracked, convergences
from iosonde.metrics.registry import find
from iosonde.report import vega
from iosonde.report.figure import Figure, Panel, Undrawn
from iosonde.report.material import Material, Source, Subject, Values, largest, metric_title_of, specs, subjects
from iosonde.report.quantities import (
    Scale,
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
from iosonde.report.sketch import (
    PANELS_AT_MOST,
    PUBLISHED_TO_OVERLAY,
    UNKNOWN,
    ChartLayout,
    Draw,
    Row,
    Sketch,
    as_frame,
    by_value,
    drawn_metric,
    factor_axis,
    finish,
    in_order,
    measured_panels,
    published_panels,
    published_rows,
    row_of,
    unique,
    widened,
    x_tooltip,
    x_value,
)
from iosonde.report.vega import Axis, Frame, value_axis
from iosonde.study.model import ROUND, STAGE, Part, View
from iosonde.units import format_bytes
from iosonde.workload import described
from iosonde.workload.block.parameters import active_range_bytes

BARS_APART = 50
"""Bars that are further apart, as a ratio, are drawn on a logarithmic axis, as ticks: the small ones would vanish."""
COLUMNS_WITH_VALUES = 10
"""Columns of a heat map that leave room for the value in each cell."""
MEDIAN = 0.301
"""Position of 50 % on a nines axis; values below it are no tails."""
RUNS_TO_DRAW = 60
_RUN = ("result_set", "run_id")


@dataclass(frozen=True, kw_only=True)
class _TimeAxis:
    """The x axis: its title, the name of its column in a CSV, what a tooltip calls it, and every interval on it."""

    title: str
    column: str
    called: str
    places: pl.DataFrame
    """`result_set, run_id, interval, x` (end of the interval), `x_text`."""


def draw_view(view: View, number: int, material: Material) -> Figure | Undrawn | None:
    """Draw a view of a study, or report why there is nothing to draw; None of tables and of parts without a case."""
    make = _MAKERS.get(view.kind)
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


def _over_factor(view: View, found: list[Subject], material: Material, *, draw: Draw) -> Sketch:
    """Draw a metric over a factor: as lines, as bars or, with the series as a second factor, as a surface."""
    is_surface = draw is vega.heatmap
    values = Values(material, view.y)
    reduced = _without_role(view, found) if view.best else []
    found = _best(view, found, values) if view.best else found
    layout = ChartLayout.for_view(view, found, material, surface=is_surface, taken=reduced)
    scale = metric_scale(view.y, largest(values, found), title=metric_title_of(view.y, found))
    x = factor_axis(view.x, [s.level(view.x) for s in found], categories=draw is not vega.lines)
    rows = [
        row_of(s, layout, values.estimate(s), view.y, scale, x=x_value(view.x, s.level(view.x), x), x_factor=view.x)
        | ({"at": ", ".join(level_phrase(name, s.level(name)) for name in reduced)} if reduced else {})
        for s in found
    ]
    cited = published_rows(view, material, layout, scale, x)
    apart = is_surface or len({(r["source"], r["series"]) for r in cited}) > PUBLISHED_TO_OVERLAY
    if apart:
        cited, rows = published_panels(cited), measured_panels(rows, cited)
    decades = scale.logarithmic
    if draw is vega.bars:
        decades = _spread([*rows, *cited], shared=view.shared_y) > BARS_APART
    frame = layout.frame(
        x=x if not cited else _widened(x, rows, cited),
        y=value_axis(scale, kind="log" if decades else "linear"),
        tooltip=[*x_tooltip(view, view.y), *([("at", "At")] if reduced else [])],
        series_title=layout.series_title if layout.series or is_surface else "Source",
        series=_series(layout, rows, cited),
        graded=layout.graded or is_surface,
        sources=layout.drawn_sources([] if apart else cited),
        published=unique(r["source"] for r in cited),
    )
    if cited and not layout.series and not is_surface:
        rows = [{**row, "series": row["source"]} for row in rows]
    rows += cited
    heads = layout.heads(view.x or "x", **scale.columns, repeats="repeats", **({"at": "at"} if reduced else {}))
    return Sketch(
        draw=draw, rows=_labelled(rows, view) if is_surface else rows, frame=frame, heads=heads, zero=not is_surface
    )


def _labelled(rows: list[Row], view: View) -> list[Row]:
    """Label the cells of surfaces that have room for their values."""
    columns = Counter(panel for panel, _ in {(row["panel"], row["x"]) for row in rows})
    return [
        {**row, "label": _short(row["y"], view.y) if columns[row["panel"]] <= COLUMNS_WITH_VALUES else ""}
        for row in rows
    ]


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


def _short(value: float | None, metric: str) -> str:
    """Write a value for a cell of a heat map: in the axis's unit, three digits."""
    if value is None:
        return ""
    if metric_unit(metric) == "ns":
        return metric_text(metric, value).replace(" ", "")
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _tradeoff(view: View, found: list[Subject], material: Material) -> Sketch:
    """Draw one metric against another, along the factor that varies most."""
    x_metric, y_metric = view.x or "iops", drawn_metric(view)
    step = _step_factor(view, found)
    title = factor_title(step) if step else ""
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
    frame = layout.frame(
        x=value_axis(x_scale, kind="linear", domain=(0, 1.06 * max((r["x"] for r in rows), default=1))),
        y=value_axis(y_scale, kind="log"),
        tooltip=[
            *([("label", title)] if step else []),
            ("x_text", metric_title(x_metric)),
            ("text", metric_title(y_metric)),
        ],
    )
    heads = layout.heads(label=factor_column(step or "step"), x=x_scale.column, **y_scale.columns)
    notes = [f"Labels: {title.lower()}."] if step else []
    return Sketch(draw=vega.tradeoff, rows=rows, frame=frame, heads=heads, notes=notes, step_title=title)


def _step_factor(view: View, found: list[Subject]) -> str | None:
    """Return the factor along a trade-off curve: the one that varies most and has no other role."""
    varying = {
        name: len({str(s.level(name)) for s in found})
        for name in unique(name for s in found for name in s.case.levels)
        if name not in (view.series, view.facet)
    }
    best = max(varying, key=lambda name: varying[name], default=None)
    return best if best and varying[best] > 1 else None


def _percentiles(view: View, found: list[Subject], material: Material) -> Sketch:
    """Draw the percentile curve of each case from the median up; values below it are no tails."""
    layout = ChartLayout.for_view(view, found, material)
    metric = drawn_metric(view)
    scale = metric_scale(metric, 1, title=metric_title_of(metric, found))
    points = _curve_points(material, metric.partition("_")[0])
    rows = [
        {
            **row_of(subject, layout, (nanoseconds, None, None, 0), metric, scale, x=nines),
            "x_text": f"{100 * fraction:.6g} %",
        }
        for subject in found
        for fraction, nines, nanoseconds in points.get(subject.key, [])
        if nines >= MEDIAN
    ]
    deepest = max((row["x"] for row in rows), default=1)
    frame = layout.frame(
        x=Axis(
            title=f"Percentile of {_counted(found)}",
            kind="nines",
            domain=(MEDIAN, max(deepest, 1)),
            values=[MEDIAN, *range(1, int(deepest + 0.01) + 1)],
        ),
        y=value_axis(scale, kind="log"),
        tooltip=[("x_text", "Percentile"), ("text", "Latency")],
    )
    notes = ["Percentiles need at least ten samples beyond them. Repeats are merged."]
    heads = layout.heads(x_text="percentile", y=scale.column)
    return Sketch(draw=vega.percentiles, rows=rows, frame=frame, heads=heads, notes=notes)


def _counted(found: list[Subject]) -> str:
    """Name the operations whose latencies are measured."""
    names = {described(spec["workload"]).rate.counted for spec in specs(found)}
    return names.pop() if len(names) == 1 else "I/Os"


def _curve_points(
    material: Material, latency: str
) -> dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]]:
    """Return fraction, nines and nanoseconds of every curve; under no stream and operation, those of the whole load."""
    from iosonde.metrics.scopes import overall

    table = material.curves.filter(pl.col("latency") == latency).sort("nines")
    whole = overall(table).with_columns(stream=pl.lit(None), operation=pl.lit(None))
    points: dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]] = {}
    for row in [*whole.to_dicts(), *table.to_dicts()]:
        key = (row["result_set"], row["case_id"], row["stream"], row["operation"])
        points.setdefault(key, []).append((row["fraction"], row["nines"], row["latency_ns"]))
    return points


def _stack(view: View, found: list[Subject], material: Material) -> Sketch:
    """Stack metrics that add up to a whole, such as the stages of an I/O; each row is one part of a bar."""
    layout = ChartLayout.for_view(view, found, material)
    values = {metric: Values(material, metric) for metric in view.metrics}
    values = {
        metric: each
        for metric, each in values.items()
        if any(each.estimate(subject)[0] is not None for subject in found)
    }
    totals = Values(material, view.y)
    axis = factor_axis(view.x, [subject.level(view.x) for subject in found], categories=True)
    scale = metric_scale(view.y, 1.0)
    titles = _titles(list(values))
    bars: list[list[Row]] = []
    for subject in found:
        at: dict[str, Any] = {"x": x_value(view.x, subject.level(view.x), axis), "x_factor": view.x}
        whole = row_of(subject, layout, totals.estimate(subject), view.y, scale, **at)
        bars.append([])
        for step, (metric, known) in enumerate(values.items()):
            median, _, _, repeats = known.estimate(subject)
            part = {"total": whole["y"], "total_text": whole["text"], "series": titles[metric], "step": step}
            row = row_of(subject, layout, (median, None, None, repeats), metric, scale, **at)
            bars[-1].append(row | part | {"verdict": ""})
    top = max((sum(row["y"] or 0 for row in bar) for bar in bars), default=0) or 1.0
    whole_title = ("total_text", metric_title(view.y))
    common = [each for each in [*layout.tooltip, *x_tooltip(view, view.y)] if each[0] != "text"]
    frame = Frame(
        x=axis,
        y=value_axis(scale, kind="linear"),
        series_title="Stage",
        series=list(titles.values()),
        tooltip=[("series", "Stage"), *common, ("text", "Time"), whole_title],
    )
    heads = layout.heads(view.x or "x", y="ns", repeats="repeats") | {"series": "stage"}
    return Sketch(
        draw=partial(vega.stacked, top=1.05 * top), rows=[row for bar in bars for row in bar], frame=frame, heads=heads
    )


def _titles(metrics: Sequence[str]) -> Mapping[str, str]:
    """Names of the parts: without the statistic where that keeps them apart."""
    whole = {metric: metric_title(metric) for metric in metrics}
    short = {metric: title.rpartition(",")[0] or title for metric, title in whole.items()}
    return short if len(set(short.values())) == len(short) else whole


def _timeseries(view: View, found: list[Subject], material: Material) -> Sketch | None:
    """Draw every run of what was found, one row an interval; None where there is nothing to draw."""
    by_key = {s.key: s for s in found}
    chosen, notes = _runs(found, material)
    if not chosen:
        return None
    table = _measured(material, view.y, chosen)
    axis = _over_written(found, table, chosen, view, material) if view.over == "written" else None
    axis = axis or _over_time(table, view, material)
    if any(s.operation is None for s in found):
        table = _whole_load(table)
    keys = ("result_set", "case_id", "stream", "operation")
    placed = table.join(axis.places, on=[*_RUN, "interval"]).sort(*_RUN, "begin_ns")
    measured = [(r, by_key[key]) for r in placed.to_dicts() if (key := tuple(r[name] for name in keys)) in by_key]
    highest = max((r["value"] for r, _ in measured), default=1)
    stalled = set(material.stalled_intervals(chosen).rows())
    layout = ChartLayout.for_view(view, found, material)
    scale = metric_scale(view.y, highest, title=metric_title_of(view.y, found))
    rows = [
        {
            **row_of(subject, layout, (r["value"], None, None, 0), view.y, scale, x=r["x"]),
            "run": f"{r['run_id']}",
            "x_text": r["x_text"],
            **({"stalled": (r["result_set"], r["run_id"], r["interval"]) in stalled} if stalled else {}),
        }
        for r, subject in measured
    ]
    frame = layout.frame(
        x=Axis(title=axis.title, domain=(0, max((row["x"] for row in rows), default=1))),
        y=value_axis(scale),
        tooltip=[("run", "Run"), ("x_text", axis.called), ("text", metric_title(view.y))],
    )
    heads = layout.heads(run="run_id", x=axis.column, y=scale.column)
    if stalled:
        notes.append("Crosses: the engine itself was stalled; not counted towards steady state.")
    return Sketch(
        draw=vega.timeseries_with_stalls if stalled else vega.timeseries,
        rows=rows,
        frame=frame,
        heads=heads,
        notes=notes,
    )


def _runs(found: list[Subject], material: Material) -> tuple[dict[str, list[str]], list[str]]:
    """The ids of the runs to draw, by result set; and what a reader must know of the choice."""
    drawn = {s.key[:2] for s in found}
    runs = [
        (source.label, record.run_id, record.repeat)
        for source in material.sources
        for record in source.records
        if (source.label, record.case_id) in drawn and record.outcome != "failed"
    ]
    notes = []
    if len(runs) > RUNS_TO_DRAW:
        runs = [run for run in runs if run[2] == 1]
        notes = ["Only the first repeat of each case is drawn."]
    elif any(repeat > 1 for *_, repeat in runs):
        notes = ["One line per run: repeats have the same colour."]
    return {label: [run_id for of, run_id, _ in runs if of == label] for label, _, _ in runs}, notes


def _measured(material: Material, metric: str, chosen: dict[str, list[str]]) -> pl.DataFrame:
    return material.intervals(metric, chosen).filter(pl.col("phase") == "measure")


def _whole_load(table: pl.DataFrame) -> pl.DataFrame:
    from iosonde.metrics.scopes import overall

    return overall(table).with_columns(stream=pl.lit(None), operation=pl.lit(None))


def _over_time(table: pl.DataFrame, view: View, material: Material) -> _TimeAxis:
    """Seconds since the measurement began; of rounds and stages since the first did."""
    end_to_end = view.x in (ROUND, STAGE)
    ends = table.select(*_RUN, "interval", "begin_ns", "end_ns").unique().sort(*_RUN, "begin_ns")
    begin = _begins(ends, material, end_to_end=end_to_end)
    seconds = [round((r["end_ns"] - begin[r["result_set"], r["run_id"]]) / 1e9, 3) for r in ends.to_dicts()]
    return _TimeAxis(
        title="Time (s), one load after the other" if end_to_end else "Time in the measurement (s)",
        column="seconds",
        called="Time",
        places=ends.select(*_RUN, "interval").with_columns(
            x=pl.Series(seconds, dtype=pl.Float64),
            x_text=pl.Series([f"{each:g} s" for each in seconds], dtype=pl.String),
        ),
    )


def _begins(ends: pl.DataFrame, material: Material, *, end_to_end: bool) -> dict[tuple[str, str], int]:
    """The start of each run's measurement on the axis: 0, or where the one before it ends."""
    spans = ends.group_by(*_RUN).agg(pl.col("begin_ns").min(), pl.col("end_ns").max())
    if not end_to_end:
        return {(label, run_id): begin for label, run_id, begin, _ in spans.rows()}
    begins: dict[tuple[str, str], int] = {}
    elapsed: dict[str, int] = {}
    for label, run_id, begin, end in sorted(spans.rows(), key=lambda row: _order(material)[row[0], row[1]]):
        begins[label, run_id] = begin - elapsed.get(label, 0)
        elapsed[label] = elapsed.get(label, 0) + end - begin
    return begins


def _order(material: Material) -> dict[tuple[str, str], int]:
    return {(source.label, each.run_id): each.order for source in material.sources for each in source.records}


def _over_written(
    found: list[Subject], table: pl.DataFrame, chosen: dict[str, list[str]], view: View, material: Material
) -> _TimeAxis | None:
    """Bytes written since the measurement began; None where streams have ranges of their own, or nothing is written.

    Of rounds and stages since the first began, as time is.
    """
    ranges = {s.key[:2]: active_range_bytes(s.case.parameters | s.case.levels) for s in found}
    bandwidth = table if view.y == "bandwidth" else _measured(material, "bandwidth", chosen)
    written = bandwidth.filter(pl.col("operation") == "write")
    if written.is_empty() or None in ranges.values():
        return None
    seconds = (pl.col("end_ns") - pl.col("begin_ns")) / 1e9
    order = _order(material)
    by = ["result_set"] if view.x in (ROUND, STAGE) else list(_RUN)
    places = (
        written.group_by(*_RUN, "case_id", "interval", "begin_ns")
        .agg(moved=(pl.col("value") * seconds).sum())
        .with_columns(place=pl.struct(_RUN).map_elements(lambda run: order[tuple(run.values())], return_dtype=pl.Int64))
        .sort("place", "begin_ns")
        .with_columns(bytes=pl.col("moved").cum_sum().over(by))
    )
    rows = [(r, ranges[r["result_set"], r["case_id"]] or 1) for r in places.to_dicts()]
    return _TimeAxis(
        title=f"Written (multiples of the active range{_of(ranges)})",
        column="active_ranges_written",
        called="Written",
        places=places.select(*_RUN, "interval").with_columns(
            x=pl.Series([round(r["bytes"] / whole, 6) for r, whole in rows], dtype=pl.Float64),
            x_text=pl.Series([_written_text(r["bytes"], whole) for r, whole in rows], dtype=pl.String),
        ),
    )


def _of(ranges: dict[Any, int | None]) -> str:
    sizes = {size for size in ranges.values() if size}
    return f" of {format_bytes(sizes.pop())}" if len(sizes) == 1 else ""


def _written_text(moved: float, whole: int) -> str:
    return f"{format_bytes(round(moved))}, {moved / whole:.3g} times the active range"


_MAKERS: Mapping[str, Callable[[View, list[Subject], Material], Sketch | None]] = {
    "lines": partial(_over_factor, draw=vega.lines),
    "heatmap": partial(_over_factor, draw=vega.heatmap),
    "bars": partial(_over_factor, draw=vega.bars),
    "stack": _stack,
    "tradeoff": _tradeoff,
    "percentiles": _percentiles,
    "timeseries": _timeseries,
}
"""Kinds of views that are figures, and what draws them."""


MEASURED = "measured"


def measurement_windows(material: Material) -> list[Figure]:
    """Return a figure for each part with rounds that were judged, a panel for each tracking variable."""
    found = (_window_figure(part, material) for part in material.study.parts if part.rounds and part.rounds.sought)
    return [figure for figure in found if figure is not None]


def _window_figure(part: Part, material: Material) -> Figure | None:
    assert part.rounds, "a part with rounds"
    judged = [each for each in _judged(part, material) if each[2].window]
    if not judged:
        return None
    metric = part.rounds.metric
    largest = max(max(tracked.values) for _, _, tracked in judged)
    scale = metric_scale(metric, largest)
    rows = [
        row for source, each, tracked in judged for row in _window_rows(source, each, tracked, metric, scale, material)
    ]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    shown = panels[:PANELS_AT_MOST]
    missed = len({id(each) for _, each, _ in judged if not each.achieved})
    notes = [
        f"{missed} loads did not reach steady state: their last window is drawn." if missed else "",
        f"The first {len(shown)} of {len(panels)} are drawn." if len(shown) < len(panels) else "",
    ]
    return Figure(
        name=f"window-{part.name}",
        part=part.name,
        metric=metric,
        kind="window",
        title=f"Measurement window: {part.title or part.name}",
        caption=" ".join(filter(None, notes)),
        description=f"Line charts of {metric_title(metric)} over the rounds, for {len(panels)} tracking variables, "
        "with the average of the measurement window and the line fitted to it.",
        panels=[
            Panel(
                title=panel if len(panels) > 1 else "",
                key=panel,
                chart=vega.lines(_window_frame(rows, panel, index, scale)),
            )
            for index, panel in enumerate(shown)
        ],
        rows=as_frame([row for row in rows if row["panel"] in shown]),
        heads={"panel": "panel", "series": "line", "source": "result_set", "x": "round", "y": scale.column},
    )


def _judged(part: Part, material: Material) -> Iterator[tuple[Source, Convergence, Tracked]]:
    for source in material.sources:
        runs = material.run_metrics.filter(pl.col("result_set") == source.label)
        for each in convergences(part, source.results.cases, runs):
            for tracked in each.tracked:
                yield source, each, tracked


def _window_frame(rows: list[Row], panel: str, index: int, scale: Scale) -> Frame:
    inside = [row for row in rows if row["panel"] == panel]
    values = [row["high"] or row["y"] for row in inside]
    last = max(row["x"] for row in inside)
    return Frame(
        x=Axis(
            title="Round", domain=(1, max(2, last)), values=list(range(1, last + 1, max(1, last // 12))), format="d"
        ),
        y=Axis(title=scale.title, domain=(0, 1.05 * max(values) or 1), label=scale.label, format=scale.format),
        panel=index,
        series_title="Line",
        series=list(dict.fromkeys(row["series"] for row in rows)),
        tooltip=[("series", "Line"), ("x_text", "Round"), ("text", "Value")],
    )


def _window_rows(
    source: Source, each: Convergence, tracked: Tracked, metric: str, scale: Scale, material: Material
) -> Iterator[Row]:
    levels = {**each.levels, **tracked.levels}
    words = [level_phrase(name, level) for name, level in levels.items()]
    several = [source.label] if len(material.sources) > 1 else []
    panel = " · ".join([*several, *words, *([f"pass {each.repeat}"] if each.repeat > 1 else [])])
    for number, value in enumerate(tracked.values, start=1):
        yield _window_row(panel, source, MEASURED, number, value, metric, scale)
    assert tracked.window, "a window is drawn where there is one"
    window, half = tracked.window, tracked.window.criteria.range / 2
    for number in (window.first, window.last):
        average = _window_row(panel, source, f"average ± {100 * half:g} %", number, window.mean, metric, scale)
        yield {**average, "low": average["y"] * (1 - half), "high": average["y"] * (1 + half)}
    for number in (window.first, window.last):
        yield _window_row(panel, source, "linear fit", number, window.intercept + window.slope * number, metric, scale)


def _window_row(panel: str, source: Source, series: str, number: int, value: float, metric: str, scale: Scale) -> Row:
    return {
        **UNKNOWN,
        "panel": panel,
        "x": number,
        "x_level": number,
        "series": series,
        "source": source.label,
        "y": value / scale.divisor,
        "x_text": str(number),
        "text": metric_text(metric, value),
    }


def drift(material: Material) -> Figure | None:
    """Draw the control case through the study, each run against the median of all."""
    from iosonde.metrics.registry import named_among
    from iosonde.metrics.scopes import overall

    controls = material.run_metrics.filter("control")
    metric = next(iter(named_among(controls["metric"].unique())), "iops")
    title = metric_title(metric)
    table = overall(controls.filter(pl.col("metric") == metric))
    table = table.with_columns(relative=100 * pl.col("value") / pl.col("value").median().over("result_set"))
    table = table.sort("result_set", "order")
    sources = unique(table["result_set"])
    if not table.height:
        return None
    several = len(sources) > 1
    rows = [
        {
            **UNKNOWN,
            "panel": "",
            "x": r["order"] + 1,
            "series": r["result_set"] if several else "control",
            "source": r["result_set"],
            "y": round(r["relative"], 3),
            "text": f"{r['relative']:.1f} % ({metric_text(metric, r['value'])}{' IOPS' * (metric == 'iops')})",
            "x_text": r["run_id"],
        }
        for r in table.to_dicts()
    ]
    farthest = max([2.0, *(1.15 * abs(row["y"] - 100) for row in rows)])
    frame = Frame(
        x=Axis(title="Position in the study (run)", domain=(0, max(row["x"] for row in rows) + 1)),
        y=Axis(
            title=f"{title} of the control case (% of its median)", domain=(100 - farthest, 100 + farthest), format="~r"
        ),
        series_title="Result set",
        series=sources if several else [],
        tooltip=[("x_text", "Run"), ("text", title)],
        height=180,
    )
    lowest, highest = min(row["y"] for row in rows), max(row["y"] for row in rows)
    return Figure(
        name="drift",
        title="Drift",
        caption=f"{title} of the control case through the study. Where it changes, the machine or the device changed.",
        description=f"Line chart: {title} of {len(rows)} control runs, "
        f"{lowest:.1f} % to {highest:.1f} % of their median.",
        panels=[Panel(title="", key="", chart=vega.lines(frame))],
        rows=as_frame(rows),
        heads={"source": "result_set", "x": "order", "x_text": "run_id", "y": f"{metric}_percent_of_median"},
    )
