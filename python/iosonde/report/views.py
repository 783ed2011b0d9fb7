"""The figures of a study: one for each of its views, the measurement window of rounds, and drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from iosonde.findings.device_state import Convergence, Tracked, convergences
from iosonde.metrics.registry import find, named_among
from iosonde.metrics.scopes import overall
from iosonde.report import vega
from iosonde.report.figure import Figure, Panel
from iosonde.report.material import (
    KEY,
    Material,
    Source,
    Subject,
    Values,
    largest,
    metric_title_of,
    of_whole_load,
    specs,
    subjects,
)
from iosonde.report.quantities import (
    Axis,
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
    published_rows,
    row_of,
    unique,
    widened,
    x_tooltip,
)
from iosonde.report.vega import Frame
from iosonde.study.model import ROUND, STAGE, Part, View
from iosonde.study.workload import described
from iosonde.study.workload.block.parameters import active_range_bytes
from iosonde.units import format_bytes

BARS_APART = 50
"""Bars that are further apart, as a ratio, are drawn on a logarithmic axis, as ticks: the small ones would vanish."""
COLUMNS_WITH_VALUES = 10
"""Columns of a heat map that leave room for the value in each cell."""
MEDIAN = 0.301
"""Position of 50 % on a nines axis; values below it are no tails."""
RUNS_TO_DRAW = 60
_RUN = ["result_set", "run_id"]


def draw_view(view: View, number: int, material: Material) -> Figure | str | None:
    """Draw a view of a study, or return why it would be only axes; None of tables and of parts without a case."""
    make = _MAKERS.get(view.kind)
    found = subjects(view, material)
    if make is None or not found:
        return None
    sketch = make(view, found, material)
    if sketch is None or all(row["y"] is None for row in sketch.rows):
        return _why_undrawn(view, found)
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
        row_of(s, layout, values.estimate(s), view.y, scale, x=x, x_factor=view.x)
        | ({"at": ", ".join(level_phrase(name, s.level(name)) for name in reduced)} if reduced else {})
        for s in found
    ]
    cited = published_rows(view, material, layout, scale, x)
    apart = is_surface or len({(r["source"], r["series"]) for r in cited}) > PUBLISHED_TO_OVERLAY
    if apart and cited:
        rows, cited = _titled("Measured", rows), [row for each in cited for row in _titled(each["source"], [each])]
    if draw is vega.bars:
        is_wide = _spread([*rows, *cited], shared=view.shared_y) > BARS_APART
        scale = replace(scale, kind="log" if is_wide else "linear")
    own = layout.series or (layout.sources if cited else [])
    frame = layout.frame(
        x=x if not cited else widened(x, rows, cited),
        y=scale,
        tooltip=[*x_tooltip(view, view.y), *([("at", "At")] if reduced else [])],
        series_title=layout.series_title if layout.series or is_surface else "Source",
        series=by_value([*own, *(row["series"] for row in cited)], [*rows, *cited], "series"),
        graded=layout.graded or is_surface,
        sources=layout.drawn_sources([] if apart else cited),
        published=unique(r["source"] for r in cited),
    )
    if cited and not layout.series and not is_surface:
        rows = [{**row, "series": row["source"]} for row in rows]
    rows += cited
    heads = layout.heads(view.x or "x", **scale.columns, repeats="repeats", **({"at": "at"} if reduced else {}))
    if is_surface:  # Cells have room for their values where there are few columns.
        columns = Counter(panel for panel, _ in {(row["panel"], row["x"]) for row in rows})
        few = {panel for panel, count in columns.items() if count <= COLUMNS_WITH_VALUES}
        rows = [{**row, "label": _short(row["y"], view.y) if row["panel"] in few else ""} for row in rows]
    return Sketch(draw=draw, rows=rows, frame=frame, heads=heads, zero=not is_surface)


def _titled(title: str, rows: list[Row]) -> list[Row]:
    """Put rows into panels whose titles start with `title`."""
    return [{**row, "panel": " · ".join(filter(None, [title, row["panel"]]))} for row in rows]


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


def _spread(rows: list[Row], *, shared: bool) -> float:
    """Return the ratio of the largest to the smallest value; 1 where one of them is 0, which has no logarithm."""
    axes: dict[str, list[float]] = {}
    for row in rows:
        if row["y"] is not None:
            axes.setdefault("" if shared else row["panel"], []).append(row["y"])
    return max((max(values) / min(values) for values in axes.values() if min(values) > 0), default=1.0)


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
        x=replace(x_scale, kind="linear", domain=(0, 1.06 * max((r["x"] for r in rows), default=1))),
        y=replace(y_scale, kind="log"),
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
    counted = {described(spec["workload"]).rate.counted for spec in specs(found)}
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
            title=f"Percentile of {counted.pop() if len(counted) == 1 else 'I/Os'}",
            kind="nines",
            domain=(MEDIAN, max(deepest, 1)),
            values=[MEDIAN, *range(1, int(deepest + 0.01) + 1)],
        ),
        y=replace(scale, kind="log"),
        tooltip=[("x_text", "Percentile"), ("text", "Latency")],
    )
    notes = ["Percentiles need at least ten samples beyond them. Repeats are merged."]
    heads = layout.heads(x_text="percentile", y=scale.column)
    return Sketch(draw=vega.percentiles, rows=rows, frame=frame, heads=heads, notes=notes)


def _curve_points(
    material: Material, latency: str
) -> dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]]:
    """Return fraction, nines and nanoseconds of every curve; under no stream and operation, those of the whole load."""
    table = material.curves.filter(pl.col("latency") == latency).sort("nines")
    points: dict[tuple[str, str, str | None, str | None], list[tuple[float, float, float]]] = {}
    for row in [*of_whole_load(table).to_dicts(), *table.to_dicts()]:
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
    rows: list[Row] = []
    highest = 0.0
    for subject in found:
        whole = row_of(subject, layout, totals.estimate(subject), view.y, scale, x=axis, x_factor=view.x)
        medians = {metric: known.estimate(subject) for metric, known in values.items()}
        for step, (metric, (median, _, _, repeats)) in enumerate(medians.items()):
            part = {"total": whole["y"], "total_text": whole["text"], "series": titles[metric], "step": step}
            row = row_of(subject, layout, (median, None, None, repeats), metric, scale, x=axis, x_factor=view.x)
            rows.append(row | part | {"verdict": ""})
        highest = max(highest, sum(row["y"] or 0 for row in rows[len(rows) - len(values) :]))
    common = [each for each in [*layout.tooltip, *x_tooltip(view, view.y)] if each[0] != "text"]
    frame = Frame(
        x=axis,
        y=replace(scale, kind="linear"),
        series_title="Stage",
        series=list(titles.values()),
        tooltip=[("series", "Stage"), *common, ("text", "Time"), ("total_text", metric_title(view.y))],
    )
    heads = layout.heads(view.x or "x", y="ns", repeats="repeats") | {"series": "stage"}
    return Sketch(draw=partial(vega.stacked, top=1.05 * (highest or 1.0)), rows=rows, frame=frame, heads=heads)


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
    title, column, called = "Time in the measurement (s)", "seconds", "Time"
    if view.x in (ROUND, STAGE):
        title = "Time (s), one load after the other"
    ranges = {s.key[:2]: active_range_bytes(s.case.parameters | s.case.levels) for s in found}
    places = _written(ranges, table, chosen, view, material) if view.over == "written" else None
    if places is None:
        places = _seconds(table, view, material)
    else:
        sizes = {size for size in ranges.values() if size}
        of = f" of {format_bytes(sizes.pop())}" if len(sizes) == 1 else ""
        title, column, called = f"Written (multiples of the active range{of})", "active_ranges_written", "Written"
    if any(s.operation is None for s in found):
        table = of_whole_load(table)
    placed = table.join(places, on=[*_RUN, "interval"]).sort(*_RUN, "begin_ns")
    measured = [(r, by_key[key]) for r in placed.to_dicts() if (key := tuple(r[name] for name in KEY)) in by_key]
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
        x=Axis(title=title, domain=(0, max((row["x"] for row in rows), default=1))),
        y=scale,
        tooltip=[("run", "Run"), ("x_text", called), ("text", metric_title(view.y))],
    )
    heads = layout.heads(run="run_id", x=column, y=scale.column)
    if stalled:
        notes.append("Crosses: the engine itself was stalled; not counted towards steady state.")
    draw = partial(vega.timeseries, stalled=bool(stalled))
    return Sketch(draw=draw, rows=rows, frame=frame, heads=heads, notes=notes)


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


def _order(material: Material) -> pl.DataFrame:
    """Return `result_set, run_id, order`."""
    order = [(source.label, each.run_id, each.order) for source in material.sources for each in source.records]
    return pl.DataFrame(order, schema=[*_RUN, "order"], orient="row")


def _seconds(table: pl.DataFrame, view: View, material: Material) -> pl.DataFrame:
    """Return `result_set, run_id, interval, x, x_text`: the end of each interval in seconds since the measurement
    began; of rounds and stages since the first did."""
    ends = table.select(*_RUN, "interval", "begin_ns", "end_ns").unique()
    spans = ends.group_by(_RUN).agg(first=pl.col("begin_ns").min(), last=pl.col("end_ns").max())
    spans = spans.join(_order(material), on=_RUN).sort("order")
    length = pl.col("last") - pl.col("first")
    before = (length.cum_sum() - length).over("result_set") if view.x in (ROUND, STAGE) else 0
    placed = ends.join(spans.with_columns(before=before), on=_RUN)
    seconds = ((pl.col("end_ns") - pl.col("first") + pl.col("before")) / 1e9).round(3)
    return _with_text(placed.with_columns(x=seconds), lambda row: f"{row['x']:g} s")


def _with_text(places: pl.DataFrame, text: Callable[[Row], str]) -> pl.DataFrame:
    texts = pl.Series("x_text", map(text, places.to_dicts()), dtype=pl.String)
    return places.with_columns(texts).select(*_RUN, "interval", "x", "x_text")


def _written(
    ranges: Mapping[Any, int | None],
    table: pl.DataFrame,
    chosen: dict[str, list[str]],
    view: View,
    material: Material,
) -> pl.DataFrame | None:
    """Return the same columns, with multiples of the active range that were written since the measurement began.

    Of rounds and stages since the first began, as time is. None where streams have ranges of their own, or nothing is
    written.
    """
    bandwidth = table if view.y == "bandwidth" else _measured(material, "bandwidth", chosen)
    written = bandwidth.filter(pl.col("operation") == "write")
    if written.is_empty() or None in ranges.values():
        return None
    moved = pl.col("value") * ((pl.col("end_ns") - pl.col("begin_ns")) / 1e9)
    by = ["result_set"] if view.x in (ROUND, STAGE) else _RUN
    whole = pl.DataFrame(
        [(*key, size or 1) for key, size in ranges.items()], ["result_set", "case_id", "whole"], orient="row"
    )
    places = (
        written.group_by(*_RUN, "case_id", "interval", "begin_ns")
        .agg(moved=moved.sum())
        .join(_order(material), on=_RUN)
        .join(whole, on=["result_set", "case_id"])
        .sort("order", "begin_ns")
        .with_columns(moved=pl.col("moved").cum_sum().over(by))
        .with_columns(x=(pl.col("moved") / pl.col("whole")).round(6))
    )
    return _with_text(
        places,
        lambda row: f"{format_bytes(round(row['moved']))}, {row['moved'] / row['whole']:.3g} times the active range",
    )


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


def measurement_windows(material: Material) -> list[Figure]:
    """Return a figure for each part with rounds that were judged, a panel for each tracking variable."""
    parts = [part for part in material.study.parts if part.rounds and part.rounds.sought]
    return [figure for part in parts if (figure := _window_figure(part, material))]


def _window_figure(part: Part, material: Material) -> Figure | None:
    assert part.rounds, "a part with rounds"
    judged = [
        (source, each, tracked)
        for source in material.sources
        for each in convergences(part, source.results.cases, material.runs_of(source))
        for tracked in each.tracked
        if tracked.window
    ]
    if not judged:
        return None
    metric = part.rounds.metric
    scale = metric_scale(metric, max(max(tracked.values) for _, _, tracked in judged))
    rows = [row for found in judged for row in _window_rows(*found, metric, scale, material)]
    panels = unique(row["panel"] for row in rows)
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
        panels=[Panel(key=panel, chart=vega.lines(_window_frame(rows, panel, scale))) for panel in shown],
        rows=as_frame([row for row in rows if row["panel"] in shown]),
        heads={"panel": "panel", "series": "line", "source": "result_set", "x": "round", "y": scale.column},
    )


def _window_frame(rows: list[Row], panel: str, scale: Scale) -> Frame:
    inside = [row for row in rows if row["panel"] == panel]
    highest = max(row["high"] or row["y"] for row in inside)
    last = max(row["x"] for row in inside)
    rounds = range(1, last + 1, max(1, last // 12))
    return Frame(
        x=Axis(title="Round", domain=(1, max(2, last)), values=list(rounds), format="d"),
        y=replace(scale, kind="linear", domain=(0, 1.05 * highest or 1)),
        series_title="Line",
        series=unique(row["series"] for row in rows),
        tooltip=[("series", "Line"), ("x_text", "Round"), ("text", "Value")],
    )


def _window_rows(
    source: Source, each: Convergence, tracked: Tracked, metric: str, scale: Scale, material: Material
) -> Iterator[Row]:
    """Yield the measured rounds, the average of the window with what its criterion allows, and the linear fit."""
    assert tracked.window, "a window is drawn where there is one"
    window, half = tracked.window, tracked.window.criteria.range / 2
    words = [level_phrase(name, level) for name, level in {**each.levels, **tracked.levels}.items()]
    several = [source.label] if len(material.sources) > 1 else []
    average, ends = f"average ± {100 * half:g} %", (window.first, window.last)
    lines = {
        "measured": dict(enumerate(tracked.values, start=1)),
        average: dict.fromkeys(ends, window.mean),
        "linear fit": {number: window.intercept + window.slope * number for number in ends},
    }
    for series, values in lines.items():
        for number, value in values.items():
            y = value / scale.divisor
            yield {
                **UNKNOWN,
                "panel": " · ".join([*several, *words, *([f"pass {each.repeat}"] if each.repeat > 1 else [])]),
                "x": number,
                "x_level": number,
                "series": series,
                "source": source.label,
                "y": y,
                **({"low": y * (1 - half), "high": y * (1 + half)} if series == average else {}),
                "x_text": str(number),
                "text": metric_text(metric, value),
            }


def drift(material: Material) -> Figure | None:
    """Draw the control case through the study, each run against the median of all."""
    controls = material.run_metrics.filter("control")
    metric = next(iter(named_among(controls["metric"].unique())), "iops")
    title = metric_title(metric)
    table = overall(controls.filter(pl.col("metric") == metric)).sort("result_set", "order")
    table = table.with_columns(relative=100 * pl.col("value") / pl.col("value").median().over("result_set"))
    if not table.height:
        return None
    sources = unique(table["result_set"])
    rows = [
        {
            **UNKNOWN,
            "panel": "",
            "x": r["order"] + 1,
            "series": r["result_set"] if len(sources) > 1 else "control",
            "source": r["result_set"],
            "y": round(r["relative"], 3),
            "text": f"{r['relative']:.1f} % ({metric_text(metric, r['value'])}{' IOPS' * (metric == 'iops')})",
            "x_text": r["run_id"],
        }
        for r in table.to_dicts()
    ]
    values = [row["y"] for row in rows]
    farthest = max([2.0, *(1.15 * abs(value - 100) for value in values)])
    of_median = f"{title} of the control case (% of its median)"
    frame = Frame(
        x=Axis(title="Position in the study (run)", domain=(0, max(row["x"] for row in rows) + 1)),
        y=Axis(title=of_median, domain=(100 - farthest, 100 + farthest), format="~r"),
        series_title="Result set",
        series=sources if len(sources) > 1 else [],
        tooltip=[("x_text", "Run"), ("text", title)],
        height=180,
    )
    return Figure(
        name="drift",
        title="Drift",
        caption=f"{title} of the control case through the study. Where it changes, the machine or the device changed.",
        description=f"Line chart: {title} of {len(rows)} control runs, "
        f"{min(values):.1f} % to {max(values):.1f} % of their median.",
        panels=[Panel(key="", chart=vega.lines(frame))],
        rows=as_frame(rows),
        heads={"source": "result_set", "x": "order", "x_text": "run_id", "y": f"{metric}_percent_of_median"},
    )
