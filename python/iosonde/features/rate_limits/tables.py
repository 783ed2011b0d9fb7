"""Table of rules: each parameter with its interval and estimates, and each stage that led to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from iosonde.features.rate_limits import known_limits, questions
from iosonde.features.rate_limits.known_limits import Identification, Parameter, Rule
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.questions import amount_text, counted_text, rate_text, seconds_text
from iosonde.features.rate_limits.sharing import SharingConclusion
from iosonde.procedure.observations import Conclusion
from iosonde.report.material import Material, Source
from iosonde.report.table import Cell, Table
from iosonde.units import format_bytes, format_latency

_CAPTION = (
    "Interval: all estimates with their errors. A parameter with one estimate is not confirmed by a second method. "
    "Rejected: rules that the data contradict."
)


_Row = tuple[str, str, str, str]


def tables(material: Material) -> list[Table]:
    """Return the rules of each identification."""
    return [
        _table(source, conclusion.case_id, rows, named=len(material.sources) > 1)
        for source in material.sources
        for conclusion, rows in _conclusions(source)
    ]


def _conclusions(source: Source) -> Iterator[tuple[Conclusion, Iterator[_Row]]]:
    for _, conclusion in source.procedures:
        if isinstance(conclusion, LimitsConclusion):
            yield conclusion, itertools.chain(_rows(conclusion.found), _of_control_groups(conclusion))
        elif isinstance(conclusion, SharingConclusion):
            yield conclusion, questions.rows(conclusion.found)


def _table(source: Source, case_id: str, found: Iterator[_Row], *, named: bool) -> Table:
    rows = [list(map(_cell, row)) for row in found]
    of = f"{source.label}: " if named else ""
    return Table(
        title=f"{of}Rate limits",
        caption=_CAPTION,
        heads=["Parameter", "Value", "Interval", "Estimates"],
        labels=1,
        rows=rows,
        keys=[f"{source.label}\n{case_id}"] * len(rows),
    )


def _cell(text: str) -> Cell:
    return Cell(text=text or "-")


def _rows(found: Identification) -> Iterator[tuple[str, str, str, str]]:
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


def _of_control_groups(conclusion: LimitsConclusion) -> Iterator[_Row]:
    for limit in known_limits.of_control_groups(conclusion.target):
        yield f"Control group limit on {limit.device}", limit.setting, "", limit.describe()


def _latency(seconds: float) -> str:
    sign = "-" if seconds < 0 else ""
    return f"{sign}{format_latency(1e9 * abs(seconds))}"


def _of_rule(rule: Rule) -> Iterator[tuple[str, str, str, str]]:
    name = f"{rule.operation.capitalize()} limit in {rule.counts}"
    yield f"{name}: counted", counted_text(rule), "", ""
    yield f"{name}: sustained rate", *_parameter(rule, rule.rate)
    if rule.burst_rate:
        yield f"{name}: burst rate", *_parameter(rule, rule.burst_rate)
    if rule.bucket:
        yield f"{name}: bucket", *_parameter(rule, rule.bucket, amount=True)
    if rule.refill:
        yield f"{name}: refill rate", *_parameter(rule, rule.refill)
    if rule.seconds_until_empty is not None:
        yield f"{name}: time until empty", seconds_text(rule.seconds_until_empty), "", "bucket / (burst - sustained)"
    if rule.seconds_until_full is not None:
        yield f"{name}: time until full", seconds_text(rule.seconds_until_full), "", "bucket / sustained"
    if rule.merges is not None:
        yield f"{name}: sequential operations", "merged" if rule.merges else "not merged", "", "sequential over random"


def _parameter(rule: Rule, found: Parameter, *, amount: bool = False) -> tuple[str, str, str]:
    text = amount_text if amount else rate_text
    interval = f"{text(rule, found.low)} to {text(rule, found.high)}"
    return text(rule, found.value), interval, "; ".join(f"{e.method}: {text(rule, e.value)}" for e in found.estimates)


TABLES = (tables,)
