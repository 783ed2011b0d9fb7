"""Choice between two systems by workload: the ratio of their rates and of their tails, over all its cases.

A workload is what cases have in common besides quantities and the layout of an array: random reads, sequential
buffered writes. Its ratio is the geometric mean over its cases, so a device that wins at one queue depth and loses at
another comes out even. A choice needs a decided difference; cases that were excluded take no part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from iosonde.comparison.cases import PLAIN, Cell, Design, Verdict, cells_of, judge
from iosonde.comparison.ratio import Ratio, log_ratio, pooled
from iosonde.metrics import wording
from iosonde.metrics.distributions import adjusted_for_discovery
from iosonde.metrics.registry import RATES_OF_FEATURES

RATES = (*RATES_OF_FEATURES, "bandwidth", "ops_per_sec", "iops")
"""The first that both systems have decides."""
TAILS = ("response_latency_ns_p99", "completion_latency_ns_p99")
"""The first that both systems have decides where the rates are the same: in open loop, the response latency."""

Choice = Literal["baseline", "contender", "either", "unclear"]
By = Literal["rate", "tail", "both", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The choice for one workload and its evidence; ratios are contender / baseline."""

    workload: str
    choice: Choice
    by: By
    """Deciding ratio: rate, tail, or both."""
    against: bool
    """True if rate and tail favour different systems."""
    metric: str
    rate: Ratio
    rates: Sequence[float]
    """Ratio of each case, the smallest first."""
    tail: Ratio | None
    tails: Sequence[float]
    tail_metric: str
    cases: int
    repeats: int
    """Fewest of any case."""
    excluded: Sequence[str] = ()
    """Reasons for excluding cases of the workload, without duplicates."""


def recommend(
    baseline: pl.DataFrame,
    contender: pl.DataFrame,
    workloads: Mapping[str, str],
    *,
    design: Design = PLAIN,
) -> list[Recommendation]:
    """Judge run metrics of two systems (of each case's whole load), by workload.

    `workloads` names the workload of each `case_id`; cases that only one of the systems has are left out. Rates and
    tails of all workloads share one false discovery rate.
    """
    cells = cells_of(baseline, contender, design=design, metrics=(*RATES, *TAILS))
    estimates = [
        _Estimates.from_cells(workload, [cell for cell in cells if workloads.get(cell.keys[0]) == workload])
        for workload in dict.fromkeys(workloads.values())
    ]
    known = [each for each in estimates if each]
    ratios = [ratio for each in known for ratio in (each.rate, each.tail) if ratio]
    adjusted = iter(adjusted_for_discovery([ratio.p_value for ratio in ratios]))
    return [_judged(each, adjusted) for each in known]


@dataclass(frozen=True, kw_only=True)
class _Estimates:
    """A workload's ratios, before they are judged."""

    workload: str
    metric: str
    rate: Ratio | None
    tail: Ratio | None
    tail_metric: str
    used: Sequence[Cell]
    used_tails: Sequence[Cell]
    excluded: Sequence[str]

    @classmethod
    def from_cells(cls, workload: str, cells: Sequence[Cell]) -> _Estimates | None:
        """None where the systems share no rate."""
        metric, rates = _first(cells, RATES)
        if not rates:
            return None
        tail_metric, tails = _first(cells, TAILS)
        used, used_tails = ([cell for cell in each if not cell.reason] for each in (rates, tails))
        return cls(
            workload=workload,
            metric=metric,
            rate=_pooled(used),
            tail=_pooled(used_tails),
            tail_metric=tail_metric,
            used=used,
            used_tails=used_tails,
            excluded=list(dict.fromkeys(cell.reason for cell in rates if cell.reason)),
        )


def _first(cells: Sequence[Cell], metrics: Sequence[str]) -> tuple[str, list[Cell]]:
    for metric in metrics:
        if found := [cell for cell in cells if cell.keys[-1] == metric]:
            return metric, found
    return "", []


def _pooled(cells: Sequence[Cell]) -> Ratio | None:
    if not cells:
        return None
    return pooled([cell.spread for cell in cells], [log_ratio(cell.baseline, cell.contender) for cell in cells])


