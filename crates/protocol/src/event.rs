//! Events of an engine: facts, in the order in which they happened.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AiResult, ConsistencyResult, DurabilityResult, GraphResult, ObjectsResult, OltpCounters, OltpResult, PagingResult,
    StoreResult,
};

/// One line on the engine's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// First: the engine and its clock.
    Hello(Hello),
    /// A phase began, continues or ended.
    Phase(PhaseEvent),
    /// Of a spec with `start`: everything is prepared, and the load starts at the agreed instant.
    Ready(Ready),
    /// Counters of one interval of `ramp` or `measure`.
    Interval(Interval),
    /// Something that may mislead a reader of the numbers.
    Warning(Warning),
    /// `tpcc`: the consistency conditions were checked.
    Consistency(ConsistencyResult),
    /// `tpcc` and `commit`: acknowledged commits of an earlier run were looked up.
    Durability(DurabilityResult),
    /// Last, if the run came to an end: what the whole of it amounts to.
    Result(Box<RunResult>),
    /// Last, if nothing was asked but to check a target (`--verify`): whether it holds what was written.
    Verification(VerificationResult),
    /// Last, if it did not: why.
    Error(Failure),
}

/// The engine and its clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Protocol version.
    pub protocol: u32,
    pub engine: String,
    /// Version of the engine.
    pub version: String,
    /// Build of the engine: profile, target, compiler, source revision where known.
    pub build: String,
    /// Process number.
    pub pid: u32,
    /// The clock that latencies are read from: `tsc`, `monotonic` or `virtual`.
    pub clock: String,
    /// Cost of reading it once, in nanoseconds.
    pub clock_read_ns: f64,
    /// Wall clock (Unix time, ns) at the instant that the run calls 0.
    pub realtime_ns: u64,
}

/// The phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The target is written so that reads reach the device.
    Layout,
    /// The target is brought into a defined state.
    Precondition,
    /// Load is applied, not yet measured.
    Ramp,
    /// The measurement.
    Measure,
    /// After it, the store does its background work.
    Settle,
    /// The target is read back and checked.
    Verify,
}

/// A phase began, continues or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseEvent {
    pub phase: Phase,
    /// Began, continues or ended.
    pub edge: Edge,
    /// When, in nanoseconds since the run's 0.
    pub at_ns: u64,
    /// Bytes written (layout) or read back (verify) by it so far.
    pub bytes: u64,
}

/// Start or end of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// It began.
    Begin,
    /// It continues; sent about once a second in phases without intervals.
    Progress,
    /// It ended.
    End,
}

/// Everything before the first operation is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// When, in nanoseconds since the run's 0.
    pub at_ns: u64,
}

/// Counters of all streams between two instants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Phase the interval belongs to.
    pub phase: Phase,
    /// Number of the interval in its phase, from 0.
    pub index: u64,
    /// Begin, in nanoseconds since the run's 0.
    pub begin_ns: u64,
    /// End, in nanoseconds since the run's 0.
    pub end_ns: u64,
    /// Each stream's operations.
    pub streams: Vec<StreamInterval>,
    /// Resource usage of the process since the previous interval of any phase.
    pub process: Usage,
    /// I/O of the watched block devices since the previous interval.
    pub devices: Vec<DeviceUsage>,
    /// Time in which the engine itself did not run though it was due to: stopped by a signal, or without a CPU. Latencies of
    /// that time are not the target's.
    #[serde(default)]
    pub stalled_ns: u64,
    /// The longest such time in the interval without a break.
    #[serde(default)]
    pub stall_max_ns: u64,
    /// Key-value workloads: the store's own statistics at the end of the interval, by its own names. `paging`: counters of
    /// the machine (`vmstat.NAME`) and of the engine's control group (`group.NAME`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub store: BTreeMap<String, u64>,
    /// `tpcc` and `commit`: what the clients had exchanged with the server since the load began, ramp included, when the
    /// interval was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oltp: Option<OltpCounters>,
}

/// One stream in one interval. An I/O belongs to the interval in which it completed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamInterval {
    pub stream: String,
    /// Open loop: the most I/Os that were due but not started, at any moment of the interval.
    pub backlog_max: u64,
    /// One entry for each operation that occurred.
    pub operations: Vec<OperationInterval>,
}

