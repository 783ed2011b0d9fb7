"""Results of the requirements of a study: pass, fail or undecided, with value, interval and margin.

Runs that this machine did not disturb count. Without any, disturbed ones can decide in one direction
(`findings.usable`). A ratio over blocks of time is judged by `metrics.limit_test`, any other metric by the confidence
interval of its repeats. A value fails only if that is certain without the operations that waited for a CPU, and passes
only after the time that the study states (`pass_after`). Of a requirement with `every_run` each run is judged by itself
(`findings.windows`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from iosonde.findings.outcome import Outcome, Result
from iosonde.findings.usable import Use, cpu_waits_of, is_usable, use_of
from iosonde.findings.windows import combined
from iosonde.metrics.limit_test import CLEAR, Blocks, Floats, joined
from iosonde.metrics.statistics import MINIMUM_REPEATS, repeats_interval
from iosonde.metrics.wording import counted
from iosonde.plan import Case, Scalar
from iosonde.procedure.condition import Condition, MetricBound, SlowShare, parse
from iosonde.procedure.limits import Limit, Measured, limit_of
from iosonde.procedure.observations import RecordedObservations
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import Part, Requirement
from iosonde.units import format_duration, format_latency

_OUTCOMES: Mapping[bool | None, Outcome] = {True: "pass", False: "fail", None: "undecided"}
_ORDER: tuple[Outcome, ...] = ("fail", "undecided", "pass")
_USES: tuple[Use, ...] = ("both", "pass", "fail", "neither")
_TOLERANCE = 0.99
"""Share of a stated time that counts as all of it: intervals end a little early or late."""
_BATCH = 20
"""Runs whose histograms are in memory at once."""


def results_of(results: ResultSet) -> list[Result]:
    """Return the result of each requirement in each case that it applies to, the worst first."""
    key = ("requirements", *((each.run_id, each.attempt) for each in results.records()))
    if key not in results.memo:
        results.memo[key] = sorted(_found(results), key=badness)
    found: list[Result] = results.memo[key]
    return found


def _found(results: ResultSet) -> Iterator[Result]:
    for case in results.known_cases():
        judges = [
            _Judge(requirement, case, results)
            for requirement in results.study.requirement
            if case.part == requirement.part and not case.control and _has(case.levels, requirement.where)
        ]
        records = [each for each in results.records() if each.case_id == case.case_id]
        yield from (judge.result(records) for judge in judges if not judge.requirement.every_run)
        yield from _of_each_run([judge for judge in judges if judge.requirement.every_run], records)


def overall(results: Sequence[Result]) -> Outcome:
    """Return the result of all limits together."""
    outcomes = {each.outcome for each in decisive(results)}
    return next((outcome for outcome in _ORDER if outcome in outcomes), "undecided")


def decisive(results: Sequence[Result]) -> list[Result]:
    """Return the results of required limits; of those that are recommended where none is required."""
    return [each for each in results if each.requirement.level == "required"] or list(results)


def badness(result: Result) -> tuple[int, bool, float]:
    """Sort by outcome, level and margin, the worst first."""
    margin = result.margin if result.margin is not None else -np.inf
    return _ORDER.index(result.outcome), result.requirement.level != "required", margin


def _has(levels: Mapping[str, Scalar], where: Mapping[str, Scalar]) -> bool:
    return all(str(levels.get(name)) == str(level) for name, level in where.items())


def _of_each_run(judges: Sequence[_Judge], records: Sequence[Record]) -> Iterator[Result]:
    """Judge each run by itself."""
    windows: list[list[tuple[Record, Result]]] = [[] for _ in judges]
    limits = {limit for judge in judges for limit in judge.limits}
    blocks: list[dict[Limit, list[Blocks]]] = [{} for _ in judges]
    for begin in range(0, len(records) if judges else 0, _BATCH):
        batch, results = records[begin : begin + _BATCH], judges[0].results
        measured = Measured.of(results.only([each.run_id for each in batch])).each(limits)
        for record, (place, judge) in itertools.product(batch, enumerate(judges)):
            run = measured.get(record.run_id)
            windows[place].append((record, judge.result([record], run)))
            if run and is_usable(record):
                for limit in judge.limits:
                    blocks[place].setdefault(limit, []).extend(run.blocks(limit).values())
    for judge, found, usable in zip(judges, windows, blocks, strict=True):
        if not found:
            yield judge.result([])
            continue
        together = {limit: joined(several) for limit, several in usable.items()}
        decision = judge.limit.decide(together.__getitem__) if judge.limit and together else None
        found.sort(key=lambda each: badness(each[1]))
        result = combined(found, judge.planned, passes_together=bool(decision and decision.holds))
        yield judge.after_least_time(replace(result, measured_ns=sum(_measured_ns([each]) for each, _ in found)))


@dataclass(frozen=True)
class _Judge:
    """Judges one requirement in one case."""

    requirement: Requirement
    case: Case
    results: ResultSet

    @property
    def planned(self) -> int:
        """Number of runs."""
        return sum(run.case_id == self.case.case_id for run in self.results.known_runs())

    @cached_property
    def condition(self) -> Condition:
        return parse(self.requirement.holds, streams=[each.name for each in self._part.streams])

    @cached_property
    def limit(self) -> Limit | None:
        """The limit on blocks of time; None for other conditions."""
        return limit_of(self.condition)

    @property
    def limits(self) -> Sequence[Limit]:
        """This limit and the one that only clear values meet."""
        return (self.limit, self.limit.clear) if self.limit else ()

    @property
    def _part(self) -> Part:
        return next(part for part in self.results.study.parts if part.name == self.requirement.part)

    def result(self, records: Sequence[Record], measured: Measured | None = None) -> Result:
        """Judge runs together; `measured` are their measurements, where they have been read."""
        complete = [each for each in records if each.outcome == "complete"]
        uses = {use: [each for each in complete if use_of(each, self.limit) == use] for use in _USES}
        use: Use = next((use for use in _USES if uses[use]), "neither")
        judged = uses[use]
        if not judged:
            found = self._without_value()
        elif self.limit:
            measured = measured or Measured.of(self.results.only([each.run_id for each in judged]))
            found = self._of_blocks(measured, judged, must_be_clear=use == "pass")
        else:
            found = self._of_repeats(judged)
        found = replace(found, measured_ns=_measured_ns(judged))
        if use in ("both", "pass"):
            found = found if use == "both" else _of_slowed(found, judged)
            return found if self.requirement.every_run else self.after_least_time(found)
        if use == "fail" and found.outcome == "fail":
            reason = f"although memory of this machine only makes it faster: {_because(judged)}"
            return replace(found, reason="; ".join(filter(None, (found.reason, reason))))
        return replace(found, outcome="undecided", reason=_unusable(records))

    def after_least_time(self, found: Result) -> Result:
        """Return a result that passes only after the time that the study states, which the ramp may shorten a bit."""
        least_ns = self.results.study.pass_after
        if found.outcome != "pass" or found.measured_ns >= _TOLERANCE * least_ns:
            return found
        length, least = format_duration(found.measured_ns), format_duration(least_ns)
        return replace(found, outcome="undecided", reason=f"measured for {length}; a pass requires {least}")

    def _of_blocks(self, measured: Measured, records: Sequence[Record], *, must_be_clear: bool) -> Result:
        limit = self.limit
        assert limit, "a limit on blocks"
        decision = limit.decide(lambda each: joined(list(measured.blocks(each).values())))
        if decision is None:
            return self._without_value()
        found = decision.comparison
        ends: Sequence[float | None] = (found.value, found.low, found.high)
        if limit.kind == "share" and isinstance(self.condition, MetricBound):
            distribution = measured.distribution(limit)
            beyond = (0.0, found.value - found.low, found.value - found.high)
            ends = [_quantile(*distribution, limit.limit + distance) for distance in beyond]
        if decision.holds is False:
            return self._of_failed(ends, measured, records)
        holds = None if must_be_clear and not decision.is_clear else decision.holds
        return self._judged(ends, holds=holds, reason=decision.reason)

    def _of_failed(self, ends: Sequence[float | None], measured: Measured, records: Sequence[Record]) -> Result:
        """Judge a value beyond the limit: it fails if operations that may have waited for a CPU do not explain it."""
        limit = self.limit
        assert limit, "a limit on blocks"
        blocks, waits = joined(list(measured.blocks(limit).values())), cpu_waits_of(records)
        share = waits.time_share
        if limit.kind == "share":
            share = waits.explain(*measured.distribution(limit), limit.threshold_ns)
        if not limit.fails_without(share, blocks):
            return self._judged(ends, holds=None, reason=_waits_text(limit, share))
        result = self._judged(ends, holds=False, reason="")
        return replace(result, reason=_flush_times(measured, records, limit)) if limit.operation == "flush" else result

    def _of_repeats(self, records: Sequence[Record]) -> Result:
        """Judge a metric by the interval of its repeats, and a rule for slices of time by the worst of all runs."""
        condition = self.condition
        observations = RecordedObservations(self.results)
        ids = {each.run_id for each in records}
        found = [observations.observation(run) for run in self.results.known_runs() if run.run_id in ids]
        usable = [each for each in found if each is not None]
        if not isinstance(condition, MetricBound):
            holds = [condition.judge(each).holds for each in usable]
            kept = False if False in holds else True if holds and all(holds) else None
            return self._judged((None, None, None), holds=kept, reason="too few operations")
        scope = {"stream": condition.stream, "operation": condition.operation}
        values = [value for each in usable if (value := each.value(condition.metric, **scope)) is not None]
        if not values:
            return self._without_value()
        if self.requirement.every_run:
            return self._judged((values[0], None, None), holds=condition.keeps(values[0]), reason="")
        estimate = repeats_interval(values, noise=observations.noise(), metric=condition.metric)
        ends = (estimate.value, estimate.low, estimate.high)
        sides = {condition.keeps(end) for end in ends if end is not None}
        reason = "the interval contains the limit"
        if not estimate.certain:
            reason = f"{counted(len(values), 'repeat')}; at least {MINIMUM_REPEATS} required"
        kept = sides.pop() if estimate.certain and len(sides) == 1 else None
        return self._judged(ends, holds=kept, reason=reason)

    def _judged(self, ends: Sequence[float | None], *, holds: bool | None, reason: str) -> Result:
        value, low, high = ends
        condition = self.condition
        limit = _limit_value(condition)
        compare = condition.compare if isinstance(condition, MetricBound) else "<"
        is_upper = compare in ("<", "<=")
        margin = None if value is None or not limit else (limit - value if is_upper else value - limit) / limit
        return Result(
            requirement=self.requirement,
            case_id=self.case.case_id,
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

    def _without_value(self) -> Result:
        return self._judged((None, None, None), holds=None, reason="not measured")


def _measured_ns(records: Sequence[Record]) -> int:
    return sum(each.result["end_ns"] - each.result["begin_ns"] for each in records if each.result)


def _waits_text(limit: Limit, share: float) -> str:
    """State the waits for a CPU of this machine that may explain a value."""
    if limit.kind == "share":
        decides = f"{100 * limit.limit:.3g} % decide"
        return f"up to {100 * share:.2g} % of the operations may have waited for a CPU of this machine, and {decides}"
    return f"the CPUs of this machine were busy up to {100 * share:.2g} % of the time, which may explain the value"


def _unusable(records: Sequence[Record]) -> str:
    """Return why no run counts: the verdict of the last one with its first reason, or its failure."""
    verdicts = [each.verdict for each in records if each.verdict]
    if verdicts:
        return f"{verdicts[-1].kind}: {verdicts[-1].because[0]}" if verdicts[-1].because else verdicts[-1].kind
    failures = [each.failure for each in records if each.failure]
    return f"failed: {failures[-1].message}" if failures else "not measured"


def _of_slowed(found: Result, records: Sequence[Record]) -> Result:
    """Return the result of runs that were only slowed: a pass, or undecided."""
    if found.outcome == "pass":
        return replace(found, reason=f"in spite of a disturbance that only slows: {_because(records)}")
    rule = f"a disturbed run passes only if its value is {100 * (1 - CLEAR):.0f} % within the limit, and never fails"
    return replace(found, outcome="undecided", reason=f"{_unusable(records)}; {rule}")


def _because(records: Sequence[Record]) -> str:
    return next((each.verdict.because[0] for each in reversed(records) if each.verdict and each.verdict.because), "")


def _flush_times(measured: Measured, records: Sequence[Record], limit: Limit) -> str:
    """State what the time of durable writes consists of, and the write cache that a flush has to empty."""
    completion = replace(limit, kind="share", latency="completion_latency")
    medians = [
        _quantile(*measured.distribution(replace(completion, operation=operation)), 0.5)
        for operation in ("flush", "write")
    ]
    devices = [device for each in records for device in each.target.get("devices", ())]
    caches = sorted({str(device["write_cache"]) for device in devices if device.get("write_cache")})
    texts = ["-" if each is None else format_latency(each) for each in medians]
    cache = f"; write cache of the device: {', '.join(caches)}" if caches else ""
    return f"median flush {texts[0]}, median write {texts[1]}{cache}"


def _quantile(latencies: Floats, counts: Floats, share: float) -> float | None:
    """Return the smallest latency that no more than this share of operations exceeds; None for a share below 0."""
    if share <= 0 or not len(latencies):
        return None
    rank = math.ceil(round((1 - min(share, 1.0)) * float(counts.sum()), 6))
    return float(latencies[min(int(np.searchsorted(np.cumsum(counts), max(rank, 1))), len(latencies) - 1)])


def _limit_value(condition: Condition) -> float:
    return condition.share if isinstance(condition, SlowShare) else getattr(condition, "bound", 0.0)
