//! The key-value workload: a store, the records in it, and the loads on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arrival, Coverage, Operation, PageCache, Ramp};

/// Key-value operations on a store: one or more streams that run together on one database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvWorkload {
    /// The store and its options.
    pub store: Store,
    /// Where the database lies.
    pub target: StoreTarget,
    /// The records.
    pub records: Records,
    /// What the database holds before anything is measured.
    pub database: Database,
    /// What happens between that and the first measured operation.
    pub transition: Transition,
    /// The loads; each has its own threads.
    pub streams: Vec<KvStream>,
    /// The ramp before the measurement: load is applied but reported as phase `warmup`.
    pub ramp: Ramp,
    /// Length of the measurement at most, in nanoseconds; absent means until every stream reaches its own limit.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// After the measurement, wait until the store has done its background work (flushes, compactions).
    pub settle_at_end: bool,
}

/// A store and its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Which store.
    pub kind: StoreKind,
    /// For `rocksdb`: path or name of the shared library to load; absent means the newest that the system has.
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
    /// redb: a copy-on-write B+ tree in Rust.
    Redb,
    /// fjall: a log-structured merge tree in Rust.
    Fjall,
    /// Answers at once and keeps nothing: what the harness itself costs.
    Null,
}

impl StoreKind {
    /// The name that specs use.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Lmdb => "lmdb",
            StoreKind::Rocksdb => "rocksdb",
            StoreKind::Redb => "redb",
            StoreKind::Fjall => "fjall",
            StoreKind::Null => "null",
        }
    }
}

/// Where the database lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StoreTarget {
    /// A directory that exists: empty, or with a database that an engine made there.
    Directory {
        /// Path of the directory.
        path: String,
        /// Another directory for the write-ahead log, where the store can have one apart.
        #[serde(default)]
        log_path: Option<String>,
    },
    /// A block device without a file system, claimed with `O_EXCL` for the whole run.
    Device {
        /// Path of the device node.
        path: String,
        /// Bytes of the device that may be used.
        size_bytes: u64,
        /// Whether whoever starts the engine holds the claim (`O_EXCL`) on a descriptor that the engine inherits; else
        /// it claims the device itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_claimed: bool,
    },
    /// Nothing real: for the `null` store.
    Virtual,
}

/// The records of a database: numbered from 0, everything in them follows from number, generation and seed.
///
/// A key begins with 8 bytes that follow from its record's number (`key_order`), and is filled up with `0`. A value, or each
/// of its fields, begins with 16 bytes that name generation, seed and record, and goes on with bytes that follow from those,
/// so that whatever is read can be compared byte by byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// Number of records.
    pub count: u64,
    /// Sizes of the keys, at least 8 bytes; they follow from the record's number.
    pub key_bytes: KvSize,
    /// Sizes of the values, at least 16 bytes; they follow from the record's number and generation.
    pub value_bytes: KvSize,
    /// The fraction to which values can be compressed: 1 for not at all, 0.5 to half (db_bench `compression_ratio`).
    pub value_compression_ratio: f64,
    /// How keys sort.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// Fields of a value, all of the same size; with more than one, values have a fixed size that is a multiple of it.
    #[serde(default = "one_field")]
    pub fields: u32,
    /// Seed of the contents, apart from the run's: runs that share a database share it.
    pub seed: u64,
}

fn one_field() -> u32 {
    1
}

/// How the keys of records sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    /// As the records' numbers: new records come after all others.
    #[default]
    Number,
    /// By a hash of the number, as YCSB's `insertorder=hashed`: new records come between all others.
    Hashed,
}

/// How large keys or values are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvSize {
    /// All alike.
    Fixed {
        /// Size in bytes.
        bytes: u64,
    },
    /// Every size from `min_bytes` to `max_bytes` alike.
    Uniform {
        /// Smallest size in bytes.
        min_bytes: u64,
        /// Largest size in bytes.
        max_bytes: u64,
    },
    /// Some sizes, each with its weight.
    Weighted {
        /// The sizes.
        sizes: Vec<WeightedSize>,
    },
}

/// A size and how often it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Weight among the sizes, above 0.
    pub weight: f64,
}

/// What the database holds before anything is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Database {
    /// Nothing: a database that an engine made there before is removed.
    Empty,
    /// Every record. A complete database of the same records, store and options is kept, unless `reload`; any other
    /// that an engine made there is removed, and loading is phase `layout`.
    Loaded {
        /// Load again even if a complete database is there.
        reload: bool,
        /// In which order.
        order: LoadOrder,
        /// Records in one transaction or write batch.
        batch: u32,
        /// Whether each batch is durable before the next begins.
        sync: bool,
    },
    /// Whatever is there, which may be less than all records.
    Existing,
}

/// In which order records are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadOrder {
    /// By key.
    Sequential,
    /// Each once, at random.
    Random,
}

