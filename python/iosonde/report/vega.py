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
from typing import Any, Literal

from iosonde.metrics.verdict.verdict import Kind
from iosonde.report import theme
from iosonde.report.figure import PAPER_WIDTH, Chart
from iosonde.report.quantities import NINES_LABEL, Axis

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
_SYMBOLS: dict[Kind, tuple[str, str]] = {
    "harness-limited": ("○", "circle"),
    "cache-served": ("□", "square"),
    "undetermined": ("△", "triangle-up"),
    "network-limited": ("◁", "triangle-left"),
    "server-limited": ("▷", "triangle-right"),
    "server-CPU-limited": ("◇", "diamond"),
    "lock-limited": ("▽", "triangle-down"),
}
"""Marks of values that were not device-limited: as a character and as a symbol of Vega."""
MARKS = {kind: mark for kind, (mark, _) in _SYMBOLS.items()}
_PUBLICATIONS = ("diamond", "triangle-down", "cross", "square", "triangle-up", "circle")
"""Symbols of publications, over bars."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Input of a one-panel chart besides its rows; panels of one figure share it."""

    x: Axis
    y: Axis
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
    at = _place(frame)
    interval = {"y": at["y"] | {"field": "low"}, "y2": _HIGH, **_by("source")}
    return _panel(
        frame,
        _layer("area", at | interval, opacity=0.16, clip=True),
        _layer("line", at | _dash(frame), opacity=1),
        *_points(frame, 26, at, opacity=1),
        _hover(frame, at),
        _cross(frame, {"x": at["x"]}),
    )


def heatmap(frame: Frame) -> Chart:
    """A surface: both factors as steps, the metric as colour, with its value where there is room."""
    broken = {"labelOverlap": True, "labelExpr": f"split(datum.label, '{BREAK}')"}
    axis = {"labelAngle": 0, "ticks": False, "domain": False, **broken}
    at: Part = {
        "x": _field("x:O", frame.x.title) | {"sort": list(frame.x.order), "axis": axis},
        "y": _field("series:O", frame.series_title) | {"sort": list(reversed(frame.series))},
    }
    domain = list(frame.y.domain or (0, 1))
    shades = {"domain": domain, "type": "log" if frame.y.kind == "log" else "linear", "zero": False}
    colour = _field("y:Q", frame.y.title) | {"scale": shades, "legend": _gradient(**_label(frame.y))}
    colour = _ratio_colour(frame) if frame.ratio else colour
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
    return _panel(frame, *layers)


def _ratio_colour(frame: Frame) -> Part:
    """Colour by column `shade`, the logarithm of the ratio to base 2: half and double are equally far from 1."""
    diverging = list(theme.DIVERGING)
    scale = {"domain": [-1, -0.5, 0, 0.5, 1], "range": diverging, "clamp": True, "interpolate": "rgb"}
    text = "datum.value < 0 ? '≤ 50 %' : datum.value > 0 ? '≥ 200 %' : '100 %'"
    legend = _gradient(values=[-1, 0, 1], labelExpr=text)
    return _field("shade:Q", frame.y.title) | {"scale": scale, "legend": legend}


def _gradient(**options: Any) -> Part:
    return {"orient": "top", "gradientLength": 180, "gradientThickness": 8, "titleLimit": 400, **options}


def expectation(frame: Frame) -> Chart:
    """Expected values as lines, measured ones as points with intervals."""
    at = _place(frame)
    return _panel(
        frame,
        _layer("line", at, {"not": _MEASURED}, opacity=0.55),
        _layer("rule", at | _interval(frame), _MEASURED, strokeWidth=1.5, clip=True),
        _layer("point", at, _MEASURED, size=34),
        _hover(frame, at),
    )


def tradeoff(frame: Frame) -> Chart:
    """One metric against another along a factor, whose levels label the points."""
    at = _place(frame)
    label = at | {"color": None, "text": _field("label:N"), **_by("source")}
    return _panel(
        frame,
        _layer("rule", at | _interval(frame) | _by("source"), opacity=0.35, clip=True),
        _layer("line", at | {"order": _field("step:Q")} | _dash(frame)),
        *_points(frame, 34, at),
        _layer("text", label, dy=-10, fontSize=10, style="quiet"),
        _hover(frame, at),
    )


def percentiles(frame: Frame) -> Chart:
    """Latency over percentiles, on an axis where each nine takes the same room."""
    at = _place(frame)
    line, points = _layer("line", at | _dash(frame), opacity=1), _points(frame, 18, at, opacity=1)
    return _panel(frame, line, *points, _hover(frame, at))


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
        verdict, muted = {"shape": _verdict_shape(frame)}, theme.MUTED
        layers.append(_layer("point", at | y | verdict, filled=False, opacity=0, color=muted))
    if frame.published:
        shapes = [_PUBLICATIONS[place % len(_PUBLICATIONS)] for place in range(len(frame.published))]
        symbol = {
            "shape": _nominal("source:N", frame.published, shapes, "Published", _legend(frame.published, None)),
            "tooltip": _tooltip(frame),
        }
        options: Part = {"filled": False, "size": 70, "strokeWidth": 2, "style": "published"}
        layers.append(_layer("point", at | y | symbol, cited, **options))
    panel = _panel(frame, *layers)
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
    return _panel(frame, _layer("bar", x | parts), _cross(frame, x))


