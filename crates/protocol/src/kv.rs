//! The key-value workload: a store, the records in it, and the loads on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arrival, Coverage, Operation, PageCache, Ramp, Service};

/// Key-value operations on a store: one or more streams that run together on one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvWorkload {
    /// The store and its options.
    pub store: Store,
    /// Location of the database.
    pub target: StoreTarget,
    pub records: Records,
    /// Contents of the database before the measurement.
    pub database: Database,
    /// Steps between loading and the measurement.
    pub transition: Transition,
    /// The loads; each has its own threads.
    pub streams: Vec<KvStream>,
    /// The ramp before the measurement: load is applied but reported as phase `ramp`.
    pub ramp: Ramp,
    /// Maximum length of the measurement, in nanoseconds; absent: until every stream reaches its own limit.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// After the measurement, wait until background work (flushes, compactions) is done.
    pub settle_at_end: bool,
}

/// A store and its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    pub kind: StoreKind,
    /// Path or name of the shared library to load. For `rocksdb` and `wiredtiger` absent means the newest installed; for
    /// `lmdb` absent means the LMDB that is compiled in, and `system` the installed `liblmdb.so.0`.
    #[serde(default)]
    pub library: Option<String>,
    /// Options by the store's own names, with a boolean, a number or a text each.
    #[serde(default)]
    pub options: BTreeMap<String, serde_json::Value>,
}

/// The stores an engine may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// LMDB: a memory-mapped B+ tree, in a file or on a raw block device.
    Lmdb,
    /// RocksDB: a log-structured merge tree, from a shared library.
    Rocksdb,
    /// WiredTiger: a B-tree with a cache of its own, from a shared library.
    Wiredtiger,
    /// memcached: a cache, over its meta protocol and a Unix socket.
    Memcached,
    /// Cassandra, or another server with CQL such as ScyllaDB, over TCP.
    Cassandra,
    /// MongoDB, or another server with its wire protocol, over TCP.
    Mongodb,
    /// Returns immediately and stores nothing: the cost of the harness.
    Null,
}

impl StoreKind {
    /// The name that specs use.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Lmdb => "lmdb",
            StoreKind::Rocksdb => "rocksdb",
            StoreKind::Wiredtiger => "wiredtiger",
            StoreKind::Memcached => "memcached",
            StoreKind::Cassandra => "cassandra",
            StoreKind::Mongodb => "mongodb",
            StoreKind::Null => "null",
        }
    }

    /// Returns true if it can be loaded from a shared library.
    pub fn has_library(self) -> bool {
        matches!(self, StoreKind::Lmdb | StoreKind::Rocksdb | StoreKind::Wiredtiger)
    }

    /// True if the store may drop any record at any time, so that a read that finds nothing is a miss and no error.
    pub fn is_cache(self) -> bool {
        self == StoreKind::Memcached
    }

    /// Returns true if records can be read in the order of their keys.
    pub fn is_ordered(self) -> bool {
        !matches!(self, StoreKind::Memcached | StoreKind::Cassandra)
    }
}

/// Location of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StoreTarget {
    /// An existing directory: empty, or with a database that an engine created.
    Directory {
        /// Path of the directory.
        path: String,
        /// Another directory for the write-ahead log, if the store supports one.
        #[serde(default)]
        log_path: Option<String>,
        /// A persistent read cache between the store's memory and the database, if the store supports one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        read_cache: Option<ReadCache>,
    },
    /// A block device without a file system, claimed with `O_EXCL` for the whole run.
    Device {
        /// Path of the device node.
        path: String,
        /// Bytes of the device that may be used.
        size_bytes: u64,
        /// True if the parent process holds the claim (`O_EXCL`) on a descriptor that the engine inherits; otherwise
        /// the engine claims the device.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_claimed: bool,
    },
    /// A database of the user's, opened read-only; nothing in its directory is written. Only `rocksdb`.
    ///
    /// Keys are sampled from it: `records.count` at most, each as likely. Values are not verified.
    ReadOnly {
        /// Path of the database's directory.
        path: String,
    },
    /// A running server: for the store `memcached`.
    Socket {
        /// Path of its Unix socket.
        path: String,
    },
    /// A running server, on TCP, with a database for the records only: for the stores `cassandra` and
    /// `mongodb`.
    Server {
        /// Host name or address.
        host: String,
        port: u16,
        /// Existing database (Cassandra: keyspace). Records that are in it may be removed.
        database: String,
        /// User name; absent: no authentication.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// True if the database has every record, as an engine loaded them; otherwise it is loaded or emptied first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_loaded: bool,
    },
    /// No storage: for the `null` store.
    Virtual,
}

