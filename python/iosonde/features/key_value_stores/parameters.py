"""The parameters of a key-value load: every field of a stream with its default and description, and their rules.

A *phase* is a load by its name in db_bench and YCSB; what is set itself wins over its phase. Parameters in
`WHOLE_WORKLOAD` describe the run and not the stream, so streams that run together must agree on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from iosonde.engine.protocol import HIGHEST_RATE, names_in
from iosonde.engine.protocol.option_text import unsafe_option
from iosonde.features.key_value_stores import notation
from iosonde.features.key_value_stores.notation import (
    SMALLEST_VALUE,
    WRITES,
    ends_of,
    misspelt,
    operations_of,
    sizes_of,
)
from iosonde.study.workload.reading import (
    BYTES,
    NANOSECONDS,
    Cpus,
    Duration,
    DurationOrZero,
    Interval,
    SizeOrNone,
    SizeOrZero,
    WithRules,
    parse_duration_or_none,
    parse_path,
    parse_positive_rate,
)
from iosonde.study.workload.servers import url_of
from iosonde.units import MIB

LOG_STRUCTURED = ("rocksdb",)
"""Stores that compact in the background what was written: a run after writes loads their databases again."""

LOG_APART = ("rocksdb", "wiredtiger", "cassandra")
"""Stores whose log can be on another target."""

EMBEDDED = ("lmdb", "rocksdb", "wiredtiger")
"""Stores that are libraries in the engine, with options of their own."""

CACHES = ("memcached",)
"""Stores that may drop any record."""

LOADS = ("load", "fillseq", "fillrandom", "filluniquerandom")
"""Phases that begin with an empty database and write as many records as it is to have."""


@dataclass(frozen=True)
class Phase:
    """Parameters of a phase."""

    operations: str
    choice: str
    """Empty: by `load_order`."""
    words: str
    """In sentences: `random reads`."""
    text: str
    """In the documentation."""
    direction: Literal["forward", "reverse"] = "forward"


_ZIPFIAN = "scrambled_zipfian:0.99"

PHASES: Mapping[str, Phase] = {
    "load": Phase("update", "", "loads",
        "every record once into an empty database, in `load_order`, in batches of `load_batch`"),
    "fillseq": Phase("update", "sequential", "sequential fills",
        "every record once, by key, into an empty database"),
    "fillrandom": Phase("update", "uniform", "random fills",
        "as many writes as there are records, at random, into an empty database: 63 % of the keys occur"),
    "filluniquerandom": Phase("update", "each_once", "random fills without repetition",
        "every record once, at random, into an empty database"),
    "overwrite": Phase("update", "uniform", "overwrites",
        "new values of records at random"),
    "readrandom": Phase("read", "uniform", "random reads",
        "records at random"),
    "readseq": Phase("iterate", "sequential", "sequential reads",
        "one record after the other, by key"),
    "readreverse": Phase("iterate", "sequential", "reverse reads",
        "one record after the other, backwards", direction="reverse"),
    "seekrandom": Phase("scan", "uniform", "random scans",
        "seek to a record at random, and read `scan_records`"),
    "deleteseq": Phase("delete", "sequential", "sequential deletes",
        "delete records by key"),
    "deleterandom": Phase("delete", "uniform", "random deletes",
        "delete records at random"),
    "readwhilewriting": Phase("read", "uniform", "reads while writing",
        "`jobs` readers (stream `readers`) and one writer of new values (stream `writer`), each at random"),
    "ycsb_a": Phase("read/50:update_field/50", _ZIPFIAN, "YCSB A operations",
        "update heavy"),
    "ycsb_b": Phase("read/95:update_field/5", _ZIPFIAN, "YCSB B operations",
        "read mostly"),
    "ycsb_c": Phase("read", _ZIPFIAN, "YCSB C operations",
        "read only"),
    "ycsb_d": Phase("read/95:insert/5", "latest:0.99", "YCSB D operations",
        "read what was inserted last"),
    "ycsb_e": Phase("scan/95:insert/5", _ZIPFIAN, "YCSB E operations",
        "short ranges"),
    "ycsb_f": Phase("read/50:read_modify_write/50", _ZIPFIAN, "YCSB F operations",
        "read, modify, write"),
    "trace": Phase("read:update:delete", "uniform", "trace operations",
        "the operations of a `trace`, on its keys, with its sizes"),
}  # fmt: skip
"""By name."""

STORES = names_in("StoreKind")

if TYPE_CHECKING:
    StoreKind = str
    PhaseName = str
else:
    StoreKind = Literal[STORES]
    PhaseName = Literal[tuple(PHASES)]

STRATEGIES = {
    "size_tiered": "SizeTieredCompactionStrategy",
    "leveled": "LeveledCompactionStrategy",
    "unified": "UnifiedCompactionStrategy",
}
"""Compaction strategies of Cassandra by their class; the last one exists since Cassandra 5.0."""

REPLICATION = "replication_factor"
"""Copies of each record on a running cluster, in `cassandra`."""

CLIENT_OPTIONS = ("consistency", "in_flight")
"""Options of Cassandra's client: the level of consistency, and writes of one commit in flight."""

