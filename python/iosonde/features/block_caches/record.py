"""The block cache under a run, as its record has it."""

from __future__ import annotations

from pydantic import BaseModel, Field

from iosonde.results.schema import RecordPart


class Prepared(BaseModel):
    """State of the cache before the run, as far as it was brought about."""

    state: str = ""
    requested_hit_ratio: float | None = None
    hit_ratio: float | None = None
    requested_dirty_bytes: int | None = None
    dirty_bytes: int | None = None
    steps: int = 0


class BlockCacheReading(RecordPart):
    """Readings of the counters of a block cache and of its three devices, by name."""

    name = "block_cache"

    kind: str
    mode: str
    prepared: Prepared = Prepared()
    at_start: dict[str, int] = Field(default_factory=dict)
    """At the start of the measurement; bytes since each device was created."""
    at_end: dict[str, int] = Field(default_factory=dict)
    counters_before: dict[str, int] = Field(default_factory=dict)
    """Before the run, ramp included; empty where the driver's counters do not cover just the run."""
    counters_after: dict[str, int] = Field(default_factory=dict)
    dirty_bytes_mean: float | None = None
    """Mean over the intervals of the measurement."""
    congested_share: float | None = None
    """Share of these intervals, from 0 to 1; None where the driver does not report congestion."""


PARTS = (BlockCacheReading,)

STATISTICS = "block_cache."
"""Prefix of its readings in the table `store_statistics`."""