/// Operation of a workload on its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Trim (discard).
    Trim,
    /// Flush (`fdatasync`).
    Flush,
    /// Delete a record.
    Delete,
    /// Seek to a record and read some from there on.
    Scan,
    /// Read a record and write it again.
    ReadModifyWrite,
    /// TPC-C new-order transaction.
    NewOrder,
    /// TPC-C payment transaction.
    Payment,
    /// TPC-C order-status transaction.
    OrderStatus,
    /// TPC-C delivery transaction.
    Delivery,
    /// TPC-C stock-level transaction.
    StockLevel,
    /// Transaction of the `commit` workload.
    Commit,
    /// Access to a mapped page without a page fault.
    Hit,
    /// Access that caused a page fault without I/O.
    MinorFault,
    /// Access that caused a page fault with I/O.
    MajorFault,
    /// Look-up of a request's blocks in a cache.
    Lookup,
    /// Load of a request's blocks that are cached.
    Load,
}

impl Operation {
    /// Every operation, in the order of their discriminants.
    pub const ALL: [Operation; 18] = [
        Operation::Read,
        Operation::Write,
        Operation::Trim,
        Operation::Flush,
        Operation::Delete,
        Operation::Scan,
        Operation::ReadModifyWrite,
        Operation::NewOrder,
        Operation::Payment,
        Operation::OrderStatus,
        Operation::Delivery,
        Operation::StockLevel,
        Operation::Commit,
        Operation::Hit,
        Operation::MinorFault,
        Operation::MajorFault,
        Operation::Lookup,
        Operation::Load,
    ];
}

/// Counts and latencies of one operation in one interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationInterval {
    pub operation: Operation,
    /// I/Os completed without error.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that failed or came back short.
    pub errors: u64,
    /// From submission to completion.
    pub completion_latency: Histogram,
    /// Open loop: from the intended start to completion.
    pub response_latency: Option<Histogram>,
}

/// A latency histogram: log-linear buckets, exact extremes and sum.
///
/// Bucket `i` below 1024 holds exactly the value `i` ns. Above, each power of two is divided into 512 equal buckets:
/// bucket `1024 + 512 * o + s` holds values from `(512 + s) << (o + 1)` up to the next, so that a bucket's midpoint is
/// within 0.1 % of every value in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Sum of the values, in nanoseconds.
    pub sum_ns: u64,
    /// Smallest value, in nanoseconds; 0 if empty.
    pub min_ns: u64,
    /// Largest value, in nanoseconds; 0 if empty.
    pub max_ns: u64,
    /// Occupied buckets in ascending order, as `[bucket, count]`.
    pub buckets: Vec<(u32, u64)>,
}

/// Resource usage of a process or thread, from `getrusage(2)` and `/proc/self/io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Real time covered, in nanoseconds.
    pub wall_ns: u64,
    /// User-mode CPU time, in nanoseconds.
    pub user_ns: u64,
    /// Kernel-mode CPU time, in nanoseconds.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// File-system inputs, in units of 512 bytes.
    pub fs_inputs: u64,
    /// File-system outputs, in units of 512 bytes.
    pub fs_outputs: u64,
}

/// I/O of a block device over some time, from `/sys/dev/block/*/stat` (kernel `Documentation/block/stat.rst`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceUsage {
    /// The device as `major:minor`.
    pub device: String,
    /// Reads completed.
    pub reads: u64,
    /// Reads merged with queued ones.
    pub read_merges: u64,
    pub read_bytes: u64,
    /// Time reads waited, summed, in nanoseconds (kernel resolution 1 ms).
    pub read_wait_ns: u64,
    /// Writes completed.
    pub writes: u64,
    /// Writes merged with queued ones.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time writes waited, summed, in nanoseconds.
    pub write_wait_ns: u64,
    /// I/Os in flight at the end.
    pub in_flight: u64,
    /// Time during which the device had any I/O in flight, in nanoseconds.
    pub busy_ns: u64,
    /// Discards completed.
    pub discards: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// I/O of the drive on its media; of simulated drives only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaUsage>,
}

/// I/O of a drive on its media over some time. Simulated drives know it; real ones report it, if at all, in log pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MediaUsage {
    /// Bytes read from the media, for the host and for collection.
    pub media_read_bytes: u64,
    /// Bytes programmed: the host's, copies, and padding.
    pub media_write_bytes: u64,
    /// Of these, bytes that garbage collection (or folding out of fast cells) copied.
    pub copied_bytes: u64,
    /// Of these, padding of pages that a flush did not let fill up.
    pub padded_bytes: u64,
    /// Blocks erased, of one die each.
    pub erases: u64,
    /// Reads (4 KiB pages) that the write buffer answered.
    pub buffer_read_hits: u64,
    /// Writes (4 KiB pages or parts) that replaced what still waited in the buffer.
    pub buffer_write_hits: u64,
}

