"""Verdicts by shares of resources: the resource nearest to its limit decides, if it reaches the limit."""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.verdict.verdict import Kind, Verdict

BUSY = 0.85
"""Share of its CPUs, or of the time, from which a resource is a limit."""

Limit = tuple[float, Kind, str]
"""How near a resource was to its limit (1 is at it), the verdict that follows, and the reason."""


def nearest(limits: Sequence[Limit], evidence: dict[str, float | None]) -> Verdict:
    """Return the verdict of the resource that reached its limit first; `undetermined` if none did."""
    ordered = sorted(limits, key=lambda each: -each[0])
    reached = [each for each in ordered if each[0] >= 1]
    kind: Kind = reached[0][1] if reached else "undetermined"
    because = [text for _, each, text in reached if each == kind] or [
        "no resource was used completely: " + "; ".join(text for _, _, text in ordered[:3])
    ]
    return Verdict(kind=kind, because=tuple(because), warnings=(), evidence=evidence)


def over(share: float | None, limit: float) -> float | None:
    """A share relative to its limit."""
    return None if share is None else share / limit


def percent(share: float | None) -> str:
    """A share as text."""
    return f"{100 * (share or 0.0):.0f} %"
