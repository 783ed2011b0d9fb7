//! Request to an engine: every default written out, nothing left to guess.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::drive::{ArrayModel, DriveModel};
use crate::{
    AiCheckpointWorkload, AiIngestWorkload, AiKvCacheWorkload, AiVectorWorkload, AiWeightsWorkload, CommitWorkload,
    GraphWorkload, KvWorkload, ObjectsWorkload, PagingWorkload, TpccWorkload,
};

/// One run, completely described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Protocol version, [`crate::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Name of the run, for messages only.
    pub run_id: String,
    /// Seed of every random choice of the run: offsets, operations, arrivals, data.
    pub seed: u64,
    /// The load to apply.
    pub workload: Workload,
    /// Observations while the workload is applied.
    #[serde(default)]
    pub observe: Observe,
    /// Start of the load together with other hosts; absent: as soon as everything is prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

/// Start of the load. Everything before the first operation is done earlier, and reported by the event `ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Start {
    /// At an instant of this host's `CLOCK_REALTIME`; at once if it has passed.
    At {
        /// Unix time, in nanoseconds.
        unix_ns: u64,
    },
    /// At the instant in the command `start`.
    Command,
}

/// The kinds of load an engine may know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workload {
    /// Block I/O on files or devices.
    Block(BlockWorkload),
    /// Key-value operations on a store.
    Kv(KvWorkload),
    /// TPC-C on a database server.
    Tpcc(TpccWorkload),
    /// Single-row durable commits on a database server.
    Commit(CommitWorkload),
    /// Accesses to mapped memory.
    Paging(PagingWorkload),
    /// Algorithms on a graph.
    Graph(GraphWorkload),
    /// Whole objects in an object store.
    Objects(ObjectsWorkload),
    /// Loading of the weights of a model.
    AiWeights(AiWeightsWorkload),
    /// Queries of an index of vectors.
    AiVector(AiVectorWorkload),
    /// A cache of keys and values of attention.
    AiKvCache(AiKvCacheWorkload),
    /// Checkpoints of a training job, and restores.
    AiCheckpoint(AiCheckpointWorkload),
    /// Ingest of training data.
    AiIngest(AiIngestWorkload),
}

/// Observations besides the load itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// Block devices under the target as `major:minor`, whose kernel counters are sampled at every interval.
    #[serde(default)]
    pub block_devices: Vec<String>,
}

/// Block I/O: one or more streams that run together on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockWorkload {
    /// Destination of the I/O.
    pub target: Target,
    /// I/O interface.
    pub backend: Backend,
    /// Condition and method for writing the target in full before the measurement.
    pub layout: Layout,
    /// Treatment of the target's pages in the page cache before the first I/O.
    pub page_cache: PageCache,
    /// The loads; each has its own threads.
    pub streams: Vec<Stream>,
    /// The ramp before the measurement: load is applied but reported as phase `ramp`.
    pub ramp: Ramp,
    /// Length of the measurement at most, in nanoseconds; absent means until every stream reaches its own limit.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// Data verification; absent: none.
    #[serde(default)]
    pub verify: Option<Verification>,
}

/// Data verification. Layout then seals every sector, and so does every write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Times at which data is read and checked.
    pub when: VerifyWhen,
    /// Directory of the journals, one for each file of the target, named `FILE.verify`; absent: beside each file.
    #[serde(default)]
    pub journal_directory: Option<String>,
}

/// Times at which data is read and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifyWhen {
    /// Each read of the load, as it completes.
    During,
    /// All of the target, once the measurement has ended.
    After,
}

/// Destination of the I/O.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// One file shared by all jobs; created when missing, grown to `size_bytes` when smaller.
    File {
        /// Path of the file.
        path: String,
        /// Bytes of the file that may be addressed.
        size_bytes: u64,
    },
    /// One file for each job, named `STREAM.JOB` inside a directory.
    FilePerJob {
        /// Directory that holds the files; it must exist.
        directory: String,
        /// Bytes of each file.
        size_bytes: u64,
    },
    /// A block device, opened exclusively (`O_EXCL`) for the whole run.
    Device {
        /// Path of the device node.
        path: String,
        /// Bytes of the device that may be addressed.
        size_bytes: u64,
        /// Further devices of block I/O: as many bytes of each follow those of the first. A span is on one device.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        beside: Vec<String>,
        /// True if the parent process holds the claim (`O_EXCL`) on a descriptor that the engine inherits; else
        /// it claims the device itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_claimed: bool,
    },
    /// Nothing real: for the `null`, `simulated` and `ssd` backends.
    Virtual {
        /// Bytes that may be addressed.
        size_bytes: u64,
    },
}