/// Something that may mislead a reader of the numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Stable name, for filters and documentation.
    pub code: String,
    /// Condition, as a sentence.
    pub message: String,
    /// Imperative that corrects it.
    pub hint: String,
}

/// Result of the whole run. Counts are not repeated here: they are the sum of the intervals.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Begin of the measurement, in nanoseconds since the run's 0.
    pub begin_ns: u64,
    /// End of the measurement, in nanoseconds since the run's 0.
    pub end_ns: u64,
    /// Of a spec with `start`: when the load started; absent if the run was stopped before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartResult>,
    /// Every job by itself.
    pub jobs: Vec<JobResult>,
    /// Resource usage of the process during the measurement.
    pub process: Usage,
    /// Peak resident memory of the process, in bytes.
    pub peak_memory_bytes: u64,
    /// Memory held for I/O buffers, in bytes.
    pub buffer_bytes: u64,
    /// I/O of the watched block devices during the measurement.
    pub devices: Vec<DeviceUsage>,
    /// Backend and features in effect.
    pub backend: BackendInEffect,
    /// Bytes that layout wrote and found already written.
    pub layout: LayoutResult,
    /// Facts about the machine that may have limited or improved the results.
    pub evidence: Option<Evidence>,
    /// Key-value workloads: the store, its database, and what came of the values read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreResult>,
    /// `tpcc` and `commit`: the server, loading, checks and transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oltp: Option<OltpResult>,
    /// `paging`: the mapping, how accesses were classified, and the contents of pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paging: Option<PagingResult>,
    /// `graph`: the graph, iterations, how it was read, and what was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphResult>,
    /// `objects`: the client library, and what came of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsResult>,
    /// `ai_weights`, `ai_vector`: the files, and what was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ai: Option<AiResult>,
    /// Result of data verification; absent where it was not requested.
    #[serde(default)]
    pub verification: Option<VerificationResult>,
}

/// Start of the load, and relation of the run's clock to `CLOCK_REALTIME` at its start and end.
///
/// The load is ramp and measurement: its start is that of the ramp, or of the measurement where there is no ramp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartResult {
    /// The requested start, in Unix time.
    pub requested_unix_ns: u64,
    /// The start from which phases and intervals count, in Unix time. Never before `requested_unix_ns`.
    pub started_unix_ns: u64,
    /// The same instant, in nanoseconds since the run's 0.
    pub started_ns: u64,
    /// Start of the last job, in nanoseconds since the run's 0.
    pub last_job_ns: u64,
    /// Unix time at the end of the measurement (`end_ns` of the result). On a virtual clock virtual time counts from
    /// `started_unix_ns`.
    pub end_unix_ns: u64,
}

/// Result of data verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationResult {
    /// True if all data to be checked was checked; false if the check was stopped.
    pub complete: bool,
    /// Bytes read and checked, each time that they were.
    pub checked_bytes: u64,
    /// Bytes read of which it is not known what they should be.
    pub unknown_bytes: u64,
    /// Sectors of 512 bytes that were wrong, each time that they were read.
    pub faults: FaultCounts,
    /// First errors, at most 64.
    pub findings: Vec<Finding>,
}

/// Wrong sectors of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultCounts {
    /// An acknowledged write never arrived.
    pub lost: u64,
    /// Of one write some sectors arrived, and this one did not.
    pub torn: u64,
    /// Data of another place or file.
    pub misdirected: u64,
    /// Older data, where newer had been read before; or data of an earlier file.
    pub stale: u64,
    /// The checksum does not match.
    pub flipped: u64,
    /// Data that was not written under verification, or not by a run that is in the journal.
    pub foreign: u64,
}

/// Neighbouring sectors with the same fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Kind of the error.
    pub fault: Fault,
    /// In which file.
    pub path: String,
    pub offset_bytes: u64,
    /// Number of bytes from there.
    pub bytes: u64,
    /// Expected contents, in words.
    pub expected: String,
    /// Actual contents, in words.
    pub found: String,
}

/// Kinds of errors of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// An acknowledged write never arrived.
    Lost,
    /// Of one write some sectors arrived, and this one did not.
    Torn,
    /// Data of another place or file.
    Misdirected,
    /// Older data, where newer had been read before; or data of an earlier file.
    Stale,
    /// The checksum does not match.
    Flipped,
    /// Data that was not written under verification, or not by a run that is in the journal.
    Foreign,
}

