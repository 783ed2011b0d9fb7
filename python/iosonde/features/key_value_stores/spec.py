"""The engine's spec of a load on a store, from its parameters; and what a received spec may name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.engine.protocol import schema
from iosonde.errors import StudyError, TargetError
from iosonde.features.key_value_stores import shim, trace
from iosonde.features.key_value_stores.notation import OptionValue, operations_of, sizes_of
from iosonde.features.key_value_stores.parameters import CACHES, LOG_APART, KvParameters
from iosonde.features.key_value_stores.requirements import READ_CACHE, addressed_bytes, identity, keeps_checkpoint
from iosonde.plan import JsonObject
from iosonde.study.servers.foreign import ServerUrl
from iosonde.study.workload.servers import check_server, open_directory, require_log_target, running_server
from iosonde.study.workload.workload import arrival_of, steady_ramp, taken, whole_of
from iosonde.units import format_bytes

if TYPE_CHECKING:
    from iosonde.storage import Target

GROWTH = 2
"""YCSB makes room for twice the inserts that it expects."""
MAP_BYTES_PER_S = 2 << 30
"""Growth of LMDB's map per second of inserts: more than LMDB can insert. A map takes address space only."""
UNLIMITED_S = 3600
"""Seconds of inserts that are assumed for runs without a duration."""


def load(streams: Mapping[str, KvParameters], target: Target, *, seed: int) -> JsonObject:
    """The workload of the engine's spec. What a run needs of this machine is checked, and a missing shim compiled."""
    whole = whole_of(streams)
    if whole.memory_limit and target.backend() is None:
        from iosonde.storage import control_groups

        control_groups.hierarchy()
    if whole.store in LOG_APART:
        require_log_target(whole)
    _check_trace(streams)
    if whole.read_cache and whole.store == "rocksdb":
        shim.check(
            shim.ROCKSDB,
            whole.library,
            use="RocksDB's persistent read cache",
            parameter="read_cache",
            otherwise="; the adapter `command-db-bench-read-cache` measures it with db_bench instead",
        )
    if whole.store == "wiredtiger":
        shim.check(shim.WIREDTIGER, whole.library, use="WiredTiger", parameter="store")
    if whole.store in ("memcached", "cassandra") and not whole.is_running_server:
        _check_server(whole, target)
    durations = [stream.duration for stream in streams.values() if isinstance(stream.duration, int)]
    return {
        "store": {"kind": whole.store, "library": whole.library, "options": _options(streams, target)},
        "target": _place(streams, target),
        "records": _records(whole),
        "database": _database(whole, keeps_checkpoint(streams)),
        "transition": taken(whole, "settle", "reopen", "page_cache"),
        "streams": [each for name, stream in streams.items() for each in _streams(name, stream)],
        "ramp": steady_ramp(whole.ramp, None, until=whole.ramp_until),
        "duration_ns": max(durations, default=None),
        "interval_ns": whole.interval,
        "settle_at_end": whole.settle_at_end,
    }


def _check_server(whole: KvParameters, target: Target) -> None:
    """Check that the server that iosonde starts for a store can run on a target with these settings."""
    from iosonde.features.key_value_stores.cassandra.server import Cassandra
    from iosonde.features.key_value_stores.memcached import Memcached

    server: Memcached | Cassandra = Memcached()
    reason = "memcached needs one for its socket and for extstore"
    if whole.store == "cassandra":
        server, reason = Cassandra(), "Cassandra needs a file system"
    target.require_directory(reason, parameter="store")
    log_target = whole.log_target if whole.log == "apart" else None
    check_server(server, server.settings_of(whole.model_dump()), target, log_target)


def devices(streams: Mapping[str, KvParameters], target: Target) -> list[str]:
    """Block devices under the database, its log and its read cache."""
    whole = whole_of(streams)
    if whole.store == "null":
        return []
    if whole.user_database:
        own = open_directory(
            whole.user_database, parameter="user_database", hint="name the directory of a RocksDB database"
        )
        return own.block_devices()
    second = [whole.log_target if whole.log == "apart" else None, whole.read_cache_target if whole.read_cache else None]
    others = [name for place in second if place for name in open_directory(place).block_devices()]
    return list(dict.fromkeys([*target.block_devices(), *others]))