PERIODIC = "periodic"
"""Commit log sync mode of a Cassandra node that iosonde starts, unless the study sets it."""

SMALLEST_KEY, LARGEST_KEY = 16, 250
"""Bytes of a key of memcached: at least hexadecimal digits that identify the record."""
GETS_PER_CONNECTION = 256
PAGES_MIN = 4

OF_MEMCACHED = {"memory-limit": "cache_memory", "extstore_size": "extstore_size"}
"""Settings of memcached that are parameters."""

Count = Annotated[int, BeforeValidator(notation.parse_count)]
Options = Annotated[dict[str, notation.OptionValue], BeforeValidator(notation.parse_options)]
STORE_URL = url_of(
    *("mongodb", "cassandra"),
    what="a store; write it like `mongodb://me@host:27017` or `cql://me@host:9042`",
)
FilePath = Annotated[str | None, BeforeValidator(parse_path)]
Rate = Annotated[float | None, BeforeValidator(parse_positive_rate)]
Rule = tuple[bool, str]
"""A condition, and the error if it is true."""


class KvParameters(WithRules):
    """One stream: `jobs` threads, each with one operation at a time."""

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
    options_file: FilePath = None
    """RocksDB: an OPTIONS file of a database, named with `--set options_file=PATH`; options in `rocksdb` override
    it."""
    user_database: FilePath = None
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
    server_url: Annotated[str | None, STORE_URL] = None
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
    phase: PhaseName = "readrandom"
    """Load by name (see [Loads](stores.md#loads)); other parameters override it."""
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
    write_rate: Rate = None
    """`readwhilewriting`: records per second of the one writer; empty: as fast as possible."""
    write_arrival: Literal["closed", "constant", "poisson"] = "closed"
    """`readwhilewriting`: `write_rate` as a limit (closed loop), or as an open loop."""
    batch: int = Field(1, ge=1, le=10**6)
    """Records in one transaction or write batch; memcached: also reads that are sent together."""
    sync: bool = False
    """Completed writes survive a power failure; otherwise they survive a crash of the process."""
    freshness: bool = False
    """Check that reads return a value at least as new as the last write acknowledged before; takes 8 B of memory per
    record, and writers of one record take turns."""
    arrival: Literal["closed", "constant", "poisson", "trace"] = "closed"
    """Closed loop (the next operation when one completes), or open loop; `trace`: open loop at the times of the
    trace."""
    rate: Rate = None
    """Open loop: operations per second of all jobs together; closed loop: an upper limit."""
    trace: FilePath = None
    """`phase = "trace"`: CSV or Parquet file with the operations, named with `--set trace=FILE`
    (see [Trace replay](traces.md))."""
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
    load_rate: Rate = None
    """Maximum records per second of the load; empty: as fast as possible. memcached moves records to extstore in the
    background, and drops those that arrive faster."""
    load_sync: bool = False
    """Durability of the load: each batch is durable before the next."""
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
    log_target: FilePath = None
    """RocksDB, WiredTiger and Cassandra: directory on a second target for the log, named with `--set
    log_target=DIRECTORY`."""
    read_cache: SizeOrNone = None
    """RocksDB: size of a persistent read cache in files, at least 100 MiB; empty: none. It needs `g++` and RocksDB's
    headers."""
    read_cache_target: FilePath = None
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
    def is_created(self) -> bool:
        """True if the database is one that iosonde creates on the target."""
        return self.store != "null" and not self.is_running_server and self.user_database is None

    @property
    def mix(self) -> dict[str, float]:
        """Operations with their weights, once the phase is fitted."""
        return dict(operations_of(self.operations or "read"))

    @property
    def writes(self) -> bool:
        return bool(WRITES & set(self.mix))

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
        of_file = notation.of_file(self.options_file) if self.store == "rocksdb" and self.options_file else {}
        return {**of_file, **getattr(self, self.store)}

    @property
    def record_bytes(self) -> int:
        """Bytes of a key and a value, on average."""
        return round(notation.mean_size(self.key_size) + notation.mean_size(self.value_size))

    def _rules(self) -> list[Rule]:
        kinds = {name for name, _ in operations_of(self.operations or PHASES[self.phase].operations)}
        both = self.phase == "readwhilewriting"
        rate = max(self.rate or 0, self.write_rate or 0)
        batched = {"update", "insert", "delete", *(["read"] if self.store in CACHES else [])}
        return [
            *self._of_caches(kinds),
            *self._of_cassandra(kinds),
            *self._of_traces(),
            *self._of_servers(kinds),
            (self.library is not None and self.store not in ("rocksdb", "wiredtiger", "lmdb"),
             f"`library` is for `rocksdb`, `wiredtiger` and `lmdb`, not `{self.store}`"),
            (self.user_database is not None and (self.store != "rocksdb" or both or kinds & WRITES != set()),
             "`user_database` is for reads of `store = \"rocksdb\"`"),
            (self.user_database is not None and (self.settle or self.settle_at_end or self.log == "apart"),
             "`user_database` is read-only: leave out `settle`, `settle_at_end` and `log`"),
            (self.freshness and (self.batch > 1 or self.fields > 1 or "delete" in kinds),
             "`freshness` needs single writes without deletes"),
            (self.log == "apart" and self.store not in (*LOG_APART, "null"),
             f"`log = \"apart\"` is for `rocksdb`, `wiredtiger` and `cassandra`: {self.store} has no separate log"),
            (self.read_cache is not None and self.store not in ("rocksdb", "null"),
             f"`read_cache` is for `store = \"rocksdb\"`: {self.store} has no persistent read cache"),
            (self.read_cache is not None and self.read_cache < 100 * MIB,
             "`read_cache` is at least 100 MiB, the size of one of its files"),
            (self.read_cache is not None and self.user_database is not None,
             "`user_database` is opened without a `read_cache`"),
            (self.in_memory and (self.store not in (*EMBEDDED, "null") or self.log == "apart"
                                or self.read_cache is not None or self.user_database is not None),
             "`in_memory` is for a database of its own without `log` and `read_cache`, and not for `memcached` and "
             "`cassandra`"),
            (both and (self.operations is not None or self.background),
             "`readwhilewriting` is two loads: write streams of your own for others"),
            (not both and (self.write_rate is not None or self.write_arrival != "closed"),
             "`write_rate` and `write_arrival` are for `phase = \"readwhilewriting\"`"),
            (self.write_arrival != "closed" and self.write_rate is None,
             f"`write_arrival = \"{self.write_arrival}\"` needs a `write_rate`"),
            (self.arrival in ("constant", "poisson") and self.rate is None,
             f"`arrival = \"{self.arrival}\"` needs a `rate`"),
            (rate > HIGHEST_RATE, f"a rate of {rate:g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
            (self.arrival != "closed" and self.batch > 1, "an open loop is one operation at a time: leave out `batch`"),
            (self.batch > 1 and not both and not kinds <= batched,
             "`batch` is for operations that write; on `memcached` for `read` too"),
            (self.fields > 1 and not self._has_room(),
             f"`fields = {self.fields}` needs a fixed `value_size` that it divides, with at least 16 B for each"),
            (self.limit_operations is not None and self.limit_operations < self.jobs,
             "`limit_operations` is less than one for each job"),
            (self.jobs > self.records, f"{self.jobs} jobs cannot share {self.records} records"),
            (self.duration is None and self.limit_operations is None and self.limit_bytes is None
             and not self.background, "it would never end: set `duration`, `limit_operations` or `limit_bytes`"),
            *self._of_options(),
        ]  # fmt: skip

    def _of_traces(self) -> list[Rule]:
        if self.phase != "trace":
            return [
                (self.trace is not None or self.arrival == "trace" or self.trace_speed != 1,
                 "`trace`, `trace_speed` and `arrival = \"trace\"` are for `phase = \"trace\"`"),
            ]  # fmt: skip
        return [
            (self.operations is not None or self.choice is not None,
             "the trace decides operations and records: leave out `operations` and `choice`"),
            (self.arrival in ("constant", "poisson") or self.rate is not None,
             "a trace is replayed at its own times (`arrival = \"trace\"`) or as fast as possible"),
            (self.batch > 1 or self.fields > 1 or self.freshness,
             "a trace is replayed one operation at a time: leave out `batch`, `fields` and `freshness`"),
            (self.ttl > 0, "the trace has the times to live: leave out `ttl`"),
            (self.user_database is not None or self.carry_over,
             "a trace has a database of its own: leave out `user_database` and `carry_over`"),
            (self.trace_speed != 1 and self.arrival != "trace", "`trace_speed` is for `arrival = \"trace\"`"),
        ]  # fmt: skip

    def _of_servers(self, kinds: set[str]) -> list[Rule]:
        """A server of the user: iosonde does not start or configure it, and does not see its files."""
        scheme = {"mongodb": "mongodb", "cassandra": "cql"}.get(self.store)
        if not self.is_running_server or scheme is None:
            return [
                (self.server_url is not None and self.store != "null",
                 f"`server_url` is for `mongodb` and `cassandra`: iosonde opens `{self.store}` itself"),
            ]  # fmt: skip
        return [
            (self.server_url is not None and not self.server_url.startswith(f"{scheme}://"),
             f"`server_url` is `{self.server_url}`, and the store `{self.store}` has addresses of the kind "
             f"`{scheme}://USER@HOST:PORT`"),
            (self.log == "apart", "the log of a running server is not moved: leave out `log`"),
            (self.memory_limit is not None,
             "the memory of a running server cannot be limited: leave out `memory_limit`"),
            (self.settle or self.settle_at_end or self.reopen,
             "a running server is not closed, and its background work is not known: leave out `settle`, "
             "`settle_at_end` and `reopen`"),
            (self.start == "cold", "the caches of a running server cannot be emptied: leave out `start`"),
            (self.store == "mongodb" and bool(kinds & {"scan", "iterate"}) and not isinstance(self.key_size, int),
             "`mongodb` orders binary keys by their length first: scans need keys of one size"),
        ]  # fmt: skip

    def _has_room(self) -> bool:
        """Return True if all fields have the same size, with space for the prefix that identifies each."""
        size = self.value_size
        return isinstance(size, int) and size % self.fields == 0 and size // self.fields >= SMALLEST_VALUE

    def _of_options(self) -> list[Rule]:
        given = {store: getattr(self, store) for store in EMBEDDED}
        unsafe = [f"`{store}`: {clause}" for store, options in given.items() if (clause := unsafe_option(options))]
        wrong = [*unsafe, *filter(None, map(misspelt, given, given.values()))]
        return [(True, text) for text in wrong]

    def _of_caches(self, kinds: set[str]) -> list[Rule]:
        if self.store not in CACHES:
            return [
                (self.miss != "miss", f"only a cache misses: `miss` is for `memcached`, not `{self.store}`"),
                (self.ttl > 0, f"`ttl` is for `memcached`, not `{self.store}`"),
            ]
        shortest, longest = ends_of(sizes_of(self.key_size))
        reads_through = self.miss == "read_through"
        chosen = next((name for name in OF_MEMCACHED if name in self.memcached), "")
        page = str(self.memcached.get("ext_page_size", 64))  # A setting that is no number is refused by memcached.
        page_bytes = int(page) * MIB if page.isdecimal() else 0
        return [
            (bool(kinds & {"scan", "iterate"}),
             "`memcached` has no order, so it cannot be scanned: use `read`, `update`, `insert` and `delete`"),
            (self.sync or self.load_sync,
             "`memcached` keeps nothing across a restart: leave out `sync` and `load_sync`"),
            (self.settle or self.settle_at_end or self.reopen,
             "`memcached` is not closed before its run ends: leave out `settle`, `settle_at_end` and `reopen`"),
            (shortest < SMALLEST_KEY or longest > LARGEST_KEY,
             f"keys of `memcached` have {SMALLEST_KEY} to {LARGEST_KEY} B: set `key_size`"),
            (bool(chosen), f"`{chosen}` of memcached is set by the parameter `{OF_MEMCACHED.get(chosen)}`"),
            (self.batch > GETS_PER_CONNECTION * self.connections,
             f"`batch` is more than {GETS_PER_CONNECTION} for each of `connections`"),
            (self.cache_memory % MIB > 0 or self.extstore_size % MIB > 0,
             "`cache_memory` and `extstore_size` are multiples of 1 MiB"),
            (self.tier == "extstore" and self.extstore_size < PAGES_MIN * page_bytes,
             f"`extstore_size` has room for less than {PAGES_MIN} pages of `ext_page_size` (MiB), of which memcached "
             "keeps a quarter free"),
            (reads_through and self.freshness,
             "`freshness` cannot be checked with `miss = \"read_through\"`: the modelled backend has no writes"),
            (reads_through and "read" not in kinds, "`miss = \"read_through\"` is for `read`"),
            (self.ttl > 0 and (self.ttl < 10**9 or self.ttl > 30 * 86400 * 10**9),
             "`ttl` is 1 s to 30 days: memcached takes longer times for dates"),
            (self.ttl % 10**9 > 0, "`ttl` is a whole number of seconds"),
            (self.phase == "readwhilewriting" and self.batch > 1, "`readwhilewriting` reads one record at a time"),
        ]  # fmt: skip

    def _of_cassandra(self, kinds: set[str]) -> list[Rule]:
        if self.store != "cassandra":
            return [
                (self.compaction is not None, f"`compaction` is for `cassandra`, not `{self.store}`"),
                (bool(self.cassandra), f"`cassandra` has settings for the store `cassandra`, not `{self.store}`"),
            ]
        is_synced_later = not self.is_running_server and self.commitlog_sync in (None, PERIODIC)
        of_node = min(set(self.cassandra) - {*CLIENT_OPTIONS, REPLICATION}, default="")
        replicas = self.cassandra.get(REPLICATION, 1)
        is_count = isinstance(replicas, int) and not isinstance(replicas, bool) and 1 <= replicas <= 16
        return [
            (self.is_running_server and bool(of_node),
             f"settings of a running server are not changed: leave out `{of_node}`; `cassandra` has options of the "
             f"client here ({', '.join((*CLIENT_OPTIONS, REPLICATION))})"),
            (not self.is_running_server and REPLICATION in self.cassandra,
             f"`{REPLICATION}` is for a running server (`server_url`)"),
            (not is_count, f"`{REPLICATION}` is a whole number from 1 to 16"),
            (bool(kinds & {"scan", "iterate"}),
             "`cassandra` orders records by the hash of their keys, so it cannot be scanned by key: use `read`, "
             "`update`, `insert` and `delete`"),
            ("commitlog_sync" in self.cassandra, "`commitlog_sync` of Cassandra is a parameter of its own"),
            (self.reopen, "`cassandra` is started for each run: leave out `reopen`"),
            ((self.sync or self.load_sync) and is_synced_later,
             "with `commitlog_sync = \"periodic\"` Cassandra acknowledges writes before they are synced: use `batch` "
             "or `group`, or leave out `sync` and `load_sync`"),
            (self.heap_size < 16 * MIB, "`heap_size` is at least 16 MiB"),
            (self.phase == "trace", "a trace cannot be replayed on `cassandra`"),
        ]  # fmt: skip


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