impl Fault {
    /// Every fault, in the order of their discriminants.
    pub const ALL: [Fault; 6] = [
        Fault::Lost,
        Fault::Torn,
        Fault::Misdirected,
        Fault::Stale,
        Fault::Flipped,
        Fault::Foreign,
    ];
}

/// Outcome of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It reached its own limit.
    #[default]
    Complete,
    /// It was stopped by a command or signal.
    Stopped,
}

/// One job over the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobResult {
    /// Stream it belongs to.
    pub stream: String,
    /// Number in the stream, from 0.
    pub job: u32,
    /// I/Os completed in the measurement.
    pub operations: u64,
    /// Bytes moved in the measurement.
    pub bytes: u64,
    /// Completion of its last counted I/O, in nanoseconds since the run's 0.
    pub last_completion_ns: u64,
    /// Resource usage of its thread during the measurement.
    pub usage: Usage,
    /// I/Os in flight that did not come back in time after the end.
    pub abandoned: u64,
    /// Open loop: how well the schedule was kept.
    pub schedule: Option<ScheduleResult>,
    /// Times in which it had fewer I/Os in flight than permitted.
    pub pacing: Option<Pacing>,
}

/// Adherence to an open-loop schedule, from the start of the run to the end of the measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleResult {
    /// Arrivals that were due.
    pub due: u64,
    /// Of these, I/Os that were started. What is missing was the backlog when the load ended.
    pub started: u64,
    /// Delay between due and actual starts of I/Os, summed, in nanoseconds: waiting for a free slot, and waking late.
    pub start_lag_ns_sum: u64,
    /// The latest start, in nanoseconds.
    pub start_lag_ns_max: u64,
    /// CPU time spent watching the clock instead of sleeping, in nanoseconds.
    pub spun_ns: u64,
}

/// Times in which a job did not have all its I/Os in flight during the measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pacing {
    /// Submission of its first I/O in the measurement, in nanoseconds since the run's 0; null if it submitted none.
    pub first_start_ns: Option<u64>,
    /// Issue of the last I/O that its limits allow, in nanoseconds since the run's 0; null if they did not end it.
    pub exhausted_ns: Option<u64>,
    /// Time from finding a completion to submitting the next I/O in its place, summed over I/Os.
    pub turnaround_ns: u64,
    /// Time in which its thread was ready to run and had no CPU; null where the kernel does not report it.
    pub cpu_wait_ns: Option<u64>,
    /// The threads of a job that has several; null for a job that is one thread.
    #[serde(default)]
    pub threads: Option<JobThreads>,
}

/// The threads of a job whose backend can have only one I/O in flight in each.
///
/// A sum over threads does not show whether one of them was limited by a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobThreads {
    /// Number of threads.
    pub count: u32,
    /// CPU time of the one that ran and waited for a CPU the longest, in nanoseconds.
    pub busiest_cpu_ns: u64,
    /// Time in which that thread was ready to run and had no CPU; null where the kernel does not report it.
    pub busiest_cpu_wait_ns: Option<u64>,
}

/// Facts about the machine that may have limited or improved the results. Facts: what they mean is decided
/// elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// All CPUs together during the measurement.
    pub machine: Option<CpuTime>,
    /// Each CPU that jobs are pinned to, during the measurement.
    pub pinned: Vec<PinnedCpu>,
    /// CPUs that each job's thread was allowed to run on when the load started (`sched_getaffinity(2)`), in list format
    /// (`0-3,8`): one entry for each thread, in the order of the spec.
    #[serde(default)]
    pub job_cpus: Vec<String>,
    /// Every CPU, during the measurement.
    #[serde(default)]
    pub cores: Vec<CoreTime>,
    /// The kernel's own threads during the measurement; null where none is visible.
    #[serde(default)]
    pub kernel: Option<KernelTime>,
    /// Time in which the engine itself did not run; null on a virtual clock.
    #[serde(default)]
    pub stalls: Option<EngineStalls>,
    /// Pages of the target in memory; null where there is no file or device.
    pub page_cache: Option<PageCacheEvidence>,
    /// Extents under the reads before the first I/O; null where nothing is read or the file system does not report them.
    pub extents_before: Option<ExtentEvidence>,
    /// The same after the last I/O.
    pub extents_after: Option<ExtentEvidence>,
}

