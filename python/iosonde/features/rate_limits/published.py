"""Published limits of common volume types (`volumes.toml`), and which of them a measured rate agrees with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from iosonde import text_files
from iosonde.units import format_bandwidth, parse_size

Counted = Literal["operations", "bytes"]

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
