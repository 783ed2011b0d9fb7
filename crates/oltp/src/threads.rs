//! Runs terminals, one thread and one connection each, and puts their result together.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use iosonde_harness::{JobDone, JobStart, Load, Measured, Run, RunError, Workload};
use iosonde_protocol::{
    AcknowledgedLog, Interval, OltpCounters, OltpResult, Operation, RunResult, ServerLoss, TransactionResult,
};

use crate::acknowledged::{self, Log};
use crate::terminal::{Common, Found, Published, Terminal, Work};

/// Settings of all transactions of a load.
pub(crate) struct Rules<'a> {
    /// Attempts after the first.
    pub retries: u32,
    pub acknowledged: Option<&'a AcknowledgedLog>,
    pub server_loss: ServerLoss,
}

/// Carries out ramp and measurement; `connect` makes the work of a terminal ready.
pub(crate) fn measure<W: Work>(
    workload: &dyn Workload,
    rules: &Rules<'_>,
    connect: &(dyn Fn(u32) -> Result<W, RunError> + Sync),
    result: &mut OltpResult,
    run: &mut Run<'_>,
) -> Result<RunResult, RunError> {
    if let Some(log) = rules.acknowledged {
        acknowledged::prepare(Path::new(&log.directory))?;
    }
    let plan = workload.plan().expect("the spec has a measurement");
    let vanished_ns = AtomicU64::new(u64::MAX);
    let terminals = Terminals {
        published: plan.places(|_| 1).iter().map(|_| Published::default()).collect(),
        common: Common {
            clock: run.inputs.clock,
            retries: rules.retries,
            tolerates_loss: rules.server_loss == ServerLoss::End,
            vanished_ns: &vanished_ns,
        },
        acknowledged: rules.acknowledged.map(|log| Path::new(&log.directory)),
        connect,
    };
    let mut with_counters = |interval: &mut Interval| interval.oltp = Some(Published::sum(&terminals.published));
    let measured = run.measure(&plan, &terminals, &mut with_counters)?;
    let Measured {
        result: run_result,
        found,
    } = measured;
    let vanished_ns = vanished_ns.into_inner();
    result.transactions = transactions(&found);
    result.counters = counters(&found);
    result.acknowledged = rules
        .acknowledged
        .map(|_| found.iter().map(|terminal| terminal.acknowledged).sum());
    result.server_vanished_ns = (vanished_ns < u64::MAX).then_some(vanished_ns);
    Ok(run_result)
}

/// The load: what its terminals share.
struct Terminals<'a, W> {
    common: Common<'a>,
    published: Vec<Published>,
    /// Directory of the identifiers of acknowledged commits.
    acknowledged: Option<&'a Path>,
    connect: &'a (dyn Fn(u32) -> Result<W, RunError> + Sync),
}

impl<W: Work> Load for Terminals<'_, W> {
    type Found = Found;

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<Found>>, RunError> {
        let number = start.place.job;
        let terminal = Terminal {
            work: (self.connect)(number)?,
            common: &self.common,
            phases: start.phases,
            arrivals: start.arrivals,
            log: self
                .acknowledged
                .map(|directory| Log::create(directory, number))
                .transpose()?,
            published: &self.published[number as usize],
        };
        if !start.gate.pass() {
            return Ok(None);
        }
        terminal.drive().map(Some)
    }
}

fn transactions(found: &[Found]) -> Vec<TransactionResult> {
    let of = |operation: Operation| {
        let mut sum = TransactionResult::none(operation);
        for terminal in found {
            sum.include(&terminal.tallies[operation as usize]);
        }
        sum
    };
    let all = Operation::ALL.into_iter().map(of);
    all.filter(|result| result.completed + result.failed > 0).collect()
}

fn counters(found: &[Found]) -> OltpCounters {
    let mut sum = OltpCounters::default();
    found.iter().for_each(|terminal| sum.include(&terminal.counters));
    sum
}
