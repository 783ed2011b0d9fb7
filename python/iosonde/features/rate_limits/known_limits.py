"""Limits known without measuring, compared with identified rules: those of control groups and published ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from iosonde.base import text_files
from iosonde.features.rate_limits import context
from iosonde.findings.finding import FIRST, Finding
from iosonde.plan import Case
from iosonde.units import format_bandwidth, format_bytes, parse_size

Counted = Literal["operations", "bytes"]
Verdict = Literal["limited", "not limited", "undecided"]
TouchVerdict = Literal["penalty", "none", "cache", "undecided"]
Sharing = Literal["shared", "separate", "unknown"]
DelayStyle = Literal["batched", "paced", "queued", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One way in which a parameter was determined."""

    method: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter with the estimates that agree on it."""

    value: float
    low: float
    high: float
    estimates: tuple[Estimate, ...]

    @property
    def is_confirmed(self) -> bool:
        """True if two estimates or more agree."""
        return len(self.estimates) > 1


def parameter(*estimates: Estimate, error: float = 0.0) -> Parameter:
    """The first estimate, with an interval that holds the others."""
    values = [each.value for each in estimates]
    return Parameter(value=values[0], low=min(values) - error, high=max(values) + error, estimates=tuple(estimates))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rate limit."""

    counts: Counted
    operation: Literal["read", "write"]
    """The operation that the parameters were determined with."""
    rate: Parameter
    """Sustained, per second."""
    unit_bytes: int | None = None
    """Operations are counted once for each of these bytes that they begin; None: once."""
    burst_rate: Parameter | None = None
    """Rate while there are credits; None: no burst was seen."""
    is_burst_limited: bool = False
    """True if the burst rate is constant, and so a rule; otherwise the device limits bursts."""
    bucket: Parameter | None = None
    refill: Parameter | None = None
    """Credits per second that came back during rests of known length."""
    merges: bool | None = None
    """True if sequential operations are merged before they are counted; None: not known."""
    constant_s: float = 0.0
    """Time for which the sustained rate was constant, in seconds."""
    may_be_burst: bool = False
    """True if a burst that lasts longer than the measurement would look the same."""

    @property
    def seconds_until_empty(self) -> float | None:
        if not self.bucket or not self.burst_rate or self.burst_rate.value <= self.rate.value:
            return None
        return self.bucket.value / (self.burst_rate.value - self.rate.value)

    @property
    def seconds_until_full(self) -> float | None:
        return self.bucket.value / self.rate.value if self.bucket else None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A limit that changed during the study."""

    before: float
    after: float
    stage: str


@dataclass(frozen=True, kw_only=True)
class TouchedRegion:
    """Latencies of the accesses to blocks of a region."""

    offset: int
    stride: int
    """Distance of the blocks."""
    latencies_s: tuple[float, ...]
    """Median of each pass."""
    added_s: float
    """Latency of the first access less that of later ones."""
    low_s: float
    high_s: float
    is_slower: bool


@dataclass(frozen=True, kw_only=True)
class FirstTouch:
    """Conclusion on first accesses."""

    verdict: TouchVerdict
    regions: tuple[TouchedRegion, ...]
    bound_s: float
    """Largest added latency that the intervals of all regions allow."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Limiter:
    """Delay of I/Os by a limiter at queue depth 1, in seconds."""

    style: DelayStyle
    reason: str
    """Reason for which it is undecided."""
    interval_s: tuple[float, float, float]
    """Latency at the limit: 10th, 50th and 90th percentile."""
    device_s: tuple[float, float, float]
    """Latency below the limit: the same."""
    mean_s: float
    """Mean interval of completions at the limit."""
    wait_s: float
    """Mean latency of the I/Os that take more than twice the mean interval."""
    waiting: float
    """Share of these I/Os."""
    is_disturbed: bool = False
    """True if other load took CPU time while the latency below the limit was measured."""


@dataclass(kw_only=True)
class Identification:
    """Everything that was concluded, or what is known so far."""

    verdict: Verdict = "undecided"
    reason: str = ""
    """Reason for which it is not limited, or undecided."""
    rules: Sequence[Rule] = ()
    sharing: Sharing = "unknown"
    """Budgets of reads and writes: one, or one each."""
    write_weight: Parameter | None = None
    """Cost of a write in reads, where they share a budget."""
    change: Change | None = None
    first_touch: FirstTouch | None = None
    """None: not measured."""
    limiter: Limiter | None = None
    """None: not measured."""
    constant_s: float = 0.0
    """Time for which the rate was constant, in seconds."""
    rejected: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    failure: str = ""
    stopped_at: str = ""
    """Stage in which the study was stopped; empty for a complete identification."""


AGREEMENT = 0.03
"""Largest difference of a measured rate from a published one that it agrees with, as a share."""


