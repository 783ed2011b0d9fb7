//! Runs a workload's jobs and puts the result of the run together.

use std::io;
use std::thread;

use iosonde_metrics::usage;
use iosonde_protocol::{BackendInEffect, Event, Evidence, JobResult, LayoutResult, Outcome, RunResult};

use crate::control::Control;
use crate::supervisor::{Job, Supervision, supervise};

/// What a workload makes of its finished jobs.
pub struct Finished {
    /// One entry for each job.
    pub jobs: Vec<JobResult>,
    /// When the last job's load ended; nothing if no job started.
    pub end_ns: Option<u64>,
    /// The backend that was used.
    pub backend: BackendInEffect,
}

/// A thread could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a thread: {0}")]
pub struct CannotStart(#[from] io::Error);

impl CannotStart {
    /// The likely cause, and what to do next.
    pub const HINT: &str =
        "raise the limit on processes or memory (`ulimit -u`, `ulimit -v`, `pids.max`), or use fewer jobs";
}

/// Runs jobs from a common start to the last one's end and emits intervals between. `finish` turns what the jobs returned
/// into results; layout, verification and what is known of the target are the caller's to add.
///
/// # Errors
/// When a thread cannot be created, or whatever `finish` returns.
pub fn execute<'a, T: Send, E: From<CannotStart>>(
    supervision: Supervision<'a>,
    jobs: Vec<(usize, Job<'a, T>)>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
    finish: impl FnOnce(Vec<thread::Result<T>>) -> Result<Finished, E>,
) -> Result<RunResult, E> {
    let shared = supervision.shared;
    let supervised = supervise(supervision, jobs, control, emit).map_err(CannotStart)?;
    let finished = finish(supervised.jobs)?;
    let begin_ns = shared.measure_begin();
    let end_ns = finished.end_ns.unwrap_or(begin_ns);
    Ok(RunResult {
        outcome: match shared.is_stopped() {
            true => Outcome::Stopped,
            false => Outcome::Complete,
        },
        begin_ns: begin_ns.min(end_ns),
        end_ns,
        jobs: finished.jobs,
        process: supervised.process,
        peak_memory_bytes: usage::peak_memory_bytes(),
        buffer_bytes: 0,
        devices: supervised.devices,
        backend: finished.backend,
        layout: LayoutResult::default(),
        evidence: Some(Evidence {
            machine: supervised.machine.all,
            pinned: supervised.machine.pinned,
            cores: supervised.machine.cores,
            kernel: supervised.kernel,
            stalls: Some(supervised.stalls),
            ..Evidence::default()
        }),
        verification: None,
        store: None,
        oltp: None,
        paging: None,
        graph: None,
        objects: None,
    })
}
