"""What phases and the target decide about a load on a store, and what a run needs: its database, room, time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.notation import SMALLEST_VALUE
from iosonde.features.key_value_stores.parameters import CACHES, LOADS, LOG_STRUCTURED, PHASES, KvParameters
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.study.workload.workload import Layout, whole_of
from iosonde.units import format_duration

ASSUMED_OPERATIONS_PER_SECOND = 50_000
"""Speed at which a phase that only operations end is assumed to go when a plan estimates time."""

START_S = 20
"""Seconds in which Cassandra's template is copied, and the node starts and shuts down."""

DEFAULT_DURATION_NS = 10 * 10**9

SPACE_FACTOR = 2
"""Room that a database is assumed to need at most, as a multiple of its records: half-full pages, files that a
compaction has not removed yet."""

CHECKPOINT_FACTOR = 1
"""Room for a checkpoint, once compactions have replaced the files that it shares with the database; or a template."""

READ_CACHE = "-cache"
"""Suffix of the directory of a database's persistent read cache."""

SPACE_BYTES = 128 << 20
"""The same, whatever its records: logs and files that are allocated ahead."""

LOG_FILES = 4
LOG_FILE_BYTES = 100 << 20
"""WiredTiger: files of its log that are allocated ahead, and the size of each unless `log.file_max` sets it."""


def by_phase(stream: KvParameters, *, is_virtual: bool) -> KvParameters:
    """The parameters with what its phase, its store and a virtual target decide."""
    phase, is_load, is_trace = PHASES[stream.phase], stream.phase in LOADS, stream.phase == "trace"
    decided: dict[str, Any] = {
        "operations": phase.operations,
        "choice": phase.choice or ("sequential" if stream.load_order == "sequential" else "each_once"),
        "direction": phase.direction,
        "database": "existing" if stream.user_database else "empty" if is_load else "loaded",
        "limit_operations": stream.records if is_load and stream.limit_bytes is None else None,
    }
    changes = {name: value for name, value in decided.items() if getattr(stream, name) is None}
    if stream.phase == "load":
        changes |= {"batch": stream.load_batch, "sync": stream.load_sync}
    if stream.duration == "phase":
        ends = is_load or is_trace or stream.limit_operations is not None or stream.limit_bytes is not None
        changes["duration"] = None if ends or stream.background else DEFAULT_DURATION_NS
    if stream.start == "cold":
        changes |= {"page_cache": "drop", "ramp": 0, "ramp_until": "time"}
    if is_trace:
        changes |= _by_trace(stream)
    # A server has just started, without pages of its files, or they are unknown; in memory, pages are the database.
    if stream.store in (*CACHES, "cassandra", "mongodb") or stream.in_memory:
        changes["page_cache"] = "keep"
    if is_virtual:
        changes |= {"store": "null", "page_cache": "keep", "in_memory": False, "log": "with_data", "miss": "miss"}
        changes |= {"ttl": 0, "cassandra": {}, "mongodb": {}}
        absent = ("library", "memory_limit", "read_cache", "read_cache_target", "log_target", "options_file")
        changes |= dict.fromkeys((*absent, "user_database", "compaction", "server_url"))
        if is_trace and stream.trace is None:  # As with other second targets, there is nothing to name.
            changes |= {"phase": "readrandom", "arrival": "closed", "duration": DEFAULT_DURATION_NS}
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


def cost(streams: Mapping[str, KvParameters]) -> Cost:
    """Time and bytes written at most, without layout; streams must be fitted to the target."""
    whole = whole_of(streams)
    written = [_written(stream) for stream in streams.values()]
    start_s = START_S if whole.store == "cassandra" and not whole.is_running_server else 0
    return Cost(
        seconds=whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()) + start_s,
        write_bytes=0 if whole.store == "null" else None if None in written else sum(size or 0 for size in written),
    )


def _written(stream: KvParameters) -> int | None:
    """Bytes of keys and values that a stream writes, without what a store adds; None where only time limits them."""
    if stream.phase == "readwhilewriting":
        if stream.write_rate is None or not isinstance(stream.duration, int):
            return None
        return round(stream.write_rate * (stream.duration + stream.ramp) / 10**9 * stream.record_bytes)
    if not stream.writes:
        return 0
    if stream.phase == "trace" and stream.trace:
        found = trace.converted(stream.trace)
        return found.sets * (found.key_bytes + found.value_bytes)
    if stream.limit_operations is None or stream.ramp:
        return None
    return stream.limit_operations * stream.record_bytes


def _seconds(stream: KvParameters) -> float:
    at_most = stream.duration / 10**9 if isinstance(stream.duration, int) else None
    if stream.phase == "trace" and stream.trace:
        found = trace.converted(stream.trace)
        as_recorded = found.seconds / stream.trace_speed
        seconds = as_recorded if stream.arrival == "trace" else found.rows / ASSUMED_OPERATIONS_PER_SECOND
        return seconds if at_most is None else min(seconds, at_most)
    if at_most is not None:
        return at_most
    if stream.limit_operations:
        by_count = stream.limit_operations / (stream.rate or ASSUMED_OPERATIONS_PER_SECOND)
        return max(by_count, stream.limit_operations * stream.record_bytes / ASSUMED_BYTES_PER_SECOND)
    return (stream.limit_bytes or 0) / ASSUMED_BYTES_PER_SECOND