def _check_trace(streams: Mapping[str, KvParameters]) -> None:
    traced = [stream for stream in streams.values() if stream.phase == "trace"]
    if traced and len(streams) > 1:
        raise StudyError(
            "a trace is replayed by one stream, and this workload has several",
            where="by the parameter `phase`",
            hint="use a part of its own for the trace",
        )
    if traced and traced[0].trace is None:
        raise StudyError(
            "the phase `trace` needs a trace, and none is named",
            where="by the parameter `trace`",
            hint="name a CSV or Parquet file: `--set trace=FILE` (docs/traces.md)",
        )


def _place(streams: Mapping[str, KvParameters], target: Target) -> JsonObject:
    """The spec's `target`. Different databases are in different directories."""
    whole = whole_of(streams)
    name = identity(whole)
    if whole.store == "null":
        return {"kind": "virtual"}
    if whole.store in CACHES:  # The socket of the server that is started for each run.
        own = Path(target.spec_target("per_job", 0)["directory"])
        return {"kind": "socket", "path": str(own / name / "socket" / "memcached.sock")}
    if whole.is_running_server:
        url = running_server(whole.server_url, what="store `mongodb`", example="mongodb://USER@HOST:PORT")
        return store_target(url, f"iosonde_{name[-8:]}")
    if target.kind == "file":
        raise TargetError(
            f"`{target.name}` is a file, and a store needs a directory", hint="name a directory as the target"
        )
    if whole.user_database:
        return {"kind": "read_only", "path": whole.user_database}
    if whole.in_memory:
        return {"kind": "directory", "path": str(_memory_directory() / target.own / name), "log_path": None}
    size_bytes = addressed_bytes(streams)
    if target.kind != "directory":
        return target.spec_target("shared", size_bytes)
    own = Path(target.spec_target("per_job", size_bytes)["directory"])
    if whole.read_cache and whole.read_cache_target:
        _require_room(whole.read_cache_target, whole.read_cache)
    cache = {"path": "", "size_bytes": whole.read_cache, "direct_writes": whole.read_cache_direct_writes}
    return _directories(
        own / name,
        log_target=whole.log_target if whole.log == "apart" else None,
        cache=cache if whole.read_cache else None,
        cache_target=whole.read_cache_target,
    )


def _directories(path: Path, *, log_target: Any, cache: Mapping[str, Any] | None, cache_target: Any) -> JsonObject:
    """Directories of a database: one in the target's own; log and read cache may be on second targets."""
    own = path.parent
    place: JsonObject = {"kind": "directory", "path": str(path), "log_path": None}
    if log_target:
        place["log_path"] = str(Path(open_directory(str(log_target)).name, own.name, f"{path.name}-log"))
    if cache:
        parent = Path(open_directory(str(cache_target)).name, own.name) if cache_target else own
        place["read_cache"] = {**cache, "path": str(parent / f"{path.name}{READ_CACHE}")}
    return place


def _memory_directory() -> Path:
    from iosonde.storage.targets.workspace import MEMORY_DIRECTORY

    if not os.access(MEMORY_DIRECTORY, os.W_OK):
        raise TargetError(
            f"`{MEMORY_DIRECTORY}` cannot be written",
            where="by the parameter `in_memory`",
            hint="mount a tmpfs there, or leave out `in_memory`",
        )
    return MEMORY_DIRECTORY


def _require_room(name: str, size_bytes: int) -> None:
    """`TargetError` unless the second target of a read cache is a directory with room for it."""
    target = open_directory(name, parameter="read_cache_target")
    if target.free_bytes() < size_bytes:
        raise TargetError(
            f"`{name}` has {format_bytes(target.free_bytes())} free, and the read cache takes "
            f"{format_bytes(size_bytes)}",
            where="by the parameter `read_cache_target`",
            hint="make the cache smaller with `--set read_cache=SIZE`, or name another directory",
        )


