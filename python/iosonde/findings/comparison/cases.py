"""Two systems of one study, case by case, and the choice between them by workload.

Every case and metric is a hypothesis; among the differences that are reported, 5 % are expected to be false
(Benjamini and Hochberg 1995). Disturbed runs and runs served from a cache decide nothing, and
the reason is reported. Where one of two targets is harness-limited, the ratio is a bound: it decides only if that
target is the better one.

A workload is what cases have in common besides quantities and the layout of an array: random reads, sequential
buffered writes. Its ratio is the geometric mean over its cases, so a device that wins at one queue depth and loses at
another comes out even. A choice needs a decided difference; cases that were excluded take no part.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

from iosonde.findings.comparison import sessions
from iosonde.findings.finding import Bound, Bounds, bounds_of
from iosonde.metrics import wording
from iosonde.metrics.distributions import adjusted_for_discovery
from iosonde.metrics.registry import COMPARED_OF_FEATURES, RATES, RATES_OF_FEATURES
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import MARGIN

FALSE_DISCOVERIES = 0.05
LIMITED = "harness-limited"
OBSCURED = f"{LIMITED} and undetermined"
"""Of a run with a disturbance that its more severe verdict does not name."""
UNUSABLE = ("undetermined", "cache-served", OBSCURED)
"""Verdicts of runs whose values do not belong to the system compared."""

COMPARED = (
    "bandwidth",
    *RATES,
    *(f"completion_latency_ns_{percentile}" for percentile in ("p50", "p99", "p99_9")),
    *(f"response_latency_ns_{percentile}" for percentile in ("p50", "p99", "p99_9")),
    # The chain of amplification, from the application to the media.
    *(*COMPARED_OF_FEATURES, "media_write_amplification"),
)
"""Metrics that cases are compared by; of latencies, the response latency where the loop is open."""
_NOT_PARAMETERS = ("result_set", "case_id", "part", "control", "device_state", "cost_s", "cost_write_bytes")

Verdict = Literal["better", "worse", "same", "unclear", "excluded"]
Verdicts = Mapping[tuple[str, str], str]
"""The verdict on a run, by result set and run."""
MOST_DRIFT = 0.2
"""Change of the control case through a session above which its cases decide nothing."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """Measurement design of two systems, with verdicts and control-case drift of their sessions."""

    paired: bool = False
    """True if both were measured in one session, pair by pair."""
    deterministic: bool = False
    """Simulated devices: no variance between sessions."""
    verdicts: Verdicts = field(default_factory=dict)
    unusable: Sequence[str] = UNUSABLE
    """Verdicts that exclude a case."""
    two_targets: bool = False
    """True if harness-limited runs are lower bounds of a target; settings of one target may change the harness cost."""
    incomparable: Mapping[str, str] = field(default_factory=dict)
    """Cases to exclude, with the reason."""
    drift: Mapping[str, float] = field(default_factory=dict)
    """Change of the control case through each session, as a share; pairs cancel it."""

    def drift_of(self, session: str) -> float:
        """The change that matters in that session."""
        return 0.0 if self.paired else abs(self.drift.get(session, 0.0))


PLAIN = Design()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One case and metric that both systems have."""

    keys: tuple[str, ...]
    baseline: sessions.Sessions
    contender: sessions.Sessions
    spread: sessions.Spread
    reason: str
    """Reason for excluding the case from the comparison; empty if it counts."""
    bounds: Bounds = ()
    """What the ratio is if one system may be better than measured."""

    @property
    def ratio(self) -> sessions.Ratio:
        """Contender over baseline."""
        return self.spread.ratio(sessions.log_ratio(self.baseline, self.contender))

    @property
    def doubt(self) -> str:
        """Reason why the difference may be smaller than measured, absent or reversed; empty without one."""
        if _opposing(self.ratio.log) not in self.bounds:
            return ""
        is_baseline = (self.ratio.log > 0) == (metric_of(self.keys[-1]).better == "higher")
        return f"the {'baseline' if is_baseline else 'contender'} is slower, but {LIMITED}"


