//! The block-I/O workload: one spec's worth of reads, writes and trims on a file, a device, or nothing at all.
//!
//! [`run`] reads as the list of its steps. The parts: `check` refuses nonsense, `target` opens, `layout` fills, `buffer`
//! and `payload` hold what is moved, `backend` moves it and `transport` chooses one (for other workloads too), `job` is the measuring loop, `prepare` makes jobs of streams,
//! `probing` tries which backends there are, `threads` runs them in real time and `simulation` on virtual time; `ssd` brings a simulated drive and its state to that;
//! `verify` checks that what was written comes back; `evidence` reports which reads do not reach a device
//! (`extents`, `residency`).

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
mod residency;
mod simulation;
mod ssd;
mod target;
mod threads;
mod transport;
pub mod verify;

use std::path::PathBuf;

use iosonde_harness::Control;
use iosonde_metrics::clock::Clock;
use iosonde_protocol as protocol;
use iosonde_protocol::{
    BlockWorkload, Edge, Event, LayoutResult, Observe, Payload, Phase, PhaseEvent, RunResult, VerificationResult,
};

use iosonde_target::{OFlags, Targets};

pub use backend::{Backend, JobFiles, Wait};
pub use buffer::{Arena, Buffer, available_memory_bytes};
pub use error::BlockError;
pub use probing::{ProbedBackend, probe_backends};
pub use target::claim;
pub use threads::merge_effects;
pub use transport::{JobResources, Transport, Unavailable, Wanted, Work};

use crate::verify::{Session, Syncer};

/// The input of a run.
#[derive(Clone, Copy)]
pub struct RunInputs<'a> {
    /// What to do.
    pub workload: &'a BlockWorkload,
    /// Seed of every random choice.
    pub seed: u64,
    /// What to sample besides.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// Opens what the workload names.
    pub targets: &'a Targets,
}