def _records(whole: KvParameters) -> JsonObject:
    """The description of the records; what is not the default only where it is requested."""
    return {
        "count": whole.records,
        "key_bytes": sizes_of(whole.key_size),
        "value_bytes": sizes_of(whole.value_size),
        "value_compression_ratio": whole.value_compression_ratio,
        "seed": whole.records_seed,
        **(taken(whole, "fields") if whole.fields > 1 else {}),
        **(taken(whole, "key_order") if whole.key_order != "number" else {}),
    }


def _options(streams: Mapping[str, KvParameters], target: Target) -> dict[str, OptionValue]:
    """The store's options. LMDB's map has room for inserts, unless the study sets `mapsize`.

    The engine's default applies on devices and with `MDB_WRITEMAP`, whose file is as large as the map: one that the
    engine would refuse is refused.
    """
    whole = whole_of(streams)
    options = dict(whole.options)
    if whole.store != "lmdb" or target.kind != "directory":
        return options
    lmdb = schema()["store_constants"]["lmdb"]
    record_bytes = whole.records * whole.record_bytes * lmdb["map_factor"]
    if options.get("MDB_WRITEMAP"):
        size, free = int(options.get("mapsize", record_bytes + lmdb["map_bytes_min"])), target.free_bytes()
        if size > free:
            raise StudyError(
                f"with `MDB_WRITEMAP` the map needs {format_bytes(size)}, and `{target.name}` has {format_bytes(free)}",
                hint="set fewer `records`, or a smaller map with `lmdb = { mapsize = ... }`",
            )
        return options
    inserting = [each for each in streams.values() if "insert" in each.mix]
    if "mapsize" in options or not inserting:
        return options
    durations = [each.duration if isinstance(each.duration, int) else UNLIMITED_S * 10**9 for each in inserting]
    growth = (whole.ramp + max(durations)) * MAP_BYTES_PER_S // 10**9
    return {**options, "mapsize": min(record_bytes + growth, lmdb["map_bytes_max"])}


def _expected_inserts(stream: KvParameters) -> int:
    """Inserts for which YCSB's key space has room, all jobs together; 0 without inserts."""
    if "insert" not in stream.mix:
        return 0
    if stream.expected_inserts is not None:
        return stream.expected_inserts
    if stream.limit_operations:
        return round(stream.limit_operations * stream.mix["insert"] / sum(stream.mix.values()))
    return stream.records // 10


def _database(whole: KvParameters, keeps_checkpoint: bool) -> JsonObject:
    if whole.database != "loaded":
        return {"kind": "existing" if whole.database == "existing" else "empty"}
    return {
        "kind": "loaded",
        "reload": whole.reload or whole.in_memory or whole.phase == "trace",
        "order": whole.load_order,
        "batch": whole.load_batch,
        "sync": whole.load_sync,
        **({"rate": whole.load_rate} if whole.load_rate else {}),
        **({"checkpoint": True} if keeps_checkpoint and not whole.reload else {}),
    }


def _streams(name: str, stream: KvParameters) -> list[JsonObject]:
    """The engine's streams; of `readwhilewriting` the readers and, in the background, the writer."""
    if stream.phase != "readwhilewriting":
        return [_stream(name, stream)]
    prefix = "" if name == "main" else f"{name}-"
    readers = stream.model_copy(update={"operations": "read", "batch": 1, "sync": False})
    changes: JsonObject = {"rate": stream.write_rate, "arrival": stream.write_arrival, "jobs": 1, "background": True}
    changes |= {"operations": "update", "limit_operations": None, "limit_bytes": None}
    return [
        _stream(f"{prefix}readers", readers),
        _stream(f"{prefix}writer", stream.model_copy(update=changes)),
    ]


