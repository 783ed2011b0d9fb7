"""The block cache under a run: its counters over time, and what they grew by during the run.

bcache updates its own counters every 13.6 s, so this instrument waits for the next update before and after each run of
10 s or more, and reports none of them for shorter runs. The counters of the three block devices and the amount of dirty
data are always current.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import polars as pl

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.features.block_caches.block_cache import BlockCache as Cache
from iosonde.features.block_caches.layers import implementation
from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.features.block_caches.sample import sample
from iosonde.protocol.event import Event, IntervalEvent
from iosonde.results.schema import STORE_STATISTICS, RecordWarning
from iosonde.units import format_bytes

LONG_NS = 10_000_000_000
"""Shortest run whose driver counters are worth waiting for."""
NOT_WARM = "cache_not_warm"
NOT_DIRTY = "cache_not_dirty"


class BlockCache(Instrument):
    """Samples the block cache at the end of each interval."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._cache: Cache | None = context.building.layer(Cache) if context.building else None
        self._is_held = dict(context.setup_facts.get("cache_prepared") or {}).get("state") == "dirty"
        """True if the cache does not write dirty data back until the engine starts (`preparations.py`)."""
        self._before: dict[str, int] = {}
        self._latest: dict[str, int] = {}
        """At the end of the last interval; before the load, at the start."""
        self._at_start: dict[str, int] = {}
        self._at_end: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []

    def start(self) -> None:
        """Read the counters once they cover all I/O before the run."""
        if self._cache is None:
            return
        try:
            self._before = self._latest = self._settled(self._cache)
        except TargetError as error:
            raise NotStartedError("setup", error) from None

    def engine_started(self, pid: int) -> None:
        """Let the cache write dirty data back."""
        if self._cache is not None:
            self._release(self._cache)

    def event(self, event: Event) -> None:
        """Sample after a layout and at the end of each interval; the last one before the measurement is its start."""
        if self._cache is None:
            return
        if event["event"] == "phase" and event["phase"] == "layout" and event["edge"] == "end" and event["bytes"]:
            with contextlib.suppress(TargetError):  # The devices are gone; the engine reports why.
                self._latest = sample(self._cache)
        elif event["event"] == "interval":
            self._interval(self._cache, event)

    def _interval(self, cache: Cache, event: IntervalEvent) -> None:
        try:
            found = sample(cache)
        except TargetError:
            return  # The devices are gone; the engine reports why.
        if event["phase"] == "measure":
            self._at_start = self._at_start or self._latest
            self._at_end = found
        self._latest = found
        place = {"run_id": self.context.run.run_id, "phase": event["phase"], "interval": event["index"]}
        self._rows += [
            {**place, "end_ns": event["end_ns"], "statistic": f"block_cache.{name}", "value": value}
            for name, value in found.items()
        ]

    def stop(self, done: EngineRun) -> Reading:
        """Read the counters once they cover all I/O of the run."""
        if self._cache is None:
            return Reading()
        after: dict[str, int] = {}
        with contextlib.suppress(TargetError):  # Without the devices there is nothing to read.
            after = self._settled(self._cache)
        prepared = Prepared.model_validate(self.context.setup_facts.get("cache_prepared") or {})
        reading = BlockCacheReading(
            kind=self._cache.kind,
            mode=self._cache.facts["mode"],
            prepared=prepared,
            at_start=self._at_start,
            at_end=self._at_end,
            counters_before=self._before if self._counts else {},
            counters_after=after if self._counts else {},
            dirty_bytes_mean=self._mean("dirty_bytes"),
            congested_share=self._share("congested"),
        )
        return Reading(
            parts=[reading],
            warnings=list(warnings(prepared)),
            store_statistics=pl.DataFrame(self._rows, schema=STORE_STATISTICS),
        )

    def close(self) -> None:
        """Let the cache write back, also after a run that did not start."""
        if self._cache is not None:
            self._release(self._cache)

    def _release(self, cache: Cache) -> None:
        if self._is_held:
            self._is_held = False
            with contextlib.suppress(TargetError):  # Without the devices there is nothing to write back.
                implementation(cache.kind).hold_dirty(cache, held=False)

    @property
    def _counts(self) -> bool:
        """Return True if the counters of the driver cover just this run."""
        assert self._cache is not None
        is_long = (self.context.workload.get("duration_ns") or 0) >= LONG_NS
        return is_long or self._cache.kind != "bcache"

    def _settled(self, cache: Cache) -> dict[str, int]:
        """A sample whose counters of the driver cover all I/O so far, if they are reported."""
        if self._counts:
            implementation(cache.kind).settle(cache)
        return sample(cache)

    def _mean(self, name: str) -> float | None:
        values = self._measured(name)
        return sum(values) / len(values) if values else None

    def _share(self, name: str) -> float | None:
        values = self._measured(name)
        return sum(value > 0 for value in values) / len(values) if values else None

    def _measured(self, name: str) -> list[int]:
        statistic = f"block_cache.{name}"
        return [row["value"] for row in self._rows if row["phase"] == "measure" and row["statistic"] == statistic]


INSTRUMENTS = (BlockCache,)


def warnings(prepared: Prepared) -> Iterator[RecordWarning]:
    """Warnings about the state of the cache before the run (docs/block-cache.md)."""
    hit_ratio, requested = prepared.hit_ratio, prepared.requested_hit_ratio
    if requested is not None and (hit_ratio or 0.0) < requested:
        yield RecordWarning(
            code=NOT_WARM,
            message=f"the cache reached a read hit ratio of {hit_ratio or 0.0:.2f} before the run, not {requested:.2f}",
            hint="use a larger cache device, a smaller `span`, a more skewed `distribution`, or a lower "
            "`cache_hit_ratio`",
        )
    dirty, wanted = prepared.dirty_bytes, prepared.requested_dirty_bytes
    if wanted is not None and (dirty or 0) < wanted:
        yield RecordWarning(
            code=NOT_DIRTY,
            message=f"{format_bytes(dirty or 0)} of the cache were dirty before the run, not {format_bytes(wanted)}",
            hint="use a larger `span`, or a lower `cache_dirty_fraction`",
        )