def compare(
    baseline: pl.DataFrame,
    contender: pl.DataFrame,
    *,
    baseline_cases: pl.DataFrame,
    contender_cases: pl.DataFrame,
    design: Design = PLAIN,
    metrics: Sequence[str] = COMPARED,
) -> pl.DataFrame:
    """Compare run metrics of two systems, cases matched by `case_id`, which names their part and levels.

    Each `result_set` among the rows is a session. Columns: `case_id, part, stream, operation, metric, baseline,
    contender` (medians over all runs), `ratio` (contender / baseline, of geometric means), `low, high` (its 95 %
    interval), `bound` (`at least`, `at most`, or empty), `p_value` (adjusted for the number of cells),
    `repeats_baseline, repeats_contender, verdict` (`better`, `worse`, `same`, `unclear`, `excluded`), `reason` (of an
    exclusion), `differs`: JSON of the parameters that differ although the case has the same name, as
    `{parameter: [baseline, contender]}`.
    """
    cells = cells_of(baseline, contender, design=design, metrics=metrics)
    differences = _differences(baseline_cases, contender_cases)
    kept = [cell for cell in cells if not cell.reason and not cell.doubt]
    adjusted = adjusted_for_discovery([cell.ratio.p_value for cell in kept])
    p_values = {cell.keys: float(value) for cell, value in zip(kept, adjusted, strict=True)}
    rows = [_row(cell, p_values.get(cell.keys), differences) for cell in cells]
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(sessions.KEYS, pl.String()),
        **dict.fromkeys(("baseline", "contender", "ratio", "low", "high", "p_value"), pl.Float64()),
        **dict.fromkeys(("repeats_baseline", "repeats_contender"), pl.Int64()),
        **dict.fromkeys(("verdict", "reason", "differs", "bound"), pl.String()),
    }
)


def cells_of(
    baseline: pl.DataFrame,
    contender: pl.DataFrame,
    *,
    design: Design = PLAIN,
    metrics: Sequence[str] = COMPARED,
) -> list[Cell]:
    """Return every case and metric that both systems have, control runs excluded."""
    if design.paired:
        baseline, contender = _complete_pairs(baseline, contender)
    ours, theirs = (_without_service_time(sessions.sessions_by_cell(runs, metrics)) for runs in (baseline, contender))
    top, bottom = (_limited(runs, design) for runs in (contender, baseline))
    unusable = {
        **dict.fromkeys(top & bottom, f"the runs of both are {LIMITED}"),
        **_unusable(baseline, design, "baseline"),
        **_unusable(contender, design, "contender"),
        **design.incomparable,
    }
    shared = {keys: (ours[keys], theirs[keys]) for keys in ours if keys in theirs}
    if design.paired:
        shared = {keys: both for keys, both in shared.items() if len(both[0][0]) == len(both[1][0])}
    drift = _drift_variance(baseline, design) + _drift_variance(contender, design)
    correlation = _correlation(shared, design)
    found = []
    for metric in dict.fromkeys(keys[-1] for keys in shared):
        of_metric = {keys: both for keys, both in shared.items() if keys[-1] == metric}
        spreads = _spreads(list(of_metric.values()), design, drift, correlation)
        for (keys, both), each in zip(of_metric.items(), spreads, strict=True):
            reason, bounds = unusable.get(keys[0], ""), bounds_of(metric, top=keys[0] in top, bottom=keys[0] in bottom)
            sides = {"baseline": both[0], "contender": both[1]}
            found.append(Cell(keys=keys, **sides, spread=each, reason=reason, bounds=bounds))
    return found


