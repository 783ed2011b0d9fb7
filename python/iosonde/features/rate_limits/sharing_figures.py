"""Figure: rates of volumes alone and together over time, with the decided rule drawn into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from iosonde.features.rate_limits.drawing import POINTS, RULE, row, with_rule_below
from iosonde.features.rate_limits.series import Series
from iosonde.features.rate_limits.sharing import Sharing
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.features.rate_limits.walk import load_text
from iosonde.report.figure import Figure
from iosonde.report.material import Material, Source
from iosonde.report.quantities import Scale, metric_scale
from iosonde.report.sketch import Row, Sketch, finish
from iosonde.report.vega import Axis, Frame
from iosonde.study.model import View

SUM = "sum"
_SHORTEST_S = 0.5
"""Time of a point at least: whole operations make the rate of shorter ones uneven."""


_GAP = 0.08
"""Distance of stages, as a share of the first one."""


def figures(material: Material, first: int) -> list[Figure]:
    """Draw the comparisons of each part, a panel each; numbered from `first`."""
    found: dict[tuple[str, str], list[tuple[Source, SharingConclusion]]] = {}
    for source in material.sources:
        for case, each in source.procedures:
            if isinstance(each, SharingConclusion) and each.loaded:
                found.setdefault((source.label, case.part), []).append((source, each))
    return [
        finish(_sketch(part, of_part), _view(part), first + place, material)
        for place, ((_, part), of_part) in enumerate(found.items())
    ]


def _view(part: str) -> View:
    return View(
        kind="timeseries",
        title="Rates of the volumes alone and together",
        part=part,
        y="iops",
        caption="IOPS of each volume, their sum while several are loaded, and the sum that the decided rule allows. "
        "The stages follow one another; the time between them is not to scale.",
        shared_y=False,
    )


def _sketch(part: str, comparisons: Sequence[tuple[Source, SharingConclusion]]) -> Sketch:
    points = [
        (source.label, load_text(each.found.load), point) for source, each in comparisons for point in _points(each)
    ]
    scale = metric_scale("iops", max(rate for _, _, (*_, rate) in points))
    rows = [_row(label, panel, point, scale) for label, panel, point in points]
    frame = Frame(
        x=Axis(title="Time (s)", domain=(0, max(each["x"] for each in rows))),
        y=Axis(title=scale.title, label=scale.label, format=scale.format),
        series_title="Rate",
        series=[*map(_name, range(max(len(each.found.together) for _, each in comparisons))), SUM, RULE],
        tooltip=[("series", "Rate"), ("x_text", "Time"), ("text", "IOPS")],
    )
    heads = {"panel": "load", "series": "rate", "x": "seconds", "y": scale.column}
    return Sketch(draw=with_rule_below, rows=rows, frame=frame, heads=heads, part=part, metric="iops")


_Point = tuple[str, str, float, float]
"""Series, stage, seconds and operations per second."""


def _row(label: str, panel: str, point: _Point, scale: Scale) -> Row:
    series, stage, at, rate = point
    return row(label, panel, series, f"{panel} {stage}", at, rate, scale)


def _points(conclusion: SharingConclusion) -> Iterator[_Point]:
    begin = 0.0
    for number, (volumes, series) in enumerate(conclusion.loaded):
        stage, ends = str(number), [begin + end for end in accumulate(series[0].seconds)]
        allowed = _allowed(conclusion.found, volumes)
        if allowed is not None:
            yield from ((RULE, stage, at, allowed) for at in (begin, ends[-1]))
        for volume, each in zip(volumes, series, strict=True):
            yield from ((_name(volume), stage, begin + at, rate) for at, rate in _rates([each]))
        if len(series) > 1:
            yield from ((SUM, stage, begin + at, rate) for at, rate in _rates(series))
        begin = ends[-1] + _GAP * (ends[-1] - begin)


def _name(volume: int) -> str:
    return f"volume {volume + 1}"


def _allowed(found: Sharing, volumes: Sequence[int]) -> float | None:
    """Sum of the rates of the loaded volumes by the decided rule; None where nothing is decided."""
    if found.verdict == "undecided" or found.sum is None:
        return None
    own = sum(found.alone[volume].value for volume in volumes)
    return min(own, found.sum.value) if found.verdict == "shared" else own


def _rates(series: Sequence[Series]) -> Iterator[tuple[float, float]]:
    """Mean rates of joined intervals, each at its middle."""
    lengths, counts = series[0].seconds, np.sum([each.operations for each in series], axis=0)
    typical = max(lengths, default=1.0)
    step = max(-(-len(lengths) // POINTS), round(_SHORTEST_S / typical), 1)
    at = 0.0
    for place in range(0, len(lengths), step):
        length = sum(lengths[place : place + step])
        yield at + length / 2, float(counts[place : place + step].sum()) / length
        at += length
