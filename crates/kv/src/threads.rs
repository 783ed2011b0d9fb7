//! Runs the jobs of a workload on an open store, one thread each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use iosonde_harness::{
    Budget, Control, Finished, Gate, JobPhases, JobTotals, PhasePlan, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_load::{Arrivals, Rng};
use iosonde_metrics::device::DeviceWatch;
use iosonde_protocol::{
    Arrival, BackendInEffect, Database, Event, JobResult, KeyOrder, KvChoice, KvOperation, KvStream, KvWorkload,
    Operation, Outcome, RunResult, ScheduleResult, StoreCheck, StoreDurability,
};

use crate::choice::{Chooser, Inserts};
use crate::error::{Code, KvError};
use crate::freshness::Freshness;
use crate::job::{Common, Job, JobPlan, Tallies};
use crate::sample::Sample;
use crate::store::Store;
use crate::trace::{OwnTiming, Replay, Trace};
use crate::{RunInputs, must_be_complete};

/// Outcome of the measurement.
pub(crate) struct Measured {
    /// Without facts about the store.
    pub result: RunResult,
    pub checks: Vec<StoreCheck>,
    pub first_corrupted: Option<u64>,
}

/// Carries out ramp and measurement, on sampled keys of a user's database or a trace if there is one.
pub(crate) fn run(
    run: &RunInputs<'_>,
    store: &dyn Store,
    sample: Option<&Sample>,
    trace: Option<&Trace>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<Measured, KvError> {
    let workload = run.workload;
    set_sync(&workload.streams, store)?;
    let watch = watch(&run.observe.block_devices)?;
    let planned_jobs = planned_jobs(&workload.streams);
    let inserters = planned_jobs.iter().filter(|planned| planned.inserter.is_some()).count();
    let inserts = Inserts::new(sample.map_or(workload.records.count, Sample::count), inserters);
    let foreground = AtomicU32::new(foreground_jobs(&workload.streams));
    let freshness = freshness(workload, run.seed);
    let common = Common {
        clock: run.clock,
        contents: &run.contents,
        sample,
        inserts: &inserts,
        foreground: &foreground,
        // Iterators return hashed keys in another order.
        complete_below: match must_be_complete(workload) && run.contents.sorts_by_number() {
            true => workload.records.count,
            false => 0,
        },
        freshness: freshness.as_ref(),
    };
    let shared = Shared::default();
    let workers = Workers {
        run,
        store,
        common: &common,
        shared: &shared,
        trace,
    };
    let jobs = planned_jobs
        .iter()
        .map(|planned| (planned.stream, workers.job(*planned)))
        .collect();
    let supervision = Supervision {
        clock: run.clock,
        shared: &shared,
        ramp_ns: workload.ramp.duration_ns,
        ramp_may_end_early: workload.ramp.bytes.is_some(),
        ramp_until_steady: workload.ramp.until_steady,
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: open_loops(&workload.streams),
        watch,
        pinned_cpus: pinned_cpus(&workload.streams),
    };
    let mut with_statistics = |event| match event {
        Event::Interval(mut interval) => {
            interval.store = store.statistics();
            emit(Event::Interval(interval));
        }
        other => emit(other),
    };
    let (mut found, mut first_corrupted) = (Vec::new(), None);
    let result = execute(supervision, jobs, control, &mut with_statistics, |returned| {
        let finished_jobs = gather(&workload.streams, &planned_jobs, returned)?;
        found = checks(&workload.streams, &planned_jobs, &finished_jobs);
        first_corrupted = finished_jobs.iter().find_map(|job| job.first_corrupted);
        Ok::<_, KvError>(finished(workload, &planned_jobs, &finished_jobs))
    })?;
    if trace.is_some() {
        check_replayed(&result)?;
    }
    Ok(Measured {
        result,
        checks: found,
        first_corrupted,
    })
}

/// Name of each stream, and whether it is an open loop.
fn open_loops(streams: &[KvStream]) -> Vec<(String, bool)> {
    let is_open = |stream: &KvStream| stream.arrival != Arrival::Closed;
    streams
        .iter()
        .map(|stream| (stream.name.clone(), is_open(stream)))
        .collect()
}

/// Refuses a replay that had no row left for the measurement.
fn check_replayed(result: &RunResult) -> Result<(), KvError> {
    if result.outcome == Outcome::Complete && result.jobs.iter().all(|job| job.operations == 0) {
        return Err(KvError::new(
            Code::InvalidSpec,
            "the trace ended before the measurement started",
            "use a shorter `ramp`, or a longer trace",
        ));
    }
    Ok(())
}

fn watch(devices: &[String]) -> Result<DeviceWatch, KvError> {
    DeviceWatch::open(devices).map_err(|error| {
        KvError::invalid(
            error.to_string(),
            "`observe.block_devices`",
            "name devices as `major:minor`, as in `lsblk`",
        )
    })
}

fn finished(workload: &KvWorkload, planned_jobs: &[PlannedJob], finished_jobs: &[FinishedJob]) -> Finished {
    Finished {
        end_ns: finished_jobs.iter().map(|job| job.phases.end_ns).max(),
        jobs: planned_jobs
            .iter()
            .zip(finished_jobs)
            .map(|(planned, job)| job_result(&workload.streams[planned.stream], planned, job))
            .collect(),
        backend: BackendInEffect {
            kind: workload.store.kind.name().into(),
            ..BackendInEffect::default()
        },
    }
}

/// A job's place in the run.
#[derive(Debug, Clone, Copy)]
struct PlannedJob {
    stream: usize,
    job: u32,
    /// Which of the inserting jobs it is.
    inserter: Option<usize>,
}

fn planned_jobs(streams: &[KvStream]) -> Vec<PlannedJob> {
    let mut inserters = 0;
    let mut planned_jobs = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let inserts = stream
            .operations
            .iter()
            .any(|share| share.operation == KvOperation::Insert);
        for job in 0..stream.jobs {
            let inserter = inserts.then_some(inserters);
            inserters += usize::from(inserts);
            planned_jobs.push(PlannedJob {
                stream: number,
                job,
                inserter,
            });
        }
    }
    planned_jobs
}

