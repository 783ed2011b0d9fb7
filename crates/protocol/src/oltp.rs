//! Transactional workloads on a database server: `tpcc` (TPC-C 5.11) and `commit` (single-row durable commits).
//!
//! The server is running already; the engine connects, creates and checks its own tables, and applies load. No
//! password appears in a spec or an event: the engine reads it from `PGPASSWORD`, `PGPASSFILE` or `~/.pgpass`, and from
//! `MYSQL_PWD` or `~/.my.cnf`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arrival, Operation};

/// TPC-C on a database server. One spec may load, check, measure, or any of them in this order: verify acknowledged
/// orders, load, check, ramp and measurement, check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TpccWorkload {
    /// The server and the database on it.
    pub server: SqlServer,
    /// Number of warehouses, the scale of the database.
    pub warehouses: u32,
    /// Seed of the population, apart from the run's: runs that share a database share it.
    pub seed: u64,
    /// State of the database before anything is measured.
    pub database: TpccDatabase,
    /// Before anything else: directory of acknowledged orders ([`AcknowledgedLog`]) whose presence in the database is
    /// counted.
    #[serde(default)]
    pub verify_acknowledged: Option<String>,
    /// Times at which the 12 consistency conditions (clause 3.3.2) are checked. A violation fails the run.
    pub check: TpccCheck,
    /// The load; absent means that nothing is measured.
    #[serde(default)]
    pub measurement: Option<TpccMeasurement>,
}

/// Single-row durable commits: each client inserts or updates one row per transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitWorkload {
    /// The server and the database on it. The table `commit_log` or `commit_row` is dropped and created before the measurement.
    pub server: SqlServer,
    /// Operation of each transaction.
    pub operation: CommitOperation,
    /// Bytes of the payload of each row, 1 to 8000.
    pub payload_bytes: u32,
    /// Before anything else: directory of acknowledged commits ([`AcknowledgedLog`]) whose presence in the database is
    /// counted. The tables are then left as they are until that is done.
    #[serde(default)]
    pub verify_acknowledged: Option<String>,
    /// The load; absent means that nothing is measured.
    #[serde(default)]
    pub measurement: Option<CommitMeasurement>,
}

/// A database server and a database on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlServer {
    /// The server's protocol.
    pub kind: SqlServerKind,
    /// Address on which it listens.
    pub address: SqlAddress,
    pub user: String,
    pub database: String,
    /// Action if the database does not exist.
    pub missing_database: MissingDatabase,
    /// The oldest acceptable version of the server, such as `15` or `10.6`; absent means the oldest that the engine
    /// supports (PostgreSQL 11, MariaDB 10.4, MySQL 8.0).
    #[serde(default)]
    pub version_min: Option<String>,
    /// Timeout of connection attempts while the server refuses connections because it is starting, in nanoseconds.
    pub connect_timeout_ns: u64,
}

/// Protocol of a database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SqlServerKind {
    /// PostgreSQL, protocol 3.0.
    Postgresql,
    /// MariaDB or MySQL (InnoDB).
    Mariadb,
}

impl SqlServerKind {
    /// The name that specs use.
    pub fn name(self) -> &'static str {
        match self {
            SqlServerKind::Postgresql => "postgresql",
            SqlServerKind::Mariadb => "mariadb",
        }
    }
}

/// Address on which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SqlAddress {
    /// A Unix socket.
    Unix {
        /// Path of the socket itself, for PostgreSQL `DIRECTORY/.s.PGSQL.PORT`.
        path: String,
    },
    /// A TCP port, without TLS.
    Tcp {
        /// Host name or address.
        host: String,
        port: u16,
    },
}

/// Action if the database does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingDatabase {
    /// Create it: UTF-8, binary collation.
    Create,
    /// Fail.
    Fail,
}

/// State of the TPC-C database before anything is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TpccDatabase {
    /// Populated by clause 4.3.3: phase `layout`. A complete database of the same scale and seed on which no load was ever
    /// applied is kept, unless `reload`; any other that the engine created there is dropped. A database with other tables is
    /// refused (`foreign_data`).
    Loaded {
        /// Load again even if a complete, unused database is there.
        reload: bool,
        /// Number of connections that load in parallel.
        jobs: u32,
    },
    /// Use what is there, which the engine must have loaded with the same scale and seed.
    Existing,
    /// Use what is there; the tables must be those of this scale.
    Foreign,
}

