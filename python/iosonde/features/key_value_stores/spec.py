"""The engine's spec of a load on a store, from its parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError, TargetError
from iosonde.features.key_value_stores import shim, trace
from iosonde.features.key_value_stores.cassandra import settings as cassandra
from iosonde.features.key_value_stores.fitting import fit
from iosonde.features.key_value_stores.memcached import settings as memcached
from iosonde.features.key_value_stores.notation import SMALLEST_VALUE, OptionValue, operations_of, pareto_of, sizes_of
from iosonde.features.key_value_stores.phases import LOG_APART
from iosonde.features.key_value_stores.read_cache import check_read_cache, open_read_cache_directory
from iosonde.features.key_value_stores.requirements import READ_CACHE, addressed_bytes, identity, keeps_checkpoint
from iosonde.features.key_value_stores.rules import KvParameters
from iosonde.plan import JsonObject
from iosonde.protocol import schema
from iosonde.servers.foreign import ServerUrl, parse
from iosonde.units import format_bytes
from iosonde.workload.servers import open_directory
from iosonde.workload.workload import arrival_of, engine_spec, steady_ramp

GROWTH = 2
"""YCSB makes room for twice the inserts that it expects."""
MAP_BYTES_PER_S = 2 << 30
"""Growth of LMDB's map per second of inserts: more than LMDB can insert. A map takes address space only."""
UNLIMITED_S = 3600
"""Seconds of inserts that are assumed for runs without a duration."""

if TYPE_CHECKING:
    from iosonde.storage import Target


