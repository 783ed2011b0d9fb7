//! Loads that software for machine learning applies to storage.
//!
//! [`checkpoint`], [`ingest`], [`weights`] and [`vector`] are loads, each written once against a [`World`](world::World): what a
//! thread does to storage and time. `kernel` is the world of files and the machine's clock, `simulated` that of a simulated device and
//! a virtual clock. `files`
//! has the files of a load.

/// Methods of each workload of this crate. Its paths are those of its target, and of the files that `$files` returns.
macro_rules! placed {
    ($files:expr) => {
        fn paths(&self) -> Vec<PathBuf> {
            $crate::paths(&self.0.target, $files(self.0))
        }

        fn is_virtual(&self) -> bool {
            self.0.backend.is_some()
        }
    };
}

mod checkpoint;
mod files;
mod ingest;
mod kernel;
mod kv_cache;
mod kv_trace;
mod simulated;
mod vector;
mod weights;
mod world;

use std::path::PathBuf;

use iosonde_harness::{LoadPlan, Measured, Run, RunError, StreamPlan, Workload, require};
use iosonde_protocol::{AiResult, AiTarget, Backend, PageCacheEvidence, Ramp, RunResult};

pub use checkpoint::AiCheckpoint;
pub use ingest::AiIngest;
pub use kv_cache::AiKvCache;
pub use vector::AiVector;
pub use weights::AiWeights;

use crate::files::FileSet;
use crate::world::{Load, PAGE_BYTES};

const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// A load of these streams and threads; without a ramp it ends by itself, or after `duration_ns`.
pub(crate) fn plan<'a>(
    streams: &[(&'a str, u32)],
    ramp: Option<Ramp>,
    duration_ns: Option<u64>,
    interval_ns: u64,
    cpus: &'a [u32],
) -> Option<LoadPlan<'a>> {
    let stream = |(name, threads): &(&'a str, u32)| StreamPlan {
        ends_by_itself: ramp.is_none(),
        ..StreamPlan::closed(name, *threads, cpus)
    };
    Some(LoadPlan {
        ramp: ramp.unwrap_or_default(),
        duration_ns,
        interval_ns,
        streams: streams.iter().map(stream).collect(),
    })
}

/// Refuses a size of requests that direct I/O cannot do.
pub(crate) fn check_request(bytes: u64, field: &str) -> Result<(), RunError> {
    let is_possible = (PAGE_BYTES..=REQUEST_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(PAGE_BYTES);
    require(is_possible, field)
}

/// The paths of a target, and files beside it.
fn paths(target: &AiTarget, mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    if let AiTarget::Directory { path } = target {
        files.push(path.into());
    }
    files
}

/// Prepares the files, applies the load, and makes a result of what was found; `note` adds facts about the load.
pub(crate) fn measure<L: Load>(
    workload: &dyn Workload,
    target: &AiTarget,
    backend: Option<&Backend>,
    load: &L,
    run: &mut Run<'_>,
    note: impl FnOnce(&mut AiResult, &[L::Found]),
) -> Result<RunResult, RunError> {
    let plan = &workload.plan().expect("a load is always measured");
    let (measured, file_bytes) = match target {
        AiTarget::Virtual { size_bytes } => {
            let Some(backend) = backend else {
                return Err(RunError::out_of_range("`backend`"));
            };
            let files = FileSet::on_device(load.needs());
            let measured = simulated::measure(backend, *size_bytes, &files, plan, load, run)?;
            (measured, files.total_bytes())
        }
        AiTarget::Directory { path } => {
            let (files, layout) = FileSet::open(path.as_ref(), load.needs(), run)?;
            files.prepare_page_cache(load.page_cache())?;
            let before = files.residency();
            let mut measured = kernel::measure(&files, plan, load, run)?;
            let pages = before.zip(files.residency()).map(|(before, after)| PageCacheEvidence {
                source: after.dirty_bytes.map_or("mincore", |_| "cachestat").into(),
                addressed_bytes: files.total_bytes(),
                before_bytes: before.cached_bytes,
                after_bytes: after.cached_bytes,
                dirty_after_bytes: after.dirty_bytes,
            });
            measured.result.layout = layout;
            measured.result.evidence.get_or_insert_default().page_cache = pages;
            (measured, files.total_bytes())
        }
    };
    let Measured { mut result, found } = measured;
    let mut facts = AiResult {
        file_bytes,
        ..AiResult::default()
    };
    note(&mut facts, &found);
    result.ai = Some(facts);
    Ok(result)
}

#[cfg(test)]
mod tests;
