//! Transactional workloads on a database server: TPC-C and single-row commits.
//!
//! [`run_tpcc`] and [`run_commit`] read as the list of their steps. The parts: `server` connects and checks the
//! server's version and settings, `marker` the owner of a database, `threads` runs terminals, `terminal` is the measuring
//! loop, `acknowledged` keeps acknowledged commits. The module `tpcc` has the workload: `schema`, `population`, `load`,
//! `rules` (inputs), `statements`, `transactions`, `consistency`.

mod acknowledged;
mod check;
mod commit;
pub mod error;
mod marker;
pub mod null;
mod server;
mod stage;
mod terminal;
mod threads;
mod tpcc;

use iosonde_harness::Control;
use iosonde_metrics::clock::Clock;
use iosonde_metrics::usage;
use iosonde_protocol::{
    BackendInEffect, CommitWorkload, Event, LayoutResult, Observe, OltpResult, Outcome, RunResult, SqlServer,
    TpccWorkload, Usage, Warning,
};

pub use error::{Code, OltpError};

/// What a run is given besides its workload.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The run's seed.
    pub seed: u64,
    /// What to watch.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
}

/// Carries out a TPC-C workload and emits its events: phases, intervals, checks, warnings. The caller emits the result.
///
/// # Errors
/// When the server or the database cannot be used, a transaction fails, or a consistency condition does not hold. Events
/// emitted before stay true.
pub fn run_tpcc(
    workload: &TpccWorkload,
    context: &Context<'_>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, OltpError> {
    check::tpcc(workload)?;
    tpcc::run(workload, context, &mut stage::Stage::new(context.clock, control, emit))
}

/// Carries out a `commit` workload, as [`run_tpcc`] does.
///
/// # Errors
/// When the server or the database cannot be used, or a transaction fails.
pub fn run_commit(
    workload: &CommitWorkload,
    context: &Context<'_>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, OltpError> {
    check::commit(workload)?;
    commit::run(workload, context, &mut stage::Stage::new(context.clock, control, emit))
}

/// The result of a run in which nothing was measured.
fn unmeasured(server: &SqlServer, clock: Clock, is_stopped: bool) -> RunResult {
    let now_ns = clock.now();
    RunResult {
        outcome: if is_stopped {
            Outcome::Stopped
        } else {
            Outcome::Complete
        },
        begin_ns: now_ns,
        end_ns: now_ns,
        jobs: Vec::new(),
        process: Usage::default(),
        peak_memory_bytes: usage::peak_memory_bytes(),
        buffer_bytes: 0,
        devices: Vec::new(),
        backend: BackendInEffect {
            kind: server.kind.name().into(),
            ..BackendInEffect::default()
        },
        layout: LayoutResult::default(),
        evidence: None,
        store: None,
        oltp: None,
        paging: None,
        graph: None,
        objects: None,
        verification: None,
    }
}

/// A warning where the server went away and the spec tolerates it.
fn warn_of_loss(result: &OltpResult, stage: &mut stage::Stage<'_>) {
    let Some(at_ns) = result.server_vanished_ns else { return };
    stage.emit(Event::Warning(Warning {
        code: "server_vanished".into(),
        message: format!(
            "the server went away {:.3} s after the engine's start",
            at_ns as f64 / 1e9
        ),
        hint: "expected where the server is killed on purpose; else look at its log and at the kernel log".into(),
    }));
}
