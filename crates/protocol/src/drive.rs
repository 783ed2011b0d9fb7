//! A simulated drive, completely described, and arrays of such drives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A simulated solid-state drive. Its behavior is documented in `docs/simulation.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveModel {
    /// Name of the model, for messages and device names.
    pub name: String,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Medium that stores the data.
    pub media: MediaModel,
    /// Placement of logical pages on the media.
    pub translation: Translation,
    /// The buffer that acknowledges writes.
    pub buffer: BufferModel,
    /// Link and controller between host and buffer.
    pub interface: InterfaceModel,
    /// Rules that limit the rate, as of a cloud volume; all of them hold at once.
    #[serde(default)]
    pub limits: Vec<LimitModel>,
    /// Time of the first access to each region; absent: none.
    #[serde(default)]
    pub first_touch: Option<FirstTouchModel>,
}

/// Dies behind channels. A die does one thing at a time; a channel moves one transfer at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MediaModel {
    /// Number of channels; dies are spread evenly over them.
    pub channels: u32,
    /// Number of dies, of all channels together.
    pub dies: u32,
    /// Speed of one channel, in bytes per second.
    pub channel_bytes_per_second: u64,
    /// Bytes that a die reads or programs in one operation (page times planes), a multiple of 4 KiB.
    pub program_bytes: u32,
    /// Time to read (sense) any part of that, in nanoseconds.
    pub read_ns: u64,
    /// Time to program it, in nanoseconds.
    pub program_ns: u64,
    /// Reads and programs take their time plus or minus up to this fraction, uniformly: kinds of pages differ.
    pub time_spread: f64,
    /// Fraction of reads that must be repeated; of writes too, where they are made in place.
    pub retry_fraction: f64,
    /// Time that a repetition takes on top, in nanoseconds.
    pub retry_ns: u64,
    /// A read interrupts a program after this time, in nanoseconds; absent: it waits until that is done.
    pub suspend_ns: Option<u64>,
    /// The same for an erase.
    #[serde(default)]
    pub erase_suspend_ns: Option<u64>,
}

/// Placement of logical pages of 4 KiB on the media.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Translation {
    /// Every page has its fixed place and is overwritten there (3D XPoint): nothing to collect or erase.
    InPlace,
    /// Flash: pages are written to erased blocks in order, blocks are collected and erased.
    PageMapped {
        /// Room beyond `capacity_bytes` that collection works with, as a fraction of it; blocks that are being
        /// written and a reserve of free ones come on top.
        over_provisioning: f64,
        /// Bytes that one entry of the map covers and that move together, 4 KiB or a power of two times that, 256 KiB
        /// at most. Of a write of less, what it leaves of the unit is read and written along, once more units are divided
        /// than the spare room would hold.
        #[serde(default = "page_bytes")]
        mapping_bytes: u32,
        /// Programs that a block of one die takes (`program_bytes` each) before it must be erased.
        block_programs: u32,
        /// Time to erase a block, in nanoseconds.
        erase_ns: u64,
        /// Choice of the block to collect next.
        collection: Collection,
        /// Once idle for so long, in nanoseconds, the drive collects ahead of need; absent: never.
        idle_ns: Option<u64>,
        /// Idle collection continues until this fraction of all blocks is free.
        idle_free_fraction: f64,
        /// Part of the media that is used with one bit a cell for fresh writes; absent: none.
        slc: Option<SlcModel>,
    },
}

fn page_bytes() -> u32 {
    4096
}

/// Choice of the block to collect next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collection {
    /// The one with the least valid data.
    Greedy,
    /// The one that was written longest ago.
    LeastRecentlyWritten,
}

/// Fast cells for fresh writes. What lies in them is folded into ordinary blocks while the drive is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlcModel {
    /// Bytes that they take.
    pub bytes: u64,
    /// Time to program `program_bytes` in them, in nanoseconds.
    pub program_ns: u64,
}

/// Memory in which writes wait for the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BufferModel {
    /// Its size in bytes.
    pub bytes: u64,
    /// True if buffered writes survive a power cut: a flush then has nothing to wait for.
    pub power_loss_protection: bool,
}

