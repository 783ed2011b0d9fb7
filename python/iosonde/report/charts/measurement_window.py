"""The measurement window of rounds: values, their average in a band of the allowed range, and the linear fit."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from iosonde.findings.convergence import Convergence, Tracked, convergences
from iosonde.report.charts import vega
from iosonde.report.charts.figure import Figure, Panel
from iosonde.report.charts.layout import UNKNOWN, Row
from iosonde.report.charts.sketch import PANELS_AT_MOST, as_frame
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.quantities import Scale, level_phrase, metric_scale, metric_text, metric_title
from iosonde.report.material.result_sets import Material, Source
from iosonde.study.model import Part

MEASURED = "measured"


def figures(material: Material) -> list[Figure]:
    """Return a figure for each part with rounds that were judged, a panel for each tracking variable."""
    found = (_figure(part, material) for part in material.study.parts if part.rounds and part.rounds.sought)
    return [figure for figure in found if figure is not None]


def _figure(part: Part, material: Material) -> Figure | None:
    assert part.rounds, "a part with rounds"
    judged = [each for each in _judged(part, material) if each[2].window]
    if not judged:
        return None
    metric = part.rounds.metric
    largest = max(max(tracked.values) for _, _, tracked in judged)
    scale = metric_scale(metric, largest)
    rows = [row for source, each, tracked in judged for row in _rows(source, each, tracked, metric, scale, material)]
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
                title=panel if len(panels) > 1 else "", key=panel, chart=vega.lines(_frame(rows, panel, index, scale))
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


def _frame(rows: list[Row], panel: str, index: int, scale: Scale) -> Frame:
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


def _rows(
    source: Source, each: Convergence, tracked: Tracked, metric: str, scale: Scale, material: Material
) -> Iterator[Row]:
    levels = {**each.levels, **tracked.levels}
    words = [level_phrase(name, level) for name, level in levels.items()]
    several = [source.label] if len(material.sources) > 1 else []
    panel = " · ".join([*several, *words, *([f"pass {each.repeat}"] if each.repeat > 1 else [])])
    for number, value in enumerate(tracked.values, start=1):
        yield _row(panel, source, MEASURED, number, value, metric, scale)
    assert tracked.window, "a window is drawn where there is one"
    window, half = tracked.window, tracked.window.criteria.range / 2
    for number in (window.first, window.last):
        average = _row(panel, source, f"average ± {100 * half:g} %", number, window.mean, metric, scale)
        yield {**average, "low": average["y"] * (1 - half), "high": average["y"] * (1 + half)}
    for number in (window.first, window.last):
        yield _row(panel, source, "linear fit", number, window.intercept + window.slope * number, metric, scale)


def _row(panel: str, source: Source, series: str, number: int, value: float, metric: str, scale: Scale) -> Row:
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
