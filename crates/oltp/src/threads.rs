//! Runs terminals, one thread and one connection each, and puts their result together.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use iosonde_harness::{
    Budget, Finished as HarnessFinished, Gate, JobPhases, PhasePlan, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_load::Arrivals;
use iosonde_metrics::device::DeviceWatch;
use iosonde_protocol::{
    AcknowledgedLog, Arrival, BackendInEffect, Event, JobResult, OltpCounters, Operation, RunResult, ServerLoss,
    SqlServerKind, TransactionResult,
};

use crate::Context;
use crate::acknowledged::{self, Log};
use crate::error::{Code, OltpError};
use crate::stage::Stage;
use crate::terminal::{Common, Finished, Published, Tally, Terminal, Work};

/// The load, whatever its transactions are.
pub(crate) struct Load<'a> {
    pub kind: SqlServerKind,
    /// Name of the stream.
    pub stream: &'a str,
    pub terminals: u32,
    pub arrival: &'a Arrival,
    pub retries: u32,
    pub ramp_ns: u64,
    pub duration_ns: u64,
    pub interval_ns: u64,
    pub acknowledged: Option<&'a AcknowledgedLog>,
    pub server_loss: ServerLoss,
    pub cpus: &'a [u32],
}

/// What the measurement leaves.
pub(crate) struct Measured {
    pub result: RunResult,
    pub transactions: Vec<TransactionResult>,
    pub counters: OltpCounters,
    pub acknowledged: Option<u64>,
    pub server_vanished_ns: Option<u64>,
}

/// What a terminal's thread returns; nothing if the run was cancelled before it started.
type Returned = Result<Option<Finished>, OltpError>;

/// Carries out ramp and measurement; `connect` makes the work of a terminal ready.
pub(crate) fn measure<W: Work>(
    load: &Load<'_>,
    context: &Context<'_>,
    connect: &(dyn Fn(u32) -> Result<W, OltpError> + Sync),
    stage: &mut Stage<'_>,
) -> Result<Measured, OltpError> {
    let watch = DeviceWatch::open(&context.observe.block_devices).map_err(|error| {
        let hint = "name devices as `major:minor`, as in `lsblk`";
        OltpError::invalid(error.to_string(), "`observe.block_devices`", hint)
    })?;
    if let Some(log) = load.acknowledged {
        acknowledged::prepare(Path::new(&log.directory))?;
    }
    let (shared, vanished_ns) = (Shared::default(), AtomicU64::new(u64::MAX));
    let published: Vec<Published> = (0..load.terminals).map(|_| Published::default()).collect();
    let common = Common {
        clock: context.clock,
        retries: load.retries,
        tolerates_loss: load.server_loss == ServerLoss::End,
        vanished_ns: &vanished_ns,
    };
    let threads = Threads {
        load,
        seed: context.seed,
        common: &common,
        shared: &shared,
    };
    let jobs = published
        .iter()
        .zip(0..)
        .map(|(published, number)| (0, threads.job(number, published, connect)))
        .collect();
    let supervision = Supervision {
        clock: context.clock,
        shared: &shared,
        ramp_ns: load.ramp_ns,
        ramp_may_end_early: false,
        ramp_until_steady: None,
        duration_ns: Some(load.duration_ns),
        interval_ns: load.interval_ns,
        streams: vec![(load.stream.to_owned(), *load.arrival != Arrival::Closed)],
        watch,
        pinned_cpus: load.cpus.to_vec(),
    };
    let mut finished = Vec::new();
    let (control, emit) = stage.parts();
    let mut with_counters = |event| match event {
        Event::Interval(mut interval) => {
            interval.oltp = Some(Published::sum(&published));
            emit(Event::Interval(interval));
        }
        other => emit(other),
    };
    let result = execute(supervision, jobs, control, &mut with_counters, |returned| {
        finished = gather(returned)?;
        Ok::<_, OltpError>(job_results(load, &finished))
    })?;
    let vanished_ns = vanished_ns.into_inner();
    Ok(Measured {
        result,
        transactions: transactions(&finished),
        counters: counters(&finished),
        acknowledged: load
            .acknowledged
            .map(|_| finished.iter().map(|terminal| terminal.acknowledged).sum()),
        server_vanished_ns: (vanished_ns < u64::MAX).then_some(vanished_ns),
    })
}

/// What makes threads out of terminals.
#[derive(Clone, Copy)]
struct Threads<'a> {
    load: &'a Load<'a>,
    seed: u64,
    common: &'a Common<'a>,
    shared: &'a Shared,
}