/// Time in which the engine itself did not run though it was due to: stopped by a signal, frozen, or without a CPU. A thread
/// that sleeps for 5 ms at a time woke at least 5 ms late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineStalls {
    /// Sum, in nanoseconds.
    pub stalled_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    pub count: u64,
}

/// Breakdown of CPU time, from `/proc/stat` (proc(5)): everybody's, in units of the kernel's tick (10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    pub cpus: u32,
    /// In user mode, low priority included, in nanoseconds.
    pub user_ns: u64,
    /// In kernel mode, in nanoseconds.
    pub system_ns: u64,
    /// Idle, in nanoseconds.
    pub idle_ns: u64,
    /// Idle while I/O was outstanding, in nanoseconds.
    pub io_wait_ns: u64,
    /// Serving interrupts, in nanoseconds.
    pub interrupt_ns: u64,
    /// Taken by the hypervisor for others, in nanoseconds.
    pub steal_ns: u64,
}

/// One CPU that jobs are pinned to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedCpu {
    pub cpu: u32,
    /// Breakdown of its time.
    pub time: CpuTime,
    /// Interrupts that it served, of every kind, from `/proc/interrupts`.
    pub interrupts: u64,
}

/// Utilization of a CPU, from `/proc/stat` in ticks of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreTime {
    pub cpu: u32,
    /// In user or kernel mode, serving interrupts, or taken by the hypervisor for others, in nanoseconds.
    pub busy_ns: u64,
    /// Idle, I/O outstanding or not, in nanoseconds.
    pub idle_ns: u64,
}

/// CPU time of the kernel's own threads, which is in no process' account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelTime {
    /// From one look at them to the other, in nanoseconds.
    pub wall_ns: u64,
    /// Those that used any, the busiest first.
    pub threads: Vec<KernelThreads>,
}

/// Kernel threads of one name, such as `md127_raid5` or, of workers, `kworker-` and the work queue that they served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelThreads {
    pub name: String,
    /// Number of these threads that used CPU time.
    pub threads: u32,
    /// CPU time of all of them, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the busiest of them, in nanoseconds.
    pub busiest_cpu_ns: u64,
}

/// Pages in memory of that part of the target which the streams address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCacheEvidence {
    /// Source: `cachestat` or `mincore`.
    pub source: String,
    /// Bytes that the streams address.
    pub addressed_bytes: u64,
    /// Of which in memory before the first I/O.
    pub before_bytes: u64,
    /// Of which in memory after the last.
    pub after_bytes: u64,
    /// Of which not yet written back after the last; null with `mincore`.
    pub dirty_after_bytes: Option<u64>,
}

/// Extents of that part of the target which is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtentEvidence {
    /// Bytes that are read.
    pub addressed_bytes: u64,
    /// Extents found there.
    pub extents: u64,
    /// Bytes in holes and in extents that were never written: reads of them ask no device.
    pub missing_bytes: u64,
    /// Bytes in extents that other files share.
    pub shared_bytes: u64,
    /// Bytes in extents that are stored encoded: compressed or encrypted.
    pub encoded_bytes: u64,
}

/// Backend and features in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendInEffect {
    /// `uring`, `libaio`, `preadv2`, `sync`, `nvme_user`, `null`, `simulated` or `ssd`; of a key-value workload the store's kind.
    pub kind: String,
    /// Features in use, by name.
    pub features: Vec<String>,
    /// Requested features that were refused, with the kernel's reason.
    pub fallbacks: Vec<Fallback>,
}

/// A requested feature that is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fallback {
    pub feature: String,
    /// Reason for the fallback.
    pub reason: String,
}

/// Result of the layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutResult {
    /// Bytes written by it.
    pub written_bytes: u64,
    /// Bytes that were written already and were left.
    pub kept_bytes: u64,
}

/// Reason why a run could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Stable name: `invalid_spec`, `not_writable`, `no_space`, `resource_limit`, `io_error`, `wrong_target`, `damaged_journal`,
    /// `out_of_memory`, `vanished`, `busy`, `unsupported`,
    /// `foreign_data`, `library`, `map_full`, `store_error`, `connection_refused`, `authentication`, `connection_limit`,
    /// `wrong_version`, `wrong_encoding`, `server_vanished`, `server_error`, `inconsistent`, `invalid_input`,
    /// `timeout`, `internal`.
    pub code: String,
    /// Failed operation and its object.
    pub message: String,
    /// Phase or stream of the run in which it failed.
    pub context: String,
    /// The likely cause and what to do next; may be empty.
    pub hint: String,
}