/// I/O interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backend {
    /// `io_uring`: one ring a job, single issuer, deferred task work where the kernel has it.
    Uring(UringOptions),
    /// One blocking `pread`/`pwrite` at a time in each job; queue depth must be 1.
    Sync,
    /// One `preadv2`/`pwritev2` with `RWF_HIPRI` at a time in each job, direct I/O only; queue depth must be 1. Whether the
    /// kernel polled is found out by the probe.
    Preadv2,
    /// Linux AIO (`io_submit`, `io_getevents`): one context a job, direct reads, writes and flushes.
    Libaio,
    /// NVMe commands through `io_uring` (`IORING_OP_URING_CMD`) to the character device of the namespace that the target is.
    UringNvme(UringNvmeOptions),
    /// Commands of the user-level driver to the NVMe controller of the namespace that the target is. The engine does not
    /// open the target: the controller is bound to `vfio-pci`.
    NvmeUser(NvmeUserOptions),
    /// Completes every I/O at once: what the harness itself costs.
    Null,
    /// A device of known performance on a virtual clock: `servers` independent servers, one queue.
    Simulated {
        /// Number of I/Os served at the same time.
        servers: u32,
        /// Service time of a read, in nanoseconds.
        read_service_ns: u64,
        /// Service time of a write, trim or flush, in nanoseconds.
        write_service_ns: u64,
        /// Distribution of service times: constant, or exponential with that mean.
        service: Service,
        /// Times at which the whole device stalls, in ascending order, not overlapping.
        #[serde(default)]
        stalls: Vec<Stall>,
    },
    /// A solid-state drive, or an array of them, on a virtual clock.
    Ssd {
        /// The drive.
        model: Box<DriveModel>,
        /// Number and organization of the drives.
        array: ArrayModel,
        /// File that holds the drives' state (mapping, free blocks): read first if it exists, written at the end.
        state_path: Option<String>,
    },
}

/// Options of the `io_uring` backend. Each is probed by a real I/O; what the kernel or target refuses falls back to
/// off, and the result gives the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UringOptions {
    /// Register the target's files with the ring (`IORING_REGISTER_FILES`).
    pub registered_files: bool,
    /// Register the buffers with the ring (`IORING_REGISTER_BUFFERS`).
    pub registered_buffers: bool,
    /// A kernel thread polls the submission queue (`IORING_SETUP_SQPOLL`).
    pub submission_polling: bool,
    /// Completions are polled, not interrupt-driven (`IORING_SETUP_IOPOLL`); direct I/O only.
    pub completion_polling: bool,
    /// Fail with `unsupported` where `io_uring` or one of the two kinds of polling is refused, instead of falling back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// Options of the backend `uring_nvme`. Polling that is refused is an error with code `unsupported`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UringNvmeOptions {
    /// Register the buffers with the ring, and name them in the commands (`IORING_URING_CMD_FIXED`).
    pub registered_buffers: bool,
    /// Completions are polled, not interrupt-driven (`IORING_SETUP_IOPOLL`).
    pub completion_polling: bool,
}

/// Options of the backend `nvme_user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvmeUserOptions {
    /// The controller that was handed over; iosonde adds it for each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<NvmePlace>,
    /// Data pointers of commands.
    pub data_pointers: NvmeDataPointers,
    /// True if a job sleeps until the controller interrupts (MSI-X), instead of polling.
    pub interrupts: bool,
    /// Timeout after which a command is aborted, in nanoseconds; one that is not aborted within the same time is
    /// ended by a reset of the controller.
    pub timeout_ns: u64,
}

/// A namespace by the place of its controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvmePlace {
    /// PCI address, such as `0000:01:00.0`.
    pub address: String,
    /// Serial number that the controller must have.
    pub serial: String,
    pub namespace: u32,
}

