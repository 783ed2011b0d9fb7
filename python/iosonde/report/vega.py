"""Charts: how each kind of view is drawn in Vega-Lite, without rows and colours.

Every chart reads the same few columns, so that one page script can feed them all: `x`, `y`, `low`, `high` (the
interval), `series` (what separates the lines), `source` (which result set or publication), `published` (whether it is
one), `text` (the value as written), `label` (at the point) and `no_value` (why there is no value). Text from users only
ever travels in these columns and in titles, never in an expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from iosonde.report import theme
from iosonde.report.figure import PAPER_WIDTH, Chart
from iosonde.report.quantities import NINES_LABEL, Scale

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
    "network-limited": "◁",
    "server-limited": "▷",
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
    "network-limited": "triangle-left",
    "server-limited": "triangle-right",
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


def value_axis(
    scale: Scale, *, kind: Literal["linear", "log"] | None = None, domain: Sequence[float] | None = None
) -> Axis:
    """Return the axis of a metric, logarithmic where its scale is and no other `kind` is given."""
    return Axis(
        title=scale.title,
        kind=kind or ("log" if scale.logarithmic else "linear"),
        domain=domain,
        label=scale.label,
        format=scale.format,
    )


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Input of a one-panel chart besides its rows; panels of one figure share it."""

    x: Axis
    y: Axis
    panel: int = 0
    width: int = PAPER_WIDTH
    """Pixels across the plot, where it is narrowest."""
    series_title: str = ""
    series: Sequence[str] = ()
    """Series in their order; colours follow it."""
    graded: bool = False
    """True if the series are steps of one quantity (queue depths) rather than different things (read, write)."""
    sources: Sequence[str] = ()
    """Sources distinguished by dashes: result sets first, then publications. Empty if there is only one."""
    published: Sequence[str] = ()
    """Those of `sources` that are publications."""
    source_title: str | None = "Source"
    """Over the legend of dashes; None where panels or colours suffice."""
    tooltip: Sequence[tuple[str, str]] = field(default_factory=lambda: (("text", "Value"),))
    """Columns and their names."""
    height: int = HEIGHT
    ratio: bool = False
    """True if colours show the distance of a ratio from 100 %, below and above; otherwise magnitudes."""
    verdicts: Sequence[Kind] = ()
    """Verdicts of values that were not device-limited; their marks are hollow."""
    absent: frozenset[str] = frozenset()
    """Series and sources without a value in any panel: they keep their colours, and legends leave them out."""


Part = dict[str, Any]
"""A part of a Vega-Lite specification: a layer, an encoding, an axis, a legend."""

_MEASURED: Part = {"field": "role", "equal": "measured"}
_HAS_VALUE: Part = {"field": "no_value", "equal": ""}
_NO_VALUE: Part = {"not": _HAS_VALUE}
_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
_HIGH: Part = {"field": "high"}


def lines(frame: Frame) -> Chart:
    """Lines over a factor, with bands of confidence; publications dashed; missing values as crosses on the baseline."""
    at: Part = {"x": _position(frame.x, "x"), "color": _series_colour(frame)}
    y = _position(frame.y, "y")
    faint = _opacity(frame, 1.0, 0.12)
    interval = {"y": y | {"field": "low"}, "y2": _HIGH, **_by("source")}
    return _panel(
        frame,
        [
            _layer("area", at | interval | _opacity(frame, 0.16, 0.02), opacity=0.16, clip=True),
            _layer("line", at | {"y": y} | faint | _dash(frame)) | _legend_choice(frame),
            *_points(frame, 26, at | {"y": y} | faint),
            _hover(frame, at["x"], y),
            _cross(frame, {"x": at["x"]}),
        ],
    )


