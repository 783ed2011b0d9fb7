"""Recognition of a rate limit in each run, after its engine has exited: nothing happens during the measurement.

The signature is a rate more constant than devices are, at a queue that is full. A token bucket completes as many
operations in every second, to within a few, while those of a device are the sum of many times that vary: they wander
from a straight line like the square root of their number. So the number of completed operations is compared with a
line. Two conditions exclude what looks alike. The queue must be full: with the lowest latency of the run and its queue
depth, Little's law must give a multiple of the rate, or the load decides it. And the rate must be one that a device's
controller or link does not reach: those may be as constant as a rule.

Bins shorter than a limiter's own period (100 ms in the kernel) are joined.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.rate_limits import PROCEDURES, context, known_limits
from iosonde.features.rate_limits.record import RateLimits
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


Floats = NDArray[np.float64]

WANDERING = 0.001
"""Largest distance of the completed operations from a line, as a share of them."""
SPREAD = 0.004
"""Largest deviation of a bin from the rate, as a share of it."""
WHOLE = 1.5
"""Operations that counting whole ones adds to both."""
BINS_MIN = 10
OPERATIONS_MIN = 150
"""Completed in each bin; bins with fewer are joined."""
SECONDS_MIN = 3.0
THROTTLED = 3.0
"""Rate that the queue depth would give at the lowest latency, as a multiple of the rate found."""
DROP_FACTOR = 1.1
"""Earlier rate, as a multiple of the later one, that is a drop."""

DEVICE_OPERATIONS = 20_000
DEVICE_BYTES = 82_000_000
"""Above these rates a controller or link may be as constant: not judged on a device that may be a physical one."""
VIRTUAL_OPERATIONS = 400_000
VIRTUAL_BYTES = 5_000_000_000
"""The same on a device that is known to be virtual."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Operations of a closed loop over time; one element of each sequence for a bin."""

    seconds: Sequence[float]
    operations: Sequence[float]
    bytes: float
    """All bytes over all operations: the mean size."""
    lowest_latency_s: float
    """Lowest completion latency of the run."""
    queue_depth: int
    """Operations in flight, of all jobs."""


def signature(load: Load, *, is_virtual: bool = False) -> RateLimits | None:
    """Return the constant rate that a run ends with, and the one before it if it dropped; None without a signature."""
    seconds, counts = _joined(np.asarray(load.seconds, float), np.asarray(load.operations, float))
    if len(counts) < BINS_MIN:
        return None
    start = _start_of_last_level(seconds, counts)
    length, total = float(seconds[start:].sum()), float(counts[start:].sum())
    size = load.bytes / max(1.0, float(sum(load.operations)))
    if len(counts) - start < BINS_MIN or length < SECONDS_MIN or not _is_constant(seconds[start:], counts[start:]):
        return None
    rate = total / length
    possible = load.queue_depth / load.lowest_latency_s if load.lowest_latency_s > 0 else 0.0
    most = (VIRTUAL_OPERATIONS, VIRTUAL_BYTES) if is_virtual else (DEVICE_OPERATIONS, DEVICE_BYTES)
    if rate > most[0] or rate * size > most[1] or possible < THROTTLED * rate:
        return None
    before = float(counts[:start].sum() / seconds[:start].sum()) if start else None
    is_drop = before is not None and before > DROP_FACTOR * rate
    return RateLimits(
        suspected_iops=rate,
        suspected_bytes_per_second=rate * size,
        constant_s=length,
        before_iops=before if is_drop else None,
        dropped_at_s=float(seconds[:start].sum()) if is_drop else None,
    )


def _joined(seconds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Join neighbouring bins until each has enough operations and lasts long enough. The last may be incomplete."""
    typical = float(np.median(seconds)) if len(seconds) else 0.0
    whole = seconds >= 0.5 * typical
    seconds, counts = seconds[whole], counts[whole]
    if len(counts) == 0 or counts.sum() == 0:
        return np.zeros(0), np.zeros(0)
    later = counts[len(counts) // 2 :]
    size = max(1, int(np.ceil(OPERATIONS_MIN / max(1.0, float(np.median(later))))))
    size = max(size, int(np.ceil(0.1 / max(typical, 1e-9))))
    count = len(counts) // size * size
    # The end counts: a remainder is left out at the start.
    return (
        seconds[len(seconds) - count :].reshape(-1, size).sum(axis=1),
        counts[len(counts) - count :].reshape(-1, size).sum(axis=1),
    )


def _start_of_last_level(seconds: Floats, counts: Floats) -> int:
    """Return the first bin of the stretch at the end whose bins agree with the median of the last ones."""
    rates = counts / seconds
    level = float(np.median(rates[-BINS_MIN:]))
    allowed = SPREAD * level + WHOLE / float(np.median(seconds))
    backwards = itertools.takewhile(lambda rate: abs(rate - level) <= allowed, reversed(rates.tolist()))
    return len(rates) - sum(1 for _ in backwards)


def _is_constant(seconds: Floats, counts: Floats) -> bool:
    times, done = np.cumsum(seconds), np.cumsum(counts)
    rate = float(counts.sum() / seconds.sum())
    apart = done - rate * times
    distance = float(apart.max() - apart.min()) / 2
    return distance <= WHOLE + WANDERING * float(counts.sum())


INSTRUMENTS = (LimitSignature,)