/// Data pointers of an NVMe command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NvmeDataPointers {
    /// PRP entries and lists.
    Prp,
    /// A scatter-gather list, where the controller supports it; else PRP entries.
    Sgl,
}

/// A time at which a simulated device serves nothing; what is in service then takes that much longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Start, in nanoseconds since the run's 0.
    pub at_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

/// Distribution of simulated service times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Every I/O takes exactly the service time.
    Constant,
    /// Service times are exponential with that mean.
    Exponential,
}

/// Condition for writing the target before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Write whatever part of the target holds no written extent yet, with incompressible data.
    Missing,
    /// Write the whole target again.
    Always,
    /// Leave the target as it is; reads of unwritten blocks are then not device reads.
    Never,
}

/// Treatment of the page cache before the first I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageCache {
    /// Dirty pages of the target are written back and its clean pages dropped.
    Drop,
    /// Left as found.
    Keep,
    /// The target is read once, so that what fits is cached.
    Warm,
}

/// The ramp: it ends after `duration_ns`, as soon as every job has issued its share of `bytes`, or once the load is steady.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Length at most, in nanoseconds; 0 for no ramp.
    pub duration_ns: u64,
    /// Bytes each stream issues at most during the ramp, split evenly over its jobs.
    pub bytes: Option<u64>,
    /// End the ramp as soon as rate and hit ratio are steady; absent: only the limits end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<SteadyRamp>,
}

/// Steady ramp: the means of rate and hit ratio over the last `intervals` intervals differ from those over
/// as many intervals before by no more than `tolerance`. If `duration_ns` ends the ramp first, the engine emits the warning
/// `ramp_not_steady`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteadyRamp {
    /// Number of intervals of each mean, at least 1.
    pub intervals: u32,
    /// Largest difference: of rates as a fraction of the later one, of hit ratios as it is. Above 0 and below 1.
    pub tolerance: f64,
}

/// One load: `jobs` threads, each with `queue_depth` I/Os in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Name of the stream, unique in the workload.
    pub name: String,
    /// Number of threads (fio `numjobs`).
    pub jobs: u32,
    /// I/Os in flight in each job (fio `iodepth`); in open loop the most that may be in flight.
    pub queue_depth: u32,
    /// In which order blocks are visited.
    pub access: Access,
    /// Shares of the operations.
    pub mix: Mix,
    /// Sizes of the I/Os with their weights.
    pub block_sizes: Vec<BlockSize>,
    /// The part of the target that is addressed.
    pub span: Span,
    /// Through the page cache or past it.
    pub io_mode: IoMode,
    /// Durability of written data.
    pub durability: Durability,
    /// Start times of I/Os.
    pub arrival: Arrival,
    /// Contents of writes.
    pub payload: Payload,
    /// The stream ends once it has issued this many bytes in the measurement, split evenly over its jobs.
    pub limit_bytes: Option<u64>,
    /// The stream ends once it has issued this many operations in the measurement, split evenly over its jobs.
    pub limit_operations: Option<u64>,
    /// Part of the measurement in which the stream loads the target; absent means always, and in the ramp too.
    #[serde(default)]
    pub active: Option<Active>,
    /// Open loop: how long before an intended start the thread stops sleeping and watches the clock, in nanoseconds. A
    /// timer wakes a thread tens of microseconds late; spinning costs CPU time instead, which the result states.
    #[serde(default = "default_spin_ns")]
    pub spin_ns: u64,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

fn default_spin_ns() -> u64 {
    100_000
}

/// A part of the measurement, relative to its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Active {
    /// First instant, in nanoseconds since the measurement began.
    pub begin_ns: u64,
    /// End, in nanoseconds since the measurement began; absent means its end.
    pub end_ns: Option<u64>,
    /// From one begin to the next, in nanoseconds, where load and pause alternate; absent means once. Closed loop only.
    #[serde(default)]
    pub every_ns: Option<u64>,
}