def files(streams: Mapping[str, KvParameters]) -> dict[str, int]:
    """The databases that a run keeps on disk, by name, with the room that each is assumed to need."""
    whole = whole_of(streams)
    if not whole.is_created or whole.in_memory:
        return {}
    name = identity(whole)
    cache = {f"{name}{READ_CACHE}": whole.read_cache} if whole.read_cache and whole.read_cache_target is None else {}
    return {name: addressed_bytes(streams), **cache}


def addressed_bytes(streams: Mapping[str, KvParameters]) -> int:
    """Room that the database is assumed to need; of memcached that of its file."""
    whole = whole_of(streams)
    if not whole.is_created or whole.in_memory:
        return 0
    if whole.store in CACHES:
        return whole.extstore_size if whole.tier == "extstore" else 0
    is_copied = keeps_checkpoint(streams) or whole.store == "cassandra"
    factor = SPACE_FACTOR + (CHECKPOINT_FACTOR if is_copied else 0)
    log = whole.wiredtiger.get("log.file_max", LOG_FILE_BYTES)
    log_bytes = LOG_FILES * (log if isinstance(log, int) else LOG_FILE_BYTES) if whole.store == "wiredtiger" else 0
    return _stored_records(whole) * whole.record_bytes * factor + SPACE_BYTES + log_bytes


def _stored_records(whole: KvParameters) -> int:
    """Records that the database has at most; of a trace those that are loaded, and those that it sets."""
    if whole.phase != "trace" or not whole.trace:
        return whole.records
    found = trace.converted(whole.trace)
    loaded = found.loaded_keys if whole.database == "loaded" else 0
    return min(found.keys, loaded + found.sets)


def identity(stream: KvParameters) -> str:
    """Name of a database: the store and a hash of all that makes a database of it another."""
    facts: list[Any] = [stream.store, stream.library, stream.options, stream.records, stream.key_size]
    facts += [stream.value_size, stream.value_compression_ratio, stream.records_seed, stream.log]
    if (stream.fields, stream.key_order) != (1, "number"):
        facts += [stream.fields, stream.key_order]
    if stream.in_memory:
        facts.append("in memory")
    if stream.phase == "trace" and stream.trace:
        facts.append(trace.converted(stream.trace).digest)
    if stream.store == "cassandra":
        facts.append(stream.compaction)
        facts += [stream.server_url, stream.cassandra] if stream.server_url else []
    if stream.store in CACHES:
        facts += [stream.memcached, stream.tier, stream.cache_memory, stream.extstore_size]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{stream.store}-{digest[:8]}"


def layout(streams: Mapping[str, KvParameters]) -> Layout:
    """Return when to load the records before a run: never, always, or only if the database is missing."""
    whole = whole_of(streams)
    if whole.database != "loaded" or whole.store == "null":
        return "never"
    is_temporary = whole.in_memory or whole.phase == "trace" or whole.store in CACHES or whole.is_running_server
    return "always" if whole.reload or is_temporary else "missing"


def keeps_checkpoint(streams: Mapping[str, KvParameters]) -> bool:
    """True if later runs restore the database from a checkpoint (`Databases` in `run.py`)."""
    whole = whole_of(streams)
    is_loaded_again = whole.phase == "trace" or whole.in_memory
    if whole.store not in LOG_STRUCTURED or whole.carry_over or whole.database != "loaded" or is_loaded_again:
        return False
    return any(stream.writes for stream in streams.values())


def notes(streams: Mapping[str, KvParameters]) -> list[str]:
    """Contents of each stream's trace, and the parts of it that the store ignores."""
    return [text for stream in streams.values() if stream.trace for text in _notes_on_trace(stream, stream.trace)]


def _notes_on_trace(stream: KvParameters, path: str) -> Iterator[str]:
    found = trace.converted(path)
    parts = {"gets": found.gets, "sets": found.sets, "deletes": found.deletes}
    counts = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield f"replays `{path}`: {counts} of about {found.keys:,} keys over {format_duration(found.seconds * 1e9)}"
    if stream.store in CACHES:
        return
    nothing, keys = "loads nothing before the replay", f"{found.loaded_keys:,} key{'s' * (found.loaded_keys != 1)}"
    if stream.database != "loaded":
        yield f"{nothing}: the database starts empty"
    elif found.loaded_keys:
        yield f"loads about {keys} before the replay: those that a get has a `value_size` for"
    else:
        yield f"{nothing}: no get has a `value_size`; gets find only what the trace has set before"
    if found.has_ttl:
        yield f"`{stream.store}` drops no records: the times to live of the trace have no effect"