/// A persistent read cache of RocksDB (`NewPersistentCache`): blocks read from the database are also written to files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadCache {
    /// An existing directory, empty or of an earlier run; the cache in it is empty whenever the database is opened.
    pub path: String,
    /// Size in bytes, at least 100 MiB.
    pub size_bytes: u64,
    /// Write with `O_DIRECT` in blocks of 4 KiB (RocksDB's `optimized_for_nvm`); reads always use `O_DIRECT`.
    pub direct_writes: bool,
}

/// The records of a database, numbered from 0. Number, generation and seed determine their contents.
///
/// A key starts with 8 bytes that the record's number determines (`key_order`), and is padded with `0`. A value, or each of
/// its fields, starts with 16 bytes that identify generation, seed and record; the remaining bytes are derived from them, so
/// every value can be verified byte by byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// Number of records.
    pub count: u64,
    /// Sizes of the keys, at least 8 bytes, determined by the record's number.
    pub key_bytes: KvSize,
    /// Sizes of the values, at least 16 bytes, determined by the record's number and generation.
    pub value_bytes: KvSize,
    /// Compressed size of values over their size: 1 is incompressible (db_bench `compression_ratio`).
    pub value_compression_ratio: f64,
    /// Order of keys.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// Fields of a value, all of the same size; with more than one, values have a fixed size that is a multiple of it.
    #[serde(default = "one_field")]
    pub fields: u32,
    /// Seed of the contents, separate from the run's seed: runs that share a database share it.
    pub seed: u64,
}

fn one_field() -> u32 {
    1
}

/// Order of the keys of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// As the records' numbers: new records come after all others.
    #[default]
    Number,
    /// By a hash of the number, as YCSB's `insertorder=hashed`: new records come between all others.
    Hashed,
}

/// Size of keys or values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvSize {
    /// The same for all.
    Fixed {
        /// Size in bytes.
        bytes: u64,
    },
    /// Uniformly distributed between `min_bytes` and `max_bytes`.
    Uniform {
        /// Smallest size in bytes.
        min_bytes: u64,
        /// Largest size in bytes.
        max_bytes: u64,
    },
    /// Generalized Pareto distribution with location 0, limited to `min_bytes` and `max_bytes`.
    Pareto {
        /// Scale in bytes, above 0.
        scale: f64,
        /// Shape, above 0 and below 1: the larger, the more large sizes.
        shape: f64,
        /// Smallest size in bytes; smaller draws have this size.
        min_bytes: u64,
        /// Largest size in bytes; larger draws have this size.
        max_bytes: u64,
    },
    /// Several sizes with weights.
    Weighted { sizes: Vec<WeightedSize> },
}

/// A size and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Weight among the sizes, above 0.
    pub weight: f64,
}

/// Contents of the database before the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Database {
    /// No records: an existing database of an engine is removed.
    Empty,
    /// Every record. A complete database of the same records, store and options is kept, unless `reload` or `restore`;
    /// any other database of an engine is removed, and loading is phase `layout`.
    Loaded {
        /// Load again even if the database is complete.
        reload: bool,
        /// Order of keys while loading.
        order: LoadOrder,
        /// Records in one transaction or write batch.
        batch: u32,
        /// True if each batch is durable before the next starts.
        sync: bool,
        /// Maximum records per second; absent: as fast as possible. A cache that writes items to a device in the background
        /// drops those that arrive faster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<f64>,
        /// Keep a checkpoint of the loaded database beside it, from which later runs restore it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checkpoint: bool,
        /// An earlier run wrote to the database: restore it from its checkpoint, or load again if there is none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restore: bool,
    },
    /// The existing contents, which may be fewer than all records.
    Existing,
}

/// Order of keys while loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadOrder {
    /// By key.
    Sequential,
    /// Each once, at random.
    Random,
}

/// Steps between loading and the first measured operation: phase `precondition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transition {
    /// Wait until background work (flushes, compactions) is done.
    pub settle: bool,
    /// Close and reopen the store, so that its own caches are empty.
    pub reopen: bool,
    /// `drop` and `warm` close the store, because mapped pages cannot be dropped.
    pub page_cache: PageCache,
}