/// Carries out a block workload and emits its events: phases, intervals, warnings. The caller emits the result.
///
/// # Errors
/// When the spec is contradictory, the target cannot be used, or an I/O fails. Events emitted before stay true.
pub fn run(run: &RunInputs<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, BlockError> {
    let RunInputs { workload, clock, .. } = *run;
    check::check(workload)?;
    let is_opened = target::is_opened(workload);
    let _claim = is_opened
        .then(|| target::claim(run.targets, &workload.target))
        .transpose()?;
    let session = Session::open(run.targets, workload)?;
    let layout = lay_out(run, session.as_ref(), control, emit)?;
    let syncer = begin_verification(run, session.as_ref(), control)?;
    prepare_page_cache(run)?;
    let mut result = match &workload.backend {
        protocol::Backend::Simulated { .. } => return simulation::run(workload, run.seed, control, emit),
        protocol::Backend::Ssd { .. } => return ssd::run(run, control, emit),
        _ => threads::run(run, session.as_ref(), control, emit)?,
    };
    drop(syncer);
    result.layout = layout;
    if let Some(session) = session {
        result.verification = Some(finish_verification(run.targets, session, clock, control, emit)?);
    }
    Ok(result)
}

/// Every path that a run of this workload opens.
pub fn paths(workload: &BlockWorkload) -> Vec<PathBuf> {
    let mut paths = target::paths(workload);
    for journal in [None, workload.verify.as_ref()] {
        let directory = journal.and_then(|verify| verify.journal_directory.as_deref());
        paths.extend(
            target::paths(workload)
                .iter()
                .map(|path| verify::journal_path(path, directory)),
        );
    }
    if let protocol::Backend::Ssd {
        state_path: Some(path), ..
    } = &workload.backend
    {
        paths.push(path.into());
    }
    paths
}

/// After the layout, before the load. Without verification, a load that writes makes what is known of the files void.
fn begin_verification(
    run: &RunInputs<'_>,
    session: Option<&Session>,
    control: &mut Control,
) -> Result<Option<Syncer>, BlockError> {
    let workload = run.workload;
    let Some(session) = session else {
        if workload.streams.iter().any(|stream| stream.mix.read_fraction < 1.0) {
            verify::forget(run.targets, workload)?;
        }
        return Ok(None);
    };
    // A layout that was stopped is not complete, and the load that follows ends before its first I/O.
    if !control.is_stopped() {
        session.check_laid_out()?;
    }
    Ok(session.keep_synced(workload))
}

/// Phase `verify`: the files are brought to the medium, and read back if requested.
fn finish_verification(
    targets: &Targets,
    session: Session,
    clock: Clock,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<VerificationResult, BlockError> {
    let mut report = |edge, bytes| emit(phase(Phase::Verify, edge, clock, bytes));
    report(Edge::Begin, 0);
    let mut progress = verify::Progress {
        report: &mut |bytes| report(Edge::Progress, bytes),
        stopped: &mut || control.is_stopped(),
    };
    let result = session.finish(targets, &mut progress)?;
    report(Edge::End, result.checked_bytes);
    if let Some(warning) = verify::warning(&result) {
        emit(Event::Warning(warning));
    }
    Ok(result)
}

fn phase(phase: Phase, edge: Edge, clock: Clock, bytes: u64) -> Event {
    Event::Phase(PhaseEvent {
        phase,
        edge,
        at_ns: clock.now(),
        bytes,
    })
}

/// Whether `io_uring` works here, tried by a real read of this program's own file; the features it has.
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
fn lay_out(
    run: &RunInputs<'_>,
    session: Option<&Session>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<LayoutResult, BlockError> {
    let RunInputs { workload, clock, .. } = *run;
    let paths = target::paths(workload);
    let mut sum = LayoutResult::default();
    if paths.is_empty() || !target::is_opened(workload) {
        return Ok(sum);
    }
    let mut report = |edge, bytes| emit(phase(Phase::Layout, edge, clock, bytes));
    report(Edge::Begin, 0);
    for path in &paths {
        let before = sum.written_bytes;
        let stopped = std::cell::RefCell::new(&mut *control);
        let mut progress = layout::Progress {
            report: &mut |bytes| report(Edge::Progress, before + bytes),
            stopped: &|| stopped.borrow_mut().is_stopped(),
        };
        let plan = layout::Plan {
            targets: run.targets,
            target: &workload.target,
            path,
            layout: workload.layout,
            payload: layout_payload(workload),
            seed: run.seed,
            journal: session.map(|session| session.journal(path)),
        };
        let one = layout::lay_out(&plan, &mut progress)?;
        sum.written_bytes += one.written_bytes;
        sum.kept_bytes += one.kept_bytes;
    }
    report(Edge::End, sum.written_bytes);
    Ok(sum)
}

/// What the streams write, so that reads find data of the same kind; where they differ, incompressible data.
fn layout_payload(workload: &BlockWorkload) -> Payload {
    let first = workload.streams[0].payload;
    let agree = workload.streams.iter().all(|stream| stream.payload == first);
    if agree { first } else { Payload::Random }
}

fn prepare_page_cache(run: &RunInputs<'_>) -> Result<(), BlockError> {
    use iosonde_protocol::PageCache;
    let workload = run.workload;
    if !target::is_opened(workload) {
        return Ok(());
    }
    for path in target::paths(workload) {
        let file = || run.targets.open(&path, OFlags::RDONLY);
        let prepared = match workload.page_cache {
            PageCache::Keep => Ok(()),
            PageCache::Drop => file().and_then(|file| target::drop_page_cache(&file)),
            PageCache::Warm => {
                file().and_then(|file| target::warm_page_cache(&file, target::size_bytes(&workload.target)))
            }
        };
        prepared.map_err(BlockError::target(
            "prepare the page cache of",
            &path.display().to_string(),
        ))?;
    }
    Ok(())
}
