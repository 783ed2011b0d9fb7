"""Limits known without measuring, compared with identified rules: those of control groups and published ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from iosonde.features.rate_limits import context, published
from iosonde.features.rate_limits.published import AGREEMENT, PublishedLimit, quantity
from iosonde.features.rate_limits.rules import Counted, Parameter, Rule
from iosonde.findings.finding import FIRST, Finding
from iosonde.plan import Case
from iosonde.units import format_bytes

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
        for limit in published.limits(size_bytes=size_bytes, provider=provider):
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
