//! Runs a workload's jobs on an open store, one thread each.

use std::sync::atomic::{AtomicU32, Ordering};

use iosonde_harness::{
    Budget, Control, Course, CourseOutcome, CoursePlan, Finished, Gate, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_load::{Arrivals, Rng};
use iosonde_metrics::device::DeviceWatch;
use iosonde_protocol::{
    Arrival, BackendInEffect, Event, JobResult, KvOperation, KvStream, KvWorkload, Operation, RunResult,
    ScheduleResult, StoreCheck,
};

use crate::Run;
use crate::choice::{Chooser, Inserts};
use crate::error::{Code, KvError};
use crate::job::{Common, Job, JobPlan, Tallies};
use crate::store::Store;

/// What the measurement leaves.
pub(crate) struct Measured {
    /// Without what is known of the store.
    pub result: RunResult,
    pub checks: Vec<StoreCheck>,
    pub first_corrupted: Option<u64>,
}

/// Carries out ramp and measurement.
pub(crate) fn run(
    run: &Run<'_>,
    store: &dyn Store,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<Measured, KvError> {
    let workload = run.workload;
    set_sync(&workload.streams, store)?;
    let watch = DeviceWatch::open(&run.observe.block_devices).map_err(|error| {
        KvError::invalid(
            error.to_string(),
            "`observe.block_devices`",
            "name devices as `major:minor`, as in `lsblk`",
        )
    })?;
    let seats = seats(&workload.streams);
    let inserters = seats.iter().filter(|seat| seat.inserter.is_some()).count();
    let inserts = Inserts::new(workload.records.count, inserters);
    let foreground = AtomicU32::new(foreground_jobs(&workload.streams));
    let common = Common {
        clock: run.clock,
        contents: &run.contents,
        inserts: &inserts,
        foreground: &foreground,
    };
    let shared = Shared::default();
    let crew = Crew {
        run,
        store,
        common: &common,
        shared: &shared,
    };
    let jobs = seats.iter().map(|seat| (seat.stream, crew.job(*seat))).collect();
    let supervision = Supervision {
        clock: run.clock,
        shared: &shared,
        ramp_ns: workload.ramp.duration_ns,
        ramp_may_end_early: workload.ramp.bytes.is_some(),
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: workload
            .streams
            .iter()
            .map(|stream| (stream.name.clone(), stream.arrival != Arrival::Closed))
            .collect(),
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
        let ended = gather(&workload.streams, &seats, returned)?;
        found = checks(&workload.streams, &seats, &ended);
        first_corrupted = ended.iter().find_map(|ended| ended.first_corrupted);
        Ok::<_, KvError>(finished(workload, &seats, &ended))
    })?;
    Ok(Measured {
        result,
        checks: found,
        first_corrupted,
    })
}

fn finished(workload: &KvWorkload, seats: &[Seat], ended: &[Ended]) -> Finished {
    Finished {
        end_ns: ended.iter().map(|ended| ended.course.end_ns).max(),
        jobs: seats
            .iter()
            .zip(ended)
            .map(|(seat, ended)| job_result(&workload.streams[seat.stream], seat, ended))
            .collect(),
        backend: BackendInEffect {
            kind: workload.store.kind.name().into(),
            ..BackendInEffect::default()
        },
    }
}

/// A job's place in the run.
#[derive(Debug, Clone, Copy)]
struct Seat {
    stream: usize,
    job: u32,
    /// Which of the inserting jobs it is.
    inserter: Option<usize>,
}

fn seats(streams: &[KvStream]) -> Vec<Seat> {
    let mut inserters = 0;
    let mut seats = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let inserts = stream
            .operations
            .iter()
            .any(|share| share.operation == KvOperation::Insert);
        for job in 0..stream.jobs {
            let inserter = inserts.then_some(inserters);
            inserters += usize::from(inserts);
            seats.push(Seat {
                stream: number,
                job,
                inserter,
            });
        }
    }
    seats
}

fn foreground_jobs(streams: &[KvStream]) -> u32 {
    let foreground = streams.iter().filter(|stream| !stream.background);
    foreground.map(|stream| stream.jobs).sum()
}

/// Tells a store that knows durability only as a whole; streams that write must then agree.
fn set_sync(streams: &[KvStream], store: &dyn Store) -> Result<(), KvError> {
    let writes = |stream: &&KvStream| {
        let mut operations = stream.operations.iter().map(|share| share.operation);
        operations.any(|operation| !matches!(operation, KvOperation::Read | KvOperation::Scan | KvOperation::Iterate))
    };
    let wishes: std::collections::BTreeSet<bool> = streams.iter().filter(writes).map(|stream| stream.sync).collect();
    if wishes.len() > 1 && !store.has_sync_of_session() {
        return Err(KvError::unsupported(
            "this store is durable for all writers or for none, and streams differ in `sync`",
            "give all streams that write the same `sync`",
        )
        .at("`streams`"));
    }
    match wishes.first() {
        Some(sync) => store.set_sync(*sync),
        None => Ok(()),
    }
}