def resolve(streams: Mapping[str, KvParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec. A limit of memory that cannot be set here raises now."""
    if any(stream.memory_limit for stream in streams.values()) and target.backend() is None:
        from iosonde.storage.control_groups import control_group

        control_group.hierarchy()
    streams = fit(streams, target, room_bytes=target.free_bytes())
    whole = next(iter(streams.values()))
    # Only here: the cost of a study can be computed without a second target.
    if whole.log == "apart" and whole.store in LOG_APART and whole.log_target is None:
        raise StudyError(
            "the log needs a second target, and none is named",
            where="by the parameter `log_target`",
            hint="name a directory on another device: `--set log_target=DIRECTORY`",
        )
    _check_trace(streams)
    if whole.read_cache and whole.store == "rocksdb":
        check_read_cache(whole.library)
    if whole.store == "wiredtiger":
        shim.check(shim.WIREDTIGER, whole.library, use="WiredTiger", parameter="store")
    if whole.store == cassandra.CASSANDRA and not whole.is_running_server:
        cassandra.check_place(whole, target)
    durations = [stream.duration for stream in streams.values() if isinstance(stream.duration, int)]
    place, devices = _place(streams, target)
    workload: JsonObject = {
        "kind": "kv",
        "store": {"kind": whole.store, "library": whole.library, "options": _options(streams, target)},
        "target": place,
        "records": _records(whole),
        "database": _database(whole, keeps_checkpoint(streams)),
        "transition": {"settle": whole.settle, "reopen": whole.reopen, "page_cache": whole.page_cache},
        "streams": [each for name, stream in streams.items() for each in _streams(name, stream)],
        "ramp": steady_ramp(whole.ramp, None, until=whole.ramp_until),
        "duration_ns": max(durations, default=None),
        "interval_ns": whole.interval,
        "settle_at_end": whole.settle_at_end,
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=devices)


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


def block_devices_under(path: Path) -> list[str]:
    """The block devices under a directory of the user, to watch."""
    from iosonde.storage import open_target

    target = open_target(str(path))
    if target.kind != "directory":
        raise TargetError(
            f"`{path}` is not a directory",
            where="by the parameter `user_database`",
            hint="name the directory of a RocksDB database",
        )
    return target.block_devices()


def _place(streams: Mapping[str, KvParameters], target: Target) -> tuple[JsonObject, list[str]]:
    """The spec's `target`, and the block devices to watch. Different databases are in different directories."""
    whole = next(iter(streams.values()))
    if whole.store == "null":
        return {"kind": "virtual"}, []
    if whole.store in memcached.CACHES:
        return _server(whole, target), target.block_devices()
    if whole.is_running_server:
        return _running_server(whole), target.block_devices()
    if target.kind == "file":
        raise TargetError(
            f"`{target.name}` is a file, and a store needs a directory", hint="name a directory as the target"
        )
    if whole.user_database:
        return {"kind": "read_only", "path": whole.user_database}, block_devices_under(Path(whole.user_database))
    size_bytes = addressed_bytes(streams)
    if whole.in_memory:
        return _place_in_memory(whole, target), target.block_devices()
    if target.kind != "directory":
        given = target.spec_target("shared", size_bytes)
        return given, target.block_devices()
    own, name = Path(target.spec_target("per_job", size_bytes)["directory"]), identity(whole)
    devices = target.block_devices()
    place: JsonObject = {"kind": "directory", "path": str(own / name), "log_path": None}
    if whole.log == "apart" and whole.log_target:
        second = open_directory(whole.log_target)
        place["log_path"] = str(Path(second.name, own.name, f"{name}-log"))
        devices = list(dict.fromkeys([*devices, *second.block_devices()]))
    if whole.read_cache:
        parent = own
        if whole.read_cache_target:
            second = open_read_cache_directory(whole.read_cache_target, whole.read_cache)
            parent = Path(second.name, own.name)
            devices = list(dict.fromkeys([*devices, *second.block_devices()]))
        place["read_cache"] = {
            "path": str(parent / f"{name}{READ_CACHE}"),
            "size_bytes": whole.read_cache,
            "direct_writes": whole.read_cache_direct_writes,
        }
    return place, devices


def _place_in_memory(whole: KvParameters, target: Target) -> JsonObject:
    """A directory of its own in memory."""
    from iosonde.storage.targets.workspace import MEMORY_DIRECTORY

    if not os.access(MEMORY_DIRECTORY, os.W_OK):
        raise TargetError(
            f"`{MEMORY_DIRECTORY}` cannot be written",
            where="by the parameter `in_memory`",
            hint="mount a tmpfs there, or leave out `in_memory`",
        )
    return {"kind": "directory", "path": str(MEMORY_DIRECTORY / target.own / identity(whole)), "log_path": None}


def _server(whole: KvParameters, target: Target) -> JsonObject:
    """The socket of the server that is started for each run."""
    memcached.check_place(whole, target)
    own = Path(target.spec_target("per_job", 0)["directory"])
    return {"kind": "socket", "path": str(own / identity(whole) / "socket" / "memcached.sock")}


def _running_server(whole: KvParameters) -> JsonObject:
    """A server of the user, with the database that is created for the records."""
    if whole.server_url is None:
        raise StudyError(
            "the store `mongodb` requires a running server, and none is named",
            where="by the parameter `server_url`",
            hint="name it with `--server mongodb://USER@HOST:PORT`",
        )
    return store_target(parse(whole.server_url), f"iosonde_{identity(whole)[-8:]}")


def _records(whole: KvParameters) -> JsonObject:
    """The description of the records; what is not the default only where it is requested."""
    described: JsonObject = {
        "count": whole.records,
        "key_bytes": _sizes(whole.key_size),
        "value_bytes": _sizes(whole.value_size),
        "value_compression_ratio": whole.value_compression_ratio,
        "seed": whole.records_seed,
    }
    if whole.fields > 1:
        described["fields"] = whole.fields
    if whole.key_order != "number":
        described["key_order"] = whole.key_order
    return described


def _options(streams: Mapping[str, KvParameters], target: Target) -> dict[str, OptionValue]:
    """The store's options. LMDB's map has room for inserts, unless the study sets `mapsize`.

    The engine's default applies with `MDB_WRITEMAP`, whose file is as large as the map, and on devices.
    """
    whole = next(iter(streams.values()))
    inserting = [each for each in streams.values() if "insert" in dict(operations_of(each.operations or "read"))]
    _check_written_map(whole, target)
    is_set = "mapsize" in whole.options or bool(whole.options.get("MDB_WRITEMAP"))
    if whole.store != "lmdb" or target.kind != "directory" or is_set or not inserting:
        return dict(whole.options)
    durations = [each.duration if isinstance(each.duration, int) else UNLIMITED_S * 10**9 for each in inserting]
    growth = (whole.ramp + max(durations)) * MAP_BYTES_PER_S // 10**9
    lmdb = schema()["store_constants"]["lmdb"]
    records = whole.records * whole.record_bytes * lmdb["map_factor"]
    return {**whole.options, "mapsize": min(records + growth, lmdb["map_bytes_max"])}


def _check_written_map(whole: KvParameters, target: Target) -> None:
    """Refuse a map that the engine would refuse: with `MDB_WRITEMAP` the file is as large as the map."""
    if whole.store != "lmdb" or target.kind != "directory" or not whole.options.get("MDB_WRITEMAP"):
        return
    lmdb = schema()["store_constants"]["lmdb"]
    default = whole.records * whole.record_bytes * lmdb["map_factor"] + lmdb["map_bytes_min"]
    size, free = int(whole.options.get("mapsize", default)), target.free_bytes()
    if size > free:
        raise StudyError(
            f"with `MDB_WRITEMAP` the map needs {format_bytes(size)}, and `{target.name}` has {format_bytes(free)}",
            hint="set fewer `records`, or a smaller map with `lmdb = { mapsize = ... }`",
        )


def _expected_inserts(stream: KvParameters) -> int:
    """Inserts for which YCSB's key space has room, all jobs together; 0 without inserts."""
    shares = dict(operations_of(stream.operations or "read"))
    if "insert" not in shares:
        return 0
    if stream.expected_inserts is not None:
        return stream.expected_inserts
    if stream.limit_operations:
        return round(stream.limit_operations * shares["insert"] / sum(shares.values()))
    return stream.records // 10


def _database(whole: KvParameters, keeps_checkpoint: bool) -> JsonObject:
    match whole.database:
        case "loaded":
            loaded = {
                "kind": "loaded",
                "reload": whole.reload or whole.in_memory or whole.phase == "trace",
                "order": whole.load_order,
                "batch": whole.load_batch,
                "sync": whole.load_sync,
            }
            if whole.load_rate:
                loaded["rate"] = whole.load_rate
            if keeps_checkpoint and not whole.reload:
                loaded["checkpoint"] = True
            return loaded
        case "existing":
            return {"kind": "existing"}
        case _:
            return {"kind": "empty"}


def _sizes(value: int | str) -> JsonObject:
    pareto, sizes = pareto_of(value), sizes_of(value)
    if pareto:
        return {
            "kind": "pareto",
            "scale": pareto.scale,
            "shape": pareto.shape,
            "min_bytes": SMALLEST_VALUE,
            "max_bytes": pareto.max_bytes,
        }
    if len(sizes) == 1:
        return {"kind": "fixed", "bytes": sizes[0][0]}
    if ".." in str(value):
        return {"kind": "uniform", "min_bytes": sizes[0][0], "max_bytes": sizes[1][0]}
    return {"kind": "weighted", "sizes": [{"bytes": size, "weight": weight} for size, weight in sizes]}


def _streams(name: str, stream: KvParameters) -> list[JsonObject]:
    """The engine's streams; of `readwhilewriting` the readers and, in the background, the writer."""
    if stream.phase != "readwhilewriting":
        return [_stream(name, stream)]
    prefix = "" if name == "main" else f"{name}-"
    writer = stream.model_copy(
        update={
            "operations": "update",
            "jobs": 1,
            "background": True,
            "rate": stream.write_rate,
            "arrival": stream.write_arrival,
            "limit_operations": None,
            "limit_bytes": None,
        }
    )
    readers = stream.model_copy(update={"operations": "read", "batch": 1, "sync": False})
    return [_stream(f"{prefix}readers", readers), _stream(f"{prefix}writer", writer)]


def _stream(name: str, stream: KvParameters) -> JsonObject:
    low, _, high = stream.scan_records.partition("..")
    is_open = stream.arrival != "closed"
    found: JsonObject = {
        "name": name,
        "jobs": stream.jobs,
        "operations": [
            {"operation": operation, "weight": weight}
            for operation, weight in operations_of(stream.operations or "read")
        ],
        "choice": _choice(stream),
        "direction": stream.direction or "forward",
        "scan_records_min": int(low),
        "scan_records_max": int(high or low),
        "batch": stream.batch,
        "sync": stream.sync,
        "arrival": {"kind": "trace", "speed": stream.trace_speed}
        if stream.arrival == "trace"
        else arrival_of(stream.arrival, stream.rate),
        "rate_limit": None if is_open else stream.rate,
        "background": stream.background,
        "limit_bytes": stream.limit_bytes,
        "limit_operations": stream.limit_operations,
        "cpus": stream.cpus,
    }
    if stream.freshness:
        found["freshness"] = True
    if stream.phase == "trace" and stream.trace:
        converted = trace.converted(stream.trace)
        found["trace"] = {"path": converted.path, "rows": converted.rows, "digest": converted.digest}
    if stream.miss == "read_through" and any(each["operation"] == "read" for each in found["operations"]):
        found["read_through"] = {"latency_ns": stream.backend_latency, "distribution": stream.backend_distribution}
    return found


def _choice(stream: KvParameters) -> JsonObject:
    kind, _, number = (stream.choice or "uniform").partition(":")
    theta, _, churn = number.partition(":")
    distribution: JsonObject
    match kind:
        case "sequential":
            return {"kind": "sequential"}
        case "each_once":
            return {"kind": "random", "coverage": "each_once", "distribution": {"kind": "uniform"}}
        case "zipfian":
            distribution = {"kind": "zipfian", "theta": float(theta), **({"churn": float(churn)} if churn else {})}
        case "scrambled_zipfian":
            distribution = {
                "kind": "scrambled_zipfian",
                "theta": float(theta),
                "key_space": stream.records + GROWTH * _expected_inserts(stream),
            }
        case "latest":
            distribution = {"kind": "latest", "theta": float(theta)}
        case _:
            distribution = {"kind": "uniform"}
    return {"kind": "random", "coverage": "with_replacement", "distribution": distribution}


def store_target(url: ServerUrl, database: str) -> dict[str, Any]:
    """A database on a server as the spec of a store has it."""
    user = {"user": url.user} if url.user else {}
    return {"kind": "server", "host": url.host, "port": url.port, "database": database, **user}
