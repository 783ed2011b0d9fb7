"""Findings about rate limits: the rule and its parameters, what was rejected, and what is not decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from iosonde.features.rate_limits import credit_duration, known_limits
from iosonde.features.rate_limits.known_limits import (
    Change,
    FirstTouch,
    Identification,
    Limiter,
    Parameter,
    Rule,
    TouchedRegion,
)
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.sharing import Sharing, SharingConclusion
from iosonde.features.rate_limits.walk import load_text
from iosonde.findings.finding import FIRST, Finding, Strength
from iosonde.metrics import wording
from iosonde.plan import Case
from iosonde.planning.procedure.observations import Conclusion
from iosonde.units import format_bandwidth, format_bytes, format_count, format_duration, format_latency

_PLURAL = {"read": "reads", "write": "writes"}


def rate_text(rule: Rule, value: float) -> str:
    """A rate in the unit that the rule counts."""
    return f"{format_bandwidth(value)}" if rule.counts == "bytes" else f"{format_count(value)} IOPS"


def amount_text(rule: Rule, value: float) -> str:
    """Credits."""
    return format_bytes(round(value)) if rule.counts == "bytes" else f"{format_count(value)} I/Os"


def seconds_text(seconds: float) -> str:
    return format_duration(round(seconds) * 1_000_000_000) if seconds >= 1 else f"{1000 * seconds:.0f} ms"


Text = Callable[[Rule, float], str]
"""States a value in the unit of a rule."""


class SustainedLimit(Finding, kind="sustained limit", topic="limits", place=FIRST):
    """A rate limit and what it counts."""

    rule: Rule

    def _sentence(self) -> str:
        rule = self.rule
        rate = rate_text(rule, rule.rate.value)
        counted = f", counted in units of {format_bytes(rule.unit_bytes)}" if rule.unit_bytes else ""
        if rule.may_be_burst:
            return (
                f"{_PLURAL[rule.operation]} are constant at {rate} for {seconds_text(rule.constant_s)}{counted}: "
                f"a limit of {rate}, or a burst that lasts longer"
            )
        return f"{_PLURAL[rule.operation]} are limited to {rate} sustained{_interval(rule, rule.rate)}{counted}"

    def _evidence(self) -> str:
        return _estimates(self.rule, self.rule.rate)


class BurstCredits(Finding, kind="burst credits", topic="limits", place=FIRST):
    """The bucket of a rate limit."""

    rule: Rule

    def _sentence(self) -> str:
        rule, bucket = self.rule, self.rule.bucket
        assert bucket, "a rule with a bucket"
        burst = ""
        if rule.burst_rate:
            source = "" if rule.is_burst_limited else " (limited by the device)"
            burst = f"bursts reach {rate_text(rule, rule.burst_rate.value)}{source} and "
        lasting = f"last {seconds_text(rule.seconds_until_empty)}" if rule.seconds_until_empty else "end"
        full = f", {seconds_text(rule.seconds_until_full)} to refill" if rule.seconds_until_full else ""
        least = "" if bucket.is_confirmed else "at least "
        doubt = "" if rule.refill else "; without a rest, a limit that was lowered would look the same"
        return (
            f"{burst}{lasting} from a full bucket of {least}{amount_text(rule, bucket.value)}"
            f"{_interval(rule, bucket, amount_text)}{full}{doubt}"
        )

    def _evidence(self) -> str:
        assert self.rule.bucket, "a rule with a bucket"
        parts = [_estimates(self.rule, self.rule.bucket, amount_text)]
        if self.rule.refill:
            parts.append(f"refill: {_estimates(self.rule, self.rule.refill)}")
        return "; ".join(parts)


class SharedBudget(Finding, kind="shared budget", topic="limits", place=1):
    """Reads and writes that count against the same limit, or do not."""

    sharing: str
    weight: Parameter | None

    def _sentence(self) -> str:
        if self.sharing == "separate" or self.weight is None:
            return "reads and writes have separate budgets"
        return f"reads and writes share a budget, in which a write counts as {self.weight.value:.3g} reads"

    def _evidence(self) -> str:
        if self.weight is None:
            return "a mix of reads and writes reaches the sum of both rates"
        return ", ".join(f"{each.method}: {each.value:.3g}" for each in self.weight.estimates)


class ChangedLimit(Finding, kind="changed limit", topic="limits", place=FIRST):
    """A limit that changed during the study."""

    change: Change
    part_of: str = ""

    def _sentence(self) -> str:
        before, after = (f"{format_count(each)} IOPS" for each in (self.change.before, self.change.after))
        return f"the limit changed during the study, from {before} to {after}; values are not averaged over both"

    def _evidence(self) -> str:
        return f"rates under the same load, in the stage `{self.change.stage}` and before"


class FirstTouchPenalty(Finding, kind="first-touch penalty", topic="limits", place=1):
    """Latency of the first access to a block beyond that of later ones, or its bound."""

    found: FirstTouch
    operation: str

    def _sentence(self) -> str:
        found = self.found
        bound = f"the first {self.operation} of a block takes {_bound(found)}"
        if found.verdict == "none":
            return f"no first-touch penalty: {bound}"
        slower = [each for each in found.regions if each.is_slower]
        if not slower:  # The last pass took longer than the second and the third.
            return f"not decided whether there is a first-touch penalty: {bound}; {found.reason}"
        where = f"in {len(slower)} of {len(found.regions)} regions"
        low, high = (format_latency(1e9 * each) for each in _range(slower))
        added = low if low == high else f"{low} to {high}"
        text = f"the first {self.operation} of a block takes {added} longer than later ones {where}"
        if found.verdict == "penalty":
            return f"first-touch penalty: {text}"
        if found.verdict == "cache":
            return f"no first-touch penalty: {text}, but {found.reason}"
        return f"not decided whether there is a first-touch penalty: {text}; {found.reason}"

    def _evidence(self) -> str:
        regions = "; ".join(
            f"blocks {format_bytes(each.stride)} apart from {format_bytes(each.offset)}: "
            f"{', '.join(format_latency(1e9 * latency) for latency in each.latencies_s)}"
            for each in self.found.regions
        )
        reason = f"; {self.found.reason}" if self.found.verdict == "penalty" else ""
        return f"median latencies of each pass: {regions}{reason}"


RESOLVED_S = 1e-7
"""Latencies in histograms are no more precise than this."""


def _bound(found: FirstTouch) -> str:
    """State by how much it is longer at most, unless that is beyond the resolution."""
    return "no longer" if found.bound_s < RESOLVED_S else f"at most {format_latency(1e9 * found.bound_s)} longer"


def _range(regions: Sequence[TouchedRegion]) -> tuple[float, float]:
    """Return the lowest and the highest added latency; twice the mean where all regions agree."""
    low, high = max(each.low_s for each in regions), min(each.high_s for each in regions)
    values = [each.added_s for each in regions]
    if low <= high:
        mean = sum(values) / len(values)
        return mean, mean
    return min(values), max(values)


class LimiterLatency(Finding, kind="limiter latency", topic="limits", place=1):
    """Latency that a limiter adds at queue depth 1."""

    found: Limiter

    def _sentence(self) -> str:
        found = self.found
        interval, device = (format_latency(1e9 * each[1]) for each in (found.interval_s, found.device_s))
        if found.style == "batched":
            return (
                f"the limiter delays I/Os in batches: at queue depth 1 half of them take {interval} or less, and "
                f"{100 * found.waiting:.2g} % wait {format_latency(1e9 * found.wait_s)} on average"
            )
        if found.style == "undecided":
            return f"not decided whether the limiter queues or paces I/Os: {found.reason}"
        paced = "I/Os complete at fixed intervals" if found.style == "paced" else "I/Os wait before the device"
        return (
            f"{paced}: at queue depth 1 the limiter raises the median latency from {device} below the limit to "
            f"{interval}"
        )

    def _evidence(self) -> str:
        at, below = (
            f"{format_latency(1e9 * each[0])} to {format_latency(1e9 * each[2])}"
            for each in (self.found.interval_s, self.found.device_s)
        )
        return f"10th to 90th percentile at queue depth 1: {at} at the limit, {below} below"


class NotLimited(Finding, kind="not limited", topic="limits", place=FIRST):
    """No rule, or none that differs from a device."""

    evidence_text = "rates over time, block size and queue depth"
    is_decided: bool
    reason: str

    def _sentence(self) -> str:
        what = "no rate limit found" if self.is_decided else "not decided whether a rate limit applies"
        return f"{what}: {self.reason}"


class RejectedRules(Finding, kind="rejected rules", topic="limits"):
    """Rules that the data contradict."""

    rejected: tuple[str, ...]
    undecided: tuple[str, ...]
    is_decided: bool
    """False if it is not known whether any rule applies."""
    stopped_at: str = ""
    """Stage in which the study was stopped."""

    def _sentence(self) -> str:
        start = "rejected by the data" if self.is_decided else "if a rule applies, the data reject"
        rejected = f"{start}: {'; '.join(self.rejected)}" if self.rejected else ""
        because = f", because the study was stopped in the stage `{self.stopped_at}`" if self.stopped_at else ""
        undecided = f"not decided{because}: {'; '.join(self.undecided)}" if self.undecided else ""
        return ". ".join(filter(None, [rejected, wording.sentence(undecided) if rejected else undecided]))

    def _evidence(self) -> str:
        return f"{len(self.rejected)} rejected, {len(self.undecided)} not decided"


def _interval(rule: Rule, found: Parameter, text: Text = rate_text) -> str:
    if not found.is_confirmed:
        return ""
    low, high = text(rule, found.low), text(rule, found.high)
    return f" ({len(found.estimates)} estimates: {low if low == high else f'{low} to {high}'})"


def _estimates(rule: Rule, found: Parameter, text: Text = rate_text) -> str:
    return ", ".join(f"{each.method}: {text(rule, each.value)}" for each in found.estimates)


def conclusions(procedures: Sequence[tuple[Case, Conclusion | None]]) -> Iterator[Finding]:
    """Return the findings of each identification and comparison that has ended."""
    for case, conclusion in procedures:
        if isinstance(conclusion, LimitsConclusion) and not conclusion.found.failure:
            yield from _of(case, conclusion, conclusion.found)
        if isinstance(conclusion, SharingConclusion) and not conclusion.found.failure:
            yield LimitOfVolumes(
                found=conclusion.found,
                strength="moderate" if conclusion.found.verdict == "undecided" else "strong",
                case_ids=conclusion.stages,
                part=case.part,
            )


def _of(case: Case, conclusion: LimitsConclusion, found: Identification) -> Iterator[Finding]:
    part, ids = case.part, tuple(case_id for case_id, _ in conclusion.stages)

    def strength(confirmed: bool) -> Strength:
        return "strong" if confirmed else "moderate"

    for rule in found.rules:
        sure = strength(rule.rate.is_confirmed)
        yield SustainedLimit(rule=rule, strength=sure, case_ids=ids[:1], part=part)
        if rule.bucket and rule.burst_rate:
            sure = strength(rule.bucket.is_confirmed)
            yield BurstCredits(rule=rule, strength=sure, case_ids=ids[:1], part=part)
    if not found.rules:
        decided = found.verdict == "not limited"
        yield NotLimited(is_decided=decided, reason=found.reason, strength="moderate", case_ids=ids[:1], part=part)
    yield from known_limits.compared(found.rules, conclusion.target, conclusion.surroundings, case)
    if found.change:
        yield ChangedLimit(change=found.change, strength="strong", case_ids=ids[:1], part=part)
    if found.first_touch:
        operation = "read" if case.procedure and case.procedure.settings["reads"] else "write"
        yield FirstTouchPenalty(
            found=found.first_touch, operation=operation, strength="moderate", case_ids=ids[:9], part=part
        )
    if found.limiter:
        sure = strength(found.limiter.style == "batched")
        stages = tuple(each for each, series in conclusion.stages if series.distribution)
        yield LimiterLatency(found=found.limiter, strength=sure, case_ids=stages, part=part)
    if found.sharing != "unknown":
        yield SharedBudget(
            sharing=found.sharing, weight=found.write_weight, strength="strong", case_ids=ids[-1:], part=part
        )
    if found.rejected or found.undecided:
        yield RejectedRules(
            rejected=tuple(found.rejected),
            undecided=tuple(found.undecided),
            is_decided=found.verdict != "undecided",
            stopped_at=found.stopped_at,
            strength="strong",
            case_ids=ids[:1],
            part=part,
        )


class LimitOfVolumes(Finding, kind="limit of volumes", topic="limits", place=FIRST):
    """A limit that all volumes share, or separate ones."""

    found: Sharing

    def _sentence(self) -> str:
        found = self.found
        load = load_text(found.load)
        if found.verdict == "undecided" or found.sum is None:
            return f"{load}: not decided whether the volumes share a limit: {found.reason}"
        alone = _listed([f"{format_count(each.value)} IOPS" for each in found.alone])
        if found.verdict == "separate":
            return f"{load}: the volumes do not share a limit: all keep their rates of {alone} while all are loaded"
        further = ", in addition to limits of their own" if found.is_further_limit else ""
        bandwidth = format_bandwidth(found.sum.value * found.load.block_size)
        return (
            f"{load}: the volumes share a limit of {format_count(found.sum.value)} IOPS ({bandwidth}){further}: alone "
            f"they reach {alone}"
        )

    def _evidence(self) -> str:
        if self.found.sum is None:
            return "stages without a result"
        together = _listed([_ends(each) for each in self.found.together])
        return f"all loaded: {together}, sum {_ends(self.found.sum)} ({len(self.found.sum.estimates)} repeats)"


def _listed(values: Sequence[str]) -> str:
    *first, last = values
    return f"{', '.join(first)} and {last}"


def _ends(found: Parameter) -> str:
    low, high = format_count(found.low), format_count(found.high)
    return f"{low} IOPS" if low == high else f"{low} to {high} IOPS"


def rows(found: Sharing) -> Iterator[tuple[str, str, str, str]]:
    """Yield parameter, value, interval and estimates."""
    named = [
        *((f"volume {number} alone", each) for number, each in enumerate(found.alone, start=1)),
        *((f"volume {number}, all loaded", each) for number, each in enumerate(found.together, start=1)),
        *((("sum, all loaded", found.sum),) if found.sum else ()),
    ]
    for name, each in named:
        estimates = "; ".join(f"{one.method}: {format_count(one.value)} IOPS" for one in each.estimates)
        yield f"{load_text(found.load)}: {name}", f"{format_count(each.value)} IOPS", _ends(each), estimates
    yield f"{load_text(found.load)}: limit", found.verdict, "", found.reason


CONCLUSIONS = (conclusions,)
OF_RESULTS = (credit_duration.find,)
