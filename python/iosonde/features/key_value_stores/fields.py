"""The parameters of a key-value load: every field of a stream with its default and description.

A *phase* is a load by its name in db_bench and YCSB; `phases.py` defines each, and what is
set itself wins over its phase. Those in `WHOLE_WORKLOAD` describe the run and not the stream, so streams that run
together must agree on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.features.key_value_stores import notation, store_options
from iosonde.features.key_value_stores.phases import Phase
from iosonde.protocol import names_in
from iosonde.workload.reading import (
    BYTES,
    NANOSECONDS,
    Cpus,
    Duration,
    DurationOrZero,
    Interval,
    SizeOrNone,
    SizeOrZero,
    parse_duration_or_none,
    parse_path,
    parse_positive_rate,
)

STORES = names_in("StoreKind")

if TYPE_CHECKING:
    StoreKind = str
else:
    StoreKind = Literal[STORES]

EMBEDDED = ("lmdb", "rocksdb", "wiredtiger")
"""Stores that are libraries in the engine, with options of their own."""


STRATEGIES = {
    "size_tiered": "SizeTieredCompactionStrategy",
    "leveled": "LeveledCompactionStrategy",
    "unified": "UnifiedCompactionStrategy",
}
"""Compaction strategies of Cassandra by their class; the last one exists since Cassandra 5.0."""

CLIENT_OPTIONS = ("consistency", "in_flight")
"""Options of Cassandra's client: the level of consistency, and writes of one commit in flight."""

Count = Annotated[int, BeforeValidator(notation.parse_count)]
Options = Annotated[dict[str, notation.OptionValue], BeforeValidator(notation.parse_options)]