def heatmap(frame: Frame) -> Chart:
    """A surface: both factors as steps, the metric as colour, with its value where there is room."""
    at: Part = {
        "x": _field("x:O")
        | {
            "sort": list(frame.x.order),
            "title": frame.x.title,
            "axis": {
                "labelAngle": 0,
                "labelOverlap": True,
                "labelExpr": f"split(datum.label, '{BREAK}')",
                "ticks": False,
                "domain": False,
            },
        },
        "y": _field("series:O") | {"sort": list(reversed(frame.series)), "title": frame.series_title},
    }
    domain = list(frame.y.domain or (0, 1))
    colour = _ratio_colour(frame) if frame.ratio else _magnitude_colour(frame, domain)
    missing = [_field("no_value:N", "No value")]
    layers = [
        _layer("rect", at | {"color": colour, "tooltip": _tooltip(frame)}, cornerRadius=2),
        _layer("text", at | {"tooltip": missing}, _NO_VALUE, text="✕", fontSize=13, style="alarm"),
    ]
    if frame.ratio:
        extreme: Part = {"or": [{"field": "shade", "lt": -EXTREME}, {"field": "shade", "gt": EXTREME}]}
        texts = {"on-dark": extreme, "on-bright": {"not": extreme}}
    else:
        middle = domain[0] + 0.6 * (domain[1] - domain[0])
        texts = {"on-dark": {"field": "y", "lte": middle}, "on-bright": {"field": "y", "gt": middle}}
    label = {"text": _field("label:N")}
    layers += [
        _layer("text", at | label, chosen, _HAS_VALUE, style=style, fontSize=10) for style, chosen in texts.items()
    ]
    if frame.verdicts:
        layers.append(_layer("text", at | {"text": _field("mark:N")}, dy=-9, fontSize=9, style="on-dark"))
    return _panel(frame, layers)


def _magnitude_colour(frame: Frame, domain: Sequence[float]) -> Part:
    scale = {"domain": domain, "type": "log" if frame.y.kind == "log" else "linear", "zero": False}
    return _field("y:Q", frame.y.title) | {"scale": scale, "legend": _gradient(**_label(frame.y))}


def _ratio_colour(frame: Frame) -> Part:
    """Colour by column `shade`, the logarithm of the ratio to base 2: half and double are equally far from 1."""
    diverging = list(theme.PALETTES["light"].diverging)
    scale = {"domain": [-1, -0.5, 0, 0.5, 1], "range": diverging, "clamp": True, "interpolate": "rgb"}
    text = "datum.value < 0 ? '≤ 50 %' : datum.value > 0 ? '≥ 200 %' : '100 %'"
    legend = _gradient(values=[-1, 0, 1], labelExpr=text)
    return _field("shade:Q", frame.y.title) | {"scale": scale, "legend": legend}


def _gradient(**options: Any) -> Part:
    return {"orient": "top", "gradientLength": 180, "gradientThickness": 8, "titleLimit": 400, **options}


def expectation(frame: Frame) -> Chart:
    """Expected values as lines, measured ones as points with intervals."""
    at: Part = {"x": _position(frame.x, "x"), "y": _position(frame.y, "y"), "color": _series_colour(frame)}
    return _panel(
        frame,
        [
            _layer("line", at, {"not": _MEASURED}, opacity=0.55),
            _layer("rule", at | _interval(frame), _MEASURED, strokeWidth=1.5, clip=True),
            _layer("point", at, _MEASURED, size=34),
            _hover(frame, at["x"], at["y"]),
        ],
    )


def tradeoff(frame: Frame) -> Chart:
    """One metric against another along a factor, whose levels label the points."""
    x, y = _position(frame.x, "x"), _position(frame.y, "y")
    at: Part = {"x": x, "y": y, "color": _series_colour(frame)}
    label = {"x": x, "y": y, "text": _field("label:N"), **_by("source")}
    return _panel(
        frame,
        [
            _layer("rule", at | _interval(frame) | _by("source"), opacity=0.35, clip=True),
            _layer("line", at | {"order": _field("step:Q")} | _dash(frame)),
            *_points(frame, 34, at),
            _layer("text", label, dy=-10, fontSize=10, style="quiet"),
            _hover(frame, x, y),
        ],
    )


