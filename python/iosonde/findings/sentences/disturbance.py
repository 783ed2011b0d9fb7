"""What a stream does to the latency of another, and how soon that is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from iosonde.findings.disturbance import RECOVERED, STAYS, Disturbance
from iosonde.findings.finding import Finding, Untyped
from iosonde.metrics import wording
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.units import format_duration


def tell(disturbances: Sequence[Disturbance]) -> Iterator[Finding]:
    """Say of each disturbed stream how much slower it was, and when it had recovered."""
    for each in disturbances:
        if each.runs:
            yield Untyped(
                kind="disturbance",
                title=wording.sentence(f"{_slower(each)}; {_recovered(each)}"),
                note=f"case `{each.case_id}`, {wording.counted(len(each.runs), 'run')}; recovered: mean latency at"
                f" most {RECOVERED:g} times what it was before, for {STAYS} intervals of"
                f" {format_duration(each.interval_ns)}",
                strength="strong" if len(each.runs) >= MINIMUM_REPEATS else "weak",
                case_ids=(each.case_id,),
                part=each.part,
            )


def _slower(each: Disturbance) -> str:
    metric = f"{each.latency}_ns_p99"
    who, by = f"`{each.disturbed}`", wording.listing([f"`{name}`" for name in each.disturbing])
    before = [run.before_ns for run in each.runs if run.before_ns is not None]
    during = [run.during_ns for run in each.runs if run.during_ns is not None]
    levels = [wording.level_words(name, level) for name, level in each.levels.items()]
    load = f" ({', '.join(levels)})" if levels else ""
    verb = "load" if len(each.disturbing) > 1 else "loads"
    words = f"while {by}{load} {verb} the target, {wording.metric_words(metric)} of {who}"
    if not during:
        return f"{words} cannot be said, for too little completed"
    text = f"{words} is {wording.value_text(metric, median(during))}"
    if not before:
        return text
    times = wording.times_text(median(during) / median(before))
    return f"{text} instead of {wording.value_text(metric, median(before))}, {times} as long"


def _recovered(each: Disturbance) -> str:
    after = [run.recovered_after_ns for run in each.runs if run.recovered_after_ns is not None]
    if len(after) <= len(each.runs) / 2:
        return f"when that stops it does not recover within {format_duration(each.rest_ns)}"
    # The middle of all runs, those that did not recover counted as the slowest.
    usual = sorted(after)[len(each.runs) // 2]
    if usual < each.interval_ns:
        return f"when that stops it recovers within {format_duration(each.interval_ns)}"
    return f"when that stops it has recovered after {format_duration(usual)}"