def _complete_pairs(baseline: pl.DataFrame, contender: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Keep the values of both arms that have a partner, in the order of repeats."""
    keys = [*sessions.KEYS, "repeat"]
    positive = pl.col("value") > 0
    ours, theirs = baseline.filter(positive), contender.filter(positive)
    return (
        ours.join(theirs.select(keys), on=keys, how="semi").sort("repeat", maintain_order=True),
        theirs.join(ours.select(keys), on=keys, how="semi").sort("repeat", maintain_order=True),
    )


Both = tuple[sessions.Sessions, sessions.Sessions]
"""A cell's sessions of baseline and contender."""


def _spreads(cells: Sequence[Both], design: Design, drift: float, correlation: float) -> list[sessions.Spread]:
    """Return the variance of the ratio of each cell of one metric."""
    if design.paired:
        differences = [contender[0] - baseline[0] for baseline, contender in cells]
        return sessions.paired_spreads(differences, correlation=correlation)
    effects: Sequence[sessions.SessionVariance | None] = [None] * len(cells)
    if not design.deterministic:
        effects = sessions.session_effects(cells, correlation=correlation)
    return [
        sessions.spread(both, effect, drift=drift, correlation=correlation)
        for both, effect in zip(cells, effects, strict=True)
    ]


def _correlation(cells: Mapping[tuple[str, ...], Both], design: Design) -> float:
    """Return the correlation of consecutive repeats of both systems; of pairs, that of consecutive differences."""
    if design.deterministic:
        return 0.0
    if design.paired:
        differences = ((keys, [contender[0] - baseline[0]]) for keys, (baseline, contender) in cells.items())
        return sessions.run_correlation(differences, doubt=sessions.OF_PAIRS)
    return sessions.run_correlation((keys, [*baseline, *contender]) for keys, (baseline, contender) in cells.items())


def _drift_variance(runs: pl.DataFrame, design: Design) -> float:
    """Return the variance of a system's level that comes from drift: uniform over each session's change."""
    names = runs["result_set"].unique().to_list()
    return sum(design.drift_of(name) ** 2 / 12 for name in names) / max(1, len(names)) ** 2


def _opposing(log: float) -> Bound:
    """Return the bound that permits a smaller or the opposite difference."""
    return "at most" if log > 0 else "at least"


def judge(ratio: sessions.Ratio, p_value: float, *, better: Literal["higher", "lower"], bounds: Bounds = ()) -> Verdict:
    """Judge a ratio of contender to baseline.

    `same` when the whole interval is within the margin, even if it excludes 1: a real difference too small to
    matter. `better` or `worse` when the adjusted p-value is at most 5 %. Otherwise, or without an interval, `unclear`.
    A bound shows only a difference away from it.
    """
    low, high = ratio.interval
    if low is None or high is None:
        return "unclear"
    if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN:
        return "unclear" if bounds else "same"
    if p_value > FALSE_DISCOVERIES or _opposing(ratio.log) in bounds:
        return "unclear"
    return "better" if (ratio.log > 0) == (better == "higher") else "worse"


def _row(cell: Cell, p_value: float | None, differences: Mapping[str, str]) -> dict[str, Any]:
    metric = cell.keys[-1]
    better = metric_of(metric).better
    assert better != "neither", f"`{metric}` has no better and worse"
    low, high = cell.ratio.interval
    return {
        **dict(zip(sessions.KEYS, cell.keys, strict=True)),
        "baseline": _median(cell.baseline),
        "contender": _median(cell.contender),
        "ratio": cell.ratio.value,
        "low": low,
        "high": high,
        "p_value": p_value,
        "repeats_baseline": sum(len(each) for each in cell.baseline),
        "repeats_contender": sum(len(each) for each in cell.contender),
        "verdict": "excluded" if p_value is None else judge(cell.ratio, p_value, better=better, bounds=cell.bounds),
        "reason": cell.reason or cell.doubt,
        "differs": differences.get(cell.keys[0], "{}"),
        "bound": cell.bounds[0] if len(cell.bounds) == 1 else "",
    }


def _median(logarithms: sessions.Sessions) -> float:
    return float(np.exp(np.median(np.concatenate(list(logarithms)))))


def _without_service_time(
    cells: Mapping[tuple[str, ...], sessions.Sessions],
) -> dict[tuple[str, ...], sessions.Sessions]:
    """Drop completion latencies of cases in open loop: their users wait for the response latency."""
    open_loop = {keys[:-1] for keys in cells if keys[-1].startswith("response_latency")}
    return {
        keys: each
        for keys, each in cells.items()
        if not (keys[-1].startswith("completion_latency") and keys[:-1] in open_loop)
    }


def _unusable(runs: pl.DataFrame, design: Design, system: str) -> dict[str, str]:
    """Return why cases decide nothing: disturbed runs, a cache that served them, or strong drift."""
    drift = max((design.drift_of(session) for session in runs["result_set"].unique()), default=0.0)
    if drift > MOST_DRIFT:
        reason = f"the control case of the {system} drifted by {100 * drift:.0f} %"
        return dict.fromkeys(runs["case_id"].unique().to_list(), reason)
    found = {}
    for case_id, kinds in _kinds(runs, design).items():
        kind, runs_of_kind = kinds.most_common(1)[0]
        if kind in design.unusable:
            which = "all" if runs_of_kind == kinds.total() else f"{runs_of_kind} of {kinds.total()}"
            found[case_id] = f"{which} {system} runs are {kind}"
    return found


def _limited(runs: pl.DataFrame, design: Design) -> set[str]:
    """Return the cases of which half or more of the runs are harness-limited, of two targets."""
    kinds = _kinds(runs, design) if design.two_targets else {}
    return {case_id for case_id, counts in kinds.items() if 2 * counts[LIMITED] >= counts.total()}


def _kinds(runs: pl.DataFrame, design: Design) -> dict[str, Counter[str]]:
    """Count the verdicts of each case."""
    found: dict[str, Counter[str]] = {}
    for result_set, run_id, case_id in runs.select("result_set", "run_id", "case_id").unique().iter_rows():
        found.setdefault(case_id, Counter())[design.verdicts.get((result_set, run_id), "")] += 1
    return found


def _differences(baseline: pl.DataFrame, contender: pl.DataFrame) -> dict[str, str]:
    """Return what differs in cases of the same name, by case."""
    other = {row["case_id"]: row for row in contender.iter_rows(named=True)}
    found = {}
    for row in baseline.iter_rows(named=True):
        if (counterpart := other.get(row["case_id"])) is not None:
            names = [name for name in {**row, **counterpart} if name not in _NOT_PARAMETERS]
            pairs = {name: [row.get(name), counterpart.get(name)] for name in names}
            found[row["case_id"]] = json.dumps({name: pair for name, pair in pairs.items() if pair[0] != pair[1]})
    return found


DECIDING_RATES = (*RATES_OF_FEATURES, "bandwidth", "ops_per_sec", "iops")
"""The first that both systems have decides."""
TAILS = ("response_latency_ns_p99", "completion_latency_ns_p99")
"""The first that both systems have decides where the rates are the same: in open loop, the response latency."""

Choice = Literal["baseline", "contender", "either", "unclear"]
By = Literal["rate", "tail", "both", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A workload's cells of one metric that count, and their mean; ratios are contender / baseline."""

    metric: str = ""
    cells: Sequence[Cell] = ()
    excluded: Sequence[str] = ()
    """Reasons for excluding cases of the workload, without duplicates."""

    @classmethod
    def of_first(cls, cells: Sequence[Cell], metrics: Sequence[str]) -> Pooled:
        """Take the first metric that any of these cells has.

        Cells in doubt on the side of the mean are excluded, unless the bounds of others oppose the mean: then all stay,
        and the mean decides nothing. Excluding every cell in doubt would select cells by their noise.
        """
        metric = next((each for each in metrics if any(cell.keys[-1] == each for cell in cells)), "")
        found = [cell for cell in cells if cell.keys[-1] == metric]
        reasons = dict.fromkeys(cell.reason for cell in found if cell.reason)
        usable = [cell for cell in found if not cell.reason]
        mean = sum(cell.ratio.log for cell in usable)
        doubts = [cell.doubt if (cell.ratio.log > 0) == (mean > 0) else "" for cell in usable]
        rest = [cell for cell, doubt in zip(usable, doubts, strict=True) if not doubt]
        if not any(_opposing(mean) in cell.bounds for cell in rest):
            usable, reasons = rest, reasons | dict.fromkeys(filter(None, doubts))
        return cls(metric=metric, cells=usable, excluded=list(reasons))

    @property
    def bounds(self) -> Bounds:
        """What the mean is; both bounds if each of the systems may be better than measured in some case."""
        return tuple(dict.fromkeys(bound for cell in self.cells for bound in cell.bounds))

    @cached_property
    def ratio(self) -> sessions.Ratio | None:
        """None without a case, and if the mean is not even a bound."""
        if len(self.bounds) > 1:
            return None
        logs = [sessions.log_ratio(cell.baseline, cell.contender) for cell in self.cells]
        return sessions.pooled_over_cells([cell.spread for cell in self.cells], logs) if logs else None

    @property
    def ratios(self) -> list[float]:
        """Ratio of each case, the smallest first."""
        return sorted(cell.ratio.value for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The choice for one workload and its evidence."""

    workload: str
    choice: Choice
    by: By
    """Deciding ratio: rate, tail, or both."""
    against: bool
    """True if rate and tail favour different systems."""
    rate: Pooled
    tail: Pooled
    paired: bool = False
    """True if both systems were measured in one session, pair by pair."""

    @property
    def repeats(self) -> int:
        """Fewest of any case."""
        sides = (side for cell in self.rate.cells for side in (cell.baseline, cell.contender))
        return min((sum(map(len, side)) for side in sides), default=0)


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
    cells = cells_of(baseline, contender, design=design, metrics=(*DECIDING_RATES, *TAILS))
    known = []
    for workload in dict.fromkeys(workloads.values()):
        own = [cell for cell in cells if workloads.get(cell.keys[0]) == workload]
        rate, tail = (Pooled.of_first(own, metrics) for metrics in (DECIDING_RATES, TAILS))
        if rate.metric:
            known.append((workload, rate, tail))
    ratios = [each.ratio for _, *both in known for each in both if each.ratio]
    adjusted = iter(adjusted_for_discovery([ratio.p_value for ratio in ratios]))
    judged = (_judged(workload, rate, tail, adjusted) for workload, rate, tail in known)
    return [replace(each, paired=design.paired) for each in judged]


def _judged(workload: str, rate: Pooled, tail: Pooled, adjusted: Iterator[float]) -> Recommendation:
    by_rate: Verdict = (
        judge(rate.ratio, next(adjusted), better="higher", bounds=rate.bounds) if rate.ratio else "unclear"
    )
    by_tail: Verdict = (
        judge(tail.ratio, next(adjusted), better="lower", bounds=tail.bounds) if tail.ratio else "unclear"
    )
    choice, by = _choice(by_rate, by_tail)
    against = {by_rate, by_tail} == {"better", "worse"}
    return Recommendation(workload=workload, choice=choice, by=by, against=against, rate=rate, tail=tail)


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
    workload, excluded = wording.sentence(each.workload), list(each.rate.excluded)
    if not each.rate.cells:
        return f"{workload}: undecided, no usable case ({'; '.join(excluded)})"
    excluded += [f"p99: {reason}" for reason in each.tail.excluded if reason not in excluded]
    without = f"; excluded: {'; '.join(excluded)}" if excluded else ""
    tail = _ratio(each.tail) if each.tail.cells else "no usable p99" if each.tail.metric else "too few samples for p99"
    sides = [names[side].partition(": ")[0] if each.paired else names[side] for side in ("contender", "baseline")]
    evidence = (
        f"{' over '.join(sides)}: {_ratio(each.rate)}; {tail}; "
        f"{wording.counted(len(each.rate.cells), 'case')}, {wording.counted(each.repeats, 'run')} each{without}"
    )
    return f"{workload}: {_advice(each, names)} ({evidence})"


def _advice(each: Recommendation, names: Mapping[str, str]) -> str:
    match each.choice:
        case "either":
            return "no difference above 5 %"
        case "unclear" if each.rate.bounds:
            return f"undecided; some cases are {LIMITED}"
        case "unclear" if each.paired:
            return "undecided; more repeats can decide it"
        case "unclear":
            return "undecided; more repeats, or an A/B run (`iosonde run --against`), can decide it"
        case choice:
            why = {"rate": "higher rate", "tail": "same rate, shorter tail", "both": "higher rate and shorter tail"}
            other = names["baseline" if choice == "contender" else "contender"]
            but = f"; {other} has the shorter tail" if each.against else ""
            return f"choose {names[choice]}: {why[each.by]}{but}"


ALIKE = 1.25
"""Ratios of cases that differ by less are not listed."""


def _ratio(pooled: Pooled) -> str:
    """Write a mean over cases with its interval, and the cases that it would hide."""
    if not pooled.ratio:
        return f"{wording.metric_words(pooled.metric)} not averaged: each system is {LIMITED} in some cases"
    (low, high), cells = pooled.ratio.interval, pooled.ratios
    metric = " ".join([wording.metric_words(pooled.metric), *pooled.bounds])
    text = f"{metric} {wording.times_text(pooled.ratio.value)}, no interval"
    if low is not None and high is not None:
        interval = wording.ratio_interval_text(pooled.ratio.value, low, high)
        value = wording.ratio_text(pooled.ratio.value)
        text = f"{metric} {value} times, 95 % CI {interval}"
    if len(cells) < 2 or cells[-1] <= ALIKE * cells[0]:
        return text
    return f"{text}, {wording.range_text(wording.ratio_text(cells[0]), wording.ratio_text(cells[-1]))} in single cases"