impl<'a> Threads<'a> {
    fn job<W: Work>(
        self,
        number: u32,
        published: &'a Published,
        connect: &'a (dyn Fn(u32) -> Result<W, OltpError> + Sync),
    ) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate, recorder| {
            pin(self.load.cpus, number);
            let returned = self.work(number, published, connect, gate, recorder);
            if returned.is_err() {
                self.shared.stop();
            }
            returned.map_err(|error| error.at(format!("stream `{}`", self.load.stream)))
        })
    }

    fn work<W: Work>(
        self,
        number: u32,
        published: &'a Published,
        connect: &(dyn Fn(u32) -> Result<W, OltpError> + Sync),
        gate: &Gate<'_>,
        recorder: Recorder,
    ) -> Returned {
        let ready = connect(number).and_then(|work| {
            let log = self.load.acknowledged;
            let log = log
                .map(|log| Log::create(Path::new(&log.directory), number))
                .transpose()?;
            Ok((work, log))
        });
        let (work, log) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                gate.cancel();
                return Err(error);
            }
        };
        let plan = PhasePlan {
            ramp: (self.load.ramp_ns > 0).then_some(Budget::UNLIMITED),
            measure: Budget::UNLIMITED,
            duration_ns: Some(self.load.duration_ns),
            active: None,
            largest_bytes: 0,
        };
        let terminal = Terminal {
            work,
            common: self.common,
            phases: JobPhases::new(plan, self.shared, recorder),
            arrivals: Arrivals::new(self.load.arrival, self.load.terminals, number, 0, self.seed, 0),
            log,
            published,
        };
        if !gate.pass() {
            return Ok(None);
        }
        terminal.drive().map(Some)
    }
}

/// What all terminals did, or the first failure among them.
fn gather(returned: Vec<std::thread::Result<Returned>>) -> Result<Vec<Finished>, OltpError> {
    let mut finished = Vec::new();
    for joined in returned {
        let panicked = |_| {
            let hint = "please report this with the spec that caused it";
            OltpError::new(Code::Internal, "a terminal's thread panicked", hint)
        };
        finished.extend(joined.map_err(panicked)??);
    }
    Ok(finished)
}

fn job_results(load: &Load<'_>, finished: &[Finished]) -> HarnessFinished {
    HarnessFinished {
        end_ns: finished.iter().map(|terminal| terminal.totals.end_ns).max(),
        jobs: finished
            .iter()
            .zip(0..)
            .map(|(terminal, job)| JobResult {
                stream: load.stream.to_owned(),
                job,
                operations: terminal.totals.operations,
                bytes: terminal.totals.bytes,
                last_completion_ns: terminal.totals.last_completion_ns,
                usage: terminal.totals.usage,
                abandoned: 0,
                schedule: terminal.schedule,
                pacing: Some(terminal.totals.pacing),
            })
            .collect(),
        backend: BackendInEffect {
            kind: load.kind.name().into(),
            ..BackendInEffect::default()
        },
    }
}

fn transactions(finished: &[Finished]) -> Vec<TransactionResult> {
    let of = |operation: Operation| {
        let mut sum = Tally::default();
        for tally in finished.iter().map(|terminal| terminal.tallies[operation as usize]) {
            sum.completed += tally.completed;
            sum.rolled_back += tally.rolled_back;
            sum.failed += tally.failed;
            sum.serialization_failures += tally.serialization_failures;
            sum.deadlocks += tally.deadlocks;
            sum.lock_timeouts += tally.lock_timeouts;
            sum.skipped_districts += tally.skipped_districts;
        }
        TransactionResult {
            operation,
            completed: sum.completed,
            rolled_back: sum.rolled_back,
            failed: sum.failed,
            serialization_failures: sum.serialization_failures,
            deadlocks: sum.deadlocks,
            lock_timeouts: sum.lock_timeouts,
            skipped_districts: sum.skipped_districts,
        }
    };
    let all = Operation::ALL.into_iter().map(of);
    all.filter(|result| result.completed + result.failed > 0).collect()
}

fn counters(finished: &[Finished]) -> OltpCounters {
    finished
        .iter()
        .fold(OltpCounters::default(), |sum, terminal| OltpCounters {
            statements: sum.statements + terminal.counters.statements,
            round_trips: sum.round_trips + terminal.counters.round_trips,
            sent_bytes: sum.sent_bytes + terminal.counters.sent_bytes,
            received_bytes: sum.received_bytes + terminal.counters.received_bytes,
            aborted_attempts: sum.aborted_attempts + terminal.counters.aborted_attempts,
            failed_transactions: sum.failed_transactions + terminal.counters.failed_transactions,
        })
}