@dataclass(frozen=True, kw_only=True)
class PublishedLimit:
    """A limit that a provider publishes, for a volume of a known size."""

    volume: str
    """Its type, such as `gp2`."""
    title: str
    provider: str
    source: str
    date: str
    counts: Counted
    operations: Literal["all", "read", "write"] = "all"
    rate: float
    """Sustained, per second; the least where users provision more."""
    provisioned_up_to: float | None = None
    burst_rate: float | None = None
    bucket: float | None = None
    """Credits of a full bucket, in operations or bytes."""
    unit_bytes: int | None = None
    merge: bool = False

    @property
    def burst_seconds(self) -> float | None:
        """Time until a full bucket is empty at the burst rate."""
        if not self.bucket or not self.burst_rate or self.burst_rate <= self.rate:
            return None
        return self.seconds_at(self.burst_rate)

    def seconds_at(self, rate: float) -> float:
        """Time until a full bucket is empty at a rate above the sustained one."""
        assert self.bucket, "a limit with a bucket"
        return self.bucket / (rate - self.rate)

    def agreeing(self, rate: float) -> Literal["rate", "burst rate"] | None:
        """Limits of it that agree with a measured rate."""
        if abs(rate / self.rate - 1) <= AGREEMENT:
            return "rate"
        if self.burst_seconds and self.burst_rate and abs(rate / self.burst_rate - 1) <= AGREEMENT:
            return "burst rate"
        return None

    def describe(self) -> str:
        """Name it, such as `Amazon EBS gp2: 300 IOPS, bursts to 3,000 IOPS for 2,000 s`."""
        text = f"{self.title}: {quantity(self.rate, self.counts)}"
        if self.provisioned_up_to:
            text += f" or as provisioned, up to {quantity(self.provisioned_up_to, self.counts)}"
        if self.burst_seconds and self.burst_rate:
            text += f", bursts to {quantity(self.burst_rate, self.counts)} for {self.burst_seconds:,.0f} s"
        return text


def limits(*, size_bytes: int, provider: str | None = None) -> tuple[PublishedLimit, ...]:
    """The published limits of every volume type of a provider (of all without one) at a size."""
    gib = size_bytes / (1 << 30)
    return tuple(
        found
        for volume in _volumes()
        if provider in (None, volume["provider"]) and gib >= volume.get("least_gib", 0)
        for limit in volume["limit"]
        if (found := _at(volume, limit, gib)) is not None
    )


def agreeing(
    rate: float, counts: Counted, *, size_bytes: int, provider: str | None
) -> Sequence[tuple[PublishedLimit, Literal["rate", "burst rate"]]]:
    """The published limits with which a measured rate agrees."""
    candidates = [each for each in limits(size_bytes=size_bytes, provider=provider) if each.counts == counts]
    return [(each, what) for each in candidates if (what := each.agreeing(rate)) is not None]


@cache
def _volumes() -> list[dict[str, Any]]:
    text = text_files.read(Path(__file__).with_name("volumes.toml"))
    found: list[dict[str, Any]] = text_files.parse_toml(text)["volume"]
    return found


def _at(volume: dict[str, Any], limit: dict[str, Any], gib: float) -> PublishedLimit | None:
    row = next((row for row in limit.get("sizes", ()) if gib <= row[0]), None)
    if "sizes" in limit and row is None:
        return None
    rate = _amount(row[1]) if row else _scaled(limit["rate"], gib)
    burst = _amount(row[2]) if row and len(row) > 2 else _optional(limit, "burst_rate", gib)
    bucket = _optional(limit, "bucket", gib)
    if burst and (seconds := limit.get("burst_s")):
        bucket = seconds * (burst - rate)
    return PublishedLimit(
        volume=volume["name"],
        title=volume["title"],
        provider=volume["provider"],
        source=volume["source"],
        date=volume["date"].isoformat(),
        counts=limit["counts"],
        operations=limit.get("operations", "all"),
        rate=rate,
        provisioned_up_to=_optional(limit, "provisioned_up_to", gib),
        burst_rate=burst if burst and burst > rate else None,
        bucket=bucket,
        unit_bytes=parse_size(limit["unit"]) if "unit" in limit else None,
        merge=limit.get("merge", False),
    )


def _optional(limit: dict[str, Any], name: str, gib: float) -> float | None:
    return _scaled(limit[name], gib) if name in limit else None


def _scaled(amount: dict[str, Any], gib: float) -> float:
    per = float(amount.get("per", 1))
    value = _amount(amount.get("value", 0)) + _amount(amount.get("per_gib", 0)) * gib / per
    at_least = max(value, _amount(amount.get("least", 0)))
    return min(at_least, _amount(amount["most"])) if "most" in amount else at_least


def _amount(value: Any) -> float:
    return float(parse_size(value)) if isinstance(value, str) else float(value)


def quantity(rate: float, counts: Counted) -> str:
    """A rate in the unit that a limit counts."""
    return f"{rate:,.0f} IOPS" if counts == "operations" else format_bandwidth(rate)


Json = Mapping[str, Any]

_BUCKET_AGREEMENT = 0.05


