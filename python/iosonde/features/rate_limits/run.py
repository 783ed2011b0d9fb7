"""Recognition of a rate limit in each run, after its engine has exited: nothing happens during the measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.rate_limits import PROCEDURES, context, known_limits
from iosonde.features.rate_limits.record import RateLimits
from iosonde.features.rate_limits.signature import Load, signature
from iosonde.results.schema import RecordWarning
from iosonde.units import format_bandwidth, format_duration

Json = Mapping[str, Any]

LIMIT, DROP, BURST = "rate_limit", "rate_limit_drop", "burst_rate"
"""Codes of the warnings."""


class LimitSignature(Instrument):
    """Records the context of the volume, and warns of the signature of a limit in closed-loop block I/O."""

    def stop(self, done: EngineRun) -> Reading:
        """Look at the intervals."""
        target, workload = self.context.target_facts, self.context.workload
        surroundings = context.described(target)
        procedure = self.context.case.procedure
        if procedure is not None and procedure.kind in PROCEDURES:
            # The study looks for limits, and concludes from all of its runs.
            return Reading(parts=[RateLimits(context=surroundings)] if surroundings else [])
        is_virtual = surroundings.get("volume_kind") == context.NETWORK_VOLUME
        load = load_of(workload, done.intervals) if done.is_complete or done.was_enough else None
        part = signature(load, is_virtual=is_virtual) if load else None
        if part is None:
            return Reading(parts=[RateLimits(context=surroundings)] if surroundings else [])
        part = part.model_copy(update=_published(part, surroundings, size_bytes=context.size_of(target)))
        return Reading(parts=[part], warnings=[_warning(part)])


def load_of(workload: Json, intervals: pl.DataFrame) -> Load | None:
    """The load of a run over time; None unless it is block I/O in closed loop."""
    if workload.get("kind") != "block" or any(s["arrival"]["kind"] != "closed" for s in workload["streams"]):
        return None
    measured = intervals.filter((pl.col("phase") == "measure") & pl.col("operation").is_in(["read", "write"]))
    if measured.is_empty():
        return None
    bins = measured.group_by("begin_ns", "end_ns").agg(pl.col("count", "bytes").sum()).sort("begin_ns")
    lowest = intervals["completion_latency_ns_min"].min()
    return Load(
        seconds=((bins["end_ns"] - bins["begin_ns"]) / 1e9).to_list(),
        operations=bins["count"].to_list(),
        bytes=float(bins["bytes"].sum()),
        lowest_latency_s=float(lowest) / 1e9 if isinstance(lowest, int) else 0.0,
        queue_depth=sum(int(s.get("queue_depth", 1)) * int(s.get("jobs", 1)) for s in workload["streams"]),
    )


def _published(found: RateLimits, surroundings: Json, *, size_bytes: int) -> dict[str, Any]:
    """Context of a rate, and the published limits with which it agrees, as fields of the record."""
    rates: tuple[tuple[float, known_limits.Counted], ...] = (
        (found.suspected_iops or 0.0, "operations"),
        (found.suspected_bytes_per_second or 0.0, "bytes"),
    )
    provider = context.provider_of(surroundings)
    agreeing = [
        each
        for rate, counts in rates
        if provider
        for each in known_limits.agreeing(rate, counts, size_bytes=size_bytes, provider=provider)
    ]
    bursts = [limit.burst_seconds or math.inf for limit, what in agreeing if what == "burst rate"]
    return {
        "context": dict(surroundings),
        "published": [limit.describe() for limit, _ in agreeing],
        "sources": sorted({f"{limit.source}, {limit.date}" for limit, _ in agreeing}),
        "burst_s": min(bursts, default=None),
    }


def _warning(part: RateLimits) -> RecordWarning:
    rate, bandwidth = part.suspected_iops or 0.0, part.suspected_bytes_per_second or 0.0
    length = format_duration(round(part.constant_s or 0.0) * 10**9)
    level = f"{rate:,.0f} IOPS ({format_bandwidth(bandwidth)})"
    agreeing = f"; published: {'; '.join(part.published)}" if part.published else ""
    if part.burst_s is not None:
        lasts = format_duration(round(part.burst_s) * 10**9)
        return RecordWarning(
            code=BURST,
            message=f"constant at {level} for {length}, a published burst rate{agreeing}",
            hint=f"a full bucket lasts {lasts}, then the rate drops; `iosonde run limits` measures the sustained rate",
            is_transient=True,
        )
    if part.before_iops is not None:
        at = format_duration(round(part.dropped_at_s or 0.0) * 10**9)
        return RecordWarning(
            code=DROP,
            message=f"dropped from {part.before_iops:,.0f} IOPS to a constant {level} after {at}: burst credits that "
            f"were spent, or a rate limit that changed{agreeing}",
            hint="the mean over both levels holds for no other length; `iosonde run limits` identifies the rule",
        )
    return RecordWarning(
        code=LIMIT,
        message=f"constant at {level} for {length}, more so than devices are: a rate limit, or a burst that lasts "
        f"longer{agreeing}",
        hint="results are those of the limit, not of the device; `iosonde run limits` identifies the rule",
    )


INSTRUMENTS = (LimitSignature,)
