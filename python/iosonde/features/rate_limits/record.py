"""Part of a record about rate limits: what surrounds the volume, and the signature of a limit in the run."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from iosonde.results.schema import RecordPart


class RateLimits(RecordPart):
    """Context of a run, and a suspected limit."""

    name = "rate_limits"

    context: dict[str, Any] = Field(default_factory=dict)
    """Cloud, hypervisor, provider and kind of the device, settings of I/O controllers (`context.py`)."""
    suspected_iops: float | None = None
    """Constant rate that the run ended with; null without the signature of a limit."""
    suspected_bytes_per_second: float | None = None
    constant_s: float | None = None
    """Time for which it was constant, in seconds."""
    before_iops: float | None = None
    """Rate before it dropped to that one."""
    dropped_at_s: float | None = None
    """Time of the drop since the measurement began."""
    published: list[str] = Field(default_factory=list)
    """Published limits that agree with the rate, for the size and provider of the volume."""
    sources: list[str] = Field(default_factory=list)
    """Where they are published, with dates."""
    burst_s: float | None = None
    """Time that the run's rate lasts from a full bucket, where it is a published burst rate."""


PARTS = (RateLimits,)
