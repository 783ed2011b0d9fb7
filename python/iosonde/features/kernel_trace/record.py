"""The stages of the newest I/Os of a measurement, as its record has them."""

from __future__ import annotations

from pydantic import Field

from iosonde.results.schema import RecordPart


class TraceReading(RecordPart):
    """Stages of traced I/Os, or why there are none."""

    name = "kernel_trace"

    reason: str
    """Reason for the lack of stages; empty if there are some."""
    unseen: dict[str, str] = Field(default_factory=dict)
    """Stages that were not visible, with the reason."""
    events: int | None = None
    related: int | None = Field(default=None, ge=0, lt=1 << 62)
    """Traced I/Os whose stages are known."""
    incomplete: int | None = Field(default=None, ge=0, lt=1 << 62)
    """Traced I/Os with missing events."""
    stages: dict[str, list[int]] = Field(default_factory=dict)
    """Times of each stage, one for each I/O, ns."""


PARTS = (TraceReading,)
