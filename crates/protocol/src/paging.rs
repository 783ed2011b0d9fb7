//! The paging workload: accesses to mapped memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PageCache, Ramp, Target};

/// Accesses to pages of one mapping: one or more streams that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingWorkload {
    /// Mapping: `virtual` for private anonymous memory of that size, `file` for a file, which is mapped shared and
    /// read-only. No other target is supported.
    pub target: Target,
    /// `madvise(2)` for the whole mapping.
    pub advice: Advice,
    /// True if anonymous memory may use transparent huge pages.
    pub huge_pages: bool,
    /// The fraction of each page that is zeros, from 0 (incompressible) to below 1.
    pub compressible_fraction: f64,
    /// Seed of the contents of pages, separate from the run's seed: runs that share a file share it.
    pub content_seed: u64,
    /// The page cache of a file before the first access.
    pub page_cache: PageCache,
    /// The loads; each has its own threads.
    pub streams: Vec<PagingStream>,
    /// The ramp before the measurement.
    pub ramp: Ramp,
    /// Maximum length of the measurement, in nanoseconds; absent: until every stream reaches its own limit.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds, at least 100 ms.
    pub interval_ns: u64,
    /// After the measurement, read every page and compare it in full.
    pub verify_after: bool,
}

/// Read-ahead of the kernel in a mapping (`madvise(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// `MADV_NORMAL`.
    Normal,
    /// `MADV_RANDOM`: no read-ahead.
    Random,
    /// `MADV_SEQUENTIAL`: more read-ahead.
    Sequential,
}

/// One load: `jobs` threads, each with one access at a time, in closed loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingStream {
    /// Name of the stream, unique in the workload.
    pub name: String,
    /// Number of threads. All of them access the whole mapping.
    pub jobs: u32,
    /// Choice of pages.
    pub pattern: Pattern,
    /// Fraction of accesses that read; the others change one word of the page.
    pub read_fraction: f64,
    /// The stream ends after this many accesses in the measurement, split evenly over its jobs.
    pub limit_operations: Option<u64>,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// Choice of pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    /// Every page is as likely as any other.
    Uniform,
    /// Rank `r` with weight `r^-theta`; ranks are scattered over the mapping.
    Zipfian {
        /// Skew, above 0.
        theta: f64,
    },
    /// Normally distributed around the middle of the mapping; choices outside are drawn again.
    Normal {
        /// Standard deviation as a fraction of the mapping, above 0.
        deviation: f64,
    },
    /// One page after the other, restarting at the end of the mapping; jobs start evenly spaced.
    Sequential,
}

/// Facts about a paging run, besides its operations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PagingResult {
    /// Pages of the mapping.
    pub pages: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// An access that took at least this long was classified by the thread's fault counters (`getrusage(2)`); a shorter one
    /// is a hit. In nanoseconds.
    pub threshold_ns: u64,
    /// The fastest minor fault found before the measurement, in nanoseconds.
    pub fastest_minor_fault_ns: u64,
    /// Cost of measuring an access that hits, in nanoseconds: the loop with clock and histogram less the loop without,
    /// found before the measurement.
    pub measuring_cost_ns: f64,
    /// Cost of classifying a slow access, in nanoseconds. It is not part of the access' latency.
    pub classification_cost_ns: f64,
    /// True if the engine's own memory was locked, so that only the mapping is paged.
    pub is_locked: bool,
    /// Minor faults of the jobs' threads from the start of the load to its end, by the kernel's count.
    pub minor_faults: u64,
    /// Major faults, likewise.
    pub major_faults: u64,
    /// Minor faults, of these, that belong to no access classified as a fault: in accesses below the threshold, or several in
    /// one access.
    pub unattributed_minor_faults: u64,
    /// Major faults, likewise.
    pub unattributed_major_faults: u64,
    /// Accesses whose page was checked; every one is.
    pub checked: u64,
    /// Accesses that found another page's contents, or none that was ever written.
    pub corrupted: u64,
    /// Accesses that found an older version of the page than one already acknowledged.
    pub stale: u64,
    /// Number of the first page that was wrong.
    pub first_wrong_page: Option<u64>,
    /// Pages that were compared in full after the measurement.
    pub verified_pages: u64,
    /// Pages, of these, that were wrong.
    pub wrong_pages: u64,
    /// The kernel's counters when the measurement started, by the names of the intervals' `store` statistics.
    pub statistics_at_start: std::collections::BTreeMap<String, u64>,
    /// The same at the end of the measurement.
    pub statistics_at_end: std::collections::BTreeMap<String, u64>,
}
