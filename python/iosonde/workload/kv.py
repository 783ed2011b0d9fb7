"""Key-value stores: the parameters of a load on one, the engine spec they become, and what a run of it costs.

`KvParameters` is the one list of what a study may set. A *phase* is a load by the name that db_bench and YCSB know it
by; `phases.py` says what each stands for, and what is set itself wins over its phase. Those in `WHOLE_WORKLOAD`
describe the run and not the stream, so streams that run together must agree on them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.errors import StudyError, TargetError
from iosonde.study.plan import Cost, JsonObject
from iosonde.units import compact_size, format_bytes, parse_rate, parse_size
from iosonde.workload import reading
from iosonde.workload.block import ASSUMED_BYTES_PER_SECOND, HIGHEST_RATE, PROTOCOL_VERSION
from iosonde.workload.interface import Layout, Room
from iosonde.workload.phases import LOADS, OPERATIONS, PHASES, WRITES, Phase
from iosonde.workload.reading import (
    DurationOrZero,
    Interval,
    check_agreement,
    not_zero,
    parse_cpus,
    parse_duration_or_none,
    parse_size_or_none,
)

if TYPE_CHECKING:
    from iosonde.target import Target

TITLE = "key-value stores"

STORES = ("lmdb", "rocksdb", "redb", "fjall", "null")

ASSUMED_OPERATIONS_PER_SECOND = 50_000
"""Speed at which a phase that only operations end is assumed to go when a plan estimates time."""

SPACE_FACTOR = 2
"""Room that a database is assumed to need at most, as a multiple of its records: half-full pages, files that a
compaction has not removed yet."""

SPACE_BYTES = 128 << 20
"""The same, whatever its records: logs and files that are allocated ahead."""

DEFAULT_DURATION_NS = 10 * 10**9

OptionValue = bool | int | float | str


def _parse_options(value: Any) -> dict[str, OptionValue]:
    """A table of options by the store's own names, or text as `write_buffer_size=64MiB;use_direct_reads=true`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError(
                f"`{value}` are no options; write them like `write_buffer_size=64MiB;use_direct_reads=true`"
            )
        value = {name.strip(): _read_scalar(text.strip()) for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError('options are a table of the store\'s own names, such as `{ write_buffer_size = "64MiB" }`')
    return {str(name): _option(str(name), given) for name, given in value.items()}


def _read_scalar(text: str) -> OptionValue:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def _option(name: str, value: Any) -> OptionValue:
    """An option's value; a size with a unit of ours becomes bytes."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9.]+\s*[KMGT]i?B\s*", value):
        return parse_size(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"the option `{name}` cannot be `{value}`; it is true, false, a number or a text")


def _parse_size_mix(smallest: int) -> Any:
    """Reader of a size, of a range as `16..32`, or of a mix as `100/70:4000/30` (sizes and weights)."""

    def parse(value: Any) -> int | str:
        sizes = sizes_of(value)
        if min(size for size, _ in sizes) < smallest:
            raise ValueError(f"`{value}` is too small; it has at least {smallest} B")
        if isinstance(value, str) and ".." in value:
            return "..".join(compact_size(size) for size, _ in sizes)
        return (
            sizes[0][0] if len(sizes) == 1 else ":".join(f"{compact_size(size)}/{weight:g}" for size, weight in sizes)
        )

    return parse


def sizes_of(value: int | str) -> list[tuple[int, float]]:
    """Sizes with weights; of a range its ends, alike."""
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        ends = [(not_zero(parse_size(end)), 1.0) for end in (low, high)]
        if ends[0][0] > ends[1][0]:
            raise ValueError(f"`{value}` begins above its end; write it like `16..32`")
        return ends
    if isinstance(value, str) and "/" in value:
        parts = [part.partition("/") for part in value.split(":")]
        try:
            return [(not_zero(parse_size(size)), not_zero(float(weight))) for size, _, weight in parts]
        except ValueError:
            raise ValueError(f"`{value}` is no mix of sizes; write it like `100/70:4000/30`") from None
    return [(not_zero(parse_size(value)), 1.0)]


def _parse_count(value: Any) -> int:
    """A whole number, also as `80M` or `200k`."""
    count = not_zero(parse_rate(value))
    if count % 1:
        raise ValueError(f"`{value}` is not a whole number")
    return int(count)


def _parse_count_or_none(value: Any) -> int | None:
    return None if value is None or value == "none" else _parse_count(value)


def _parse_positive_rate(value: Any) -> float | None:
    return None if value is None or value == "none" else not_zero(parse_rate(value))


def _parse_choice(value: Any) -> str | None:
    """`sequential`, `each_once`, `uniform`, `zipfian:THETA` or `latest:THETA`."""
    if value is None:
        return None
    kind, _, number = str(value).partition(":")
    if kind in ("zipfian", "latest"):
        try:
            theta = float(number or 0.99)
        except ValueError:
            theta = 0.0
        if not theta > 0:
            raise ValueError(f"`{value}` has no skew above 0; write it like `{kind}:0.99`")
        return f"{kind}:{theta:g}"
    if kind not in ("sequential", "each_once", "uniform") or number:
        raise ValueError(
            f"`{value}` is not known; it is one of `sequential`, `each_once`, `uniform`, `zipfian:THETA`, "
            "`latest:THETA`"
        )
    return kind


def _parse_operations(value: Any) -> str | None:
    """One operation, or several with weights as `read/95:update/5`."""
    if value is None:
        return None
    shares = operations_of(str(value))
    return shares[0][0] if len(shares) == 1 else ":".join(f"{name}/{weight:g}" for name, weight in shares)


def operations_of(text: str) -> list[tuple[str, float]]:
    """Operations with their weights."""
    shares = []
    for part in text.split(":"):
        name, _, weight = part.partition("/")
        if name not in OPERATIONS:
            listed = ", ".join(f"`{each}`" for each in OPERATIONS)
            raise ValueError(f"`{name}` is no operation; it is one of {listed}")
        try:
            shares.append((name, not_zero(float(weight or 1))))
        except ValueError:
            raise ValueError(f"`{part}` has no weight above 0; write it like `{name}/95`") from None
    return shares


def _parse_scan(value: Any) -> str:
    """Records of a scan: a number, or a range as `1..100`."""
    low, _, high = str(value).partition("..")
    if not low.isdecimal() or not (high or low).isdecimal() or not 0 < int(low) <= int(high or low) < 1 << 32:
        raise ValueError(f"`{value}` is no number of records; write it like `10` or `1..100`")
    return f"{int(low)}..{int(high)}" if high and int(high) > int(low) else str(int(low))


def _parse_path(value: Any) -> str | None:
    return None if value in (None, "", "none") else str(Path(str(value)).expanduser())


Count = Annotated[int, BeforeValidator(_parse_count)]
Options = Annotated[dict[str, OptionValue], BeforeValidator(_parse_options)]


class KvParameters(BaseModel):
    """One stream: `jobs` threads, each with one operation at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: Literal["lmdb", "rocksdb", "redb", "fjall", "null"] = Field(
        "lmdb", description="Which store; `null` keeps nothing and shows what the harness costs."
    )
    library: str | None = Field(
        None, description="RocksDB: the shared library, by path or name; empty: the newest that the system has."
    )
    lmdb: Options = Field(default_factory=dict, description="Options of LMDB by its own names, such as `mapsize`.")
    rocksdb: Options = Field(
        default_factory=dict, description="Options of RocksDB by its own names, such as `write_buffer_size`."
    )
    redb: Options = Field(default_factory=dict, description="Options of redb by its own names, such as `cache_size`.")
    fjall: Options = Field(default_factory=dict, description="Options of fjall by its own names, such as `cache_size`.")
    phase: Phase = Field("readrandom", description="The load by name (table below); what is set beside it wins.")
    operations: Annotated[str | None, BeforeValidator(_parse_operations)] = Field(
        None,
        description="What is done with a record, with weights, as `read/95:update/5`: `read`, `update`, `insert`, "
        "`delete`, `scan`, `iterate`, `read_modify_write`; empty: as the phase has it.",
    )
    choice: Annotated[str | None, BeforeValidator(_parse_choice)] = Field(
        None,
        description="Which record: `sequential`, `each_once` (at random, none twice), `uniform`, `zipfian:THETA`, "
        "`latest:THETA`; empty: as the phase has it.",
    )
    direction: Literal["forward", "reverse"] | None = Field(
        None, description="Direction of scans and iterators; empty: as the phase has it."
    )
    scan_records: Annotated[str, BeforeValidator(_parse_scan)] = Field(
        "1..100", description="Records of a scan: a number, or a range of which each is as likely."
    )
    jobs: int = Field(1, ge=1, le=1024, description="Threads; of `readwhilewriting` the readers.")
    write_rate: Annotated[float | None, BeforeValidator(_parse_positive_rate)] = Field(
        None, description="`readwhilewriting`: records per second of the one writer; empty: as fast as it goes."
    )
    write_arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed", description="`readwhilewriting`: `write_rate` as a limit (closed loop), or as an open loop."
    )
    batch: int = Field(1, ge=1, le=10**6, description="Records in one transaction or write batch.")
    sync: bool = Field(False, description="Whether each write is durable when it completes.")
    arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed", description="Closed loop (the next operation when one completes), or open loop."
    )
    rate: Annotated[float | None, BeforeValidator(_parse_positive_rate)] = Field(
        None, description="Open loop: operations per second of all jobs together; closed loop: at most so many."
    )
    background: bool = Field(False, description="The stream ends when all that are not in the background have.")
    records: Count = Field(100_000, description="Records of the database; `80M` is 80 million.")
    key_size: Annotated[int | str, BeforeValidator(_parse_size_mix(8))] = Field(
        16, description="Size of a key: fixed, `16..32`, or a mix as `16/90:64/10`; at least 8 B."
    )
    value_size: Annotated[int | str, BeforeValidator(_parse_size_mix(16))] = Field(
        100, description="Size of a value: fixed, `16..4000`, or a mix as `100/70:4000/30`; at least 16 B."
    )
    value_compression_ratio: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Part of its size to which a value can be compressed, as in db_bench; 1: not at all.",
    )
    records_seed: int = Field(1, ge=0, description="Seed of the records' contents, the same for runs that share them.")
    database: Literal["empty", "loaded", "existing"] | None = Field(
        None,
        description="Before the measurement: no record, every record (a database that has them is kept), or "
        "whatever is there; empty: as the phase has it.",
    )
    reload: bool = Field(False, description="`loaded`: load anew even if every record is there.")
    load_order: Literal["sequential", "random"] = Field("sequential", description="Order of keys in which is loaded.")
    load_batch: int = Field(1000, ge=1, le=10**6, description="Records in one transaction or batch of the load.")
    load_sync: bool = Field(False, description="Whether each batch of the load is durable before the next.")
    settle: bool = Field(False, description="After loading, wait until the store has done its background work.")
    reopen: bool = Field(False, description="Before the measurement, close the store and open it again.")
    page_cache: Literal["drop", "keep", "warm"] = Field(
        "drop", description="The database's pages before the measurement: dropped, left, or all read once."
    )
    settle_at_end: bool = Field(False, description="After the measurement, wait until background work is done.")
    memory_limit: Annotated[int | None, BeforeValidator(parse_size_or_none)] = Field(
        None,
        description="Memory of the engine, store and page cache together (a memory cgroup; needs root); empty: the "
        "machine's.",
    )
    log: Literal["with_data", "apart"] = Field(
        "with_data", description="RocksDB: where the write-ahead log lies; `apart` is in `log_target`."
    )
    log_target: Annotated[str | None, BeforeValidator(_parse_path)] = Field(
        None, description="RocksDB: directory on a second target for the log, named with `--set log_target=DIRECTORY`."
    )
    ramp: DurationOrZero = Field(0, description="Load before the measurement, so that it begins in a settled state.")
    duration: Annotated[
        int | Literal["phase"] | None,
        BeforeValidator(lambda value: value if value == "phase" else parse_duration_or_none(value)),
    ] = Field(
        "phase", description="Length of the measurement at most; `phase`: until a load is done, else 10 s; `none`."
    )
    limit_operations: Annotated[int | None, BeforeValidator(_parse_count_or_none)] = Field(
        None, description="Operations each stream does at most in the measurement; empty: a load does all records."
    )
    limit_bytes: Annotated[int | None, BeforeValidator(parse_size_or_none)] = Field(
        None, description="Bytes each stream moves at most in the measurement."
    )
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    cpus: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(parse_cpus)] = Field(
        default_factory=list, description="CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problem = next((text for wrong, text in self._rules() if wrong), None)
        if problem:
            raise ValueError(problem)
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        """What no single parameter tells: a condition, and what is wrong when it holds."""
        kinds = {name for name, _ in operations_of(self.operations or PHASES[self.phase].operations)}
        both = self.phase == "readwhilewriting"
        rate = max(self.rate or 0, self.write_rate or 0)
        return [
            (self.library is not None and self.store != "rocksdb", "`library` is for `store = \"rocksdb\"`"),
            (self.log == "apart" and self.store not in ("rocksdb", "null"),
             f"`log = \"apart\"` is for `store = \"rocksdb\"`: {self.store} has no log that could lie elsewhere"),
            (both and (self.operations is not None or self.background),
             "`readwhilewriting` is two loads: write streams of your own for others"),
            (not both and (self.write_rate is not None or self.write_arrival != "closed"),
             "`write_rate` and `write_arrival` are for `phase = \"readwhilewriting\"`"),
            (self.write_arrival != "closed" and self.write_rate is None,
             f"`write_arrival = \"{self.write_arrival}\"` needs a `write_rate`"),
            (self.arrival != "closed" and self.rate is None, f"`arrival = \"{self.arrival}\"` needs a `rate`"),
            (rate > HIGHEST_RATE, f"a rate of {rate:g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
            (self.arrival != "closed" and self.batch > 1, "an open loop is one operation at a time: leave out `batch`"),
            (self.batch > 1 and not both and not kinds <= {"update", "insert", "delete"},
             "`batch` is for operations that write"),
            (self.limit_operations is not None and self.limit_operations < self.jobs,
             "`limit_operations` is less than one for each job"),
            (self.jobs > self.records, f"{self.jobs} jobs cannot share {self.records} records"),
            (self.duration is None and self.limit_operations is None and self.limit_bytes is None
             and not self.background, "it would never end: set `duration`, `limit_operations` or `limit_bytes`"),
        ]  # fmt: skip


PARAMETERS: type[BaseModel] = KvParameters

SIZES: Sequence[str] = ("key_size", "value_size", "memory_limit", "limit_bytes")

DURATIONS: Sequence[str] = ("ramp", "duration", "interval")

SHOWN: Sequence[str] = ("store", "phase", "jobs", "records", "key_size", "value_size", "memory_limit", "duration")

SMALLER = "make the database smaller with `--set records=...`"

WHOLE_WORKLOAD = (
    *("store", "library", *STORES[:-1], "records", "key_size", "value_size", "value_compression_ratio", "records_seed"),
    *("database", "reload", "load_order", "load_batch", "load_sync", "settle", "reopen", "page_cache", "settle_at_end"),
    *("memory_limit", "log", "log_target", "ramp", "interval"),
)
"""Parameters of the run: streams that run together must agree on them."""

_CHOSEN = ("operations", "choice", "direction", "database", "limit_operations", "duration")
"""Parameters that settling decides by the phase, where a study leaves them out."""


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` says what is wrong with it."""
    return reading.value(KvParameters, TITLE, name, value)


def build(parameters: Mapping[str, Any]) -> KvParameters:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    return reading.build(KvParameters, TITLE, parameters)


def settle(streams: Mapping[str, KvParameters], target: Room, *, room_bytes: int) -> dict[str, KvParameters]:
    """The parameters with what the phases and the target decide."""
    backend = (target.backend() or {"kind": ""})["kind"]
    if backend not in ("", "null"):
        raise TargetError(
            "a store needs a file system or a block device, and a simulated device is neither",
            hint="name a directory as the target; `null:` measures what the harness itself costs",
        )
    is_virtual = backend == "null"
    settled = {name: _by_phase(stream, is_virtual=is_virtual) for name, stream in streams.items()}
    settled = _one_database(settled)
    check_agreement(settled, WHOLE_WORKLOAD)
    if all(stream.background for stream in settled.values()):
        raise StudyError("every stream is in the background, so nothing ends the run", hint="leave out `background`")
    return settled


def _by_phase(stream: KvParameters, *, is_virtual: bool) -> KvParameters:
    phase = PHASES[stream.phase]
    is_load = stream.phase in LOADS
    by_phase: dict[str, Any] = {
        "operations": phase.operations,
        "choice": phase.choice or ("sequential" if stream.load_order == "sequential" else "each_once"),
        "direction": phase.direction,
        "database": "empty" if is_load else "loaded",
        "limit_operations": stream.records if is_load and stream.limit_bytes is None else None,
    }
    changes = {name: value for name, value in by_phase.items() if getattr(stream, name) is None}
    if stream.phase == "load":
        changes |= {"batch": stream.load_batch, "sync": stream.load_sync}
    if stream.duration == "phase":
        ends = is_load or stream.limit_operations is not None or stream.limit_bytes is not None
        changes["duration"] = None if ends or stream.background else DEFAULT_DURATION_NS
    if is_virtual:
        changes |= {"store": "null", "library": None, "page_cache": "keep", "memory_limit": None}
        changes |= {"log": "with_data", "log_target": None}
    return stream.model_copy(update=changes)


def _one_database(streams: Mapping[str, KvParameters]) -> dict[str, KvParameters]:
    """Streams that run together begin on one database: an empty one if any of them loads."""
    states = {stream.database for stream in streams.values()}
    if states <= {"empty", "loaded"} and len(states) > 1:
        return {name: stream.model_copy(update={"database": "empty"}) for name, stream in streams.items()}
    return dict(streams)


def resolve(streams: Mapping[str, KvParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec. A limit of memory that cannot be set here raises now."""
    if any(stream.memory_limit for stream in streams.values()) and target.backend() is None:
        from iosonde.target import control_group

        control_group.hierarchy()
    streams = settle(streams, target, room_bytes=target.free_bytes())
    whole = next(iter(streams.values()))
    # Only here: what a study would take can be said without a second target.
    if whole.log == "apart" and whole.store == "rocksdb" and whole.log_target is None:
        raise StudyError(
            "the log is to lie on a second target, and none is named",
            where="by the parameter `log_target`",
            hint="name a directory on another device: `--set log_target=DIRECTORY`",
        )
    durations = [stream.duration for stream in streams.values() if isinstance(stream.duration, int)]
    place, devices = _place(streams, target)
    return {
        "protocol": PROTOCOL_VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": {
            "kind": "kv",
            "store": {"kind": whole.store, "library": whole.library, "options": options_of(whole)},
            "target": place,
            "records": {
                "count": whole.records,
                "key_bytes": _sizes(whole.key_size),
                "value_bytes": _sizes(whole.value_size),
                "value_compression_ratio": whole.value_compression_ratio,
                "seed": whole.records_seed,
            },
            "database": _database(whole),
            "transition": {"settle": whole.settle, "reopen": whole.reopen, "page_cache": whole.page_cache},
            "streams": [each for name, stream in streams.items() for each in _streams(name, stream)],
            "ramp": {"duration_ns": whole.ramp, "bytes": None},
            "duration_ns": max(durations, default=None),
            "interval_ns": whole.interval,
            "settle_at_end": whole.settle_at_end,
        },
        "observe": {"block_devices": devices},
    }


def options_of(stream: KvParameters) -> dict[str, OptionValue]:
    """Options of the store that is measured."""
    return {} if stream.store == "null" else dict(getattr(stream, stream.store))


def _place(streams: Mapping[str, KvParameters], target: Target) -> tuple[JsonObject, list[str]]:
    """The spec's `target`, and the block devices to watch. Databases that differ lie in directories that differ."""
    whole = next(iter(streams.values()))
    if whole.store == "null":
        return {"kind": "virtual"}, []
    if target.kind == "file":
        raise TargetError(
            f"`{target.name}` is a file, and a store needs a directory", hint="name a directory as the target"
        )
    size_bytes = addressed_bytes(streams)
    if target.kind != "directory":
        given = target.spec_target("shared", size_bytes)
        return given, target.block_devices()
    own, name = Path(target.spec_target("per_job", size_bytes)["directory"]), identity(whole)
    devices = target.block_devices()
    place: JsonObject = {"kind": "directory", "path": str(own / name), "log_path": None}
    if whole.log == "apart" and whole.log_target:
        from iosonde.target import open_target

        second = open_target(whole.log_target)
        if second.kind != "directory":
            raise TargetError(
                f"`{whole.log_target}` is no directory", where="by the parameter `log_target`",
                hint="name a directory of a file system on the second device",
            )  # fmt: skip
        place["log_path"] = str(Path(second.name, own.name, f"{name}-log"))
        devices = list(dict.fromkeys([*devices, *second.block_devices()]))
    return place, devices


def identity(stream: KvParameters) -> str:
    """Name of a database: the store and a hash of all that makes a database of it another."""
    facts: list[Any] = [
        stream.store,
        stream.library,
        options_of(stream),
        stream.records,
        stream.key_size,
        stream.value_size,
    ]
    facts += [stream.value_compression_ratio, stream.records_seed, stream.log]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{stream.store}-{digest[:8]}"


def _database(whole: KvParameters) -> JsonObject:
    if whole.database != "loaded":
        return {"kind": whole.database}
    return {
        "kind": "loaded",
        "reload": whole.reload,
        "order": whole.load_order,
        "batch": whole.load_batch,
        "sync": whole.load_sync,
    }


def _sizes(value: int | str) -> JsonObject:
    sizes = sizes_of(value)
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
    return {
        "name": name,
        "jobs": stream.jobs,
        "operations": [
            {"operation": operation, "weight": weight}
            for operation, weight in operations_of(stream.operations or "read")
        ],
        "choice": _choice(stream.choice or "uniform"),
        "direction": stream.direction,
        "scan_records_min": int(low),
        "scan_records_max": int(high or low),
        "batch": stream.batch,
        "sync": stream.sync,
        "arrival": {"kind": stream.arrival, **({"rate": stream.rate} if is_open else {})},
        "rate_limit": None if is_open else stream.rate,
        "background": stream.background,
        "limit_bytes": stream.limit_bytes,
        "limit_operations": stream.limit_operations,
        "cpus": stream.cpus,
    }


def _choice(text: str) -> JsonObject:
    kind, _, theta = text.partition(":")
    match kind:
        case "sequential":
            return {"kind": "sequential"}
        case "each_once":
            return {"kind": "random", "coverage": "each_once", "distribution": {"kind": "uniform"}}
        case "uniform":
            return {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}}
        case skewed:
            distribution = {"kind": skewed, "theta": float(theta)}
            return {"kind": "random", "coverage": "with_replacement", "distribution": distribution}


def record_bytes(stream: KvParameters) -> int:
    """Bytes of a key and a value, on average."""
    return round(_mean(stream.key_size) + _mean(stream.value_size))


def _mean(value: int | str) -> float:
    sizes = sizes_of(value)
    return sum(size * weight for size, weight in sizes) / sum(weight for _, weight in sizes)


def files(streams: Mapping[str, KvParameters]) -> dict[str, int]:
    """The databases that a run keeps on disk, by name, with the room that each is assumed to need."""
    whole = next(iter(streams.values()))
    return {} if whole.store == "null" else {identity(whole): addressed_bytes(streams)}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room so many databases need."""
    return (
        f"for {files} databases, by the parameters `records` and `value_size`"
        if files > 1
        else ("by the parameters `records` and `value_size`")
    )


def addressed_bytes(streams: Mapping[str, KvParameters]) -> int:
    """Room that the database is assumed to need."""
    whole = next(iter(streams.values()))
    return 0 if whole.store == "null" else whole.records * record_bytes(whole) * SPACE_FACTOR + SPACE_BYTES


def buffer_bytes(streams: Mapping[str, KvParameters]) -> int:
    """Nothing worth counting: a job holds one batch. What the store holds is the store's."""
    return 0


def must_align(stream: KvParameters) -> dict[str, list[int]]:
    """Nothing: the store knows what its direct I/O needs."""
    return {}


def layout(streams: Mapping[str, KvParameters]) -> Layout:
    """What is written before the measurement: the records that a run is to begin with."""
    whole = next(iter(streams.values()))
    if whole.database != "loaded" or whole.store == "null":
        return "never"
    return "always" if whole.reload else "missing"


def prepares(stream: KvParameters) -> bool:
    """Never: a store's file system is made anew instead."""
    return False


def cost(streams: Mapping[str, KvParameters]) -> Cost:
    """Time and bytes written at most, without layout; streams must be settled."""
    whole = next(iter(streams.values()))
    written = [_written(stream) for stream in streams.values()]
    return Cost(
        seconds=whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()),
        write_bytes=0 if whole.store == "null" else None if None in written else sum(size or 0 for size in written),
    )


def _written(stream: KvParameters) -> int | None:
    """Bytes of keys and values that a stream writes, without what a store adds; None where only time limits them."""
    kinds = {name for name, _ in operations_of(stream.operations or "read")}
    if stream.phase == "readwhilewriting":
        rate = stream.write_rate
        return (
            None
            if rate is None or not isinstance(stream.duration, int)
            else round(rate * (stream.duration + stream.ramp) / 10**9 * record_bytes(stream))
        )
    if not kinds & WRITES:
        return 0
    if stream.limit_operations is None or stream.ramp:
        return None
    return stream.limit_operations * record_bytes(stream)


def _seconds(stream: KvParameters) -> float:
    if isinstance(stream.duration, int):
        return stream.duration / 10**9
    if stream.limit_operations:
        by_count = stream.limit_operations / (stream.rate or ASSUMED_OPERATIONS_PER_SECOND)
        return max(by_count, stream.limit_operations * record_bytes(stream) / ASSUMED_BYTES_PER_SECOND)
    return (stream.limit_bytes or 0) / ASSUMED_BYTES_PER_SECOND


def database_text(stream: KvParameters) -> str:
    """What lies there, for a plan: `100,000 records, 11 MiB`."""
    return f"{stream.records:,} records, {format_bytes(stream.records * record_bytes(stream))}"