/// What happens between the state that was asked for and the first measured operation: phase `precondition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transition {
    /// Wait until the store has done its background work (flushes, compactions).
    pub settle: bool,
    /// Close the store and open it again, so that its own caches are empty.
    pub reopen: bool,
    /// `drop` and `warm` close the store, since pages that it has mapped cannot be dropped.
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
    /// What is done, with weights.
    pub operations: Vec<KvShare>,
    /// Which records are chosen.
    pub choice: KvChoice,
    /// Direction of `scan` and `iterate`.
    pub direction: Direction,
    /// Fewest records of a scan.
    pub scan_records_min: u32,
    /// Most records of a scan; each number between is as likely.
    pub scan_records_max: u32,
    /// Records in one transaction or write batch; above 1 only where all operations are `update`, `insert` or `delete`, and
    /// in closed loop.
    pub batch: u32,
    /// Whether each write is durable when it completes.
    pub sync: bool,
    /// When operations start.
    pub arrival: Arrival,
    /// Closed loop: records per second at most, of all jobs of the stream together. What was missed is not made up for.
    pub rate_limit: Option<f64>,
    /// The stream ends as soon as all streams that are not in the background have ended.
    pub background: bool,
    /// The stream ends once it has issued this many bytes in the measurement, split evenly over its jobs.
    pub limit_bytes: Option<u64>,
    /// The stream ends once it has issued this many operations in the measurement, split evenly over its jobs.
    pub limit_operations: Option<u64>,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// An operation and how often it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvShare {
    /// What is done.
    pub operation: KvOperation,
    /// Weight among the operations, above 0.
    pub weight: f64,
}

/// What a stream does with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvOperation {
    /// Get the value of the chosen record; told as `read`.
    Read,
    /// Put a new value of the chosen record, whether it exists or not; told as `write`.
    Update,
    /// Get the chosen record, replace one of its fields, chosen at random, and put it; told as `write`.
    UpdateField,
    /// Put a record that does not exist yet: numbers from `records.count` on; told as `write`.
    Insert,
    /// Delete the chosen record; told as `delete`.
    Delete,
    /// Seek to the chosen record and read some from there on; told as `scan`.
    Scan,
    /// Read the next record of an iterator over the whole database, beginning anew at its end; told as `read`.
    Iterate,
    /// Get the chosen record, then put a new value of it, or of one of its fields; told as `read_modify_write`.
    ReadModifyWrite,
}

impl KvOperation {
    /// What events call it.
    pub fn told_as(self) -> Operation {
        match self {
            KvOperation::Read | KvOperation::Iterate => Operation::Read,
            KvOperation::Update | KvOperation::UpdateField | KvOperation::Insert => Operation::Write,
            KvOperation::Delete => Operation::Delete,
            KvOperation::Scan => Operation::Scan,
            KvOperation::ReadModifyWrite => Operation::ReadModifyWrite,
        }
    }
}

/// Which records are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvChoice {
    /// By key; each job has its own part of the records, and begins anew at its end.
    Sequential,
    /// At random.
    Random {
        /// With replacement, or each record once before any comes again, dealt out to the jobs.
        coverage: Coverage,
        /// How often each record is chosen; only with replacement.
        distribution: KvDistribution,
    },
}

/// How often each record is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KvDistribution {
    /// All alike, those inserted during the run included.
    Uniform,
    /// Rank `r` with weight `r^-theta` among the first `records.count`; ranks are scattered over the keys.
    Zipfian {
        /// Skew, above 0; YCSB uses 0.99.
        theta: f64,
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

/// What a run on a store leaves besides its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreResult {
    /// Which store.
    pub kind: StoreKind,
    /// Its version, from itself.
    pub version: String,
    /// How it was built, as far as that can be read: library file, assertions, compression libraries.
    pub build: BTreeMap<String, String>,
    /// Every option in effect, by the store's own names.
    pub options: BTreeMap<String, String>,
    /// Whether a complete database was found and kept.
    pub kept: bool,
    /// Bytes allocated to the database after it was closed (`st_blocks`; on a device the pages in use), its log included.
    pub database_bytes: u64,
    /// Bytes of keys and values of all records, once each, as `records` describes them.
    pub record_bytes: u64,
    /// Bytes of the database in the page cache when the measurement began, where the kernel tells (`cachestat(2)`).
    pub cached_bytes_at_begin: Option<u64>,
    /// The same when it ended.
    pub cached_bytes_at_end: Option<u64>,
    /// Time that settling before the measurement took, in nanoseconds.
    pub settle_ns: u64,
    /// Time that settling after the measurement took, in nanoseconds.
    pub settle_at_end_ns: u64,
    /// Time that closing took, in nanoseconds.
    pub close_ns: u64,
    /// What came of the values read, for each stream and operation, ramp and measurement together.
    pub checks: Vec<StoreCheck>,
    /// The store's own statistics when the measurement began; intervals hold them over time.
    pub statistics_at_begin: BTreeMap<String, u64>,
    /// The same when all was done, before closing.
    pub statistics_at_end: BTreeMap<String, u64>,
}

/// What came of the values that a stream's operation read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreCheck {
    /// Name of the stream.
    pub stream: String,
    /// Which operation.
    pub operation: Operation,
    /// Values compared with what their key demands.
    pub values: u64,
    /// Records that were asked for and not found.
    pub missing: u64,
    /// Values that are not what their key demands.
    pub corrupted: u64,
}