def timeseries(frame: Frame, *, stalled: bool = False) -> Chart:
    """A metric over the time of runs, one line a run; a point where a run has only one interval.

    With `stalled`, a cross on each interval in which the engine itself was stalled.
    """
    at = _place(frame)
    counted: Part = {"joinaggregate": [{"op": "count", "as": "intervals"}], "groupby": ["run", "series", "source"]}
    point = _layer("point", at, "datum.intervals == 1", filled=True, size=30)
    point["transform"].insert(0, counted)
    line = _layer("line", at | _by("run") | _dash(frame), strokeWidth=1.3)
    cross = _layer("point", at | {"color": None}, "datum.stalled", style="alarm", shape="cross", size=70)
    return _panel(frame, line, _hover(frame, at), point, *[cross] * stalled)


def _place(frame: Frame) -> Part:
    """Return where a row is in a plot with two quantities, and the colour of its series."""
    return {"x": _position(frame.x, "x"), "y": _position(frame.y, "y"), "color": _series_colour(frame)}


def _panel(frame: Frame, *layers: Part) -> Chart:
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
    ticks = _ticks(axis)
    options = _label(axis) | ({} if ticks is None else {"values": list(ticks)})
    if channel == "x":
        overlap = "parity" if axis.kind == "log2" else "greedy"
        options |= {"labelOverlap": overlap, "labelFlush": False, "labelAngle": 0, "tickCount": 6}
    else:
        options |= {"tickCount": 5}
    if axis.kind == "category":
        scale: Part = {"type": "point", "padding": 0.4}
        return _field("x:N", axis.title) | {"sort": list(axis.order), "axis": options, "scale": scale}
    if axis.kind == "nines":
        options["labelExpr"] = NINES_LABEL
    scale = _SCALES.get(axis.kind, {"nice": axis.domain is None})
    scale = scale | ({} if axis.domain is None else {"domain": list(axis.domain)})
    return _field(f"{channel}:Q", axis.title) | {"axis": options, "scale": scale}


_SCALES: Mapping[str, Part] = {
    "log2": {"type": "log", "base": 2, "nice": False},
    "log": {"type": "log", "nice": False},
    "nines": {"nice": False, "zero": False},
}


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


def _dash(frame: Frame) -> Part:
    """Own results solid, then ever finer; publications dashed."""
    if len(frame.sources) < 2:
        return {}
    own = [source for source in frame.sources if source not in frame.published]
    own_dashes = ([1, 0], [9, 2, 2, 2], [2, 3])
    cited_dashes = ([6, 4], [3, 3], [10, 4])
    dashes = [own_dashes[i % 3] for i in range(len(own))] + [cited_dashes[i % 3] for i in range(len(frame.published))]
    legend = _legend(_present(frame, frame.sources), "stroke")
    dash = _nominal("source:N", [*own, *frame.published], dashes, "Source", legend)
    return {"strokeDash": dash | {"sort": list(frame.sources)}}


def _points(frame: Frame, size: int, at: Part, **options: Any) -> list[Part]:
    """Return full points for device-limited values, and hollow ones of a shape of their own for others."""
    at = at | _by("source")
    if not frame.verdicts:
        return [_layer("point", at, size=size, **options)]
    others: Part = {"field": "verdict", "oneOf": list(frame.verdicts)}
    shape = {"shape": _verdict_shape(frame)}
    return [
        _layer("point", at, {"not": others}, size=size, **options),
        _layer("point", at | shape, others, filled=False, size=2.4 * size, strokeWidth=1.6, **options),
    ]


def _verdict_shape(frame: Frame) -> Part:
    """Return the shapes of values that were not device-limited, with their legend."""
    shapes = [_SYMBOLS[kind][1] for kind in frame.verdicts]
    return _nominal("verdict:N", frame.verdicts, shapes, "Not device-limited", _legend(frame.verdicts, None))


def _hover(frame: Frame, at: Part) -> Part:
    """Return invisible points, large enough for a finger, that carry the tooltip."""
    return _layer("point", at | {"color": None, "tooltip": _tooltip(frame)} | _by("source"), size=220, opacity=0)


def _tooltip(frame: Frame) -> list[Part]:
    return [_field(f"{column}:N", title) for column, title in frame.tooltip]


def _cross(frame: Frame, at: Part) -> Part:
    """Return crosses at the foot of the panel for cases without a value."""
    tooltip = [_field("series:N", frame.series_title or "Case"), _field("no_value:N", "No value")]
    foot = {"y": {"value": frame.height}, "tooltip": tooltip}
    return _layer("text", at | foot, _NO_VALUE, text="✕", fontSize=12, dy=-7, style="alarm")