@dataclass(frozen=True, kw_only=True)
class ControlGroupLimit:
    """A limit that a control group of iosonde, or an ancestor of it, sets on a device."""

    device: str
    """Its name."""
    setting: str
    """File and value, such as `io.max riops=400`."""
    operation: Literal["read", "write"]
    counts: Counted
    rate: float

    def describe(self) -> str:
        """State it, such as "`io.max` allows 400 IOPS of reads on `nvme0n1`"."""
        file = self.setting.partition(" ")[0]
        return f"`{file}` allows {quantity(self.rate, self.counts)} of {self.operation}s on `{self.device}`"


class ControlGroupRule(Finding, kind="control group limit", topic="limits", place=FIRST):
    """A limit of a control group, compared with the identified rule for the same operation and unit."""

    limit: ControlGroupLimit
    rule: Rule | None

    @property
    def difference(self) -> float:
        """Identified rate less the limit, as a share of the limit."""
        assert self.rule, "an identified rule"
        return self.rule.rate.value / self.limit.rate - 1

    def _sentence(self) -> str:
        limit = self.limit
        if self.rule is None:
            return f"{limit.describe()}; no limit of {limit.operation}s in {limit.counts} was identified"
        found = quantity(self.rule.rate.value, limit.counts)
        if abs(self.difference) <= AGREEMENT:
            return f"{limit.describe()}, and the identified limit agrees: {found}"
        relation = "lower" if self.difference < 0 else "higher"
        return f"{limit.describe()}, but the identified limit is {relation}: {found}"

    def _evidence(self) -> str:
        found = f"; the identified rate differs by {100 * self.difference:+.2g} %" if self.rule else ""
        return f"`{self.limit.setting}` of the control group of iosonde or of an ancestor{found}"


class PublishedRule(Finding, kind="published limit", topic="limits", place=1):
    """A published rule of a volume type that agrees with the identified one."""

    rule: Rule
    limit: PublishedLimit
    size_bytes: int
    is_provider_known: bool

    def _sentence(self) -> str:
        rate, size = quantity(self.rule.rate.value, self.rule.counts), format_bytes(self.size_bytes)
        return f"the identified limit of {rate} agrees with a published one for {size}: {self.limit.describe()}"

    def _evidence(self) -> str:
        by = "provider known" if self.is_provider_known else "sustained rate, burst rate and bucket agree"
        return f"{self.limit.source}, {self.limit.date}; {by}"


def of_control_groups(target: Json) -> tuple[ControlGroupLimit, ...]:
    """The lowest limit of each device, operation and unit, from the devices as a target describes them."""
    found: dict[tuple[str, str, str], ControlGroupLimit] = {}
    for device in target.get("devices", ()):
        for text in device.get("limits", ()):
            limit = _parsed(str(device.get("name", "")), text)
            key = (limit.device, limit.operation, limit.counts)
            if key not in found or limit.rate < found[key].rate:
                found[key] = limit
    return tuple(found.values())


def _parsed(device: str, text: str) -> ControlGroupLimit:
    """Read `riops=400` of version 2, or `read_iops_device 2000` of version 1."""
    name, _, value = text.replace(" ", "=").partition("=")
    return ControlGroupLimit(
        device=device,
        setting=f"blkio.throttle.{text}" if name.endswith("_device") else f"io.max {text}",
        operation="read" if name.startswith("r") else "write",
        counts="operations" if "iops" in name else "bytes",
        rate=float(value),
    )


def compared(rules: Sequence[Rule], target: Json, surroundings: Json, case: Case) -> Iterator[Finding]:
    """Findings on what is known of a target; `surroundings` as its record has them.

    A simulated volume is none of the provider of this machine.
    """
    for known in of_control_groups(target):
        same = [rule for rule in rules if (rule.operation, rule.counts) == (known.operation, known.counts)]
        rule = same[0] if same else None
        yield ControlGroupRule(limit=known, rule=rule, strength="strong", case_ids=(case.case_id,), part=case.part)
    provider = None if target.get("simulated") else context.provider_of(surroundings)
    size_bytes = context.size_of(target)
    for rule in rules:
        for limit in limits(size_bytes=size_bytes, provider=provider):
            if limit.operations not in ("all", rule.operation) or limit.counts != rule.counts:
                continue
            if _agrees(rule, limit, is_provider_known=provider is not None):
                yield PublishedRule(
                    rule=rule,
                    limit=limit,
                    size_bytes=size_bytes,
                    is_provider_known=provider is not None,
                    strength="moderate",
                    case_ids=(case.case_id,),
                    part=case.part,
                )


def _agrees(rule: Rule, limit: PublishedLimit, *, is_provider_known: bool) -> bool:
    """Of a known provider the rate is enough; other volumes may have the same rate, but hardly the same credits."""
    if is_provider_known:
        agreed = limit.agreeing(rule.rate.value)
        return agreed == "rate" or (agreed == "burst rate" and rule.may_be_burst)
    return (
        _is_near(rule.rate, limit.rate, AGREEMENT)
        and _is_near(rule.burst_rate, limit.burst_rate, AGREEMENT)
        and _is_near(rule.bucket, limit.bucket, _BUCKET_AGREEMENT)
    )


def _is_near(found: Parameter | None, expected: float | None, share: float) -> bool:
    return bool(found and expected and abs(found.value / expected - 1) <= share)
