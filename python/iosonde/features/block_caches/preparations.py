"""The state of a block cache before each run: emptied, loaded to a hit ratio, or partly dirty.

The target is laid out first, because laying out writes through the cache. A cache is warmed with the load of the run
itself, with other random numbers, in steps of a second; it is made dirty with writes of the same load. What was reached
is recorded.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from iosonde.errors import TargetError
from iosonde.execution.context import RunContext
from iosonde.features.block_caches.block_cache import BlockCache
from iosonde.features.block_caches.facts import read_hits
from iosonde.features.block_caches.instruments import sample
from iosonde.features.block_caches.layers import implementation
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.plan import JsonObject

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
    kind = implementation(cache.kind)
    context = _laid_out(context)
    kind.empty(cache)
    facts: dict[str, Any] = {"state": asked.state}
    if asked.state == "warm":
        facts |= _warm(context, cache, asked.hit_ratio)
    elif asked.state == "dirty":
        kind.hold_dirty(cache, held=True)  # Until the engine of the run starts (`instruments.py`).
        try:
            facts |= _dirty(context, cache, asked.dirty_fraction)
        except BaseException:
            kind.hold_dirty(cache, held=False)
            raise
    return replace(context, setup_facts={**context.setup_facts, "cache_prepared": facts})


PREPARATIONS = (prepare,)


def _laid_out(context: RunContext) -> RunContext:
    """Lay out now what the run would lay out."""
    if context.workload.get("layout") not in ("missing", "always"):
        return context
    _step(context, step_spec(context.run.spec, 0, duration_ns=LAYOUT_NS))
    return context.laid_out()


def _warm(context: RunContext, cache: BlockCache, requested: float) -> dict[str, Any]:
    reached, best, best_at, steps = 0.0, 0.0, 0, 0
    while reached < requested and steps - best_at < PATIENCE and _may_step(context, steps):
        before = sample(cache)
        steps += 1
        _step(context, step_spec(context.run.spec, steps))
        hits, reads = read_hits(cache.kind, before, sample(cache))
        reached = (hits or 0) / reads if reads else 0.0
        if reached >= best + PROGRESS:
            best, best_at = reached, steps
    return {"requested_hit_ratio": requested, "hit_ratio": round(reached, 4), "steps": steps}


def _dirty(context: RunContext, cache: BlockCache, requested: float) -> dict[str, Any]:
    size = int(cache.facts["cache_bytes"])
    wanted, dirty, best, best_at, steps = int(requested * size), 0, 0, 0, 0
    while dirty < wanted and steps - best_at < PATIENCE and _may_step(context, steps):
        steps += 1
        _step(context, step_spec(context.run.spec, steps, read_fraction=0.0))
        dirty = sample(cache).get("dirty_bytes", 0)
        if dirty >= best + PROGRESS * size:
            best, best_at = dirty, steps
    return {"requested_dirty_bytes": wanted, "dirty_bytes": dirty, "steps": steps}


def _may_step(context: RunContext, steps: int) -> bool:
    return steps < MOST_STEPS and not context.session.stop.is_set()


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
