"""What a metric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: what it is called, what it means, which way is good."""

    name: str
    title: str
    """For axes and table heads, without the unit."""
    unit: str
    """`1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios."""
    formula: str
    better: Literal["higher", "lower", "neither"]
    kind: Literal["rate", "count", "time", "latency", "concurrency", "cpu", "device", "spread", "sustained", "store"]
