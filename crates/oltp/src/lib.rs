//! Transactional workloads on a database server: TPC-C and single-row commits.
//!
//! [`Tpcc`] and [`Commit`] read as the list of their steps. The parts: `sql` has the clients, `server` connects and checks the server's version and
//! settings, `marker` the owner of a database, `threads` runs terminals, `terminal` is the measuring loop, `acknowledged` keeps
//! acknowledged commits. The module `tpcc` has the workload: `schema`, `population`, `load`, `rules` (inputs), `statements`,
//! `transactions`, `consistency`.

mod acknowledged;
mod check;
mod commit;
mod marker;
mod server;
pub mod sql;
mod terminal;
mod threads;
mod tpcc;

use iosonde_harness::{LoadPlan, Run, RunError, StreamPlan, Workload};
use iosonde_protocol::{
    Arrival, BackendInEffect, CommitWorkload, OltpResult, Ramp, RunResult, SqlServer, TpccWorkload, Warning,
};

/// The TPC-C workload of a spec.
pub struct Tpcc<'a>(pub &'a TpccWorkload);

impl Workload for Tpcc<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let measurement = self.0.measurement.as_ref()?;
        let times = [measurement.ramp_ns, measurement.duration_ns, measurement.interval_ns];
        let stream = StreamPlan::closed("terminals", measurement.terminals, &measurement.cpus);
        Some(load_plan(stream, &measurement.arrival, times))
    }

    fn check(&self) -> Result<(), RunError> {
        check::tpcc(self.0)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let result = tpcc::run(self, run)?;
        Ok(with_backend(result, &self.0.server))
    }
}

/// The workload of single-row commits of a spec.
pub struct Commit<'a>(pub &'a CommitWorkload);

impl Workload for Commit<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let measurement = self.0.measurement.as_ref()?;
        let times = [measurement.ramp_ns, measurement.duration_ns, measurement.interval_ns];
        let stream = StreamPlan::closed("clients", measurement.clients, &measurement.cpus);
        Some(load_plan(stream, &measurement.arrival, times))
    }

    fn check(&self) -> Result<(), RunError> {
        check::commit(self.0)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let result = commit::run(self, run)?;
        Ok(with_backend(result, &self.0.server))
    }
}

fn load_plan<'a>(
    stream: StreamPlan<'a>,
    arrival: &'a Arrival,
    [ramp_ns, duration_ns, interval_ns]: [u64; 3],
) -> LoadPlan<'a> {
    LoadPlan {
        ramp: Ramp {
            duration_ns: ramp_ns,
            ..Ramp::default()
        },
        duration_ns: Some(duration_ns),
        interval_ns,
        streams: vec![StreamPlan { arrival, ..stream }],
    }
}

fn with_backend(result: RunResult, server: &SqlServer) -> RunResult {
    RunResult {
        backend: BackendInEffect {
            kind: server.kind.name().into(),
            ..BackendInEffect::default()
        },
        ..result
    }
}

/// A warning where the server went away and the spec tolerates it.
fn warn_of_loss(result: &OltpResult, run: &mut Run<'_>) {
    let Some(at_ns) = result.server_vanished_ns else { return };
    run.warn(Warning {
        code: "server_vanished".into(),
        message: format!(
            "the server went away {:.3} s after the engine's start",
            at_ns as f64 / 1e9
        ),
        hint: "expected where the server is killed on purpose; else look at its log and at the kernel log".into(),
    });
}
