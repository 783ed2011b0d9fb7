"""Stacked bars: several metrics that add up to a whole, such as the stages of an I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from iosonde.report.charts import vega
from iosonde.report.charts.layout import ChartLayout, Row, factor_axis, row_of, tooltip, x_value
from iosonde.report.charts.sketch import Sketch
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.quantities import Scale, factor_column, metric_scale, metric_title
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import Subject, Values
from iosonde.study.model import View


def sketch(view: View, found: list[Subject], material: Material) -> Sketch:
    """Stack the metrics of a view over its factor; each row is one part of a bar."""
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
    bars = [
        _parts(titles, view, subject, layout, values, totals, scale, x=x_value(view.x, subject.level(view.x), axis))
        for subject in found
    ]
    top = max((sum(row["y"] or 0 for row in bar) for bar in bars), default=0) or 1.0
    frame = Frame(
        x=axis,
        y=Axis(title=scale.title, kind="linear", label=scale.label, format=scale.format),
        series_title="Stage",
        series=list(titles.values()),
        tooltip=[("series", "Stage"), *_tooltip(view, layout)],
    )
    heads = {"panel": "panel", "x_level": factor_column(view.x or "x"), "series": "stage", "source": "result_set"}
    heads |= {"y": "ns", "repeats": "repeats"}
    draw = partial(vega.stacked, top=1.05 * top)
    return Sketch(draw=draw, rows=[row for bar in bars for row in bar], frame=frame, heads=heads, metric=view.y)


def _parts(
    titles: Mapping[str, str],
    view: View,
    subject: Subject,
    layout: ChartLayout,
    values: Mapping[str, Values],
    totals: Values,
    scale: Scale,
    *,
    x: str,
) -> list[Row]:
    """The parts of a bar, the first at the bottom, each with the total of the bar."""
    whole = row_of(subject, layout, totals.estimate(subject), view.y, scale, x=x, x_factor=view.x)
    total = {"total": whole["y"], "total_text": whole["text"]}
    rows = []
    for step, (metric, known) in enumerate(values.items()):
        median, _, _, repeats = known.estimate(subject)
        row = row_of(subject, layout, (median, None, None, repeats), metric, scale, x=x, x_factor=view.x)
        rows.append(row | total | {"series": titles[metric], "step": step, "verdict": ""})
    return rows


def _tooltip(view: View, layout: ChartLayout) -> list[tuple[str, str]]:
    """Return the tooltip of a part: its own time and that of the whole bar."""
    common = [each for each in tooltip(view, layout, view.y) if each[0] != "text"]
    return [*common, ("text", "Time"), ("total_text", metric_title(view.y))]


def _titles(metrics: Sequence[str]) -> Mapping[str, str]:
    """Names of the parts: without the statistic where that keeps them apart."""
    whole = {metric: metric_title(metric) for metric in metrics}
    short = {metric: title.rpartition(",")[0] or title for metric, title in whole.items()}
    return short if len(set(short.values())) == len(short) else whole
