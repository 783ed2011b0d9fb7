"""Tables and figures of rate limits: each parameter with its interval and estimates, and the stages before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from iosonde.features.rate_limits import known_limits, questions
from iosonde.features.rate_limits.known_limits import Identification, Parameter, Rule
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.questions import Text, amount_text, rate_text, seconds_text
from iosonde.features.rate_limits.series import Load, Series
from iosonde.features.rate_limits.sharing import Sharing, SharingConclusion
from iosonde.features.rate_limits.walk import load_text
from iosonde.report import vega
from iosonde.report.figure import Chart, Figure
from iosonde.report.material import Material, Source
from iosonde.report.quantities import Axis, metric_scale, metric_text
from iosonde.report.sketch import UNKNOWN, Row, Sketch, finish, scaled
from iosonde.report.table import Cell, Table
from iosonde.report.vega import Frame
from iosonde.study.model import View
from iosonde.units import format_bytes, format_latency

RULE, MEASURED, SUM = "identified rule", "measured", "sum"
POINTS = 400
"""Points of a line at most."""
DRAINS = ("drain", "large", "small-rest1", "small-full")
"""Stages that are drawn: those in which a bucket drains."""
_SHORTEST_S = 0.5
"""Time of a point at least: whole operations make the rate of shorter ones uneven."""
_GAP = 0.08
"""Distance of stages, as a share of the first one."""
_SCALE = metric_scale("iops", 1.0)


@dataclass(frozen=True, kw_only=True)
class _Point:
    """A point of a line; points of one `run` and series are joined."""

    panel: str
    series: str
    run: str
    seconds: float
    rate: float
    """Operations per second."""


def drains(material: Material, first: int) -> list[Figure]:
    """Draw the drains of each identification; numbered from `first`."""
    found = [
        (source, case.part, each)
        for source in material.sources
        for case, each in source.procedures
        if isinstance(each, LimitsConclusion) and any(_drains(each))
    ]
    figures = []
    for number, (source, part, each) in enumerate(found, start=first):
        known = each.found.rules
        rule = ", and the rate that the identified rule allows" if known else ""
        view = _view(
            part,
            title="Rate over time with the identified rule" if known else "Rate over time under full load",
            caption=f"Measured IOPS under full load{rule}.",
        )
        points = [(source, point) for drain in _drains(each) for point in _lines(*drain)]
        figures.append(finish(_sketch(points, panel="stage", series=[MEASURED, RULE]), view, number, material))
    return figures


def shared_rates(material: Material, first: int) -> list[Figure]:
    """Draw the comparisons of each part, a panel each; numbered from `first`."""
    found: dict[tuple[str, str], list[tuple[Source, SharingConclusion]]] = {}
    for source in material.sources:
        for case, each in source.procedures:
            if isinstance(each, SharingConclusion) and each.loaded:
                found.setdefault((source.label, case.part), []).append((source, each))
    figures = []
    for number, ((_, part), comparisons) in enumerate(found.items(), start=first):
        view = _view(
            part,
            title="Rates of the volumes alone and together",
            caption="IOPS of each volume, their sum while several are loaded, and the sum that the decided rule "
            "allows. The stages follow one another; the time between them is not to scale.",
        )
        points = [(source, point) for source, each in comparisons for point in _points(each)]
        volumes = map(_name, range(max(len(each.found.together) for _, each in comparisons)))
        figures.append(finish(_sketch(points, panel="load", series=[*volumes, SUM, RULE]), view, number, material))
    return figures


def _view(part: str, *, title: str, caption: str) -> View:
    return View(kind="timeseries", title=title, part=part, y="iops", caption=caption, shared_y=False)


def _sketch(points: Sequence[tuple[Source, _Point]], *, panel: str, series: Sequence[str]) -> Sketch:
    rows: list[Row] = [
        {
            **UNKNOWN,
            "panel": point.panel,
            "series": point.series,
            "source": source.label,
            "run": f"{point.run} {point.series}",
            "x": round(point.seconds, 3),
            "x_text": f"{point.seconds:.1f} s",
            "y": scaled(point.rate, _SCALE),
            "text": metric_text("iops", point.rate),
        }
        for source, point in points
    ]
    frame = Frame(
        x=Axis(title="Time (s)", domain=(0, max((each["x"] for each in rows), default=1))),
        y=_SCALE,
        series_title="Rate",
        series=series,
        tooltip=[("series", "Rate"), ("x_text", "Time"), ("text", "IOPS")],
    )
    heads = {"panel": panel, "series": "rate", "x": "seconds", "y": _SCALE.column}
    return Sketch(draw=_with_rule_below, rows=rows, frame=frame, heads=heads)


def _with_rule_below(frame: Frame) -> Chart:
    """The rule as a wide pale line: the measured one covers a thin line that it follows."""
    chart = vega.timeseries(frame)
    line, *others = chart["layer"]
    is_rule = f"datum.series == '{RULE}'"
    widths = {
        "size": {"condition": {"test": is_rule, "value": 6}, "value": 1.3},
        "strokeOpacity": {"condition": {"test": is_rule, "value": 0.45}, "value": 1},
    }
    return {**chart, "layer": [{**line, "encoding": {**line["encoding"], **widths}}, *others]}


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


def _lines(title: str, series: Series, rule: Rule | None) -> Iterator[_Point]:
    step = -(-len(series.seconds) // POINTS)
    lengths, counts = series.seconds, series.operations.tolist()
    at = 0.0
    credits = _credits(series, rule)
    for place in range(0, len(lengths), step):
        length, count = sum(lengths[place : place + step]), sum(counts[place : place + step])
        at += length
        if rule:
            allowed, credits = _allowed(rule, series.load, credits, length)
            yield _Point(panel=title, series=RULE, run=title, seconds=at, rate=allowed)
        yield _Point(panel=title, series=MEASURED, run=title, seconds=at, rate=count / length)


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


def _points(conclusion: SharingConclusion) -> Iterator[_Point]:
    panel, begin = load_text(conclusion.found.load), 0.0
    for number, (volumes, series) in enumerate(conclusion.loaded):
        ends = [begin + end for end in accumulate(series[0].seconds)]
        allowed = _allowed_together(conclusion.found, volumes)
        lines: list[tuple[str, Iterable[tuple[float, float]]]] = []
        if allowed is not None:
            lines.append((RULE, [(0.0, allowed), (ends[-1] - begin, allowed)]))
        lines += [(_name(volume), _rates([each])) for volume, each in zip(volumes, series, strict=True)]
        if len(series) > 1:
            lines.append((SUM, _rates(series)))
        for name, points in lines:
            for at, rate in points:
                yield _Point(panel=panel, series=name, run=f"{panel} {number}", seconds=begin + at, rate=rate)
        begin = ends[-1] + _GAP * (ends[-1] - begin)


def _name(volume: int) -> str:
    return f"volume {volume + 1}"


def _allowed_together(found: Sharing, volumes: Sequence[int]) -> float | None:
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


FIGURES = (drains, shared_rates)


_CAPTION = (
    "Interval: all estimates with their errors. A parameter with one estimate is not confirmed by a second method. "
    "Rejected: rules that the data contradict."
)


_Row = tuple[str, str, str, str]


def tables(material: Material) -> list[Table]:
    """Return the rules of each identification, and the rates of each comparison."""
    return [
        _table(source, conclusion, named=len(material.sources) > 1)
        for source in material.sources
        for _, conclusion in source.procedures
        if isinstance(conclusion, LimitsConclusion | SharingConclusion)
    ]


def _table(source: Source, conclusion: LimitsConclusion | SharingConclusion, *, named: bool) -> Table:
    if isinstance(conclusion, LimitsConclusion):
        known = known_limits.of_control_groups(conclusion.target)
        limits = ((f"Control group limit on {each.device}", each.setting, "", each.describe()) for each in known)
        rows = [*_rows(conclusion.found), *limits]
    else:
        rows = list(questions.rows(conclusion.found))
    return Table(
        title=f"{source.label}: Rate limits" if named else "Rate limits",
        caption=_CAPTION,
        heads=["Parameter", "Value", "Interval", "Estimates"],
        labels=1,
        rows=[[Cell(text=text or "-") for text in row] for row in rows],
        keys=[f"{source.label}\n{conclusion.case_id}"] * len(rows),
    )


def _rows(found: Identification) -> Iterator[_Row]:
    for rule in found.rules:
        yield from _of_rule(rule)
    if found.sharing != "unknown":
        yield "Budget of reads and writes", found.sharing, "", ""
    if found.write_weight:
        weight = found.write_weight
        estimates = "; ".join(f"{each.method}: {each.value:.3g}" for each in weight.estimates)
        yield "Cost of a write in reads", f"{weight.value:.3g}", f"{weight.low:.3g} to {weight.high:.3g}", estimates
    if found.change:
        yield "Change", f"{found.change.before:,.0f} to {found.change.after:,.0f} IOPS", "", found.change.stage
    for region in found.first_touch.regions if found.first_touch else ():
        passes = "; ".join(f"access {n}: {_latency(each)}" for n, each in enumerate(region.latencies_s, start=1))
        interval = f"{_latency(region.low_s)} to {_latency(region.high_s)}"
        yield f"First access at {format_bytes(region.offset)}: added", _latency(region.added_s), interval, passes
    if found.limiter:
        low, middle, high = map(_latency, found.limiter.interval_s)
        below = f"below the limit: {_latency(found.limiter.device_s[1])}"
        yield f"Latency at queue depth 1, {found.limiter.style}", middle, f"{low} to {high}", below
    for each in found.rejected:
        yield "Rejected", each, "", ""
    for each in found.undecided:
        yield "Not decided", each, "", ""
    if not found.rules:
        yield "Result", found.verdict, "", found.reason


def _latency(seconds: float) -> str:
    sign = "-" if seconds < 0 else ""
    return f"{sign}{format_latency(1e9 * abs(seconds))}"


def _of_rule(rule: Rule) -> Iterator[_Row]:
    name = f"{rule.operation.capitalize()} limit in {rule.counts}"
    units = f", one for each {format_bytes(rule.unit_bytes)} begun" if rule.unit_bytes else ""
    yield f"{name}: counted", f"{rule.counts}{units}", "", ""
    yield f"{name}: sustained rate", *_parameter(rule, rule.rate)
    if rule.burst_rate:
        yield f"{name}: burst rate", *_parameter(rule, rule.burst_rate)
    if rule.bucket:
        yield f"{name}: bucket", *_parameter(rule, rule.bucket, amount_text)
    if rule.refill:
        yield f"{name}: refill rate", *_parameter(rule, rule.refill)
    if rule.seconds_until_empty is not None:
        yield f"{name}: time until empty", seconds_text(rule.seconds_until_empty), "", "bucket / (burst - sustained)"
    if rule.seconds_until_full is not None:
        yield f"{name}: time until full", seconds_text(rule.seconds_until_full), "", "bucket / sustained"
    if rule.merges is not None:
        yield f"{name}: sequential operations", "merged" if rule.merges else "not merged", "", "sequential over random"


def _parameter(rule: Rule, found: Parameter, text: Text = rate_text) -> tuple[str, str, str]:
    interval = f"{text(rule, found.low)} to {text(rule, found.high)}"
    return text(rule, found.value), interval, "; ".join(f"{e.method}: {text(rule, e.value)}" for e in found.estimates)


TABLES = (tables,)