/// Whether the only job writes every record once, by key, into an empty database.
fn is_ordered_load(workload: &KvWorkload) -> bool {
    let [stream] = &workload.streams[..] else { return false };
    workload.database == Database::Empty
        && workload.records.key_order == KeyOrder::Number
        && stream.jobs == 1
        && stream.choice == KvChoice::Sequential
        && workload.ramp.duration_ns == 0
        && stream
            .operations
            .iter()
            .all(|share| share.operation == KvOperation::Update)
        && stream
            .limit_operations
            .is_some_and(|limit| limit <= workload.records.count)
}

/// Generations of the run, if any stream checks that values are fresh.
fn freshness(workload: &KvWorkload, seed: u64) -> Option<Freshness> {
    let is_checked = workload.streams.iter().any(|stream| stream.freshness);
    is_checked.then(|| Freshness::new(workload.records.count, Rng::new(seed, &[0xf4e5]).next_u64()))
}

fn foreground_jobs(streams: &[KvStream]) -> u32 {
    let foreground = streams.iter().filter(|stream| !stream.background);
    foreground.map(|stream| stream.jobs).sum()
}

/// Sets the durability of stores with one setting for all sessions; streams that write must then agree.
fn set_sync(streams: &[KvStream], store: &dyn Store) -> Result<(), KvError> {
    let settings = sync_settings(streams);
    if settings.len() > 1 && !store.has_sync_of_session() {
        return Err(KvError::unsupported(
            "this store has one durability for all writers, and streams differ in `sync`",
            "give all streams that write the same `sync`",
        )
        .at("`streams`"));
    }
    match settings.first() {
        Some(sync) => store.set_sync(*sync),
        None => Ok(()),
    }
}

/// The values of `sync` of all streams that write.
fn sync_settings(streams: &[KvStream]) -> BTreeSet<bool> {
    let writes = |stream: &&KvStream| {
        let mut operations = stream.operations.iter().map(|share| share.operation);
        operations.any(|operation| !matches!(operation, KvOperation::Read | KvOperation::Scan | KvOperation::Iterate))
    };
    streams.iter().filter(writes).map(|stream| stream.sync).collect()
}

/// What acknowledged writes of all streams survive; `None` if no stream writes.
pub(crate) fn durability(streams: &[KvStream], store: &dyn Store) -> Option<StoreDurability> {
    sync_settings(streams)
        .into_iter()
        .map(|sync| store.durability(sync))
        .min()
}

/// The CPUs that jobs are pinned to, each once.
fn pinned_cpus(streams: &[KvStream]) -> Vec<u32> {
    let cpus: BTreeSet<u32> = streams.iter().flat_map(|stream| stream.cpus.clone()).collect();
    cpus.into_iter().collect()
}

/// Outcome of a job.
struct FinishedJob {
    phases: JobTotals,
    schedule: Option<ScheduleResult>,
    tallies: Tallies,
    first_corrupted: Option<u64>,
}

/// Returned by a job's thread; `None` if it did not start because another job failed to.
type Returned = Result<Option<FinishedJob>, KvError>;

/// State that all jobs share.
#[derive(Clone, Copy)]
struct Workers<'a> {
    run: &'a RunInputs<'a>,
    store: &'a dyn Store,
    common: &'a Common<'a>,
    shared: &'a Shared,
    trace: Option<&'a Trace>,
}