def _judged(each: _Estimates, adjusted: Iterator[float]) -> Recommendation:
    by_rate: Verdict = judge(each.rate, next(adjusted), better="higher") if each.rate else "unclear"
    by_tail: Verdict = judge(each.tail, next(adjusted), better="lower") if each.tail else "unclear"
    choice, by = _choice(by_rate, by_tail)
    return Recommendation(
        workload=each.workload,
        choice=choice,
        by=by,
        against={by_rate, by_tail} == {"better", "worse"},
        metric=each.metric,
        rate=each.rate or Ratio(log=math.nan, error=None),
        rates=_of_cells(each.used),
        tail=each.tail,
        tails=_of_cells(each.used_tails),
        tail_metric=each.tail_metric,
        cases=len(each.used),
        repeats=min((sum(map(len, side)) for cell in each.used for side in (cell.baseline, cell.contender)), default=0),
        excluded=each.excluded,
    )


def _of_cells(cells: Sequence[Cell]) -> list[float]:
    return sorted(math.exp(log_ratio(cell.baseline, cell.contender)) for cell in cells)


def _choice(by_rate: Verdict, by_tail: Verdict) -> tuple[Choice, By]:
    """The rate decides, and where it is the same, the tail."""
    named: dict[Verdict, Choice] = {"better": "contender", "worse": "baseline"}
    if by_rate in named:
        return named[by_rate], "both" if by_tail == by_rate else "rate"
    if by_rate == "same" and by_tail in named:
        return named[by_tail], "tail"
    return ("either" if by_rate == "same" else "unclear"), "nothing"


def sentences(recommendations: Sequence[Recommendation], names: Mapping[str, str]) -> Iterator[str]:
    """Yield a summary and one sentence per workload; `names` are those of `baseline` and `contender`."""
    if len(recommendations) > 1:
        yield _summary(recommendations, names)
    for each in recommendations:
        yield _sentence(each, names)


def _summary(recommendations: Sequence[Recommendation], names: Mapping[str, str]) -> str:
    counts = Counter(each.choice for each in recommendations)
    words: dict[Choice, str] = {**{"either": "no preference", "unclear": "undecided"}, **names}  # type: ignore[dict-item]
    listed = ", ".join(f"{words[choice]} for {counts[choice]}" for choice in words if counts[choice])
    return f"Recommendation: {listed} of {wording.counted(len(recommendations), 'workload')}"


def _sentence(each: Recommendation, names: Mapping[str, str]) -> str:
    workload = wording.sentence(each.workload)
    if not each.cases:
        return f"{workload}: undecided, no usable case ({'; '.join(each.excluded)})"
    tail = "too few samples for p99"
    if each.tail:
        tail = f"{wording.metric_words(each.tail_metric)} {_ratio(each.tail, each.tails)}"
    rate = f"{wording.metric_words(each.metric)} {_ratio(each.rate, each.rates)}"
    without = f"; excluded: {'; '.join(each.excluded)}" if each.excluded else ""
    evidence = (
        f"{names['contender']} over {names['baseline']}: {rate}; {tail}; "
        f"{wording.counted(each.cases, 'case')}, {wording.counted(each.repeats, 'run')} each{without}"
    )
    return f"{workload}: {_advice(each, names)} ({evidence})"


def _advice(each: Recommendation, names: Mapping[str, str]) -> str:
    match each.choice:
        case "either":
            return "no difference above 5 %"
        case "unclear":
            return "undecided; more repeats, or an A/B run (`iosonde run --against`), can decide it"
        case choice:
            why = {"rate": "higher rate", "tail": "same rate, shorter tail", "both": "higher rate and shorter tail"}
            other = names["baseline" if choice == "contender" else "contender"]
            but = f"; {other} has the shorter tail" if each.against else ""
            return f"choose {names[choice]}: {why[each.by]}{but}"


ALIKE = 1.25
"""Ratios of cases that differ by less are not listed."""


def _ratio(ratio: Ratio, cells: Sequence[float]) -> str:
    """Write a mean over cases with its interval, and the cases that it would hide."""
    low, high = ratio.interval
    if low is None or high is None:
        text = f"{wording.times_text(ratio.value)}, no interval"
    else:
        interval = wording.range_text(wording.ratio_text(low), wording.ratio_text(high))
        text = f"{wording.ratio_text(ratio.value)} times, 95 % CI {interval}"
    if len(cells) < 2 or cells[-1] <= ALIKE * cells[0]:
        return text
    return f"{text}, {wording.range_text(wording.ratio_text(cells[0]), wording.ratio_text(cells[-1]))} in single cases"