/// The CPUs that jobs are pinned to, each once.
fn pinned_cpus(streams: &[KvStream]) -> Vec<u32> {
    let cpus: std::collections::BTreeSet<u32> = streams.iter().flat_map(|stream| stream.cpus.clone()).collect();
    cpus.into_iter().collect()
}

/// What a job leaves.
struct Ended {
    course: CourseOutcome,
    schedule: Option<ScheduleResult>,
    tallies: Tallies,
    first_corrupted: Option<u64>,
}

/// What a job's thread returns; nothing if it did not start because another could not, which then tells why.
type Returned = Result<Option<Ended>, KvError>;

/// What all jobs have in common.
#[derive(Clone, Copy)]
struct Crew<'a> {
    run: &'a Run<'a>,
    store: &'a dyn Store,
    common: &'a Common<'a>,
    shared: &'a Shared,
}

impl<'a> Crew<'a> {
    /// A job's thread: prepares, waits for the others, runs the loop.
    fn job(self, seat: Seat) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate, recorder| {
            let stream = &self.run.workload.streams[seat.stream];
            pin(&stream.cpus, seat.job);
            let worked = self.work(seat, stream, gate, recorder);
            if !stream.background {
                self.common.foreground.fetch_sub(1, Ordering::Relaxed);
            }
            if worked.is_err() {
                self.shared.stop();
            }
            worked.map_err(|error| error.at(format!("stream `{}`", stream.name)))
        })
    }

    fn work(self, seat: Seat, stream: &'a KvStream, gate: &Gate, recorder: Recorder) -> Returned {
        let session = match self.store.session() {
            Ok(session) => session,
            Err(error) => {
                gate.cancel();
                return Err(error);
            }
        };
        let course = Course::new(self.course_plan(stream, seat.job), self.shared, recorder);
        let mut job = Job::new(self.plan(seat, stream), self.common, course, session);
        if !gate.pass() {
            return Ok(None);
        }
        let driven = job.drive();
        if driven.is_err() {
            job.course.end_load(self.run.clock.now());
        }
        driven?;
        let (tallies, first_corrupted) = (job.tallies, job.first_corrupted);
        let (course, schedule) = job.into_outcome();
        Ok(Some(Ended {
            course,
            schedule,
            tallies,
            first_corrupted,
        }))
    }

    fn plan(self, seat: Seat, stream: &'a KvStream) -> JobPlan<'a> {
        let (number, job, seed) = (seat.stream as u64, seat.job, self.run.seed);
        JobPlan {
            stream,
            chooser: Chooser::new(stream, number, job, self.run.workload.records.count, seed),
            schedule: Arrivals::new(&stream.arrival, stream.jobs, job, 0, seed, number),
            inserter: seat.inserter,
            generations: Rng::new(seed, &[0x6e6, number, u64::from(job)]),
        }
    }

    fn course_plan(self, stream: &KvStream, job: u32) -> CoursePlan {
        let (jobs, job) = (u64::from(stream.jobs), u64::from(job));
        let share = |total: u64| total / jobs + u64::from(job < total % jobs);
        let ramp = self.run.workload.ramp;
        CoursePlan {
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
    seats: &[Seat],
    jobs: Vec<std::thread::Result<Returned>>,
) -> Result<Vec<Ended>, KvError> {
    let mut ended = Vec::new();
    for (joined, seat) in jobs.into_iter().zip(seats) {
        let panicked = |_| {
            let name = &streams[seat.stream].name;
            KvError::new(
                Code::Internal,
                "a job's thread panicked",
                "please report this with the spec that caused it",
            )
            .at(format!("stream `{name}`"))
        };
        ended.extend(joined.map_err(panicked)??);
    }
    Ok(ended)
}

fn job_result(stream: &KvStream, seat: &Seat, ended: &Ended) -> JobResult {
    JobResult {
        stream: stream.name.clone(),
        job: seat.job,
        operations: ended.course.operations,
        bytes: ended.course.bytes,
        last_completion_ns: ended.course.last_completion_ns,
        usage: ended.course.usage,
        abandoned: 0,
        schedule: ended.schedule,
        pacing: Some(ended.course.pacing),
    }
}

/// Sums the tallies of each stream's jobs; operations that read nothing are left out.
fn checks(streams: &[KvStream], seats: &[Seat], ended: &[Ended]) -> Vec<StoreCheck> {
    let mut checks = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        for operation in Operation::ALL {
            let jobs = seats.iter().zip(ended).filter(|(seat, _)| seat.stream == number);
            let mut check = StoreCheck {
                stream: stream.name.clone(),
                operation,
                values: 0,
                missing: 0,
                corrupted: 0,
            };
            for (_, ended) in jobs {
                let tally = ended.tallies[operation as usize];
                check.values += tally.values;
                check.missing += tally.missing;
                check.corrupted += tally.corrupted;
            }
            if check.values + check.missing > 0 {
                checks.push(check);
            }
        }
    }
    checks
}