/// One load: `jobs` threads, each with one operation at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvStream {
    /// Name of the stream, unique in the workload.
    pub name: String,
    /// Number of threads.
    pub jobs: u32,
    /// Operations with weights.
    pub operations: Vec<KvShare>,
    /// Choice of records.
    pub choice: KvChoice,
    /// Direction of `scan` and `iterate`.
    pub direction: Direction,
    /// Fewest records of a scan.
    pub scan_records_min: u32,
    /// Most records of a scan; uniformly distributed.
    pub scan_records_max: u32,
    /// Records in one transaction or write batch; above 1 only with `update`, `insert` and `delete`, in closed loop. On
    /// `memcached` also with `read`: so many operations of one kind are sent together, and each has its own latency.
    pub batch: u32,
    /// True if each write survives a power failure once acknowledged. Without it, an acknowledged write survives a
    /// crash of the process but not of the machine; options of a store may weaken both (`StoreResult::durability`).
    pub sync: bool,
    /// Check that values read are at least as new as the last write acknowledged before the read began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freshness: bool,
    /// `memcached`: what a `read` does that finds nothing; absent: it is a miss, and that is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_through: Option<ReadThrough>,
    /// Operations from a trace, instead of `operations` (which then states how many of each it has) and `choice`. The stream
    /// is the only one, and ends with the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<KvTrace>,
    /// Start times of operations.
    pub arrival: Arrival,
    /// Closed loop: maximum records per second of all jobs of the stream; missed operations are not caught up.
    pub rate_limit: Option<f64>,
    /// The stream ends when all foreground streams have ended.
    pub background: bool,
    /// The stream ends once it has issued this many bytes in the measurement, split evenly over its jobs.
    pub limit_bytes: Option<u64>,
    /// The stream ends once it has issued this many operations in the measurement, split evenly over its jobs.
    pub limit_operations: Option<u64>,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A trace to replay, converted to rows of fixed size (docs/traces.md).
///
/// Rows are divided among jobs by key, so that operations on one key stay in order. Keys have the length of the trace's and
/// values its sizes; their contents are those of records. With a `loaded` database, every key that the trace reads with a
/// known size is written first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvTrace {
    /// Path of the converted trace.
    pub path: String,
    pub rows: u64,
    /// SHA-256 of the trace that it was converted from.
    pub digest: String,
}

/// Source of values that the cache does not have: a modelled backend. The latency of the `read` includes
/// that of the backend; the value is then put into the cache, which is reported as `write`. Misses of one batch are
/// requested from the backend together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadThrough {
    /// Mean latency of the backend, in nanoseconds.
    pub latency_ns: u64,
    /// Distribution of latencies: constant, or exponential with that mean.
    pub distribution: Service,
}

/// An operation and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvShare {
    pub operation: KvOperation,
    /// Weight among the operations, above 0.
    pub weight: f64,
}

/// An operation on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvOperation {
    /// Get the value of the chosen record; reported as `read`.
    Read,
    /// Put a new value of the chosen record, whether it exists or not; reported as `write`.
    Update,
    /// Get the chosen record, replace one of its fields, chosen at random, and put it; reported as `write`.
    UpdateField,
    /// Put a record that does not exist yet: numbers from `records.count` on; reported as `write`.
    Insert,
    /// Delete the chosen record; reported as `delete`.
    Delete,
    /// Seek to the chosen record and read a range from there; reported as `scan`.
    Scan,
    /// Read the next record of an iterator over the whole database, restarting at its end; reported as `read`.
    Iterate,
    /// Get the chosen record, then put a new value of it, or of one of its fields; reported as `read_modify_write`.
    ReadModifyWrite,
}

impl KvOperation {
    /// The operation under which events report it.
    #[inline] // Called for each operation, and this crate is compiled without optimization.
    pub fn reported_as(self) -> Operation {
        match self {
            KvOperation::Read | KvOperation::Iterate => Operation::Read,
            KvOperation::Update | KvOperation::UpdateField | KvOperation::Insert => Operation::Write,
            KvOperation::Delete => Operation::Delete,
            KvOperation::Scan => Operation::Scan,
            KvOperation::ReadModifyWrite => Operation::ReadModifyWrite,
        }
    }
}