def _stream(name: str, stream: KvParameters) -> JsonObject:
    low, _, high = stream.scan_records.partition("..")
    weights = operations_of(stream.operations or "read")
    is_traced = stream.arrival == "trace"
    found: JsonObject = {
        "name": name,
        "jobs": stream.jobs,
        "operations": [{"operation": operation, "weight": weight} for operation, weight in weights],
        "choice": _choice(stream),
        "direction": stream.direction or "forward",
        "scan_records_min": int(low),
        "scan_records_max": int(high or low),
        **taken(stream, "batch", "sync"),
        "arrival": {"kind": "trace", "speed": stream.trace_speed}
        if is_traced
        else arrival_of(stream.arrival, stream.rate),
        "rate_limit": stream.rate if stream.arrival == "closed" else None,
        **taken(stream, "background", "limit_bytes", "limit_operations", "cpus"),
    }
    if stream.freshness:
        found["freshness"] = True
    if stream.phase == "trace" and stream.trace:
        converted = trace.converted(stream.trace)
        found["trace"] = {"path": converted.path, "rows": converted.rows, "digest": converted.digest}
    if stream.miss == "read_through" and "read" in stream.mix:
        found["read_through"] = {"latency_ns": stream.backend_latency, "distribution": stream.backend_distribution}
    return found


def _choice(stream: KvParameters) -> JsonObject:
    kind, *numbers = (stream.choice or "uniform").split(":")
    if kind == "sequential":
        return {"kind": kind}
    if kind == "each_once":
        return {"kind": "random", "coverage": kind, "distribution": {"kind": "uniform"}}
    distribution: JsonObject = {"kind": kind, **dict(zip(("theta", "churn"), map(float, numbers), strict=False))}
    if kind == "scrambled_zipfian":
        distribution["key_space"] = stream.records + GROWTH * _expected_inserts(stream)
    return {"kind": "random", "coverage": "with_replacement", "distribution": distribution}


def store_target(url: ServerUrl, database: str) -> dict[str, Any]:
    """A database on a server as the spec of a store has it."""
    user = {"user": url.user} if url.user else {}
    return {"kind": "server", "host": url.host, "port": url.port, "database": database, **user}


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def expected_target(workload: Mapping[str, Any], case: Mapping[str, Any], place: Target) -> JsonObject | None:
    """The target that a spec must have; None on a device and with a simulated one, which have no directories."""
    named = workload["target"]
    match named["kind"]:
        case "read_only":
            return {"kind": "read_only", "path": str(case.get("user_database"))}
        case "server":
            return _expected_server(case, named)
        case "directory" if place.backend() is None:
            return _expected_directories(case, named, place)
        case "socket" if place.backend() is None:
            return _socket(_own(place), Path(named["path"]))
        case _:
            return None


def problem(workload: Mapping[str, Any], case: Mapping[str, Any], place: Target) -> str:
    """Traces are converted by iosonde, into its own directory."""
    traces = [Path(stream["trace"]["path"]) for stream in workload["streams"] if stream.get("trace")]
    is_own = all(each.parent == trace.directory() for each in traces)
    return "" if is_own else "the spec names a trace outside of the cache directory"


def _own(place: Target) -> Path:
    return Path(place.spec_target("per_job", 0)["directory"])


def _expected_directories(case: Mapping[str, Any], named: Mapping[str, Any], place: Target) -> JsonObject:
    from iosonde.storage.targets.workspace import MEMORY_DIRECTORY

    own = _own(place)
    if case.get("in_memory"):
        own = MEMORY_DIRECTORY / own.name
    name = Path(named["path"]).name
    if not _NAME.fullmatch(name):
        return {}
    log_target, cache_target = case["log_target"] if named.get("log_path") else None, case.get("read_cache_target")
    return _directories(own / name, log_target=log_target, cache=named.get("read_cache"), cache_target=cache_target)


def _expected_server(case: Mapping[str, Any], named: Mapping[str, Any]) -> JsonObject:
    """Return a target that names a database of iosonde on a server of the user; the consent names the server."""
    is_named = case.get("server_url") and re.fullmatch(r"iosonde_[0-9a-f]{8}", str(named["database"]))
    fields = {"kind", "host", "port", "database", "user"}
    return dict(named) if is_named and set(named) <= fields else {}


def _socket(own: Path, named: Path) -> JsonObject:
    """The socket of a server of ours: in a directory of its own, in the target's."""
    pattern = rf"{re.escape(str(own))}/memcached-[0-9a-f]{{8}}/socket/memcached\.sock"
    return {"kind": "socket", "path": str(named)} if re.fullmatch(pattern, str(named)) else {}