/// Host interface and controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceModel {
    /// From the drive to the host, in bytes per second.
    pub read_bytes_per_second: u64,
    /// From the host to the drive, in bytes per second.
    pub write_bytes_per_second: u64,
    /// True if both directions share one link (SATA).
    pub half_duplex: bool,
    /// Time that each command occupies the link besides its data, in nanoseconds.
    pub transfer_ns: u64,
    /// Time that the controller spends on each read, one after the other, in nanoseconds: it bounds the IOPS.
    pub read_command_ns: u64,
    /// The same for writes and trims.
    pub write_command_ns: u64,
    /// Read latency besides everything that is modelled, in nanoseconds: host, driver, firmware.
    pub read_latency_ns: u64,
    /// The same for writes, trims and flushes.
    pub write_latency_ns: u64,
    /// Commands that the drive works on at a time (SATA: 32); more wait at the host.
    pub queue_depth: u32,
    /// The host divides larger I/Os into commands of this many bytes.
    pub command_bytes: u64,
}

/// A rate limit with credits: a token bucket that starts full. Reads and writes are counted; trims and flushes pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitModel {
    /// Counted quantity.
    pub counts: Counted,
    /// Credits that are added in each second.
    pub rate: f64,
    /// Highest rate while there are credits in the bucket; absent: no limit then.
    #[serde(default)]
    pub burst_rate: Option<f64>,
    /// Credits that are saved while less than `rate` is used.
    #[serde(default)]
    pub bucket: f64,
    /// An operation is counted once for each of these bytes that it begins; absent: once.
    #[serde(default)]
    pub unit_bytes: Option<u64>,
    /// Sequential operations that follow each other are counted as one, up to `unit_bytes`.
    #[serde(default)]
    pub merge: bool,
    /// Credits of a read, as a multiple; 0: not limited.
    #[serde(default = "one")]
    pub read_weight: f64,
    /// Credits of a write, as a multiple; 0: not limited.
    #[serde(default = "one")]
    pub write_weight: f64,
    /// Place at which requests wait for credits.
    #[serde(default)]
    pub style: LimitStyle,
    /// Scope of the limit.
    #[serde(default)]
    pub shared_by: SharedBy,
    /// Later changes of `rate`, in order.
    #[serde(default)]
    pub changes: Vec<LimitChange>,
}

fn one() -> f64 {
    1.0
}

/// Quantity that a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    Operations,
    Bytes,
}

/// Place at which requests wait for credits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitStyle {
    /// Before the drive: its latency comes on top.
    #[default]
    Queue,
    /// After the drive: completions come in fixed intervals.
    Paced,
}

/// Scope of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SharedBy {
    /// Each drive of an array has its own.
    #[default]
    Volume,
    /// All drives of an array share it.
    Machine,
}

/// A limit changes its rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitChange {
    /// Virtual time since the drive was new, in nanoseconds.
    pub after_ns: u64,
    /// Credits that are added in each second from then on.
    pub rate: f64,
}

/// Blocks that are fetched on their first access, as of a volume made from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstTouchModel {
    /// Time that the first access to a region takes on top, in nanoseconds.
    pub time_ns: u64,
    /// Size of a region, in bytes.
    pub region_bytes: u64,
}

/// Several alike simulated drives as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayModel {
    /// Layout of data and redundancy.
    pub level: RaidLevel,
    pub drives: u32,
    /// Consecutive bytes on one drive, a multiple of 4 KiB.
    pub chunk_bytes: u64,
    /// Limit of all drives together to and from the host, in bytes per second; absent: no common limit.
    pub bytes_per_second: Option<u64>,
    /// Limit of the host's writes with parity, in bytes per second of data; absent: no limit of its own.
    #[serde(default)]
    pub parity_bytes_per_second: Option<u64>,
}

/// Levels of redundant arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RaidLevel {
    /// Striped; a single drive is this with one drive.
    Raid0,
    /// Every drive holds everything.
    Raid1,
    /// Striped over pairs of mirrors.
    Raid10,
    /// Striped with one rotating parity.
    Raid5,
    /// Striped with two.
    Raid6,
}
