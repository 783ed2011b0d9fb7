//! The block-I/O workload: one spec's worth of reads, writes and trims on a file, a device, or nothing at all.
//!
//! [`Block`] reads as the list of its steps. The parts: `check` refuses nonsense, `target` opens, `layout` fills, `buffer`
//! and `payload` hold what is moved, `backend` moves it and `transport` chooses one (for other workloads too), `job` is the measuring loop, `prepare` makes jobs of streams,
//! `probing` tries which backends there are, `threads` runs them in real time and `simulation` on virtual time; `ssd` brings a simulated drive and its state to that;
//! `verify` checks that what was written comes back; `evidence` reports which reads do not reach a device
//! (`extents`).

/// For the common parts of the integration tests, which the tests of `verify` use as well.
#[cfg(test)]
extern crate self as iosonde_block;

mod backend;
mod buffer;
mod check;
mod error;
mod evidence;
mod extents;
mod job;
mod layout;
pub mod payload;
mod prepare;
mod probing;
mod simulation;
mod ssd;
mod target;
mod threads;
mod transport;
pub mod verify;
mod virtual_threads;

use std::path::{Path, PathBuf};

use iosonde_harness::target::OFlags;
use iosonde_harness::{LoadPlan, Run, RunError, Workload};
use iosonde_protocol as protocol;
use iosonde_protocol::{BlockWorkload, LayoutResult, PageCache, Payload, Phase, RunResult, Stream, VerificationResult};

pub use backend::Unavailable;
pub use backend::{Backend, JobFiles, VirtualDevice, Wait};
pub use buffer::{Arena, Buffer, available_memory_bytes};
pub use probing::{ProbedBackend, probe_backends};
pub use target::claim;
pub use threads::merge_effects;
pub use transport::{Done, JobResources, Transport, Wanted, Work, allow_uring, has_abandoned};
pub use virtual_threads::{VirtualThread, simulate};

use crate::verify::{Session, Syncer};

/// The block workload of a spec.
pub struct Block<'a>(pub &'a BlockWorkload);

impl Workload for Block<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        Some(prepare::load_plan(self.0))
    }

    fn check(&self) -> Result<(), RunError> {
        check::check(self.0)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = target::paths(self.0);
        for journal in [None, self.0.verify.as_ref()] {
            let directory = journal.and_then(|verify| verify.journal_directory.as_deref());
            paths.extend(
                target::paths(self.0)
                    .iter()
                    .map(|path| verify::journal_path(path, directory)),
            );
        }
        if let protocol::Backend::Ssd {
            state_path: Some(path), ..
        } = &self.0.backend
        {
            paths.push(path.into());
        }
        paths
    }

    fn is_virtual(&self) -> bool {
        matches!(
            self.0.backend,
            protocol::Backend::Simulated { .. } | protocol::Backend::Ssd { .. }
        )
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let (workload, targets) = (self.0, run.inputs.targets);
        let is_opened = target::is_opened(workload);
        let _claim = is_opened
            .then(|| target::claim(targets, &workload.target))
            .transpose()?;
        let session = Session::open(targets, workload)?;
        let layout = lay_out(workload, session.as_ref(), run)?;
        let syncer = begin_verification(workload, session.as_ref(), run)?;
        prepare_page_cache(workload, run)?;
        let mut result = match &workload.backend {
            protocol::Backend::Simulated { .. } => return simulation::measure(workload, run),
            protocol::Backend::Ssd { .. } => return ssd::measure(workload, run),
            _ => threads::measure(workload, session.as_ref(), run)?,
        };
        drop(syncer);
        result.layout = layout;
        if let Some(session) = session {
            result.verification = Some(finish_verification(session, run)?);
        }
        Ok(result)
    }
}

/// After the layout, before the load. Without verification, a load that writes makes what is known of the files void.
fn begin_verification(
    workload: &BlockWorkload,
    session: Option<&Session>,
    run: &mut Run<'_>,
) -> Result<Option<Syncer>, RunError> {
    let Some(session) = session else {
        if workload.streams.iter().any(|stream| stream.mix.read_fraction < 1.0) {
            verify::forget(run.inputs.targets, workload)?;
        }
        return Ok(None);
    };
    // A layout that was stopped is not complete, and the load that follows ends before its first I/O.
    if !run.is_stopped() {
        session.check_laid_out()?;
    }
    Ok(session.keep_synced(workload))
}

/// Phase `verify`: the files are brought to the medium, and read back if requested.
fn finish_verification(session: Session, run: &mut Run<'_>) -> Result<VerificationResult, RunError> {
    run.begin(Phase::Verify);
    let targets = run.inputs.targets;
    let result = session.finish(targets, &mut |bytes| run.progress(Phase::Verify, bytes))?;
    run.end(Phase::Verify, result.checked_bytes);
    if let Some(warning) = verify::warning(&result) {
        run.warn(warning);
    }
    Ok(result)
}

/// Tries `io_uring` with a real read of this program's own file; returns the available features.
///
/// # Errors
/// The kernel's reason.
pub fn probe_uring() -> std::io::Result<Vec<String>> {
    let file = std::fs::File::open("/proc/self/exe")?;
    let wishes = iosonde_protocol::UringOptions {
        registered_files: true,
        registered_buffers: true,
        submission_polling: false,
        completion_polling: false,
        required: false,
    };
    backend::probe(&file, &wishes, false).map(|features| features.names())
}

/// Phase `layout`: every file of the target, one after the other.
fn lay_out(workload: &BlockWorkload, session: Option<&Session>, run: &mut Run<'_>) -> Result<LayoutResult, RunError> {
    let paths = target::paths(workload);
    let mut sum = LayoutResult::default();
    if paths.is_empty() || !target::is_opened(workload) {
        return Ok(sum);
    }
    run.begin(Phase::Layout);
    for path in &paths {
        let before = sum.written_bytes;
        let plan = layout::Plan {
            targets: run.inputs.targets,
            target: &workload.target,
            path,
            layout: workload.layout,
            payload: layout_payload(workload, path),
            seed: run.inputs.seed,
            journal: session.map(|session| session.journal(path)),
        };
        let one = layout::lay_out(&plan, &mut |bytes| run.progress(Phase::Layout, before + bytes))?;
        sum.written_bytes += one.written_bytes;
        sum.kept_bytes += one.kept_bytes;
    }
    run.end(Phase::Layout, sum.written_bytes);
    Ok(sum)
}

/// Payload of the streams that use the file, for a layout with data of the same kind; incompressible data where they
/// differ.
fn layout_payload(workload: &BlockWorkload, path: &Path) -> Payload {
    let uses = |stream: &&Stream| {
        target::stream_paths(&workload.target, stream)
            .iter()
            .any(|each| each == path)
    };
    let mut payloads = workload.streams.iter().filter(uses).map(|stream| stream.payload);
    let first = payloads.next().unwrap_or(Payload::Random);
    if payloads.all(|each| each == first) {
        first
    } else {
        Payload::Random
    }
}

fn prepare_page_cache(workload: &BlockWorkload, run: &Run<'_>) -> Result<(), RunError> {
    if workload.page_cache == PageCache::Keep || !target::is_opened(workload) {
        return Ok(());
    }
    for path in target::paths(workload) {
        let file = run.inputs.targets.open(&path, OFlags::RDONLY);
        let bytes = target::size_bytes(&workload.target);
        file.and_then(|file| iosonde_harness::prepare_page_cache(&file, workload.page_cache, bytes))
            .map_err(error::target("prepare the page cache of", &path))?;
    }
    Ok(())
}
