"""Verdicts by shares of resources: the resource nearest to its limit decides, if it reaches the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.verdict.verdict import Kind, Verdict

BUSY = 0.85
"""Share of its CPUs, or of the time, from which a resource is a limit."""

Limit = tuple[float, Kind, str]
"""Use of a resource as a share of its limit, the verdict that follows, and the reason."""


class Shares:
    """Evidence with one number a field; None where nothing was reported."""

    def to_json(self) -> dict[str, float | None]:
        """Rounded, for the record."""
        return {name: None if value is None else float(f"{value:.4g}") for name, value in vars(self).items()}


def wall_ns(result: Mapping[str, Any]) -> int:
    """Length of the measurement."""
    return max(1, int(result["end_ns"]) - int(result["begin_ns"]))


def counted_ns(result: Mapping[str, Any]) -> int:
    """Time between the two readings of the counters of process and devices."""
    return int(result["process"]["wall_ns"]) or wall_ns(result)


def cpu_shares(result: Mapping[str, Any]) -> list[float]:
    """CPU time of each job over the time in which it was counted."""
    used = [(job["usage"]["user_ns"] + job["usage"]["system_ns"], job["usage"]["wall_ns"]) for job in result["jobs"]]
    return [cpu_ns / counted if counted else 0.0 for cpu_ns, counted in used]


def device_busy_share(result: Mapping[str, Any]) -> float | None:
    """Share of the measurement in which the busiest device had I/O in flight."""
    busy = (share(each["busy_ns"], counted_ns(result)) for each in result["devices"])
    return max((each for each in busy if each is not None), default=None)


def share(part: float | None, whole: float) -> float | None:
    """Part over whole, at most 1: counters advance in ticks, and count a wait when it ends."""
    return None if part is None or whole <= 0 else min(1.0, part / whole)


def mean(values: Sequence[float]) -> float:
    """Mean of shares; 0 without any."""
    return sum(values) / len(values) if values else 0.0


def nearest(limits: Sequence[Limit], evidence: dict[str, float | None]) -> Verdict:
    """Return the verdict of the resource that reached its limit first; `undetermined` if none did."""
    ordered = sorted(limits, key=lambda each: -each[0])
    reached = [each for each in ordered if each[0] >= 1]
    kind: Kind = reached[0][1] if reached else "undetermined"
    because = [text for _, each, text in reached if each == kind] or [
        "no share reached its limit: " + "; ".join(text for _, _, text in ordered[:3])
    ]
    return Verdict(kind=kind, because=tuple(because), warnings=(), evidence=evidence)


def over(share: float | None, limit: float) -> float | None:
    """A share relative to its limit."""
    return None if share is None else share / limit


def percent(share: float | None) -> str:
    """A share as text."""
    return f"{100 * (share or 0.0):.0f} %"
