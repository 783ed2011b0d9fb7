"""Results of the requirements of a study: pass, fail or undecided, with value, interval and margin.

Runs that this machine did not disturb count. Without any, disturbed ones can decide in one direction
(`use_of`). A ratio over blocks of time is judged by `metrics.limit_test`, any other metric by the confidence
interval of its repeats. A value fails only if that is certain without the operations that waited for a CPU, and passes
only after the time that the study states (`pass_after`). Of a requirement with `every_run` each run is judged by itself
(`combined`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from iosonde.findings.finding import OF_THE_SYSTEM
from iosonde.metrics.limit_test import CLEAR, Blocks, Floats, Limit, Measured, joined
from iosonde.metrics.statistics import MINIMUM_REPEATS, repeats_interval
from iosonde.metrics.verdict.evidence import SOME
from iosonde.metrics.verdict.rules import Bias, rules
from iosonde.metrics.wording import counted, value_text
from iosonde.plan import Case, Scalar
from iosonde.planning.procedure import observations_in
from iosonde.planning.procedure.condition import UPPER, Condition, MetricBound, limit_of, parse
from iosonde.results import ResultSet, accounting
from iosonde.results.schema import Record
from iosonde.study.model import Requirement
from iosonde.study.workload import described, streams_of
from iosonde.units import format_count, format_duration, format_latency

Outcome = Literal["fail", "undecided", "pass"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """One run."""

    run_id: str
    started_at: str
    outcome: Outcome
    value: float | None
    margin: float | None
    reason: str
    """Reason for an undecided outcome."""
    observed: Sequence[str]
    """Other events: I/O of other processes, steal time, stalls, temperature."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One requirement in one case."""

    requirement: Requirement
    case_id: str
    outcome: Outcome
    metric: str
    """Metric of the value; empty for a share of operations."""
    limit: float
    comparison: str
    """Sign between a value that is good enough and the limit, such as `≥`."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    """Distance from the limit as a share of it; negative where the value is beyond it."""
    reason: str = ""
    """Reason for an undecided outcome; other observations of a failed one; the number of windows that passed."""
    measured_ns: int = 0
    """Length of the measurements that decide."""
    windows: Sequence[Window] = ()
    """Each run, the worst first, where every run must meet the limit."""

    def text(self, value: float | None) -> str:
        """Write a value of its metric."""
        if value is None:
            return "-"
        return value_text(self.metric, value) if self.metric else f"{100 * value:.3g} %"

    @property
    def limit_text(self) -> str:
        """The limit with its comparison."""
        return f"{self.comparison} {self.text(self.limit)}"


Use = Literal["both", "pass", "fail", "neither"]
"""Outcomes that a run can lead to; `pass` only with a value that is clear of the limit."""

_LOST = ("stalled_share", "cpu_wait_share", "steal_share")
"""Evidence of time in which the load was not applied."""


def is_usable(record: Record) -> bool:
    """Return True if a run can pass and fail a requirement."""
    if record.outcome != "complete":
        return False
    return record.verdict is None or record.verdict.kind in OF_THE_SYSTEM or biases(record) == {"none"}


def use_of(record: Record, limit: Limit | None) -> Use:
    """Return the outcomes that a complete run can lead to; `limit` is the limit on blocks of time."""
    if is_usable(record):
        return "both"
    is_known = all(each.code in rules() for each in record.warnings)  # One of lost hosts or credits has any bias.
    found = biases(record) - {"none"} if is_known else set()
    if found == {"faster"}:
        return "fail"
    return "pass" if found == {"slower"} and limit and _can_pass(record, limit) else "neither"


def biases(record: Record) -> set[Bias]:
    """Return the biases of the warnings that decided the verdict; empty where other rules decided it."""
    load = record.spec["workload"]
    if record.verdict is None or described(load).rules(load) != "evidence":
        return set()
    known = [rules()[each.code] for each in record.warnings if each.code in rules()]
    found = {each.bias for each in known if each.points_to != "note"}
    if record.verdict.kind == "cache-served":
        found.add("faster")
    if "faster reads" in found:
        is_known = record.verdict.evidence.get("read_from_memory_share") is not None
        found = (found - {"faster reads"}) | {"faster" if reads(load) and not is_known else "none"}
    return found


def reads(load: dict[str, Any]) -> bool:
    """Return True if a load of block I/O has reads."""
    return any(stream["mix"]["read_fraction"] > 0 for stream in streams_of(load) if "mix" in stream)


def _can_pass(record: Record, limit: Limit) -> bool:
    """Return True if a run that was only slowed can pass this limit.

    A response latency counts from the intended start and a rate counts what was done: both include time without a CPU.
    A completion latency does not include I/O that was not submitted in that time. It counts if the load was applied for
    nearly all of the time.
    """
    if limit.kind == "rate":
        return not limit.is_upper
    if limit.latency == "response_latency" or record.verdict is None:
        return limit.latency == "response_latency"
    lost = [each for name in _LOST if (each := record.verdict.evidence.get(name)) is not None]
    return record.verdict.kind == "undetermined" and len(lost) == len(_LOST) and sum(lost) <= SOME


@dataclass(frozen=True, kw_only=True)
class CpuWaits:
    """Waiting for a CPU that may be part of the measured latencies, at most."""

    time_share: float
    """Share of the time in which a thread that became ready may have found no CPU idle."""
    job_ns: float
    """Sum over the operations that were in flight while their job waited."""

    def explain(self, latencies_ns: Floats, counts: Floats, threshold_ns: float) -> float:
        """Return the share of operations that can be slower than a threshold because of waits alone.

        The waits of jobs are enough for those that are the least above the threshold; threads of the kernel, whose
        waits are not known, are as likely to find no CPU as `time_share`. `latencies_ns` are in ascending order.
        """
        is_slow = latencies_ns > threshold_ns
        beyond, slow = latencies_ns[is_slow] - threshold_ns, counts[is_slow]
        before = np.cumsum(beyond * slow) - beyond * slow
        explained = np.clip((self.job_ns - before) / np.maximum(beyond, 1.0), 0.0, slow).sum()
        total = float(counts.sum())
        return min(1.0, max(self.time_share, float(explained) / total if total else 0.0))


def cpu_waits_of(records: Sequence[Record]) -> CpuWaits:
    """Return the waits of some runs; none on virtual time, and where the kernel does not report them."""
    measured = [each for each in records if each.verdict is not None and each.result is not None]
    return CpuWaits(
        time_share=max((_busy_share(each) for each in measured), default=0.0),
        job_ns=float(sum(map(_job_waits_ns, measured))),
    )


def _busy_share(record: Record) -> float:
    """Return the share of time in which others used all CPUs, as if each were busy independently, or a job waited."""
    assert record.verdict and record.result, "a measured run"
    evidence = record.verdict.evidence
    cpus = ((record.result.get("evidence") or {}).get("machine") or {}).get("cpus") or 1
    taken = (evidence.get("other_cpu_share") or 0.0) + (evidence.get("steal_share") or 0.0)
    return float(min(1.0, max(taken**cpus, evidence.get("cpu_wait_share") or 0.0)))


def _job_waits_ns(record: Record) -> int:
    depths = {each["name"]: each.get("queue_depth", 1) for each in streams_of(record.spec["workload"])}
    jobs = (record.result or {}).get("jobs", ())
    return sum(depths.get(job["stream"], 1) * (accounting.busiest_thread_wait_ns(job) or 0) for job in jobs)


OBSERVED = (
    *("other_io", "device_stalled", "hot_device", "throttled_device"),
    *("steal_time", "cpu_contention", "cpus_shared", "engine_stalled", "foreign_interrupts", "late_counters"),
)
"""Codes of warnings about what happened in a run; the others are about its load and its target."""
USABLE = 0.9
"""Share of the planned windows that must be usable for a pass."""


def combined(windows: Sequence[tuple[Record, Result]], planned: int, *, passes_together: bool) -> Result:
    """Return the result of all windows, with the value of the one that decides; `windows` are the worst first.

    A window that fails is a failure. A disturbed window can pass or fail (`use_of`). Windows that are
    undecided do not prevent a pass if their values are within the limit, all usable windows pass together, and nearly
    all are usable.
    """
    outcomes = Counter(result.outcome for _, result in windows)
    outcome = _outcome(windows, planned, outcomes, passes_together=passes_together)
    counted_by_margin = sorted(
        (each for _, each in windows if outcome == "pass" or each.outcome == outcome),
        key=lambda each: float("inf") if each.margin is None else each.margin,
    )
    decisive = next(iter(counted_by_margin), windows[0][1])
    counts = [f"{format_count(outcomes['pass'])} of {counted(planned, 'window')} passed"]
    slowed = sum(result.outcome == "pass" and not is_usable(record) for record, result in windows)
    counts += [f"{format_count(slowed)} of these in spite of a disturbance"] * bool(slowed)
    counts += [f"{format_count(outcomes[each])} {_WORDS[each]}" for each in _WORDS if outcomes[each]]
    counts += [f"{format_count(planned - len(windows))} missing"] * (planned > len(windows))
    reason = f"; {decisive.reason}" if outcome != "pass" and decisive.reason else ""
    return replace(
        decisive,
        outcome=outcome,
        reason=", ".join(counts) + reason,
        windows=[_window(record, result) for record, result in windows],
    )


_WORDS: dict[Outcome, str] = {"fail": "failed", "undecided": "undecided"}


def _outcome(
    windows: Sequence[tuple[Record, Result]], planned: int, outcomes: Counter[Outcome], *, passes_together: bool
) -> Outcome:
    if outcomes["fail"]:
        return "fail"
    usable = sum(is_usable(record) or result.outcome == "pass" for record, result in windows)
    is_beyond = any(each.margin is not None and each.margin < 0 for _, each in windows)
    is_complete = usable >= USABLE * planned
    passes = is_complete and not is_beyond and (passes_together or outcomes["pass"] == planned)
    return "pass" if passes else "undecided"


def _window(record: Record, result: Result) -> Window:
    return Window(
        run_id=record.run_id,
        started_at=record.started_at,
        outcome=result.outcome,
        value=result.value,
        margin=result.margin,
        reason=result.reason,
        observed=observed(record),
    )


def observed(record: Record) -> list[str]:
    """State what else happened in a run, as far as its record has it."""
    found = [each.message for each in record.warnings if each.code in OBSERVED]
    celsius = record.verdict.evidence.get("temperature_celsius") if record.verdict else None
    is_named = any(each.code == "hot_device" for each in record.warnings)
    return found if celsius is None or is_named else [*found, f"device at {celsius:.0f} °C"]


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
    return results.derived(key, lambda: sorted(_found(results), key=badness))


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
        part = next(part for part in self.results.study.parts if part.name == self.requirement.part)
        return parse(self.requirement.holds, streams=[each.name for each in part.streams])

    @cached_property
    def limit(self) -> Limit | None:
        """The limit on blocks of time; None for other conditions."""
        return limit_of(self.condition)

    @property
    def limits(self) -> Sequence[Limit]:
        """This limit and the one that only clear values meet."""
        return (self.limit, self.limit.clear) if self.limit else ()

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
            found = self._of_blocks(self.limit, measured, judged, must_be_clear=use == "pass")
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

    def _of_blocks(self, limit: Limit, measured: Measured, records: Sequence[Record], *, must_be_clear: bool) -> Result:
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
            return self._of_failed(limit, ends, measured, records)
        holds = None if must_be_clear and not decision.is_clear else decision.holds
        return self._judged(ends, holds=holds, reason=decision.reason)

    def _of_failed(
        self, limit: Limit, ends: Sequence[float | None], measured: Measured, records: Sequence[Record]
    ) -> Result:
        """Judge a value beyond the limit: it fails if operations that may have waited for a CPU do not explain it."""
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
        observations = observations_in(self.results)
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
        limit, compare = self.condition.bound, self.condition.compare
        margin = None if value is None or not limit else (limit - value if compare in UPPER else value - limit) / limit
        return Result(
            requirement=self.requirement,
            case_id=self.case.case_id,
            outcome=_OUTCOMES[holds],
            metric=self.condition.metric,
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