impl<'a> Workers<'a> {
    /// A job's thread: prepares, waits for the others, runs the loop.
    fn job(self, planned: PlannedJob) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate, recorder| {
            let stream = &self.run.workload.streams[planned.stream];
            pin(&stream.cpus, planned.job);
            let worked = self.work(planned, stream, gate, recorder);
            if !stream.background {
                self.common.foreground.fetch_sub(1, Ordering::Relaxed);
            }
            if worked.is_err() {
                self.shared.stop();
            }
            worked.map_err(|error| error.at(format!("stream `{}`", stream.name)))
        })
    }

    fn work(self, planned: PlannedJob, stream: &'a KvStream, gate: &Gate, recorder: Recorder) -> Returned {
        let session = match self.store.session() {
            Ok(mut session) => {
                if is_ordered_load(self.run.workload) {
                    session.expect_ascending_keys();
                }
                session
            }
            Err(error) => {
                gate.cancel();
                return Err(error);
            }
        };
        let phases = JobPhases::new(self.phase_plan(stream, planned.job), self.shared, recorder);
        let plan = match self.plan(planned, stream) {
            Ok(plan) => plan,
            Err(error) => {
                gate.cancel();
                return Err(error);
            }
        };
        let mut job = Job::new(plan, self.common, phases, session);
        if !gate.pass() {
            return Ok(None);
        }
        let driven = job.drive();
        if driven.is_err() {
            job.phases.end_load(self.run.clock.now());
        }
        driven?;
        let (tallies, first_corrupted) = (job.tallies, job.first_corrupted);
        let (phases, schedule) = job.into_outcome();
        Ok(Some(FinishedJob {
            phases,
            schedule,
            tallies,
            first_corrupted,
        }))
    }

    fn plan(self, planned: PlannedJob, stream: &'a KvStream) -> Result<JobPlan<'a>, KvError> {
        let (number, job, seed) = (planned.stream as u64, planned.job, self.run.seed);
        let rows = self.trace.map(|trace| trace.rows(stream.jobs, job));
        Ok(JobPlan {
            stream,
            chooser: Chooser::new(stream, number, job, self.common.inserts.first(), seed),
            schedule: match (&rows, &stream.arrival) {
                (Some(rows), Arrival::Trace { speed }) => Some(Arrivals::given(Box::new(OwnTiming {
                    rows: rows.clone(),
                    speed: *speed,
                }))),
                _ => Arrivals::new(&stream.arrival, stream.jobs, job, 0, seed, number),
            },
            inserter: planned.inserter,
            generations: Rng::new(seed, &[0x6e6, number, u64::from(job)]),
            latencies: Rng::new(seed, &[0xbac, number, u64::from(job)]),
            replay: rows.map(Replay::new).transpose()?,
        })
    }

    fn phase_plan(self, stream: &KvStream, job: u32) -> PhasePlan {
        let (jobs, job) = (u64::from(stream.jobs), u64::from(job));
        let share = |total: u64| total / jobs + u64::from(job < total % jobs);
        let ramp = self.run.workload.ramp;
        PhasePlan {
            ramp: (ramp.duration_ns > 0).then(|| Budget {
                bytes: ramp.bytes.map_or(u64::MAX, share),
                ..Budget::UNLIMITED
            }),
            measure: Budget {
                bytes: stream.limit_bytes.map_or(u64::MAX, share),
                operations: stream.limit_operations.map_or(u64::MAX, share),
            },
            duration_ns: self.run.workload.duration_ns,
            active: None,
            // Sizes are known only afterwards: a limit of bytes is passed by less than one operation.
            largest_bytes: 1,
        }
    }
}

/// What all jobs did, or the first failure among them.
fn gather(
    streams: &[KvStream],
    planned_jobs: &[PlannedJob],
    jobs: Vec<std::thread::Result<Returned>>,
) -> Result<Vec<FinishedJob>, KvError> {
    let mut finished_jobs = Vec::new();
    for (joined, planned) in jobs.into_iter().zip(planned_jobs) {
        let panicked = |_| {
            let name = &streams[planned.stream].name;
            KvError::new(
                Code::Internal,
                "a job's thread panicked",
                "please report this with the spec that caused it",
            )
            .at(format!("stream `{name}`"))
        };
        finished_jobs.extend(joined.map_err(panicked)??);
    }
    Ok(finished_jobs)
}

fn job_result(stream: &KvStream, planned: &PlannedJob, finished_jobs: &FinishedJob) -> JobResult {
    JobResult {
        stream: stream.name.clone(),
        job: planned.job,
        operations: finished_jobs.phases.operations,
        bytes: finished_jobs.phases.bytes,
        last_completion_ns: finished_jobs.phases.last_completion_ns,
        usage: finished_jobs.phases.usage,
        abandoned: 0,
        schedule: finished_jobs.schedule,
        pacing: Some(finished_jobs.phases.pacing),
    }
}

/// Sums the tallies of each stream's jobs; operations that read nothing are left out.
fn checks(streams: &[KvStream], planned_jobs: &[PlannedJob], finished_jobs: &[FinishedJob]) -> Vec<StoreCheck> {
    let mut checks = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        for operation in Operation::ALL {
            let jobs = planned_jobs
                .iter()
                .zip(finished_jobs)
                .filter(|(planned, _)| planned.stream == number);
            let mut check = StoreCheck {
                stream: stream.name.clone(),
                operation,
                values: 0,
                missing: 0,
                corrupted: 0,
                stale: 0,
            };
            for (_, job) in jobs {
                let tally = job.tallies[operation as usize];
                check.values += tally.values;
                check.missing += tally.missing;
                check.corrupted += tally.corrupted;
                check.stale += tally.stale;
            }
            if check.values + check.missing > 0 {
                checks.push(check);
            }
        }
    }
    checks
}
