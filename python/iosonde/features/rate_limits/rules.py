"""Conclusion of an identification: rules with their parameters, and what was rejected or not decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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


@dataclass(frozen=True, kw_only=True)
class Identification:
    """Everything that was concluded."""

    verdict: Verdict
    reason: str
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
    rejected: Sequence[str] = ()
    undecided: Sequence[str] = ()
    failure: str = ""
    stopped_at: str = ""
    """Stage in which the study was stopped; empty for a complete identification."""


@dataclass
class Notes:
    """Statements that accumulate during an identification."""

    rejected: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
