"""Cost of a run on a store: time, and bytes written."""

from __future__ import annotations

from collections.abc import Mapping

from iosonde.features.key_value_stores.cassandra.settings import CASSANDRA
from iosonde.features.key_value_stores.notation import operations_of
from iosonde.features.key_value_stores.parameters import KvParameters
from iosonde.features.key_value_stores.phases import WRITES
from iosonde.features.key_value_stores.trace import converted
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost

ASSUMED_OPERATIONS_PER_SECOND = 50_000
"""Speed at which a phase that only operations end is assumed to go when a plan estimates time."""

START_S = 20
"""Seconds in which Cassandra's template is copied, and the node starts and shuts down."""


def cost(streams: Mapping[str, KvParameters]) -> Cost:
    """Time and bytes written at most, without layout; streams must be fitted to the target."""
    whole = next(iter(streams.values()))
    written = [_written(stream) for stream in streams.values()]
    return Cost(
        seconds=whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()) + _start_seconds(whole),
        write_bytes=0 if whole.store == "null" else None if None in written else sum(size or 0 for size in written),
    )


def _start_seconds(whole: KvParameters) -> int:
    return START_S if whole.store == CASSANDRA and not whole.is_running_server else 0


def _written(stream: KvParameters) -> int | None:
    """Bytes of keys and values that a stream writes, without what a store adds; None where only time limits them."""
    kinds = {name for name, _ in operations_of(stream.operations or "read")}
    if stream.phase == "readwhilewriting":
        rate = stream.write_rate
        return (
            None
            if rate is None or not isinstance(stream.duration, int)
            else round(rate * (stream.duration + stream.ramp) / 10**9 * stream.record_bytes)
        )
    if not kinds & WRITES:
        return 0
    if stream.phase == "trace" and stream.trace:
        found = converted(stream.trace)
        return found.sets * (found.key_bytes + found.value_bytes)
    if stream.limit_operations is None or stream.ramp:
        return None
    return stream.limit_operations * stream.record_bytes


def _seconds(stream: KvParameters) -> float:
    if stream.phase == "trace" and stream.trace:
        return _seconds_of_trace(stream)
    if isinstance(stream.duration, int):
        return stream.duration / 10**9
    if stream.limit_operations:
        by_count = stream.limit_operations / (stream.rate or ASSUMED_OPERATIONS_PER_SECOND)
        return max(by_count, stream.limit_operations * stream.record_bytes / ASSUMED_BYTES_PER_SECOND)
    return (stream.limit_bytes or 0) / ASSUMED_BYTES_PER_SECOND


def _seconds_of_trace(stream: KvParameters) -> float:
    assert stream.trace is not None
    found = converted(stream.trace)
    seconds = found.rows / ASSUMED_OPERATIONS_PER_SECOND
    if stream.arrival == "trace":
        seconds = found.seconds / stream.trace_speed
    return min(seconds, stream.duration / 10**9) if isinstance(stream.duration, int) else seconds
