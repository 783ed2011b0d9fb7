//! Loads that software for machine learning applies to storage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Backend, IoMode, PageCache, Ramp};

/// Location of the files of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AiTarget {
    /// An existing directory.
    Directory {
        /// Path of the directory.
        path: String,
    },
    /// Nothing real: for the backends `simulated` and `ssd`, on which files follow one another.
    Virtual {
        /// Bytes that may be addressed.
        size_bytes: u64,
    },
}

/// Loading of the weights of a model, once: the load ends with the last file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiWeightsWorkload {
    /// Location of generated files.
    pub target: AiTarget,
    /// The simulated device of a `virtual` target.
    #[serde(default)]
    pub backend: Option<Backend>,
    /// Files in the order in which they are loaded.
    pub files: Vec<WeightFile>,
    /// True if missing files are written with random data; otherwise all exist and are opened read-only.
    pub generate: bool,
    /// How files are read.
    pub strategy: WeightStrategy,
    /// Bytes of a read at most.
    pub request_bytes: u64,
    /// Threads. They share files, or requests of direct I/O.
    pub threads: u32,
    /// Memory that weights are read into.
    pub memory: WeightMemory,
    /// The page cache of the files before the load.
    pub page_cache: PageCache,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// CPUs to run on: thread `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A file in the format safetensors: 8 bytes with the length of a JSON header, the header, and tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightFile {
    /// Absolute path, or of generated files the name in the target.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// First byte of each tensor in the file, in the order of their access; each extends to the next or to the end of the file.
    pub tensors: Vec<u64>,
}

/// How files of weights are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightStrategy {
    /// Shared mapping, from which tensors are copied in their order.
    Mmap,
    /// The same with `MADV_RANDOM`: no read-ahead.
    MmapRandom,
    /// The same with `MADV_WILLNEED` for the file.
    MmapWillneed,
    /// The same with `MADV_POPULATE_READ` for the file (Linux 5.14).
    MmapPopulate,
    /// `pread(2)` of whole files, one file at a time in each thread.
    Read,
    /// Direct I/O (`O_DIRECT`): requests of all files, one at a time in each thread.
    Direct,
}

/// Memory that weights are read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightMemory {
    /// Memory that is new for each tensor or request, so that its page faults are part of the load.
    Pageable,
    /// Memory that is faulted in before the load, in huge pages where the kernel has them, and locked (`mlock(2)`), as buffers
    /// for transfers to an accelerator.
    Locked,
}

/// Queries of an index of vectors: each is a chain of rounds, with reads in parallel in each round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiVectorWorkload {
    /// Location of the index, the file `index`.
    pub target: AiTarget,
    /// The simulated device of a `virtual` target.
    #[serde(default)]
    pub backend: Option<Backend>,
    /// Size of the index.
    pub index_bytes: u64,
    /// Queries at a time, each in its own thread.
    pub concurrency: u32,
    /// Rounds of a query, each of which starts when the one before is complete.
    pub hops: u32,
    /// Reads of a round, which are in flight together.
    pub beam_width: u32,
    /// Bytes of a read at least and at most, multiples of 4 KiB; sizes between are as likely.
    pub read_bytes: [u64; 2],
    /// Fraction of reads that are served from memory.
    pub cached_fraction: f64,
    /// The ramp before the measurement.
    pub ramp: Ramp,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// CPUs to run on: thread `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// Checkpoints of a training job in a row, and restores of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiCheckpointWorkload {
    /// Location of the directories `global_epoch1_step1` and following, each with the files of a checkpoint.
    pub target: AiTarget,
    /// The simulated device of a `virtual` target, which has no page cache.
    #[serde(default)]
    pub backend: Option<Backend>,
    /// The files of each rank, in the order in which it writes them. Each rank is a thread.
    pub ranks: Vec<Vec<CheckpointFile>>,
    /// How the files are written.
    pub mode: CheckpointMode,
    /// True if a file is synced (`fsync(2)`) before it is closed; otherwise files are synced after the checkpoint has returned.
    pub sync: bool,
    /// Bytes of a read or write at most.
    pub request_bytes: u64,
    /// Number of checkpoints.
    pub checkpoints: u32,
    /// Time of training between the return of a checkpoint and the start of the next, in nanoseconds.
    pub pause_ns: u64,
    /// If given, a checkpoint or restore begins at the next multiple of this time since the start of the load, in nanoseconds, instead
    /// of `pause_ns` after the one before: hosts that started together begin it together.
    #[serde(default)]
    pub grid_ns: Option<u64>,
    /// Checkpoints that are kept; older ones are removed when a new one is durable.
    pub keep: u32,
    /// Restores of the last checkpoint, each after its pages were removed from the page cache.
    pub restores: u32,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// CPUs to run on: thread `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A file of a checkpoint: tensors that follow one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// Name in the directory of the checkpoint.
    pub name: String,
    /// Bytes of each tensor.
    pub tensors: Vec<u64>,
}

