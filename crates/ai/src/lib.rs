//! Loads that software for machine learning applies to storage.
//!
//! [`checkpoint`], [`ingest`], [`weights`] and [`vector`] are loads, each written once against a [`World`](world::World): what a
//! thread does to storage and time. `kernel` is the world of files and the machine's clock, `simulated` that of a simulated device and
//! a virtual clock. `files`
//! has the files of a load.

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

use iosonde_harness::{LoadPlan, Measured, Run, RunError, StreamPlan};
use iosonde_protocol::{AiResult, AiTarget, Backend, PageCache, PageCacheEvidence, Ramp, RunResult};

pub use checkpoint::AiCheckpoint;
pub use ingest::AiIngest;
pub use kv_cache::AiKvCache;
pub use vector::AiVector;
pub use weights::AiWeights;

use crate::files::{FileNeed, FileSet};
use crate::world::Load;

/// What the driver knows of a load.
pub(crate) struct Setting<'w> {
    pub target: &'w AiTarget,
    pub backend: Option<&'w Backend>,
    pub needs: Vec<FileNeed>,
    pub page_cache: PageCache,
}

/// A load of one stream that ends by itself.
pub(crate) fn until_complete<'a>(stream: &'a str, threads: u32, interval_ns: u64, cpus: &'a [u32]) -> LoadPlan<'a> {
    LoadPlan {
        ramp: Ramp::default(),
        duration_ns: None,
        interval_ns,
        streams: vec![StreamPlan {
            ends_by_itself: true,
            ..StreamPlan::closed(stream, threads, cpus)
        }],
    }
}

/// The paths of a target, and files beside it.
pub(crate) fn paths(target: &AiTarget, files: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let directory = match target {
        AiTarget::Directory { path } => Some(path.into()),
        AiTarget::Virtual { .. } => None,
    };
    directory.into_iter().chain(files).collect()
}

/// Prepares the files, applies the load, and makes a result of what was found; `note` adds facts about the load.
pub(crate) fn measure<L: Load>(
    setting: Setting<'_>,
    plan: &LoadPlan<'_>,
    load: &L,
    run: &mut Run<'_>,
    note: impl FnOnce(&mut AiResult, &[L::Found]),
) -> Result<RunResult, RunError> {
    let (measured, file_bytes) = match setting.target {
        AiTarget::Virtual { size_bytes } => {
            let Some(backend) = setting.backend else {
                return Err(RunError::out_of_range("`backend`"));
            };
            let files = FileSet::on_device(setting.needs);
            let measured = simulated::measure(backend, *size_bytes, &files, plan, load, run)?;
            (measured, files.total_bytes())
        }
        AiTarget::Directory { path } => {
            let (files, layout) = FileSet::open(path.as_ref(), setting.needs, run)?;
            files.prepare_page_cache(setting.page_cache)?;
            let before = files.residency();
            let mut measured = kernel::measure(&files, plan, load, run)?;
            let pages = before.zip(files.residency()).map(|(before, after)| PageCacheEvidence {
                source: if after.dirty_bytes.is_some() {
                    "cachestat"
                } else {
                    "mincore"
                }
                .into(),
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
