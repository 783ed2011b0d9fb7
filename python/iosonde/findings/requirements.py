"""Results of the requirements of a study: pass, fail or undecided, with value, interval and margin.

Only runs that were limited by what is measured count. A ratio over blocks of time is judged by `metrics.limit_test`,
which also ends the runs of `iosonde qualify`; any other metric by the confidence interval of its repeats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from iosonde.findings.support import OF_THE_SYSTEM
from iosonde.metrics.limit_test import Floats, joined
from iosonde.metrics.statistics import MINIMUM_REPEATS, repeats_interval
from iosonde.metrics.wording import counted, value_text
from iosonde.plan import Case, Scalar
from iosonde.procedure.condition import Condition, MetricBound, SlowShare, parse
from iosonde.procedure.limits import Limit, Measured, limit_of
from iosonde.procedure.observations import RecordedObservations
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import Part, Requirement
from iosonde.units import format_latency

Outcome = Literal["fail", "undecided", "pass"]
_OUTCOMES: Mapping[bool | None, Outcome] = {True: "pass", False: "fail", None: "undecided"}
_ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One requirement in one case."""

    requirement: Requirement
    case_id: str
    outcome: Outcome
    metric: str
    """Whose value it is; empty for a share of operations."""
    limit: float
    comparison: str
    """Sign between a value that is good enough and the limit, such as `≥`."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    """Distance from the limit as a share of it; negative where the value is beyond it."""
    reason: str = ""
    """Why it is undecided; of a failed one what was measured besides."""

    def text(self, value: float | None) -> str:
        """Write a value of its metric."""
        if value is None:
            return "-"
        return value_text(self.metric, value) if self.metric else f"{100 * value:.3g} %"

    @property
    def limit_text(self) -> str:
        """The limit with its comparison."""
        return f"{self.comparison} {self.text(self.limit)}"


def results_of(results: ResultSet) -> list[Result]:
    """Return the result of each requirement in each case that it applies to, the worst first."""
    study = results.study
    found = [
        _result(requirement, case, results)
        for requirement in study.requirement
        for case in results.known_cases()
        if case.part == requirement.part and not case.control and _has(case.levels, requirement.where)
    ]
    return sorted(found, key=_badness)


def overall(results: Sequence[Result]) -> Outcome:
    """Return the result of all limits together."""
    outcomes = {each.outcome for each in decisive(results)}
    return next((outcome for outcome in _ORDER if outcome in outcomes), "undecided")


def decisive(results: Sequence[Result]) -> list[Result]:
    """Return the results of required limits; of those that are recommended where none is required."""
    return [each for each in results if each.requirement.level == "required"] or list(results)


def _badness(result: Result) -> tuple[int, bool, float]:
    margin = result.margin if result.margin is not None else -np.inf
    return _ORDER.index(result.outcome), result.requirement.level != "required", margin


def _has(levels: Mapping[str, Scalar], where: Mapping[str, Scalar]) -> bool:
    return all(str(levels.get(name)) == str(level) for name, level in where.items())


def _result(requirement: Requirement, case: Case, results: ResultSet) -> Result:
    records = [each for each in results.records() if each.case_id == case.case_id and each.outcome == "complete"]
    usable = [each for each in records if each.verdict is None or each.verdict.kind in OF_THE_SYSTEM]
    condition = parse(requirement.holds, streams=[each.name for each in _part(requirement, results).streams])
    limit = limit_of(condition)
    judge = functools.partial(_of_blocks, limit=limit) if limit else _of_repeats
    found = judge(requirement, condition, case, results, usable or records)
    return found if usable else replace(found, outcome="undecided", reason=_unusable(records))


def _part(requirement: Requirement, results: ResultSet) -> Part:
    return next(part for part in results.study.parts if part.name == requirement.part)


def _unusable(records: Sequence[Record]) -> str:
    """Return why no run counts: the verdict of the last one, with its first reason."""
    verdicts = [each.verdict for each in records if each.verdict]
    if not verdicts:
        return "not measured"
    return f"{verdicts[-1].kind}: {verdicts[-1].because[0]}" if verdicts[-1].because else verdicts[-1].kind


def _of_blocks(
    requirement: Requirement,
    condition: Condition,
    case: Case,
    results: ResultSet,
    records: Sequence[Record],
    *,
    limit: Limit,
) -> Result:
    measured = [Measured(results.only([each.run_id])) for each in records]
    decision = limit.decide(lambda each: joined([run.tally(each).blocks() for run in measured])) if measured else None
    if decision is None:
        return _without_value(requirement, condition, case)
    found = decision.comparison
    ends: Sequence[float | None] = (found.value, found.low, found.high)
    if limit.kind == "share" and isinstance(condition, MetricBound):
        latencies, counts = _merged([each.distribution(limit) for each in measured])
        beyond = (0.0, found.value - found.low, found.value - found.high)
        ends = [_quantile(latencies, counts, limit.limit + distance) for distance in beyond]
    result = _judged(requirement, condition, case, ends, holds=decision.holds, reason=decision.reason)
    if decision.holds is False and limit.operation == "flush":
        return replace(result, reason=_flush_times(measured, records, limit))
    return result


def _flush_times(measured: Sequence[Measured], records: Sequence[Record], limit: Limit) -> str:
    """State what the time of durable writes consists of, and the write cache that a flush has to empty."""
    completion = replace(limit, kind="share", latency="completion_latency")
    medians = [
        _quantile(*_merged([each.distribution(replace(completion, operation=operation)) for each in measured]), 0.5)
        for operation in ("flush", "write")
    ]
    devices = [device for each in records for device in each.target.get("devices", ())]
    caches = sorted({str(device["write_cache"]) for device in devices if device.get("write_cache")})
    texts = ["-" if each is None else format_latency(each) for each in medians]
    cache = f"; write cache of the device: {', '.join(caches)}" if caches else ""
    return f"median flush {texts[0]}, median write {texts[1]}{cache}"


def _merged(distributions: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    latencies = np.concatenate([each for each, _ in distributions])
    order = np.argsort(latencies)
    return latencies[order], np.concatenate([counts for _, counts in distributions])[order]


def _quantile(latencies: Floats, counts: Floats, share: float) -> float | None:
    """Return the smallest latency that no more than this share of operations exceeds; None for a share below 0."""
    if share <= 0 or not len(latencies):
        return None
    rank = math.ceil(round((1 - min(share, 1.0)) * float(counts.sum()), 6))
    return float(latencies[min(int(np.searchsorted(np.cumsum(counts), max(rank, 1))), len(latencies) - 1)])


def _of_repeats(
    requirement: Requirement, condition: Condition, case: Case, results: ResultSet, records: Sequence[Record]
) -> Result:
    """Judge a metric by the interval of its repeats, and a rule for slices of time by the worst slice of all runs."""
    observations = RecordedObservations(results)
    ids = {each.run_id for each in records}
    found = [observations.observation(run) for run in results.known_runs() if run.run_id in ids]
    usable = [each for each in found if each is not None]
    if not isinstance(condition, MetricBound):
        holds = [condition.judge(each).holds for each in usable]
        kept = False if False in holds else True if holds and all(holds) else None
        return _judged(requirement, condition, case, (None, None, None), holds=kept, reason="too few operations")
    scope = {"stream": condition.stream, "operation": condition.operation}
    values = [value for each in usable if (value := each.value(condition.metric, **scope)) is not None]
    if not values:
        return _without_value(requirement, condition, case)
    estimate = repeats_interval(values, noise=observations.noise(), metric=condition.metric)
    ends = (estimate.value, estimate.low, estimate.high)
    sides = {condition.keeps(end) for end in ends if end is not None}
    reason = "the interval contains the limit"
    if not estimate.certain:
        reason = f"{counted(len(values), 'repeat')}; at least {MINIMUM_REPEATS} required"
    kept = sides.pop() if estimate.certain and len(sides) == 1 else None
    return _judged(requirement, condition, case, ends, holds=kept, reason=reason)


def _judged(
    requirement: Requirement,
    condition: Condition,
    case: Case,
    ends: Sequence[float | None],
    *,
    holds: bool | None,
    reason: str,
) -> Result:
    value, low, high = ends
    limit = _limit_value(condition)
    compare = condition.compare if isinstance(condition, MetricBound) else "<"
    is_upper = compare in ("<", "<=")
    margin = None if value is None or not limit else (limit - value if is_upper else value - limit) / limit
    return Result(
        requirement=requirement,
        case_id=case.case_id,
        outcome=_OUTCOMES[holds],
        metric=condition.metric if isinstance(condition, MetricBound) else "",
        limit=limit,
        comparison={"<=": "≤", ">=": "≥"}.get(compare, compare),
        value=value,
        low=low,
        high=high,
        margin=margin,
        reason="" if holds is not None else reason,
    )


def _without_value(requirement: Requirement, condition: Condition, case: Case) -> Result:
    return _judged(requirement, condition, case, (None, None, None), holds=None, reason="not measured")


def _limit_value(condition: Condition) -> float:
    return condition.share if isinstance(condition, SlowShare) else getattr(condition, "bound", 0.0)