/// How a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// Through the page cache, each tensor by itself.
    Buffered,
    /// Direct I/O (`O_DIRECT`): tensors of a file are joined, and its size is a multiple of 4 KiB.
    Direct,
    /// The rank copies its tensors to memory and returns; another thread writes them as `buffered` does. The next checkpoint
    /// waits for it.
    Background,
}

/// Ingest of training data: readers fill the queues of accelerators, which compute for a fixed time in each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiIngestWorkload {
    /// Location of the data set, generated files.
    pub target: AiTarget,
    /// The simulated device of a `virtual` target, which is read with direct I/O.
    #[serde(default)]
    pub backend: Option<Backend>,
    /// Files of the data set.
    pub files: u32,
    /// Samples of a file, which follow one another.
    pub samples_per_file: u32,
    /// Sizes of samples: sample `i` of the data set has `sample_bytes[i % len]`.
    pub sample_bytes: Vec<u64>,
    /// How samples are read.
    pub loader: IngestLoader,
    /// Bytes of a read at most, a multiple of 4 KiB.
    pub request_bytes: u64,
    /// Direct I/O or the page cache.
    pub io_mode: IoMode,
    /// Accelerators, each with readers of its own and its share of the data set.
    pub accelerators: u32,
    /// Samples of a step.
    pub batch: u32,
    /// Threads of an accelerator that read.
    pub read_threads: u32,
    /// Batches that an accelerator's readers read ahead.
    pub prefetch: u32,
    /// Time that an accelerator computes in a step, in nanoseconds.
    pub compute_ns: u64,
    /// True if all accelerators wait for one another after each step.
    pub barrier: bool,
    /// The page cache of the files before the load.
    pub page_cache: PageCache,
    /// The ramp before the measurement.
    pub ramp: Ramp,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// CPUs to run on: the threads of accelerator `i` are pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// How readers divide their work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IngestLoader {
    /// Each thread reads whole batches, sample by sample: opens the file, reads the sample, closes the file (PyTorch). Threads take
    /// turns, and each reads `prefetch / read_threads` batches ahead, rounded up.
    Samples,
    /// Each thread reads a file from beginning to end (TFRecord). The samples of all threads fill one queue of `prefetch` batches.
    Interleaved,
}

/// Steps of an accelerator in the measurement, without the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceleratorResult {
    /// Complete steps.
    pub steps: u64,
    /// Time from the end of the first step to the end of the last, in nanoseconds.
    pub running_ns: u64,
    /// Part of it in which steps computed, in nanoseconds: their number times `compute_ns`.
    pub compute_ns: u64,
    /// Part of it in which the accelerator waited for batches, in nanoseconds.
    pub data_wait_ns: u64,
    /// Part of it in which it waited for other accelerators, in nanoseconds.
    pub barrier_wait_ns: u64,
}

/// A cache of keys and values (of attention) on storage: loads and stores of blocks as a trace of requests has them.
///
/// An LRU cache of `capacity_blocks` is followed in the order of the trace, whatever time loads take. Of a request's blocks, those
/// from the first one to the first that is not cached are hits and are loaded; the others are stored, unless they are cached, and
/// each replaces the least recently used one of a full cache. A hit that is not yet stored when it is looked up is not loaded,
/// nor are those after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKvCacheWorkload {
    /// Location of the blocks, the directory `blocks` or the file `slots`.
    pub target: AiTarget,
    /// The simulated device of a `virtual` target, on which layouts do not differ.
    #[serde(default)]
    pub backend: Option<Backend>,
    /// The requests.
    pub trace: KvCacheTrace,
    /// Bytes of a block, a multiple of 4 KiB.
    pub block_bytes: u64,
    /// Blocks in the cache at most.
    pub capacity_blocks: u32,
    /// Blocks of an LRU cache in memory, whose hits cause no I/O; 0: none.
    #[serde(default)]
    pub dram_blocks: u32,
    /// Arrangement of blocks in files.
    pub layout: KvCacheLayout,
    /// True if a block is made durable (`fsync(2)`) when it is stored.
    pub sync: bool,
    /// True for direct I/O (`O_DIRECT`).
    pub is_direct: bool,
    /// Threads that look up and load blocks.
    pub threads: u32,
    /// Threads that store blocks.
    pub writers: u32,
    /// True if the blocks of a request are divided among all threads; otherwise one thread loads them one after another.
    pub is_parallel: bool,
    /// Requests of the trace that fill the cache before the measurement.
    pub warm_requests: u64,
    /// Speed of the trace: 2 halves the time between requests.
    pub speed: f64,
    /// Length of the measurement at most, in nanoseconds; it ends with the trace.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// CPUs to run on: thread `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A trace of requests, converted for the engine, of little-endian `u64`: `ioskvrq1`, numbers of different blocks and of
