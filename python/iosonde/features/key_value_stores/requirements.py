"""Target and memory requirements of a run on a store, and the database that it keeps on the target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.cassandra.settings import CASSANDRA
from iosonde.features.key_value_stores.memcached import settings as memcached
from iosonde.features.key_value_stores.notation import operations_of
from iosonde.features.key_value_stores.phases import LOG_STRUCTURED, WRITES
from iosonde.features.key_value_stores.rules import KvParameters
from iosonde.units import format_duration
from iosonde.workload.workload import Layout

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


def files(streams: Mapping[str, KvParameters]) -> dict[str, int]:
    """The databases that a run keeps on disk, by name, with the room that each is assumed to need."""
    whole = next(iter(streams.values()))
    is_created = whole.store != "null" and not whole.is_running_server and whole.user_database is None
    if not is_created or whole.in_memory:
        return {}
    name = identity(whole)
    cache = {f"{name}{READ_CACHE}": whole.read_cache} if whole.read_cache and whole.read_cache_target is None else {}
    return {name: addressed_bytes(streams), **cache}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room this many databases need."""
    return (
        f"for {files} databases, by the parameters `records` and `value_size`"
        if files > 1
        else ("by the parameters `records` and `value_size`")
    )


def addressed_bytes(streams: Mapping[str, KvParameters]) -> int:
    """Room that the database is assumed to need."""
    whole = next(iter(streams.values()))
    if whole.store == "null" or whole.is_running_server or whole.user_database or whole.in_memory:
        return 0
    if whole.store in memcached.CACHES:
        return memcached.file_bytes(whole)
    is_copied = keeps_checkpoint(streams) or whole.store == CASSANDRA
    factor = SPACE_FACTOR + (CHECKPOINT_FACTOR if is_copied else 0)
    return _stored_records(whole) * whole.record_bytes * factor + SPACE_BYTES + _log_bytes(whole)


def _stored_records(whole: KvParameters) -> int:
    """Records that the database has at most; of a trace those that are loaded, and those that it sets."""
    if whole.phase != "trace" or not whole.trace:
        return whole.records
    found = trace.converted(whole.trace)
    loaded = found.loaded_keys if whole.database == "loaded" else 0
    return min(found.keys, loaded + found.sets)


def _log_bytes(whole: KvParameters) -> int:
    """Room for the log of WiredTiger; that of other stores is in `SPACE_BYTES`."""
    if whole.store != "wiredtiger":
        return 0
    size = whole.wiredtiger.get("log.file_max", LOG_FILE_BYTES)
    return LOG_FILES * (size if isinstance(size, int) else LOG_FILE_BYTES)


def identity(stream: KvParameters) -> str:
    """Name of a database: the store and a hash of all that makes a database of it another."""
    facts: list[Any] = [
        stream.store,
        stream.library,
        stream.options,
        stream.records,
        stream.key_size,
        stream.value_size,
    ]
    facts += [stream.value_compression_ratio, stream.records_seed, stream.log]
    if (stream.fields, stream.key_order) != (1, "number"):
        facts += [stream.fields, stream.key_order]
    if stream.in_memory:
        facts.append("in memory")
    if stream.phase == "trace" and stream.trace:
        facts.append(trace.converted(stream.trace).digest)
    if stream.store == CASSANDRA:
        facts.append(stream.compaction)
        facts += [stream.server_url, stream.cassandra] if stream.server_url else []
    if stream.store in memcached.CACHES:
        facts += [stream.memcached, stream.tier, stream.cache_memory, stream.extstore_size]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{stream.store}-{digest[:8]}"


def layout(streams: Mapping[str, KvParameters]) -> Layout:
    """Return when to load the records before a run: never, always, or only if the database is missing."""
    whole = next(iter(streams.values()))
    if whole.database != "loaded" or whole.store == "null":
        return "never"
    return (
        "always"
        if whole.reload
        or whole.in_memory
        or whole.phase == "trace"
        or whole.store in memcached.CACHES
        or whole.is_running_server
        else "missing"
    )


def keeps_checkpoint(streams: Mapping[str, KvParameters]) -> bool:
    """True if later runs restore the database from a checkpoint (`database_state.py`)."""
    whole = next(iter(streams.values()))
    is_loaded_again = whole.phase == "trace" or whole.in_memory
    if whole.store not in LOG_STRUCTURED or whole.carry_over or whole.database != "loaded" or is_loaded_again:
        return False
    return any(name in WRITES for each in streams.values() for name, _ in operations_of(each.operations or "read"))


def notes(streams: Mapping[str, KvParameters]) -> list[str]:
    """Contents of each stream's trace, and the parts of it that the store ignores."""
    return [text for stream in streams.values() if stream.trace for text in _notes_on_trace(stream)]


def _loaded_note(stream: KvParameters, found: trace.Trace) -> str:
    if stream.database != "loaded":
        return "loads nothing before the replay: the database starts empty"
    if not found.loaded_keys:
        return (
            "loads nothing before the replay: no get has a `value_size`; gets find only what the trace has set before"
        )
    keys = "1 key" if found.loaded_keys == 1 else f"{found.loaded_keys:,} keys"
    return f"loads about {keys} before the replay: those that a get has a `value_size` for"


def _notes_on_trace(stream: KvParameters) -> Iterator[str]:
    assert stream.trace is not None
    found = trace.converted(stream.trace)
    parts = {"gets": found.gets, "sets": found.sets, "deletes": found.deletes}
    counts = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield f"replays `{stream.trace}`: {counts} of about {found.keys:,} keys over {format_duration(found.seconds * 1e9)}"
    if stream.store not in memcached.CACHES:
        yield _loaded_note(stream, found)
    if found.has_ttl and stream.store not in memcached.CACHES:
        yield f"`{stream.store}` drops no records: the times to live of the trace have no effect"