def percentiles(frame: Frame) -> Chart:
    """Latency over percentiles, on an axis where each nine takes the same room."""
    at: Part = {"x": _position(frame.x, "x"), "y": _position(frame.y, "y"), "color": _series_colour(frame)}
    faint = _opacity(frame, 1.0, 0.12)
    line = _layer("line", at | faint | _dash(frame)) | _legend_choice(frame)
    return _panel(frame, [line, *_points(frame, 18, at | faint), _hover(frame, at["x"], at["y"])])


def bars(frame: Frame) -> Chart:
    """Bars side by side, with intervals; publications as symbols over the group.

    On a logarithmic axis ticks take the place of bars, whose length would have no meaning there.
    """
    at: Part = {"x": _bars_axis(frame), "xOffset": _field("series:N") | {"sort": list(frame.series)}}
    y = {"y": _position(frame.y, "y")}
    own, cited = ({"field": "published", "equal": is_cited} for is_cited in (False, True))
    measured = [series for series in frame.series if series not in frame.published]
    colour = {"color": _series_colour(replace(frame, series=measured), shape="square"), "tooltip": _tooltip(frame)}
    bar = (
        _layer("tick", at | y | colour, own, thickness=4)
        if frame.y.kind == "log"
        else _layer("bar", at | y | colour, own, cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
    )
    spread = _layer("rule", at | _interval(frame), own, strokeWidth=1.5, clip=True)
    layers = [bar, spread, _cross(frame, at)]
    if frame.verdicts:
        layers.append(_layer("text", at | y | {"text": _field("mark:N")}, dx=10, dy=-8, style="quiet"))
        # Invisible: text has no legend.
        verdict, muted = {"shape": _verdict_shape(frame)}, theme.PALETTES["light"].muted
        layers.append(_layer("point", at | y | verdict, filled=False, opacity=0, color=muted))
    if frame.published:
        shapes = [_SYMBOLS[place % len(_SYMBOLS)] for place in range(len(frame.published))]
        symbol = {
            "shape": _nominal("source:N", frame.published, shapes, "Published", _legend(frame.published, None)),
            "tooltip": _tooltip(frame),
        }
        options: Part = {"filled": False, "size": 70, "strokeWidth": 2, "style": "published"}
        layers.append(_layer("point", at | y | symbol, cited, **options))
    panel = _panel(frame, layers)
    if frame.verdicts and frame.published:  # Two legends: shapes of verdicts are not shapes of publications.
        panel["resolve"] = {"scale": {"shape": "independent"}}
    return panel


def stacked(frame: Frame, *, top: float) -> Chart:
    """Bars whose parts add up, the first series at the bottom; `top` is the highest sum of any panel."""
    x = {"x": _bars_axis(frame)}
    axis = {"tickCount": 5, **_label(frame.y)}
    parts = {
        "y": _field("y:Q", frame.y.title) | {"stack": "zero", "axis": axis, "scale": {"domain": [0, top]}},
        "order": _field("step:Q"),
        "color": _series_colour(frame, shape="square"),
        "tooltip": _tooltip(frame),
    }
    return _panel(frame, [_layer("bar", x | parts), _cross(frame, x)])


def timeseries(frame: Frame) -> Chart:
    """A metric over the time of runs, one line a run; a point where a run has only one interval."""
    at: Part = {
        "x": _position(frame.x, "x"),
        "y": _position(frame.y, "y"),
        "color": _series_colour(frame),
    }
    counted: Part = {
        "joinaggregate": [{"op": "count", "as": "intervals"}],
        "groupby": ["run", "series", "source"],
    }
    point = _layer("point", at, "datum.intervals == 1", filled=True, size=30)
    point["transform"].insert(0, counted)
    line = _layer("line", at | _by("run") | _dash(frame), strokeWidth=1.3)
    return _panel(frame, [line, _hover(frame, at["x"], at["y"]), point])


def timeseries_with_stalls(frame: Frame) -> Chart:
    """The same, with a cross on each interval in which the engine itself was stalled."""
    chart = timeseries(frame)
    at: Part = {"x": _position(frame.x, "x"), "y": _position(frame.y, "y")}
    crosses = _layer("point", at, "datum.stalled", style="alarm", shape="cross", size=70)
    return {**chart, "layer": [*chart["layer"], crosses]}


def _panel(frame: Frame, layers: Sequence[Part]) -> Chart:
    return {"layer": list(layers), "height": frame.height}


def _layer(mark: str, encoding: Mapping[str, Any], *filters: Part | str, **options: Any) -> Part:
    """One mark for each row that passes all filters."""
    shown = {channel: what for channel, what in encoding.items() if what is not None}
    chosen = {"transform": [{"filter": each} for each in filters]} if filters else {}
    return {"mark": {"type": mark, **options}, "encoding": shown, **chosen}


def _field(column: str, title: str | None = None) -> Part:
    """Encode a column, given as `NAME:TYPE`."""
    name, _, kind = column.partition(":")
    return {"field": name, "type": _TYPES[kind], **({} if title is None else {"title": title})}


def _by(column: str) -> Part:
    """One line or area for each value of a column, whatever it looks like."""
    return {"detail": _field(f"{column}:N")}


def _interval(frame: Frame) -> Part:
    return {"y": _field("low:Q", frame.y.title), "y2": _HIGH}


def _bars_axis(frame: Frame) -> Part:
    return _field("x:N", frame.x.title) | {"sort": list(frame.x.order), "axis": _categories(frame)}


def _categories(frame: Frame) -> Part:
    """The axis of bars: long labels have a line for each word, or are slanted where even that does not fit."""
    labels = [str(label) for label in frame.x.order]
    room = frame.width / max(len(labels), 1) / CHARACTER_WIDTH - 1
    words = [word for label in labels for word in _LONG_WORD.sub(r"\1 ", label).split(" ")]
    if max(map(len, words), default=0) > room:
        return {"labelAngle": -40, "labelLimit": 160, "domain": True}
    longest = min(LONG_LABEL, math.floor(room))
    broken = f"length(datum.label) > {longest} ? split({_PIECES}, ' ') : datum.label"
    return {"labelAngle": 0, "labelLimit": 110, "labelExpr": broken, "domain": True}


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


def _position(axis: Axis, channel: Literal["x", "y"]) -> Part:
    options: Part = _label(axis)
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
        scale = {"type": "point", "padding": 0.4}
        return _field("x:N", axis.title) | {"sort": list(axis.order), "axis": options, "scale": scale}
    if axis.kind == "nines":
        options["labelExpr"] = NINES_LABEL
    return _field(f"{channel}:Q", axis.title) | {"axis": options, "scale": _numeric_scale(axis)}


def _numeric_scale(axis: Axis) -> Part:
    domain = {} if axis.domain is None else {"domain": list(axis.domain)}
    match axis.kind:
        case "log2":
            return {"type": "log", "base": 2, "nice": False, **domain}
        case "log":
            return {"type": "log", "nice": False, **domain}
        case "nines":
            return {"nice": False, "zero": False, **domain}
        case _:
            return {"nice": axis.domain is None, **domain}


def _label(axis: Axis) -> Part:
    if axis.label is not None:
        return {"labelExpr": axis.label}
    return {"format": axis.format} if axis.format else {}


def _nominal(column: str, domain: Sequence[Any], values: Sequence[Any], title: str, legend: Part | None) -> Part:
    """Encode a column by a list of colours, dashes or shapes."""
    scale = {"domain": list(domain), "range": list(values)}
    return _field(column, title) | {"sort": list(domain), "legend": legend, "scale": scale}


def _series_colour(frame: Frame, *, shape: Literal["stroke", "square"] = "stroke") -> Part | None:
    """Return the colours of series; circles would be marks of verdicts, so the legend of lines has strokes."""
    if not frame.series:
        return None
    legend = _legend(_present(frame, frame.series), shape) if len(frame.series) > 1 else None
    colours = theme.graded if frame.graded else theme.category
    column = "series:O" if frame.graded else "series:N"
    return _nominal(column, frame.series, colours(len(frame.series)), frame.series_title, legend)


def _present(frame: Frame, labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label not in frame.absent] or list(labels)


def _legend(labels: Sequence[str], shape: str | None) -> Part:
    """Return a legend as wide as a figure for a paper; the page sets its own number of columns."""
    columns = max(1, PAPER_WIDTH // (40 + 7 * max(map(len, labels))))
    symbol = {} if shape is None else {"symbolType": shape}
    limits = {"symbolOpacity": 1, "labelLimit": 420, "titleLimit": 300, "columns": columns}
    return {"values": list(labels), **symbol, **limits}


def _legend_choice(frame: Frame) -> Part:
    """Let a click on the legend bring a series to the front: the parameter that `_opacity` reads."""
    if len(frame.series) < 2:
        return {}
    select = {"type": "point", "fields": ["series"]}
    return {"params": [{"name": f"series_{frame.panel}", "select": select, "bind": "legend"}]}


def _opacity(frame: Frame, strong: float, faint: float) -> Part:
    if len(frame.series) < 2:
        return {"opacity": {"value": strong}}
    chosen = {"param": f"series_{frame.panel}", "value": strong, "empty": True}
    return {"opacity": {"condition": chosen, "value": faint}}


def _dash(frame: Frame) -> Part:
    """Own results solid, then ever finer; publications dashed."""
    if len(frame.sources) < 2:
        return {}
    own = [source for source in frame.sources if source not in frame.published]
    own_dashes = ([1, 0], [9, 2, 2, 2], [2, 3])
    cited_dashes = ([6, 4], [3, 3], [10, 4])
    dashes = [own_dashes[i % 3] for i in range(len(own))] + [cited_dashes[i % 3] for i in range(len(frame.published))]
    legend = _legend(_present(frame, frame.sources), "stroke") if frame.source_title is not None else None
    dash = _nominal("source:N", [*own, *frame.published], dashes, frame.source_title or "", legend)
    return {"strokeDash": dash | {"sort": list(frame.sources)}}


def _points(frame: Frame, size: int, at: Part) -> list[Part]:
    """Return full points for device-limited values, and hollow ones of a shape of their own for others."""
    at = at | _by("source")
    if not frame.verdicts:
        return [_layer("point", at, size=size)]
    others: Part = {"field": "verdict", "oneOf": list(frame.verdicts)}
    shape = {"shape": _verdict_shape(frame)}
    return [
        _layer("point", at, {"not": others}, size=size),
        _layer("point", at | shape, others, filled=False, size=2.4 * size, strokeWidth=1.6),
    ]


def _verdict_shape(frame: Frame) -> Part:
    """Return the shapes of values that were not device-limited, with their legend."""
    shapes = [_SHAPES[kind] for kind in frame.verdicts]
    return _nominal("verdict:N", frame.verdicts, shapes, "Not device-limited", _legend(frame.verdicts, None))


def _hover(frame: Frame, x: Part, y: Part) -> Part:
    """Return invisible points, large enough for a finger, that carry the tooltip."""
    return _layer("point", {"x": x, "y": y, "tooltip": _tooltip(frame), **_by("source")}, size=220, opacity=0)


def _tooltip(frame: Frame) -> list[Part]:
    return [_field(f"{column}:N", title) for column, title in frame.tooltip]


def _cross(frame: Frame, at: Part) -> Part:
    """Return crosses at the foot of the panel for cases without a value."""
    tooltip = [_field("series:N", frame.series_title or "Case"), _field("no_value:N", "No value")]
    foot = {"y": {"value": frame.height}, "tooltip": tooltip}
    return _layer("text", at | foot, _NO_VALUE, text="✕", fontSize=12, dy=-7, style="alarm")
