"""Figure: rate over time while buckets drain, with the identified rule drawn into it."""

from __future__ import annotations

from collections.abc import Iterator

from iosonde.features.rate_limits import sharing_figures
from iosonde.features.rate_limits.drawing import POINTS, RULE, row, with_rule_below
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.rules import Rule
from iosonde.features.rate_limits.series import Load, Series
from iosonde.report.figure import Figure
from iosonde.report.material import Material, Source
from iosonde.report.quantities import Scale, metric_scale
from iosonde.report.sketch import Row, Sketch, finish
from iosonde.report.vega import Axis, Frame
from iosonde.study.model import View
from iosonde.units import format_bytes

MEASURED = "measured"
DRAINS = ("drain", "large", "small-rest1", "small-full")
"""Stages that are drawn: those in which a bucket drains."""


def figures(material: Material, first: int) -> list[Figure]:
    """Draw the drains of each identification; numbered from `first`."""
    found = [
        (source, case.part, each)
        for source in material.sources
        for case, each in source.procedures
        if isinstance(each, LimitsConclusion) and any(_drains(each))
    ]
    return [
        finish(_sketch(source, part, each), _view(part, each), first + place, material)
        for place, (source, part, each) in enumerate(found)
    ]


def _view(part: str, conclusion: LimitsConclusion) -> View:
    known = conclusion.found.rules
    rule = ", and the rate that the identified rule allows" if known else ""
    return View(
        kind="timeseries",
        title="Rate over time with the identified rule" if known else "Rate over time under full load",
        part=part,
        y="iops",
        caption=f"Measured IOPS under full load{rule}.",
        shared_y=False,
    )


def _sketch(source: Source, part: str, conclusion: LimitsConclusion) -> Sketch:
    drains = list(_drains(conclusion))
    largest = max((max(_rates(series)) for _, series, _ in drains), default=1.0)
    scale = metric_scale("iops", largest)
    rows = [each for title, series, rule in drains for each in _lines(source, title, series, rule, scale)]
    frame = Frame(
        x=Axis(title="Time (s)", domain=(0, max((each["x"] for each in rows), default=1))),
        y=Axis(title=scale.title, label=scale.label, format=scale.format),
        series_title="Rate",
        series=[MEASURED, RULE],
        tooltip=[("series", "Rate"), ("x_text", "Time"), ("text", "IOPS")],
    )
    heads = {"panel": "stage", "series": "rate", "x": "seconds", "y": scale.column}
    return Sketch(draw=with_rule_below, rows=rows, frame=frame, heads=heads, part=part, metric="iops")


def _drains(conclusion: LimitsConclusion) -> Iterator[tuple[str, Series, Rule | None]]:
    """Each drain in one piece, with the rule that it follows."""
    parts: dict[str, Series] = {}
    for _, series in conclusion.stages:
        name = series.name if series.name in DRAINS else series.name.rpartition("-")[0]
        if name in DRAINS and (name not in parts or parts[name].load == series.load):
            parts[name] = parts[name].then(series) if name in parts else series
    rules = list(conclusion.found.rules)
    for name, series in parts.items():
        of_large = [rule for rule in rules[1:] if rule.counts == "bytes"]
        rule = of_large[0] if name == "large" and of_large else rules[0] if rules and name != "large" else None
        yield f"{_title(name, series.load)}", series, rule


def _title(name: str, load: Load) -> str:
    operation = "reads" if load.read_fraction else "writes"
    after = {"small-rest1": ", after a short rest", "small-full": ", after a full rest"}.get(name, "")
    return f"{format_bytes(load.block_size)} {operation}{after}"


def _rates(series: Series) -> list[float]:
    return [count / length for count, length in zip(series.operations.tolist(), series.seconds, strict=True)]


def _lines(source: Source, title: str, series: Series, rule: Rule | None, scale: Scale) -> Iterator[Row]:
    step = -(-len(series.seconds) // POINTS)
    lengths, counts = series.seconds, series.operations.tolist()
    at = 0.0
    credits = _credits(series, rule)
    for place in range(0, len(lengths), step):
        length, count = sum(lengths[place : place + step]), sum(counts[place : place + step])
        at += length
        if rule:
            allowed, credits = _allowed(rule, series.load, credits, length)
            yield row(source.label, title, RULE, title, at, allowed, scale)
        yield row(source.label, title, MEASURED, title, at, count / length, scale)


def _credits(series: Series, rule: Rule | None) -> float:
    """Credits at the start of a drain: a full bucket, or what a rest of its length gives."""
    if rule is None or rule.bucket is None:
        return 0.0
    rested = series.idle_s * rule.rate.value if series.name.startswith("small-") else rule.bucket.value
    return min(rule.bucket.value, rested)


def _allowed(rule: Rule, load: Load, credits: float, length: float) -> tuple[float, float]:
    """Mean rate that a rule allows in an interval, in operations per second, and the remaining credits."""
    cost = float(load.block_size) if rule.counts == "bytes" else 1.0
    if rule.counts == "operations" and rule.unit_bytes:
        cost = float(-(-load.block_size // rule.unit_bytes))
    rate = rule.rate.value
    burst = rule.burst_rate.value if rule.burst_rate else rate
    spent = min(credits, max(0.0, burst - rate) * length)
    return (rate * length + spent) / length / cost, credits - spent


FIGURES = (figures, sharing_figures.figures)