/// Times at which the consistency conditions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TpccCheck {
    /// Before the measurement, after loading.
    pub before: bool,
    /// After the measurement.
    pub after: bool,
}

/// The load of a TPC-C run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TpccMeasurement {
    /// Number of terminals: one connection and one thread each, which are jobs of the stream `terminals`.
    pub terminals: u32,
    /// Choice of a transaction's warehouse.
    pub home: HomeWarehouse,
    /// Keying and think times.
    pub think: ThinkTime,
    /// Start times; rates are transactions of all types per second. Open loop requires think time `none`.
    pub arrival: Arrival,
    /// Choice of transaction types.
    pub mix: TransactionMix,
    /// Isolation level of every transaction.
    pub isolation: Isolation,
    /// Repetitions of a transaction after a serialization failure, deadlock or lock timeout before it counts as failed.
    pub retries: u32,
    /// True if independent statements of a transaction are sent together (one round trip for several statements).
    pub pipelining: bool,
    /// Length of the ramp before the measurement, in nanoseconds.
    pub ramp_ns: u64,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// Destination of the identifiers of acknowledged new-orders; absent: nowhere.
    #[serde(default)]
    pub acknowledged: Option<AcknowledgedLog>,
    /// Action if the server goes away during ramp or measurement.
    pub server_loss: ServerLoss,
    /// CPUs to run on: terminal `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// The load of a `commit` run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitMeasurement {
    /// Number of clients: one connection and one thread each, which are jobs of the stream `clients`.
    pub clients: u32,
    /// Start times of commits; rates are commits of all clients per second.
    pub arrival: Arrival,
    /// Length of the ramp before the measurement, in nanoseconds.
    pub ramp_ns: u64,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// Destination of the identifiers of acknowledged commits; absent: nowhere.
    #[serde(default)]
    pub acknowledged: Option<AcknowledgedLog>,
    /// Action if the server goes away during ramp or measurement.
    pub server_loss: ServerLoss,
    /// CPUs to run on: client `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// Operation of each transaction of the `commit` workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitOperation {
    /// Insert a row into `commit_log`.
    Insert,
    /// Update the client's own row of `commit_row`.
    Update,
}

/// Choice of a transaction's warehouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HomeWarehouse {
    /// Each terminal has its own for the whole run (clause 2.4.1.1): terminal `i` has number `i modulo warehouses`.
    Fixed,
    /// Any, chosen for each transaction, as go-tpc does.
    Uniform,
}

/// Keying and think times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThinkTime {
    /// None: the result is TPC-C-like.
    None,
    /// Clause 5.2.5.7: keying times 18, 3, 2, 2 and 2 s; exponential think times with means 12, 12, 10, 5 and 5 s.
    Standard,
}

/// Choice of transaction types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransactionMix {
    /// Clause 5.2.4.2: a shuffled deck of 23 cards a terminal (10 new-orders, 10 payments, 1 of each other type).
    Deck,
    /// By weight, 45, 43, 4, 4 and 4 %, each transaction by itself, as go-tpc does.
    Weighted,
}

/// Isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// `READ COMMITTED`.
    ReadCommitted,
    /// `REPEATABLE READ`.
    RepeatableRead,
    /// `SERIALIZABLE`.
    Serializable,
}

/// Identifiers of acknowledged commits: one append-only file for each terminal or client in a directory, written after the
/// server's acknowledgement and before the next transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcknowledgedLog {
    /// The directory; it must exist, and files of an earlier run in it are replaced.
    pub directory: String,
}

/// Action if the server goes away during ramp or measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerLoss {
    /// Fail the run (`server_vanished`).
    Fail,
    /// End the load at that instant; the result reports it.
    End,
}

