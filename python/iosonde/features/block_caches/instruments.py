"""The block cache under a run: its counters over time, and what they grew by during the run.

bcache updates its own counters every 13.6 s, so this instrument waits for the next update before and after each run of
10 s or more, and reports none of them for shorter runs. The counters of the three block devices and the amount of dirty
data are always current.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.engine import EngineRun
from iosonde.execution.instruments.counters import CounterSampler
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.features.block_caches.block_cache import BlockCache as Cache
from iosonde.features.block_caches.layers import implementation
from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.protocol import Event
from iosonde.results.schema import RecordWarning
from iosonde.supervisor.account import device_counters
from iosonde.units import format_bytes

LONG_NS = 10_000_000_000
"""Shortest run whose driver counters are worth waiting for."""
SYS = Path("/sys")
PREFIX = "block_cache."
"""Of the names of its statistics."""
NOT_WARM = "cache_not_warm"
NOT_DIRTY = "cache_not_dirty"


class BlockCache(Instrument):
    """Samples the block cache at the end of each interval."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return context.building is not None and context.building.layer(Cache) is not None

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        cache = context.building.layer(Cache) if context.building else None
        assert cache
        self._cache = cache
        self._is_held = dict(context.setup_facts.get("cache_prepared") or {}).get("state") == "dirty"
        """True if the cache does not write dirty data back until the engine starts (`preparations.py`)."""
        self._before: dict[str, int] = {}
        self._counters = CounterSampler(context.run.run_id, lambda: sample(cache), prefix=PREFIX)

    def start(self) -> None:
        """Read the counters once they cover all I/O before the run."""
        try:
            self._settle()
            self._before = self._counters.read()
        except TargetError as error:
            raise NotStartedError("setup", error) from None

    def engine_started(self, pid: int) -> None:
        """Let the cache write dirty data back."""
        self._release()

    def event(self, event: Event) -> None:
        """Sample after a layout and at the end of each interval; the last one before the measurement is its start."""
        if event["event"] == "phase" and event["phase"] == "layout" and event["edge"] == "end" and event["bytes"]:
            with contextlib.suppress(TargetError):  # The devices are gone; the engine reports why.
                self._counters.read()
        elif event["event"] == "interval":
            with contextlib.suppress(TargetError):
                self._counters.interval(event)

    def stop(self, done: EngineRun) -> Reading:
        """Read the counters once they cover all I/O of the run."""
        after: dict[str, int] = {}
        with contextlib.suppress(TargetError):  # Without the devices there is nothing to read.
            self._settle()
            after = sample(self._cache)
        measured = self._counters.measured()
        dirty, congested = (measured.get(f"{PREFIX}{name}", []) for name in ("dirty_bytes", "congested"))
        prepared = Prepared.model_validate(self.context.setup_facts.get("cache_prepared") or {})
        reading = BlockCacheReading(
            kind=self._cache.kind,
            mode=self._cache.facts["mode"],
            prepared=prepared,
            at_start=self._counters.at_start,
            at_end=self._counters.at_end,
            counters_before=self._before if self._counts else {},
            counters_after=after if self._counts else {},
            dirty_bytes_mean=sum(dirty) / len(dirty) if dirty else None,
            congested_share=sum(value > 0 for value in congested) / len(congested) if congested else None,
        )
        return Reading(
            parts=[reading],
            warnings=list(warnings(prepared)),
            store_statistics=self._counters.table(),
        )

    def close(self) -> None:
        """Let the cache write back, also after a run that did not start."""
        self._release()

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            with contextlib.suppress(TargetError):  # Without the devices there is nothing to write back.
                implementation(self._cache.kind).hold_dirty(self._cache, held=False)

    @property
    def _counts(self) -> bool:
        """Return True if the counters of the driver cover just this run."""
        is_long = (self.context.workload.get("duration_ns") or 0) >= LONG_NS
        return is_long or self._cache.kind != "bcache"

    def _settle(self) -> None:
        """Wait until the counters of the driver cover all I/O so far, if they are reported."""
        if self._counts:
            implementation(self._cache.kind).settle(self._cache)


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


def sample(built: Cache) -> dict[str, int]:
    """Counters of a cache and of its three block devices since they were created, and what is dirty and congested."""
    found = dict(implementation(built.kind).counters(built))
    for prefix, device in {"": built.device, "backing_": built.backing, "cache_device_": built.cache}.items():
        counted = device_counters(SYS / "class/block" / device.name)
        found |= {f"{prefix}{name}": counted[name] for name in ("read_bytes", "write_bytes") if name in counted}
    return found
