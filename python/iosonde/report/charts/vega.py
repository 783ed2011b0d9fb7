"""Charts: how each kind of view is drawn, without rows and colours.

Every chart reads the same few columns, so that one page script can feed them all: `x`, `y`, `low`, `high` (the
interval), `series` (what separates the lines), `source` (which result set or publication), `published` (whether it is
one), `text` (the value as written), `label` (at the point) and `no_value` (why there is no value). Text from users only
ever travels in these columns and in titles, never in an expression.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
from altair.utils import schemapi

from iosonde.report.charts import theme
from iosonde.report.charts.figure import PAPER_WIDTH, Chart
from iosonde.report.material.quantities import NINES_LABEL

if TYPE_CHECKING:
    from iosonde.verdict.verdict import Kind

HEIGHT = 300
EXTREME = 0.6
"""Shade from which on the colour of a ratio is dark."""
BREAK = " · "
"""Between levels in one label: there a line of an axis ends."""

CHARACTER_WIDTH = 6
"""Pixels of a character of a label, and between two labels."""
LONG_LABEL = 12
"""Characters from which on the words of a label have a line each, also where there is room."""
_LONG_WORD = re.compile(r"([^ ]{1,11}_)(?=[^ ])")
_PIECES = "replace(datum.label, regexp('([^ ]{1,11}_)(?=[^ ])', 'g'), '$1 ')"
MARKS: dict[Kind, str] = {
    "harness-limited": "○",
    "cache-served": "□",
    "undetermined": "△",
    "server-CPU-limited": "◇",
    "lock-limited": "▽",
}
"""Marks of values that were not device-limited."""
_SYMBOLS = ("diamond", "triangle-down", "cross", "square", "triangle-up", "circle")
"""Of publications, over bars."""
_SHAPES: dict[Kind, str] = {
    "harness-limited": "circle",
    "cache-served": "square",
    "undetermined": "triangle-up",
    "server-CPU-limited": "diamond",
    "lock-limited": "triangle-down",
}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis, ready to be drawn. A logarithmic one without `values` has ticks at 1, 2 and 5 or at decades."""

    title: str
    kind: Literal["linear", "log", "log2", "category", "nines"] = "linear"
    domain: Sequence[float] | None = None
    values: Sequence[float] | None = None
    """Positions of ticks; None leaves them to the chart."""
    order: Sequence[str] = ()
    """Categories in their order."""
    label: str | None = None
    format: str | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a chart of one panel needs besides its rows; panels of one figure share it."""

    x: Axis
    y: Axis
    panel: int = 0
    width: int = PAPER_WIDTH
    """Pixels across the plot, where it is narrowest."""
    series_title: str = ""
    series: Sequence[str] = ()
    """Series in their order; colours follow it."""
    graded: bool = False
    """Whether the series are steps of one quantity (queue depths) rather than different things (read, write)."""
    sources: Sequence[str] = ()
    """What differs by its dashes: result sets first, then publications. Empty where there is only one."""
    published: Sequence[str] = ()
    """Those of `sources` that are publications."""
    source_title: str | None = "Source"
    """Over the legend of dashes; None where panels or colours suffice."""
    tooltip: Sequence[tuple[str, str]] = field(default_factory=lambda: (("text", "Value"),))
    """Columns and their names."""
    height: int = HEIGHT
    ratio: bool = False
    """Whether colours show how far a ratio is from 100 %, below and above; else they show magnitudes."""
    verdicts: Sequence[Kind] = ()
    """Verdicts of values that were not device-limited; their marks are hollow."""
    absent: frozenset[str] = frozenset()
    """Series and sources without a value in any panel: they keep their colours, and legends leave them out."""


_HAS_VALUE: dict[str, Any] = {"field": "no_value", "equal": ""}
_NO_VALUE: dict[str, Any] = {"not": _HAS_VALUE}


def _unchecked(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """Draw without checking all parts against the schema of Vega-Lite, which takes long: tests do that.

    For the same reason channels are objects (`alt.Text("label:N")`): altair finds the class of a string or dictionary
    by hashing the schemas of all classes, which takes longer than the rest of a chart.
    """

    @functools.wraps(draw)
    def drawn(frame: Frame, **options: Any) -> Chart:
        with schemapi.debug_mode(False):
            return draw(frame, **options)

    return drawn


@_unchecked
def lines(frame: Frame) -> Chart:
    """Lines over a factor, with bands of confidence; publications dashed; missing values as crosses on the baseline."""
    base = alt.Chart()
    chosen, picked = _legend_choice(frame)
    x, color = _position(frame.x, "x"), _series_colour(frame)
    y = _position(frame.y, "y")
    opacity = _opacity(chosen, 1.0, 0.12)["opacity"]
    band = base.mark_area(opacity=0.16, clip=True).encode(
        x=x, y=y.copy(), y2=alt.Y2("high:Q"), color=color, detail=alt.Detail("source:N"), **_opacity(chosen, 0.16, 0.02)
    )
    band.encoding.y.shorthand = alt.Undefined
    band.encoding.y.field = "low"
    band.encoding.y.type = "quantitative"
    line = base.mark_line().encode(x=x, y=y, color=color, opacity=opacity, **_dash(frame))
    points = _points(base, frame, 26, x=x, y=y, color=color, opacity=opacity)
    if picked is not None:
        line = line.add_params(picked)
    return _panel(frame, [band, line, *points, _hover(base, frame, x, y), *_crosses(base, frame, x)])


@_unchecked
def heatmap(frame: Frame) -> Chart:
    """A surface: both factors as steps, the metric as colour, with its value where there is room."""
    base = alt.Chart()
    x = alt.X(
        "x:O",
        sort=list(frame.x.order),
        title=frame.x.title,
        axis=alt.Axis(
            labelAngle=0, labelOverlap=True, labelExpr=f"split(datum.label, '{BREAK}')", ticks=False, domain=False
        ),
    )
    y = alt.Y("series:O", sort=list(reversed(frame.series)), title=frame.series_title)
    domain = list(frame.y.domain or (0, 1))
    cells = base.mark_rect(cornerRadius=2).encode(
        x=x,
        y=y,
        color=_ratio_colour(frame) if frame.ratio else _magnitude_colour(frame, domain),
        tooltip=_tooltip(frame),
    )
    layers = [cells, *_crosses_of_cells(base, frame, x, y)]
    if frame.ratio:
        extreme: dict[str, Any] = {"or": [{"field": "shade", "lt": -EXTREME}, {"field": "shade", "gt": EXTREME}]}
        texts = {"on-dark": extreme, "on-bright": {"not": extreme}}
    else:
        middle = domain[0] + 0.6 * (domain[1] - domain[0])
        texts = {"on-dark": {"field": "y", "lte": middle}, "on-bright": {"field": "y", "gt": middle}}
    layers += [_cell_text(base, style, x, y, chosen) for style, chosen in texts.items()]
    if frame.verdicts:
        layers.append(base.mark_text(dy=-9, fontSize=9, style="on-dark").encode(x=x, y=y, text=alt.Text("mark:N")))
    return _panel(frame, layers)


def _magnitude_colour(frame: Frame, domain: Sequence[float]) -> alt.Color:
    scale = alt.Scale(domain=domain, type="log" if frame.y.kind == "log" else "linear", zero=False)
    return alt.Color("y:Q", title=frame.y.title, scale=scale, legend=_gradient(**_label(frame.y)))


def _ratio_colour(frame: Frame) -> alt.Color:
    """Colour by column `shade`, the logarithm of the ratio to base 2: half and double are equally far from 1."""
    diverging = theme.PALETTES["light"].diverging
    scale = alt.Scale(domain=[-1, -0.5, 0, 0.5, 1], range=list(diverging), clamp=True, interpolate="rgb")
    text = "datum.value < 0 ? '≤ 50 %' : datum.value > 0 ? '≥ 200 %' : '100 %'"
    return alt.Color("shade:Q", title=frame.y.title, scale=scale, legend=_gradient(values=[-1, 0, 1], labelExpr=text))


def _gradient(**options: Any) -> alt.Legend:
    return alt.Legend(orient="top", gradientLength=180, gradientThickness=8, titleLimit=400, **options)


@_unchecked
def expectation(frame: Frame) -> Chart:
    """Expected values as lines, measured ones as points with intervals."""
    base = alt.Chart()
    x, y, color = _position(frame.x, "x"), _position(frame.y, "y"), _series_colour(frame)
    measured = alt.FieldEqualPredicate(field="role", equal="measured")
    line = base.mark_line(opacity=0.55).encode(x=x, y=y, color=color)
    spread = base.mark_rule(strokeWidth=1.5, clip=True).encode(
        x=x, y=alt.Y("low:Q", title=frame.y.title), y2=alt.Y2("high:Q"), color=color
    )
    point = base.mark_point(size=34).encode(x=x, y=y, color=color)
    return _panel(
        frame,
        [
            line.transform_filter({"not": measured}),
            spread.transform_filter(measured),
            point.transform_filter(measured),
            _hover(base, frame, x, y),
        ],
    )


@_unchecked
def tradeoff(frame: Frame) -> Chart:
    """One metric against another along a factor, whose levels label the points."""
    base = alt.Chart()
    x, y, color = _position(frame.x, "x"), _position(frame.y, "y"), _series_colour(frame)
    line = base.mark_line().encode(x=x, y=y, color=color, order=alt.Order("step:Q"), **_dash(frame))
    points = _points(base, frame, 34, x=x, y=y, color=color)
    spread = base.mark_rule(opacity=0.35, clip=True).encode(
        x=x, y=alt.Y("low:Q", title=frame.y.title), y2=alt.Y2("high:Q"), color=color, detail=alt.Detail("source:N")
    )
    label = base.mark_text(dy=-10, fontSize=10, style="quiet").encode(
        x=x, y=y, text=alt.Text("label:N"), detail=alt.Detail("source:N")
    )
    return _panel(frame, [spread, line, *points, label, _hover(base, frame, x, y)])


@_unchecked
def percentiles(frame: Frame) -> Chart:
    """Latency over percentiles, on an axis where each nine takes the same room."""
    base = alt.Chart()
    x, y, color = _position(frame.x, "x"), _position(frame.y, "y"), _series_colour(frame)
    chosen, picked = _legend_choice(frame)
    line = base.mark_line().encode(x=x, y=y, color=color, **_opacity(chosen, 1.0, 0.12), **_dash(frame))
    if picked is not None:
        line = line.add_params(picked)
    points = _points(base, frame, 18, x=x, y=y, color=color, **_opacity(chosen, 1.0, 0.12))
    return _panel(frame, [line, *points, _hover(base, frame, x, y)])


@_unchecked
def bars(frame: Frame) -> Chart:
    """Bars side by side, with intervals; publications as symbols over the group.

    On a logarithmic axis ticks take the place of bars, whose length would have no meaning there.
    """
    base = alt.Chart()
    x = alt.X(
        "x:N",
        sort=list(frame.x.order),
        title=frame.x.title,
        axis=_categories(frame),
    )
    offset = alt.XOffset("series:N", sort=list(frame.series))
    y = _position(frame.y, "y")
    own = alt.FieldEqualPredicate(field="published", equal=False)
    cited = alt.FieldEqualPredicate(field="published", equal=True)
    mark = (
        base.mark_tick(thickness=4)
        if frame.y.kind == "log"
        else base.mark_bar(cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
    )
    measured = [series for series in frame.series if series not in frame.published]
    color = _series_colour(replace(frame, series=measured, sources=()))
    bar = mark.encode(x=x, xOffset=offset, y=y, color=color, tooltip=_tooltip(frame))
    spread = base.mark_rule(strokeWidth=1.5, clip=True).encode(
        x=x, xOffset=offset, y=alt.Y("low:Q", title=frame.y.title), y2=alt.Y2("high:Q")
    )
    layers = [bar.transform_filter(own), spread.transform_filter(own), *_crosses(base, frame, x, offset)]
    if frame.verdicts:
        layers.append(
            base.mark_text(dx=10, dy=-8, style="quiet").encode(x=x, xOffset=offset, y=y, text=alt.Text("mark:N"))
        )
        # Invisible: text has no legend.
        layers.append(
            base.mark_point(filled=False, opacity=0, color=theme.PALETTES["light"].muted).encode(
                x=x, xOffset=offset, y=y, shape=_verdict_shape(frame)
            )
        )
    if frame.published:
        shapes = [_SYMBOLS[place % len(_SYMBOLS)] for place in range(len(frame.published))]
        symbols = alt.Shape(
            "source:N",
            sort=list(frame.published),
            title="Published",
            legend=_legend(frame.published, None),
            scale=alt.Scale(domain=list(frame.published), range=shapes),
        )
        symbol = base.mark_point(filled=False, size=70, strokeWidth=2, style="published")
        layers.append(
            symbol.encode(x=x, xOffset=offset, y=y, shape=symbols, tooltip=_tooltip(frame)).transform_filter(cited)
        )
    panel = _panel(frame, layers)
    if frame.verdicts and frame.published:  # Two legends: shapes of verdicts are not shapes of publications.
        panel["resolve"] = {"scale": {"shape": "independent"}}
    return panel


@_unchecked
def stacked(frame: Frame, *, top: float) -> Chart:
    """Bars whose parts add up, the first series at the bottom; `top` is the highest sum of any panel."""
    base = alt.Chart()
    x = alt.X(
        "x:N",
        sort=list(frame.x.order),
        title=frame.x.title,
        axis=_categories(frame),
    )
    parts = base.mark_bar().encode(
        x=x,
        y=alt.Y(
            "y:Q",
            stack="zero",
            title=frame.y.title,
            axis=alt.Axis(tickCount=5, **_label(frame.y)),
            scale=alt.Scale(domain=[0, top]),
        ),
        order=alt.Order("step:Q"),
        color=_series_colour(frame),
        tooltip=_tooltip(frame),
    )
    return _panel(frame, [parts, *_crosses(base, frame, x)])


@_unchecked
def timeseries(frame: Frame) -> Chart:
    """A metric over the time of runs, one line a run; a point where a run has only one interval."""
    base = alt.Chart()
    x, y, color = _position(frame.x, "x"), _position(frame.y, "y"), _series_colour(frame, shape="stroke")
    line = base.mark_line(strokeWidth=1.3).encode(x=x, y=y, color=color, detail=alt.Detail("run:N"), **_dash(frame))
    counted = base.transform_joinaggregate(intervals="count()", groupby=["run", "series", "source"])
    point = counted.transform_filter("datum.intervals == 1").mark_point(filled=True, size=30)
    return _panel(frame, [line, _hover(base, frame, x, y), point.encode(x=x, y=y, color=color)])


@_unchecked
def timeseries_with_stalls(frame: Frame) -> Chart:
    """The same, with a cross on each interval in which the engine itself was stalled."""
    chart = timeseries(frame)
    x, y = _position(frame.x, "x"), _position(frame.y, "y")
    crosses = alt.Chart().transform_filter("datum.stalled").mark_point(style="alarm", shape="cross", size=70)
    marked = _panel(frame, [crosses.encode(x=x, y=y)])
    return {**chart, "layer": [*chart["layer"], *marked["layer"]]}


def _panel(frame: Frame, layers: Sequence[alt.Chart]) -> Chart:
    """Layer marks into a panel of self-contained parts, so that it can be anywhere.

    Not by `alt.layer`, which copies all marks four times and so takes longer than the rest of a chart.
    """
    parts = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    for part in parts:
        part.pop("data", None)
    return {"layer": parts, "height": frame.height}


def _categories(frame: Frame) -> alt.Axis:
    """The axis of bars: long labels have a line for each word, or are slanted where even that does not fit."""
    labels = [str(label) for label in frame.x.order]
    room = frame.width / max(len(labels), 1) / CHARACTER_WIDTH - 1
    words = [word for label in labels for word in _LONG_WORD.sub(r"\1 ", label).split(" ")]
    if max(map(len, words), default=0) > room:
        return alt.Axis(labelAngle=-40, labelLimit=160, domain=True)
    longest = min(LONG_LABEL, math.floor(room))
    broken = f"length(datum.label) > {longest} ? split({_PIECES}, ' ') : datum.label"
    return alt.Axis(labelAngle=0, labelLimit=110, labelExpr=broken, domain=True)


def _ticks(axis: Axis) -> Sequence[float] | None:
    if axis.values is not None or axis.kind != "log" or axis.domain is None:
        return axis.values
    low, high = axis.domain
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = (1,) if high / low > 1e4 else (1, 3) if high / low > 200 else (1, 2, 5)
    ticks: list[float] = []
    for steps in (wide, (1, 1.5, 2, 3, 4, 5, 7), tuple(number / 10 for number in range(10, 100, 2))):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 3:
            break
    return ticks


def _position(axis: Axis, channel: Literal["x", "y"]) -> Any:
    encoding = alt.X if channel == "x" else alt.Y
    options: dict[str, Any] = _label(axis)
    ticks = _ticks(axis)
    if ticks is not None:
        options["values"] = list(ticks)
    if channel == "x":
        options |= {
            "labelOverlap": "parity" if axis.kind == "log2" else "greedy",
            "labelFlush": False,
            "labelAngle": 0,
            "tickCount": 6,
        }
    else:
        options |= {"tickCount": 5}
    if axis.kind == "category":
        return encoding(
            "x:N",
            sort=list(axis.order),
            title=axis.title,
            axis=alt.Axis(**options),
            scale=alt.Scale(type="point", padding=0.4),
        )
    if axis.kind == "nines":
        options["labelExpr"] = NINES_LABEL
    return encoding(f"{channel}:Q", title=axis.title, axis=alt.Axis(**options), scale=_numeric_scale(axis))


def _numeric_scale(axis: Axis) -> alt.Scale:
    domain = list(axis.domain) if axis.domain is not None else alt.Undefined
    match axis.kind:
        case "log2":
            return alt.Scale(type="log", base=2, domain=domain, nice=False)
        case "log":
            return alt.Scale(type="log", domain=domain, nice=False)
        case "nines":
            return alt.Scale(domain=domain, nice=False, zero=False)
        case _:
            return alt.Scale(domain=domain, nice=axis.domain is None)


def _label(axis: Axis) -> dict[str, Any]:
    if axis.label is not None:
        return {"labelExpr": axis.label}
    return {"format": axis.format} if axis.format else {}


def _series_colour(frame: Frame, *, shape: Literal["circle", "stroke"] = "circle") -> Any:
    """Return the colours of series; hollow circles would be marks of verdicts, so lines without points have strokes."""
    if not frame.series:
        return alt.Undefined
    if frame.graded or frame.sources:
        shape = "stroke"
    legend = _legend(_present(frame, frame.series), shape) if len(frame.series) > 1 else None
    kind = "O" if frame.graded else "N"
    colours = theme.graded if frame.graded else theme.category
    return alt.Color(
        f"series:{kind}",
        sort=list(frame.series),
        title=frame.series_title,
        legend=legend,
        scale=alt.Scale(domain=list(frame.series), range=colours(len(frame.series))),
    )


def _present(frame: Frame, labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label not in frame.absent] or list(labels)


def _legend(labels: Sequence[str], shape: str | None) -> alt.Legend:
    """Return a legend as wide as a figure for a paper; the page sets its own number of columns."""
    columns = max(1, PAPER_WIDTH // (40 + 7 * max(map(len, labels))))
    symbol = alt.Undefined if shape is None else shape
    return alt.Legend(
        values=list(labels), symbolType=symbol, symbolOpacity=1, labelLimit=420, titleLimit=300, columns=columns
    )


def _legend_choice(frame: Frame) -> tuple[Any, Any]:
    """Return a condition and the parameter that sets it: a click on the legend brings a series to the front."""
    if len(frame.series) < 2:
        return None, None
    parameter = alt.selection_point(name=f"series_{frame.panel}", fields=["series"], bind="legend")
    return parameter, parameter


def _opacity(chosen: Any, strong: float, faint: float) -> dict[str, Any]:
    if chosen is None:
        return {"opacity": alt.OpacityValue(strong)}
    return {"opacity": alt.OpacityValue(**alt.condition(chosen, alt.value(strong), alt.value(faint), empty=True))}


def _dash(frame: Frame) -> dict[str, Any]:
    """Own results solid, then ever finer; publications dashed."""
    if len(frame.sources) < 2:
        return {}
    own = [source for source in frame.sources if source not in frame.published]
    own_dashes = ([1, 0], [9, 2, 2, 2], [2, 3])
    cited_dashes = ([6, 4], [3, 3], [10, 4])
    dashes = [own_dashes[i % 3] for i in range(len(own))] + [cited_dashes[i % 3] for i in range(len(frame.published))]
    legend = _legend(_present(frame, frame.sources), "stroke") if frame.source_title is not None else None
    scale = alt.Scale(domain=[*own, *frame.published], range=dashes)
    title = frame.source_title or ""
    return {"strokeDash": alt.StrokeDash("source:N", sort=list(frame.sources), title=title, legend=legend, scale=scale)}


def _points(base: alt.Chart, frame: Frame, size: int, **channels: Any) -> list[alt.Chart]:
    """Return full points for device-limited values, and hollow ones of a shape of their own for others."""
    full = base.mark_point(size=size).encode(detail=alt.Detail("source:N"), **channels)
    if not frame.verdicts:
        return [full]
    others = alt.FieldOneOfPredicate(field="verdict", oneOf=list(frame.verdicts))
    hollow = base.mark_point(filled=False, size=2.4 * size, strokeWidth=1.6).encode(
        shape=_verdict_shape(frame), detail=alt.Detail("source:N"), **channels
    )
    return [full.transform_filter({"not": others}), hollow.transform_filter(others)]


def _verdict_shape(frame: Frame) -> alt.Shape:
    """Return the shapes of values that were not device-limited, with their legend."""
    return alt.Shape(
        "verdict:N",
        sort=list(frame.verdicts),
        title="Not device-limited",
        legend=_legend(frame.verdicts, None),
        scale=alt.Scale(domain=list(frame.verdicts), range=[_SHAPES[kind] for kind in frame.verdicts]),
    )


def _hover(base: alt.Chart, frame: Frame, x: Any, y: Any) -> Any:
    """Return invisible points, large enough for a finger, that carry the tooltip."""
    return base.mark_point(size=220, opacity=0).encode(x=x, y=y, tooltip=_tooltip(frame), detail=alt.Detail("source:N"))


def _tooltip(frame: Frame) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{column}:N", title=title) for column, title in frame.tooltip]


def _cell_text(base: alt.Chart, style: str, x: Any, y: Any, chosen: Any) -> Any:
    text = base.mark_text(style=style, fontSize=10).encode(x=x, y=y, text=alt.Text("label:N"))
    return text.transform_filter(chosen).transform_filter(_HAS_VALUE)


def _crosses(base: alt.Chart, frame: Frame, x: Any, offset: Any = alt.Undefined) -> list[alt.Chart]:
    """Return crosses at the foot of the panel for cases without a value."""
    cross = base.mark_text(text="✕", fontSize=12, dy=-7, style="alarm").encode(
        x=x,
        xOffset=offset,
        y=alt.value(frame.height),
        tooltip=[
            alt.Tooltip("series:N", title=frame.series_title or "Case"),
            alt.Tooltip("no_value:N", title="No value"),
        ],
    )
    return [cross.transform_filter(_NO_VALUE)]


def _crosses_of_cells(base: alt.Chart, frame: Frame, x: Any, y: Any) -> list[alt.Chart]:
    cross = base.mark_text(text="✕", fontSize=13, style="alarm").encode(
        x=x, y=y, tooltip=[alt.Tooltip("no_value:N", title="No value")]
    )
    return [cross.transform_filter(_NO_VALUE)]
