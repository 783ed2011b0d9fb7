//! The objects workload: whole objects in an object store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Arrival;

/// Writes and reads of whole objects of one size: one or more streams that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectsWorkload {
    /// Store of the objects.
    pub store: ObjectStore,
    /// Bytes of an object, 64 B to 64 MiB.
    pub object_bytes: u64,
    /// Number of objects. Writes go through them in order and overwrite them from the first one when all are written.
    pub objects: u64,
    /// Seed of the contents of objects, separate from the run's seed.
    pub content_seed: u64,
    /// The loads; each has its own threads. If one of them reads, all objects are written first (phase `layout`).
    pub streams: Vec<ObjectStream>,
    /// Length of the ramp, in nanoseconds; 0 for none.
    pub ramp_ns: u64,
    /// Length of the measurement at most, in nanoseconds.
    pub duration_ns: u64,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// An operation that takes longer fails, and with it the run; in nanoseconds, at least 1 s.
    pub timeout_ns: u64,
    /// Delete all objects after the measurement, not measured (phase `settle`).
    pub delete_after: bool,
}

/// An object store that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObjectStore {
    /// A pool of a Ceph cluster, through librados.
    Rados {
        /// Path of librados; absent: the newest one in the library directories.
        #[serde(default)]
        library: Option<String>,
        /// The cluster's configuration file.
        config_path: String,
        /// The client's name without `client.`.
        user: String,
        pool: String,
    },
    /// A bucket of an S3 server: HTTP/1.1 without encryption, path-style addresses, signature version 4. The
    /// credentials are in `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    S3 {
        /// Host name or address.
        host: String,
        port: u16,
        /// Existing bucket that iosonde created: it has the object `created-by-iosonde`.
        bucket: String,
        /// Region that signatures name.
        region: String,
    },
    /// Objects in the engine's own memory, which complete at once: what the harness itself costs.
    Memory,
}

/// One load: `jobs` threads, each with `queue_depth` operations in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectStream {
    /// Name of the stream, unique in the workload.
    pub name: String,
    /// Number of threads.
    pub jobs: u32,
    /// Operations in flight in each thread; in open loop the most that may be in flight.
    pub queue_depth: u32,
    /// Operation of the stream.
    pub operation: ObjectOperation,
    /// Start times of operations.
    pub arrival: Arrival,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// Operation of a stream on objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectOperation {
    /// Write whole objects, one after the other.
    Write,
    /// Read whole objects in the order in which they were written; job `i` of `n` reads every `n`-th from the `i`-th.
    SequentialRead,
    /// Read whole objects, each choice independent and uniform.
    RandomRead,
}

/// Result of a load on objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectsResult {
    /// Product and version of the client library.
    pub client: String,
    /// File of the client library.
    pub library: String,
    /// Objects written before the load.
    pub loaded: u64,
    /// Reads, each compared in full with what was written.
    pub checked: u64,
    /// Reads that returned other contents or another length.
    pub wrong: u64,
    /// The first wrong object.
    pub first_wrong: Option<String>,
    /// Objects deleted after the measurement.
    pub deleted: u64,
}
