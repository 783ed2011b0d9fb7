"""Parameters of a load on a store that follow from its phases and the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.errors import StudyError, TargetError
from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.cassandra.settings import CASSANDRA
from iosonde.features.key_value_stores.fields import WHOLE_WORKLOAD
from iosonde.features.key_value_stores.memcached.settings import CACHES
from iosonde.features.key_value_stores.notation import SMALLEST_VALUE, operations_of
from iosonde.features.key_value_stores.phases import LOADS, PHASES, WRITES
from iosonde.features.key_value_stores.rules import KvParameters
from iosonde.features.key_value_stores.trace import converted
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.reading import check_agreement
from iosonde.workload.workload import Room

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


DEFAULT_DURATION_NS = 10 * 10**9


def fit(streams: Mapping[str, KvParameters], target: Room, *, room_bytes: int) -> dict[str, KvParameters]:
    """The parameters with what the phases and the target decide."""
    backend = (target.backend() or {"kind": ""})["kind"]
    if backend not in ("", "null"):
        raise TargetError(
            "a store needs a file system or a block device, and a simulated device is neither",
            hint="name a directory as the target; `null:` measures what the harness itself costs",
        )
    is_virtual = backend == "null"
    fitted = {name: _by_phase(stream, is_virtual=is_virtual) for name, stream in streams.items()}
    fitted = _one_database(fitted)
    check_agreement(fitted, WHOLE_WORKLOAD)
    if all(stream.background for stream in fitted.values()):
        raise StudyError("every stream is in the background, so nothing ends the run", hint="leave out `background`")
    return fitted


def _by_phase(stream: KvParameters, *, is_virtual: bool) -> KvParameters:
    phase = PHASES[stream.phase]
    is_load = stream.phase in LOADS
    by_phase: dict[str, Any] = {
        "operations": phase.operations,
        "choice": phase.choice or ("sequential" if stream.load_order == "sequential" else "each_once"),
        "direction": phase.direction,
        "database": "existing" if stream.user_database else "empty" if is_load else "loaded",
        "limit_operations": stream.records if is_load and stream.limit_bytes is None else None,
    }
    changes = {name: value for name, value in by_phase.items() if getattr(stream, name) is None}
    if stream.phase == "load":
        changes |= {"batch": stream.load_batch, "sync": stream.load_sync}
    if stream.duration == "phase":
        ends = is_load or stream.limit_operations is not None or stream.limit_bytes is not None
        ends |= stream.phase == "trace"
        changes["duration"] = None if ends or stream.background else DEFAULT_DURATION_NS
    if stream.start == "cold":
        changes |= {"page_cache": "drop", "ramp": 0, "ramp_until": "time"}
    if stream.phase == "trace":
        changes |= _by_trace(stream)
    if stream.store in (*CACHES, CASSANDRA):
        changes["page_cache"] = "keep"  # The server has just started, without pages of its files.
    if stream.store == "mongodb":
        changes["page_cache"] = "keep"  # Where its files are is not known.
    if stream.in_memory:
        changes["page_cache"] = "keep"  # Its pages are the database itself.
    if is_virtual:
        changes |= {"store": "null", "library": None, "page_cache": "keep", "memory_limit": None}
        changes |= {"in_memory": False}
        if stream.phase == "trace" and stream.trace is None:  # As with other second targets, there is nothing to name.
            changes |= {"phase": "readrandom", "arrival": "closed", "duration": DEFAULT_DURATION_NS}
        changes |= {"read_cache": None, "read_cache_target": None}
        changes |= {"log": "with_data", "log_target": None, "options_file": None, "user_database": None}
        changes |= {"miss": "miss", "ttl": 0, "cassandra": {}, "compaction": None, "server_url": None, "mongodb": {}}
    return stream.model_copy(update=changes)


def _by_trace(stream: KvParameters) -> dict[str, Any]:
    """Parameters that follow from a trace: operations, approximate record count, key and value size in bytes."""
    changes: dict[str, Any] = {"operations": PHASES["trace"].operations}
    if stream.database is None:
        changes["database"] = "empty" if stream.store in CACHES else "loaded"
    if stream.trace is None:  # What a study takes can be estimated without one.
        return changes
    found = trace.converted(stream.trace)
    sizes = {"key_size": found.key_bytes, "value_size": max(found.value_bytes, SMALLEST_VALUE)}
    return changes | sizes | {"operations": found.operations, "records": found.keys}


def _one_database(streams: Mapping[str, KvParameters]) -> dict[str, KvParameters]:
    """Streams that run together begin on one database: an empty one if any of them loads."""
    states = {stream.database for stream in streams.values()}
    if states <= {"empty", "loaded"} and len(states) > 1:
        return {name: stream.model_copy(update={"database": "empty"}) for name, stream in streams.items()}
    return dict(streams)