/// Choice of records.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvChoice {
    /// By key; each job has its own part of the records and restarts at its end.
    Sequential,
    /// At random.
    Random {
        /// With replacement, or each record once before any is repeated, divided among the jobs.
        coverage: Coverage,
        /// Probability of each record; only with replacement.
        distribution: KvDistribution,
    },
}

/// Probability of each record.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvDistribution {
    /// Uniform, including records inserted during the run.
    Uniform,
    /// Rank `r` with weight `r^-theta` among the first `records.count`; ranks are scattered over the keys.
    Zipfian {
        /// Skew, above 0; YCSB uses 0.99.
        theta: f64,
        /// Records per second that become the most popular one, each in turn; all others move down by one rank.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        churn: Option<f64>,
    },
    /// YCSB's `scrambled zipfian` over a growing key space: rank `r` of 10^10 with weight `r^-theta`, hashed to one of
    /// `key_space` places; a place whose record does not exist yet is drawn again.
    ScrambledZipfian {
        /// Skew, above 0; YCSB uses 0.99.
        theta: f64,
        /// Records now, and twice as many more as inserts are expected; at least `records.count`.
        key_space: u64,
    },
    /// Rank `r` with weight `r^-theta` among all records, counted back from the record inserted last.
    Latest {
        /// Skew, above 0; YCSB uses 0.99.
        theta: f64,
    },
}

/// Direction of scans and iterators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Reverse,
}

/// Failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreDurability {
    /// None: a crash of the process loses acknowledged writes.
    Nothing,
    /// A crash of the process, but not a power failure.
    ProcessCrash,
    /// A power failure.
    PowerLoss,
}

/// Facts about a store after a run, besides its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreResult {
    pub kind: StoreKind,
    /// Its version, as it reports it.
    pub version: String,
    /// Build of the store, as far as known: library file, assertions, compression libraries, on-disk format.
    pub build: BTreeMap<String, String>,
    /// Every option in effect, by the store's own names.
    pub options: BTreeMap<String, String>,
    /// Failures that acknowledged writes of the measurement survive, the weakest of all streams; absent without writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<StoreDurability>,
    /// True if a complete database was found and kept.
    pub kept: bool,
    /// Bytes of the database files that were copied to restore it from its checkpoint; absent if it was not restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_copied_bytes: Option<u64>,
    /// Bytes of the database files that were restored as reflinks or hard links, without copying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_linked_bytes: Option<u64>,
    /// Bytes allocated to the database after it was closed (`st_blocks`; on a device the pages in use), its log included.
    pub database_bytes: u64,
    /// Bytes of keys and values of all records, as `records` describes them.
    pub record_bytes: u64,
    /// Bytes of data in the database's files at the start of the measurement, without holes and before any compression by
    /// the file system; on a device the pages in use.
    pub database_bytes_at_start: u64,
    /// Number of these bytes in the page cache, if the kernel supports `cachestat(2)`.
    pub cached_bytes_at_start: Option<u64>,
    /// Bytes of data at the end of the measurement.
    pub database_bytes_at_end: u64,
    /// Number of these bytes in the page cache.
    pub cached_bytes_at_end: Option<u64>,
    /// Duration of settling before the measurement, in nanoseconds.
    pub settle_ns: u64,
    /// Duration of settling after the measurement, in nanoseconds.
    pub settle_at_end_ns: u64,
    /// Duration of closing, in nanoseconds.
    pub close_ns: u64,
    /// Bytes that were written to the page cache but deleted or truncated before writeback, by this process up to now
    /// (`cancelled_write_bytes` of proc(5)); absent where the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_write_bytes: Option<u64>,
    /// The same of the measurement alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_cancelled_write_bytes: Option<u64>,
    /// Verification of values read, for each stream and operation, ramp and measurement together.
    pub checks: Vec<StoreCheck>,
    /// The store's own statistics at the start of the measurement; intervals have them over time.
    pub statistics_at_start: BTreeMap<String, u64>,
    /// The same at the end, before closing.
    pub statistics_at_end: BTreeMap<String, u64>,
}

/// Verification of the values that one operation of a stream read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreCheck {
    pub stream: String,
    pub operation: Operation,
    /// Values compared with the expected ones.
    pub values: u64,
    /// Records that were not found: by key, or skipped by a scan or iterator over a complete database.
    pub missing: u64,
    /// Values that differ from the expected ones, and records out of order.
    pub corrupted: u64,
    /// Values older than the last write acknowledged before the read began; only with `freshness`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stale: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
