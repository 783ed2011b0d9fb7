"""The block cache under a run: its counters over time, and what they grew by during the run.

bcache updates its own counters every 13.6 s, so this instrument waits for the next update before and after each run of
10 s or more, and reports none of them for shorter runs. The counters of the three block devices and the amount of dirty
data are always current.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from iosonde.base.check import OTHER_KERNEL, Check
from iosonde.engine.protocol import Event
from iosonde.engine.supervisor.account import device_counters
from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.counters import CounterSampler
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.features.block_caches.facts import read_hits
from iosonde.features.block_caches.record import STATISTICS, BlockCacheReading, Prepared
from iosonde.features.block_caches.setup import MODULES, OPTIONS, BlockCache, BlockCacheSetup
from iosonde.plan import JsonObject
from iosonde.results.schema import RecordWarning
from iosonde.storage.tools import state_of
from iosonde.units import format_bytes


def _checks() -> Iterator[Check]:
    for kind, modules in MODULES.items():
        state, needed = state_of(*modules), f'for setups with `cache = "{kind}"`'
        if state == "missing":
            found = f"not in this kernel ({OPTIONS[kind]}), {needed}"
            yield Check(name=kind, state="note", found=found, advice=OTHER_KERNEL)
        else:
            yield Check(name=kind, state="ok", found=f"{state}, {needed}")


CHECKS = (_checks,)


LONG_NS = 10_000_000_000
"""Shortest run whose driver counters are worth waiting for."""
SYS = Path("/sys")
NOT_WARM = "cache_not_warm"
NOT_DIRTY = "cache_not_dirty"


class BlockCacheCounters(Instrument):
    """Samples the block cache at the end of each interval."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return context.building is not None and context.building.layer(BlockCache) is not None

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        cache = context.building.layer(BlockCache) if context.building else None
        assert cache
        self._cache = cache
        self._is_held = dict(context.setup_facts.get("cache_prepared") or {}).get("state") == "dirty"
        """True if the cache does not write dirty data back until the engine starts (`preparations.py`)."""
        self._before: dict[str, int] = {}
        self._counters = CounterSampler(context.run.run_id, lambda: sample(cache), prefix=STATISTICS)

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
        dirty, congested = (measured.get(f"{STATISTICS}{name}", []) for name in ("dirty_bytes", "congested"))
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
                self._cache.hold_dirty(held=False)

    @property
    def _counts(self) -> bool:
        """Return True if the counters of the driver cover just this run."""
        is_long = (self.context.workload.get("duration_ns") or 0) >= LONG_NS
        return is_long or self._cache.kind != "bcache"

    def _settle(self) -> None:
        """Wait until the counters of the driver cover all I/O so far, if they are reported."""
        if self._counts:
            self._cache.settle()


INSTRUMENTS = (BlockCacheCounters,)


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


def sample(built: BlockCache) -> dict[str, int]:
    """Counters of a cache and of its three block devices since they were created, and what is dirty and congested."""
    found = built.counters()
    for prefix, device in {"": built.device, "backing_": built.backing, "cache_device_": built.cache}.items():
        counted = device_counters(SYS / "class/block" / device.name)
        found |= {f"{prefix}{name}": counted[name] for name in ("read_bytes", "write_bytes") if name in counted}
    return found


STEP_NS = 1_000_000_000
LAYOUT_NS = 100_000_000
MOST_STEPS = 600
PATIENCE = 10
"""Steps without progress after which a cache is as warm, or as dirty, as it gets."""
PROGRESS = 0.005
"""Smallest progress: share of the reads, or of the cache device."""


def prepare(context: RunContext) -> RunContext:
    """The run once its cache is in the state of the case; `TargetError` if that fails."""
    cache = context.building.layer(BlockCache) if context.building else None
    asked = context.case.setup.layer(BlockCacheSetup) if context.case.setup else None
    if cache is None or asked is None or asked.state == "kept":
        return context
    if context.workload.get("layout") in ("missing", "always"):  # Lay out now what the run would lay out.
        _step(context, step_spec(context.run.spec, 0, duration_ns=LAYOUT_NS))
        context = context.laid_out()
    cache.empty()
    facts: dict[str, Any] = {"state": asked.state}
    if asked.state == "warm":
        facts |= _warm(context, cache, asked.hit_ratio)
    elif asked.state == "dirty":
        cache.hold_dirty(held=True)  # Until the engine of the run starts (`instruments.py`).
        try:
            facts |= _dirty(context, cache, asked.dirty_fraction)
        except BaseException:
            cache.hold_dirty(held=False)
            raise
    return replace(context, setup_facts={**context.setup_facts, "cache_prepared": facts})


PREPARATIONS = (prepare,)


def _warm(context: RunContext, cache: BlockCache, requested: float) -> dict[str, Any]:
    def hit_ratio(step: int) -> float:
        before = sample(cache)
        _step(context, step_spec(context.run.spec, step))
        hits, reads = read_hits(cache.kind, before, sample(cache))
        return (hits or 0) / reads if reads else 0.0

    reached, steps = _repeated(context, hit_ratio, requested, PROGRESS)
    return {"requested_hit_ratio": requested, "hit_ratio": round(reached, 4), "steps": steps}


def _dirty(context: RunContext, cache: BlockCache, requested: float) -> dict[str, Any]:
    def dirty_bytes(step: int) -> int:
        _step(context, step_spec(context.run.spec, step, read_fraction=0.0))
        return sample(cache).get("dirty_bytes", 0)

    size = int(cache.facts["cache_bytes"])
    wanted = int(requested * size)
    reached, steps = _repeated(context, dirty_bytes, wanted, PROGRESS * size)
    return {"requested_dirty_bytes": wanted, "dirty_bytes": int(reached), "steps": steps}


def _repeated(context: RunContext, step: Callable[[int], float], wanted: float, progress: float) -> tuple[float, int]:
    """Repeat a step until its result is as wanted or makes no more progress -> the last result, number of steps."""
    reached, best, best_at, steps = 0.0, 0.0, 0, 0
    while reached < wanted and steps - best_at < PATIENCE and steps < MOST_STEPS and not context.session.stop.is_set():
        steps += 1
        reached = step(steps)
        if reached >= best + progress:
            best, best_at = reached, steps
    return reached, steps


def _step(context: RunContext, spec: JsonObject) -> None:
    done = context.carry_out(spec)
    if done.failure and not context.session.stop.is_set():
        raise TargetError(
            f"the block cache could not be prepared: {done.failure.message}",
            where=done.failure.context,
            hint=done.failure.hint,
        )


def step_spec(
    spec: JsonObject, number: int, *, duration_ns: int = STEP_NS, read_fraction: float | None = None
) -> JsonObject:
    """The spec of a run as a short load with other random numbers, without ramp and limits."""
    workload = copy.deepcopy(spec["workload"])
    workload |= {
        "ramp": {"duration_ns": 0, "bytes": None},
        "duration_ns": duration_ns,
        "interval_ns": min(int(workload["interval_ns"]), duration_ns),
    }
    if number > 0 and "layout" in workload:
        workload["layout"] = "never"
    for stream in workload["streams"]:
        stream |= {"limit_bytes": None, "limit_operations": None}
        if read_fraction is not None and "mix" in stream:
            stream["mix"] |= {"read_fraction": read_fraction, "trim_fraction": 0.0}
    return {**spec, "workload": workload, "seed": (int(spec["seed"]) + number) % (1 << 53)}