/// requests; of each request nanoseconds since the first; of each request its number of blocks; all blocks in order, numbered by
/// their first occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KvCacheTrace {
    /// Path of the converted trace.
    pub path: String,
    /// Number of requests.
    pub rows: u64,
    /// SHA-256 of the trace that it was converted from.
    pub digest: String,
}

/// Arrangement of blocks in files. All but `slots` ask the file system for each block of a request up to the first that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvCacheLayout {
    /// A file for each block in two levels of directories, named by the decimal digits 1 and 2, and 3 and 4, of the hash of the block;
    /// written under a temporary name and renamed.
    Hashed,
    /// A file for each block in one directory, written under its own name.
    Flat,
    /// A file for each block in two levels of directories (4,096 and 256), written under a temporary name and renamed.
    Renamed,
    /// One file of `capacity_blocks`, with an index in memory.
    Slots,
}

/// Hits of requests in a cache of keys and values, and the I/O for them.
///
/// Look-ups, hits, stores and evictions follow from the order of the trace. They are those of all its requests after those that fill
/// the cache, whether or not the measurement reached them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KvCacheResult {
    /// Requests that arrived in the measurement.
    pub arrived: u64,
    /// Requests that were looked up.
    pub requests: u64,
    /// Requests whose load was complete in the measurement, also those without hits in storage.
    pub finished: u64,
    /// Requests that arrived in the measurement, and whose load was not complete when it ended.
    pub unfinished: u64,
    /// Finished requests for which blocks were loaded.
    pub loaded_requests: u64,
    /// Blocks that were loaded for them.
    pub loaded_blocks: u64,
    /// Time from the arrival of each of them to its last block, summed, in nanoseconds.
    pub load_ns: u64,
    /// Blocks of requests.
    pub lookups: u64,
    /// Hits in memory.
    pub dram_hits: u64,
    /// Hits in storage.
    pub storage_hits: u64,
    /// Hits, in either, of the block that all requests have first; 0 if there is none.
    pub common_hits: u64,
    /// Hits in storage that were looked up before they were stored, and those after them.
    pub late_hits: u64,
    /// Blocks to store.
    pub stores: u64,
    /// Blocks to remove.
    pub evictions: u64,
    /// Blocks that were read.
    pub read_blocks: u64,
    /// Blocks that were written.
    pub written_blocks: u64,
    /// Blocks that were removed.
    pub removed_blocks: u64,
    /// Time from the first arrival to the last, at the trace's own speed, in nanoseconds.
    pub trace_ns: u64,
}

/// Facts about a load of software for machine learning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiResult {
    /// Bytes of the files of the load.
    pub file_bytes: u64,
    /// `ai_weights`: bytes of tensors that were copied into memory or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_bytes: Option<u64>,
    /// `ai_vector`: reads, without those served from memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
    /// `ai_ingest`: the accelerators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<AcceleratorResult>,
    /// `ai_checkpoint`: checkpoints that all ranks completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointTimes>,
    /// `ai_checkpoint`: restores that all ranks completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<CheckpointTimes>,
    /// `ai_kv_cache`: what requests found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCacheResult>,
}

/// A checkpoint, or a restore, of all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointTimes {
    /// Start, when all ranks are ready, in nanoseconds since the run's 0.
    pub begin_ns: u64,
    /// From the start until training continues on the slowest rank.
    pub returned_ns: u64,
    /// From the start until the files of the slowest rank are synced, or read.
    pub complete_ns: u64,
    /// The same of the median rank.
    pub complete_median_ns: u64,
    /// The same of each rank, the shortest first.
    #[serde(default)]
    pub rank_complete_ns: Vec<u64>,
    /// Of a restore: bytes of the files in the page cache at the start; absent if the kernel does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
}
