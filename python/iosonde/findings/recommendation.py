"""Which of two systems for which workload: the ratio of their rates and of their tails, over all cases of a workload.

A workload is what cases have in common that is no quantity and no layout of an array: random reads, sequential buffered
writes. Its ratios are geometric means over its cases, so a device that wins at one queue depth and loses at another
comes out even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from iosonde.metrics.statistics import Estimate, Floats, Verdict, pooled_ratio, verdict

RATES = ("bandwidth", "ops_per_sec", "iops")
"""What decides first: the first of these that both have."""
TAIL = "completion_latency_ns_p99"

Choice = Literal["baseline", "contender", "either", "unclear"]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The choice for one workload and what it stands on; ratios are contender / baseline."""

    workload: str
    choice: Choice
    by: Literal["rate", "tail", "both", "nothing"]
    """Which of the two figures decided."""
    against: bool
    """Whether the tail speaks for the other one."""
    metric: str
    rate: Estimate
    tail: Estimate | None
    cases: int
    repeats: int
    """Fewest of any case."""


def recommend(baseline: pl.DataFrame, contender: pl.DataFrame, workloads: Mapping[str, str]) -> list[Recommendation]:
    """Judge run metrics of two result sets (of each case's whole load), by workload.

    `workloads` names the workload of each `case_id`; cases that only one of the sets has are left out.
    """
    found = []
    for workload in dict.fromkeys(workloads.values()):
        cases = [case_id for case_id, named in workloads.items() if named == workload]
        for metric in RATES:
            rates = _pairs(baseline, contender, cases, metric)
            if rates:
                found.append(_judged(workload, metric, rates, _pairs(baseline, contender, cases, TAIL)))
                break
    return found


def _judged(
    workload: str, metric: str, rates: list[tuple[Floats, Floats]], tails: list[tuple[Floats, Floats]]
) -> Recommendation:
    rate, tail = pooled_ratio(rates), pooled_ratio(tails) if tails else None
    by_rate = verdict(rate, better="higher")
    by_tail: Verdict = verdict(tail, better="lower") if tail else "unclear"
    choice, by = _choice(by_rate, by_tail)
    return Recommendation(
        workload=workload,
        choice=choice,
        by=by,
        against={by_rate, by_tail} == {"better", "worse"},
        metric=metric,
        rate=rate,
        tail=tail,
        cases=len(rates),
        repeats=min(min(len(top), len(bottom)) for top, bottom in rates),
    )


def _choice(by_rate: Verdict, by_tail: Verdict) -> tuple[Choice, Literal["rate", "tail", "both", "nothing"]]:
    """The rate decides, and where it is the same, the tail."""
    named: dict[Verdict, Choice] = {"better": "contender", "worse": "baseline"}
    if by_rate in named:
        return named[by_rate], "both" if by_tail == by_rate else "rate"
    if by_rate == "same" and by_tail in named:
        return named[by_tail], "tail"
    return ("either" if by_rate == "same" else "unclear"), "nothing"


def _pairs(
    baseline: pl.DataFrame, contender: pl.DataFrame, cases: list[str], metric: str
) -> list[tuple[Floats, Floats]]:
    """Return the repeats of each case that both have: contender, baseline."""
    ours, theirs = (_values(runs, metric) for runs in (baseline, contender))
    return [(theirs[case], ours[case]) for case in cases if case in ours and case in theirs]


def _values(runs: pl.DataFrame, metric: str) -> dict[str, Floats]:
    chosen = runs.filter(~pl.col("control"), pl.col("metric") == metric, pl.col("value") > 0)
    grouped = chosen.group_by("case_id", maintain_order=True).agg("value")
    return {case_id: values.to_numpy() for case_id, values in zip(grouped["case_id"], grouped["value"], strict=True)}