class KvFields(BaseModel):
    """One stream: `jobs` threads, each with one operation at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreKind = "lmdb"
    """Store; `memcached` and `cassandra` are servers that iosonde starts for each run; `mongodb`, and `cassandra` with
    `server_url`, is a server of yours; `null` stores nothing and shows the cost of the harness."""
    library: str | None = None
    """RocksDB and WiredTiger: the shared library, by path or name; empty: the newest installed. LMDB: `system` for the
    installed `liblmdb.so.0`, or a path; empty: the LMDB in the engine."""
    lmdb: Options = Field(default_factory=dict)
    """Options of LMDB by its own names, such as `mapsize`."""
    rocksdb: Options = Field(default_factory=dict)
    """Options of RocksDB by its own names, such as `write_buffer_size`."""
    options_file: Annotated[str | None, BeforeValidator(parse_path)] = None
    """RocksDB: an OPTIONS file of a database, named with `--set options_file=PATH`; options in `rocksdb` override
    it."""
    user_database: Annotated[str | None, BeforeValidator(parse_path)] = None
    """RocksDB: directory of a database of yours, named with `--set user_database=PATH`. It is opened read-only, and
    `records` of its keys are sampled; values are not verified."""
    wiredtiger: Options = Field(default_factory=dict)
    """Options of WiredTiger by its own names, of the connection and of the table, such as `cache_size` or
    `block_compressor`; nested ones with a dot, such as `log.file_max`."""
    memcached: Options = Field(default_factory=dict)
    """Settings of memcached by its own long names, such as `threads` or `ext_page_size`, in its own units."""
    tier: Literal["memory", "extstore"] = "memory"
    """memcached: place of items: `memory` only, or `extstore` with values in a file on the target too."""
    cache_memory: SizeOrZero = Field(64 << 20, gt=0)
    """memcached: memory for items (its `memory-limit`)."""
    extstore_size: SizeOrZero = Field(1 << 30, gt=0)
    """memcached, `tier = "extstore"`: size of the file on the target."""
    cassandra: Options = Field(default_factory=dict)
    """Settings of Cassandra by the names of `cassandra.yaml`, such as `concurrent_writes` or `memtable_heap_space`;
    with `server_url` options of the client: `consistency`, `in_flight`, `replication_factor`."""
    heap_size: SizeOrZero = Field(1 << 30, gt=0)
    """Cassandra: size of the heap of its Java virtual machine."""
    commitlog_sync: Literal["periodic", "batch", "group"] | None = None
    """Cassandra: writes are acknowledged before the commit log is synced (`periodic`, the default of a node that
    iosonde starts), after a sync of their own (`batch`), or after one for all writes within 10 ms (`group`). With
    `server_url`: the mode that the server must have."""
    compaction: Literal["size_tiered", "leveled", "unified"] | None = None
    """Cassandra: compaction strategy of the table; empty: the server's default."""
    server_url: Annotated[str | None, BeforeValidator(notation.parse_server_url)] = None
    """The running server, `mongodb://USER@HOST:PORT` or, of Cassandra and ScyllaDB, `cql://USER@HOST:PORT` (command
    line: `--server URL`), without a user where it requires none; the password is in `MONGODB_PASSWORD` or
    `CASSANDRA_PASSWORD`."""
    mongodb: Options = Field(default_factory=dict)
    """Options of MongoDB's clients by their own names: write concern (`w`, `j`, `wtimeout_ms`), `read_concern`,
    `auth_source`; `j` follows `sync` unless it is set."""
    connections: int = Field(1, ge=1, le=1024)
    """memcached: connections of each job."""
    ttl: DurationOrZero = 0
    """memcached: time after which a record expires; 0: never."""
    miss: Literal["miss", "read_through"] = "miss"
    """memcached: a read that finds nothing is only counted (`miss`), or waits for a modelled backend and puts the value
    into the cache (`read_through`)."""
    backend_latency: Duration = 5 * 10**6
    """`read_through`: mean latency of the modelled backend."""
    backend_distribution: Literal["constant", "exponential"] = "exponential"
    """`read_through`: distribution of the latency of the modelled backend."""
    phase: Phase = "readrandom"
    """Load by name (table below); other parameters override it."""
    operations: Annotated[str | None, BeforeValidator(notation.parse_operations)] = None
    """Operations with weights, such as `read/95:update/5`: `read`, `update`, `update_field`, `insert`, `delete`,
    `scan`, `iterate`, `read_modify_write`; empty: from the phase."""
    choice: Annotated[str | None, BeforeValidator(notation.parse_choice)] = None
    """Choice of records: `sequential`, `each_once` (at random, none twice), `uniform`, `zipfian:THETA`,
    `zipfian:THETA:CHURN` (CHURN records per second become the most popular one, each in turn),
    `scrambled_zipfian:THETA` (YCSB's, over a growing key space), `latest:THETA`; empty: from the phase."""
    direction: Literal["forward", "reverse"] | None = None
    """Direction of scans and iterators; empty: from the phase."""
    scan_records: Annotated[str, BeforeValidator(notation.parse_scan)] = "1..100"
    """Records per scan: a number, or a range with equal probabilities."""
    jobs: int = Field(1, ge=1, le=1024)
    """Threads; of `readwhilewriting` only the readers."""
    write_rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = None
    """`readwhilewriting`: records per second of the one writer; empty: as fast as possible."""
    write_arrival: Literal["closed", "constant", "poisson"] = "closed"
    """`readwhilewriting`: `write_rate` as a limit (closed loop), or as an open loop."""
    batch: int = Field(1, ge=1, le=10**6)
    """Records in one transaction or write batch; memcached: also reads that are sent together."""
    sync: bool = False
    """Whether a completed write survives a power failure; otherwise it survives a crash of the process."""
    freshness: bool = False
    """Check that reads return a value at least as new as the last write acknowledged before; takes 8 B of memory per
    record, and writers of one record take turns."""
    arrival: Literal["closed", "constant", "poisson", "trace"] = "closed"
    """Closed loop (the next operation when one completes), or open loop; `trace`: open loop at the times of the
    trace."""
    rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = None
    """Open loop: operations per second of all jobs together; closed loop: an upper limit."""
    trace: Annotated[str | None, BeforeValidator(parse_path)] = None
    """`phase = "trace"`: CSV or Parquet file with the operations, named with `--set trace=FILE`
    ([traces.md](traces.md))."""
    trace_speed: float = Field(1.0, gt=0, le=1e6)
    """`arrival = "trace"`: multiple of the speed of the trace; 2 is twice as fast."""
    background: bool = False
    """The stream ends when all streams that are not in the background have ended."""
    records: Count = 100_000
    """Records of the database; `80M` is 80 million."""
    key_size: Annotated[int | str, BeforeValidator(notation.parse_size_mix(8)), BYTES] = 16
    """Size of a key: fixed, `16..32`, or a mix as `16/90:64/10`; at least 8 B."""
    value_size: Annotated[int | str, BeforeValidator(notation.parse_size_mix(16)), BYTES] = 100
    """Size of a value: fixed, `16..4000`, a mix as `100/70:4000/30`, or `pareto:SCALE:SHAPE:MAX` (generalized Pareto
    distribution); at least 16 B."""
    value_compression_ratio: float = Field(0.5, gt=0, le=1)
    """Compressed size of a value as a fraction of its size, as in db_bench; 1: incompressible."""
    fields: int = Field(1, ge=1, le=1000)
    """Fields of a value, of the same size each; `update_field` and `read_modify_write` replace one."""
    key_order: Literal["number", "hashed"] = "number"
    """How keys sort: as the records' numbers, or hashed, so that inserts come between the others."""
    expected_inserts: Annotated[int | None, BeforeValidator(notation.parse_count_or_none)] = None
    """`scrambled_zipfian`: inserts for which the key space has room; empty: by `limit_operations`, else a tenth of the
    records."""
    records_seed: int = Field(1, ge=0)
    """Seed of the records' contents, the same for runs that share them."""
    database: Literal["empty", "loaded", "existing"] | None = None
    """Before the measurement: no record, every record (a database that has them is kept), or the existing ones; empty:
    from the phase."""
    reload: bool = False
    """`loaded`: load again even if every record is there."""
    carry_over: bool = False
    """RocksDB: measure on the database with the writes of earlier runs, with a warning, instead of restoring it."""
    load_order: Literal["sequential", "random"] = "sequential"
    """Key order of the load."""
    load_batch: int = Field(1000, ge=1, le=10**6)
    """Records in one transaction or batch of the load."""
    load_rate: Annotated[float | None, BeforeValidator(parse_positive_rate)] = None
    """Maximum records per second of the load; empty: as fast as possible. memcached moves records to extstore in the
    background, and drops those that arrive faster."""
    load_sync: bool = False
    """Whether each batch of the load is durable before the next."""
    settle: bool = False
    """After loading, wait until the store has done its background work."""
    reopen: bool = False
    """Before the measurement, close the store and open it again."""
    page_cache: Literal["drop", "keep", "warm"] = "drop"
    """The database's pages before the measurement: dropped, kept, or all read once."""
    settle_at_end: bool = False
    """After the measurement, wait until background work is done."""
    memory_limit: SizeOrNone = None
    """Memory of the engine, store and page cache together (a memory cgroup; needs root), of memcached and Cassandra
    that of the server and of the page cache of its files; empty: the machine's."""
    in_memory: bool = False
    """Put the database into a file system in memory (`/dev/shm`), which the kernel can swap; it is loaded again for
    each run. Not for `memcached` and `cassandra`."""
    log: Literal["with_data", "apart"] = "with_data"
    """RocksDB, WiredTiger and Cassandra: where the write-ahead log is; `apart` is in `log_target`."""
    log_target: Annotated[str | None, BeforeValidator(parse_path)] = None
    """RocksDB, WiredTiger and Cassandra: directory on a second target for the log, named with `--set
    log_target=DIRECTORY`."""
    read_cache: SizeOrNone = None
    """RocksDB: size of a persistent read cache in files, at least 100 MiB; empty: none. It needs `g++` and RocksDB's
    headers."""
    read_cache_target: Annotated[str | None, BeforeValidator(parse_path)] = None
    """RocksDB: directory on a second target for the read cache, named with `--set read_cache_target=DIRECTORY`; empty:
    the database's target."""
    read_cache_direct_writes: bool = False
    """RocksDB: write the read cache with `O_DIRECT`, in blocks of 4 KiB (`optimized_for_nvm`). Reads of it always use
    `O_DIRECT`."""
    ramp: DurationOrZero = 0
    """Load before the measurement, so that it starts in a stable state."""
    ramp_until: Literal["time", "steady"] = "time"
    """End the ramp after its time, or once rate and hit ratio are steady (`ramp` is then the maximum)."""
    start: Literal["warm", "cold"] = "warm"
    """`cold`: start the measurement with an empty page cache and without a ramp, on purpose."""
    duration: Annotated[
        int | Literal["phase"] | None,
        BeforeValidator(lambda value: value if value == "phase" else parse_duration_or_none(value)),
        NANOSECONDS,
    ] = "phase"
    """Maximum length of the measurement; `phase`: until a load is done, else 10 s; `none`."""
    limit_operations: Annotated[int | None, BeforeValidator(notation.parse_count_or_none)] = None
    """Maximum operations of each stream in the measurement; empty: a load writes all records."""
    limit_bytes: SizeOrNone = None
    """Maximum bytes of each stream in the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."""

    @property
    def is_running_server(self) -> bool:
        """True if the store is a server run by the user, with a database created for the records."""
        return self.store == "mongodb" or (self.store == "cassandra" and self.server_url is not None)

    @property
    def options(self) -> dict[str, notation.OptionValue]:
        """Options of the store that is measured, those of an OPTIONS file included; those of a cache's client."""
        if self.store == "null":
            return {}
        if self.store == "memcached":
            return {"connections": self.connections, **({"ttl_s": self.ttl // 10**9} if self.ttl else {})}
        if self.store == "cassandra":
            client = {name: value for name, value in self.cassandra.items() if name in CLIENT_OPTIONS}
            return {**client, **({"compaction": STRATEGIES[self.compaction]} if self.compaction else {})}
        of_file = store_options.of_file(self.options_file) if self.store == "rocksdb" and self.options_file else {}
        return {**of_file, **getattr(self, self.store)}

    @property
    def record_bytes(self) -> int:
        """Bytes of a key and a value, on average."""
        return round(notation.mean_size(self.key_size) + notation.mean_size(self.value_size))


WHOLE_WORKLOAD = (
    *("store", "library", "options_file", "user_database", "server_url"),
    *(*STORES[:-1], "tier", "cache_memory", "extstore_size", "connections", "ttl"),
    *("heap_size", "commitlog_sync", "compaction"),
    *("records", "key_size", "value_size", "value_compression_ratio", "records_seed", "trace"),
    *("fields", "key_order"),
    *("database", "reload", "carry_over", "load_order", "load_batch", "load_rate", "load_sync"),
    *("settle", "reopen", "page_cache", "settle_at_end"),
    *("read_cache", "read_cache_target", "read_cache_direct_writes"),
    *("memory_limit", "in_memory", "log", "log_target", "ramp", "ramp_until", "start", "interval"),
)
"""Parameters of the run: streams that run together must agree on them."""

SHOWN: Sequence[str] = ("store", "phase", "jobs", "records", "key_size", "value_size", "memory_limit", "duration")