/// In which order blocks are visited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Access {
    /// One block after the other, beginning again at the end of the span.
    Sequential,
    /// Every `stride_bytes` a block; at the end of the span it begins again one block further (IOzone `-j`).
    Strided {
        /// Distance from the start of one I/O to the next, in bytes.
        stride_bytes: u64,
    },
    /// At random.
    Random {
        /// With replacement, or each block once before any comes again.
        coverage: Coverage,
        /// Popularity of each block; only with replacement.
        distribution: Distribution,
    },
    /// Preconditioning for random writes in one pass: each block is written once, in random order, and the
    /// spare room of the drive is used up by writes to blocks that are still to come, so that every part of the drive
    /// is left as stale as uniform random writes would have left it.
    Aging {
        /// Spare room of the drive as a fraction of its capacity, above 0.
        over_provisioning: f64,
    },
}

/// Repetition of blocks in a random visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Every choice is independent (fio `norandommap`).
    WithReplacement,
    /// A permutation: each block once a pass (fio's default random map).
    EachOnce,
}

/// Popularity of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Rank `r` with weight `r^-theta`; ranks are scattered over the span.
    Zipfian {
        /// Skew, above 0; YCSB uses 0.99.
        theta: f64,
    },
    /// A hot part of the span takes a share of the accesses.
    HotCold {
        /// The hot part, as a fraction of the span.
        hot_span: f64,
        /// The fraction of accesses that go there.
        hot_access: f64,
    },
}

/// Shares of the operations; what remains of 1 is writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    pub read_fraction: f64,
    /// Fraction of trims (discard, hole punching).
    pub trim_fraction: f64,
}

/// A size of I/O and how often it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockSize {
    /// Bytes of the I/O, 512 B to 64 MiB.
    pub bytes: u64,
    /// Weight among the sizes, above 0.
    pub weight: f64,
}

/// The part of the target that a stream addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Sharing of the span among jobs: common, or a part for each.
    pub sharing: Sharing,
}

/// Sharing of a stream's span among its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Every job addresses the whole span; ordered visits start evenly spaced.
    Shared,
    /// The span is divided evenly, one part a job.
    Split,
}

/// Through the page cache or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IoMode {
    /// `O_DIRECT`.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Durability of written data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Durability {
    /// Whenever the kernel and device get to it.
    None,
    /// Each write is durable when it completes (`O_DSYNC`).
    Dsync,
    /// `fdatasync` after every `every` writes of a job, measured as operation `flush`.
    Flush {
        /// Writes between two flushes.
        every: u64,
    },
}

/// Start times of I/Os.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrival {
    /// Closed loop: the next I/O starts when one completes.
    Closed,
    /// Open loop at equal gaps.
    Constant {
        /// I/Os per second, of all jobs of the stream together.
        rate: f64,
    },
    /// Open loop with exponential gaps.
    Poisson {
        /// I/Os per second on average, of all jobs of the stream together.
        rate: f64,
    },
    /// Open loop at rates that change in steps; the last one lasts until the end.
    Steps {
        /// The rates, one after the other.
        steps: Vec<RateStep>,
        /// Gaps within a step.
        spacing: Spacing,
    },
    /// Open loop at the instants of the stream's trace: only key-value streams have one.
    Trace {
        /// Multiple of the trace's own speed.
        speed: f64,
    },
}

/// A rate and how long it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// I/Os per second, of all jobs of the stream together; 0 is a pause.
    pub rate: f64,
    /// Length, in nanoseconds.
    pub duration_ns: u64,
}

/// Spacing of arrivals within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// At equal gaps.
    Constant,
    /// With exponential gaps.
    Poisson,
}

/// Contents of writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Payload {
    /// Incompressible, different in every write.
    Random,
    /// All bytes zero.
    Zeros,
    /// Different in every write, apart from the duplicates, and compressible.
    Reducible {
        /// Compression ratio of the data with zstd, duplicates apart: 1 (incompressible) to 32.
        compression_ratio: f64,
        /// Fraction of the data that is copies of other data, 0 to 1.
        duplicate_fraction: f64,
        /// Bytes of a copy: a multiple of 4 KiB up to 1 MiB; absent: 4 KiB. An I/O that is smaller is one copy.
        #[serde(default = "smallest_duplicate")]
        duplicate_bytes: u64,
    },
}

fn smallest_duplicate() -> u64 {
    4096
}