/// Results of a transactional run besides its operations. Counts are those of the measurement unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OltpResult {
    /// The server, by its own answers.
    pub server: SqlServerAbout,
    /// True if statements were pipelined.
    pub pipelining: bool,
    /// Result of loading; absent if nothing was to be loaded.
    #[serde(default)]
    pub load: Option<OltpLoad>,
    /// The constants of the non-uniform random numbers (clause 2.1.6) by name: `c_last_load`, `c_last`, `c_id`, `ol_i_id`.
    #[serde(default)]
    pub constants: BTreeMap<String, u32>,
    /// Every transaction type that occurred.
    #[serde(default)]
    pub transactions: Vec<TransactionResult>,
    /// Counters of the exchange between clients and server.
    #[serde(default)]
    pub counters: OltpCounters,
    /// The checks of the consistency conditions, in their order.
    #[serde(default)]
    pub consistency: Vec<ConsistencyResult>,
    /// Identifiers of acknowledged commits that were written, ramp included; absent if none were to be written.
    #[serde(default)]
    pub acknowledged: Option<u64>,
    /// Check that commits acknowledged in an earlier run are in the database; absent if not requested.
    #[serde(default)]
    pub durability: Option<DurabilityResult>,
    /// Disappearance of the server, in nanoseconds since the run's 0; null if it did not disappear.
    #[serde(default)]
    pub server_vanished_ns: Option<u64>,
}

/// A database server, by its own answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SqlServerAbout {
    /// `PostgreSQL`, `MariaDB` or `MySQL`.
    pub product: String,
    pub version: String,
    /// Character set or encoding of the database.
    pub encoding: String,
    /// Collation of the database.
    pub collation: String,
    /// Isolation level of the measured transactions; empty if nothing was measured.
    pub isolation: String,
}

/// Result of loading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OltpLoad {
    /// True if a complete database was found and kept.
    pub kept: bool,
    /// Method of sending rows: `copy`, `load_data` or `multi_row_insert`.
    pub method: String,
    /// Connections that loaded in parallel.
    pub jobs: u32,
    /// Rows written.
    pub rows: u64,
    /// Bytes of rows as they were sent.
    pub bytes: u64,
    /// Time for rows, indexes and statistics (`ANALYZE`), in nanoseconds.
    pub duration_ns: u64,
}

/// A transaction type over the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransactionResult {
    /// The type.
    pub operation: Operation,
    /// Completed: committed, or rolled back as the input rules demand.
    pub completed: u64,
    /// Of these, new-orders rolled back because their last item does not exist (clause 2.4.1.4).
    pub rolled_back: u64,
    /// Given up after all retries.
    pub failed: u64,
    /// Attempts that ended in a serialization failure.
    pub serialization_failures: u64,
    /// Attempts that ended in a deadlock.
    pub deadlocks: u64,
    /// Attempts that ended in a lock timeout.
    pub lock_timeouts: u64,
    /// Deliveries: districts that had no new order (clause 2.7.4.2).
    pub skipped_districts: u64,
}

impl TransactionResult {
    /// No transactions.
    pub fn none(operation: Operation) -> TransactionResult {
        TransactionResult {
            operation,
            completed: 0,
            rolled_back: 0,
            failed: 0,
            serialization_failures: 0,
            deadlocks: 0,
            lock_timeouts: 0,
            skipped_districts: 0,
        }
    }
}

/// Counters of the exchange between clients and server, and of repetitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OltpCounters {
    /// Statements executed, `BEGIN` and `COMMIT` included.
    pub statements: u64,
    /// Times that a client sent something and waited for the answer.
    pub round_trips: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Attempts that ended in a serialization failure, deadlock or lock timeout.
    pub aborted_attempts: u64,
    /// Transactions given up after all retries.
    pub failed_transactions: u64,
}

/// One check of all consistency conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConsistencyResult {
    /// Time of the check.
    pub moment: ConsistencyMoment,
    /// Time it took, in nanoseconds.
    pub duration_ns: u64,
    /// The 12 conditions of clause 3.3.2, in their order.
    pub conditions: Vec<ConditionResult>,
}

/// Time of a consistency check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConsistencyMoment {
    /// Before the measurement, after loading.
    Before,
    /// After the measurement.
    After,
}

/// One consistency condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConditionResult {
    /// Number in clause 3.3.2, 1 to 12.
    pub number: u32,
    /// The condition as a formula.
    pub condition: String,
    /// Warehouses, districts, orders, lines or customers that violate it.
    pub violations: u64,
}

/// Result of the check that acknowledged commits are in the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DurabilityResult {
    /// Acknowledged commits that were looked up.
    pub acknowledged: u64,
    /// Of these, commits that the database does not have.
    pub lost: u64,
    /// The first lost ones, at most 16: `warehouse/district/order` or `client/sequence`.
    pub first_lost: Vec<String>,
}
