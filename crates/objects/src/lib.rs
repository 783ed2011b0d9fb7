//! The objects workload: writes, reads and deletes of whole objects in an object store.
//!
//! [`run`] lists its steps. `store` is what a store has to offer, `rados`, `s3` and `memory` are stores, `content` is what objects
//! contain, `bulk` loads and deletes, `job` is the measuring loop.

mod bulk;
mod check;
mod content;
pub mod error;
mod job;
mod memory;
mod rados;
mod s3;
mod store;

use iosonde_harness::{
    Budget, Control, Finished, Gate, JobPhases, PhasePlan, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_load::{Arrivals, Rng};
use iosonde_metrics::DeviceWatch;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{
    Arrival, BackendInEffect, Edge, Event, JobResult, LayoutResult, ObjectOperation, ObjectStore, ObjectStream,
    ObjectsResult, ObjectsWorkload, Observe, Phase, PhaseEvent, RunResult, Warning,
};

use crate::content::Contents;
pub use crate::error::ObjectsError;
use crate::job::{Choice, Flight, Job, Outcome, Tally};
use crate::memory::Memory;
use crate::rados::{Endpoint, Rados};
use crate::s3::S3;
use crate::store::{Session, Store};

/// How often progress of loading and deleting is reported.
const REPORT_NS: u64 = 1_000_000_000;
/// Separates the choice of objects from other random numbers of a run.
const CHOICE: u64 = 0x0b1e_c700;

/// Inputs of a run.
#[derive(Clone, Copy)]
pub struct RunInputs<'a> {
    /// The workload.
    pub workload: &'a ObjectsWorkload,
    /// The run's seed.
    pub seed: u64,
    /// Devices to observe.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
}

/// Carries out an objects workload and emits its events. The caller emits the result.
///
/// # Errors
/// When the spec is wrong, the store cannot be used, or an operation fails.
pub fn run(run: &RunInputs<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, ObjectsError> {
    check::check(run.workload)?;
    match &run.workload.store {
        ObjectStore::Memory => run_on(run, &Memory::new(run.clock), control, emit),
        ObjectStore::Rados {
            library,
            config_path,
            user,
            pool,
        } => {
            let endpoint = Endpoint {
                library: library.as_deref(),
                config_path,
                user,
                pool,
                timeout_ns: run.workload.timeout_ns,
            };
            run_on(run, &Rados::connect(&endpoint, run.clock)?, control, emit)
        }
        ObjectStore::S3 {
            host,
            port,
            bucket,
            region,
        } => {
            let endpoint = s3::Endpoint {
                host,
                port: *port,
                bucket,
                region,
                timeout_ns: run.workload.timeout_ns,
            };
            run_on(run, &S3::connect(&endpoint, run.clock)?, control, emit)
        }
    }
}

fn run_on(
    run: &RunInputs<'_>,
    store: &dyn Store,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, ObjectsError> {
    let workload = run.workload;
    let contents = Contents::new(workload.content_seed, workload.object_bytes as usize);
    let (client, library) = store.client();
    let mut facts = ObjectsResult {
        client,
        library,
        ..ObjectsResult::default()
    };
    let mut steps = Steps {
        run,
        store,
        contents: &contents,
        control,
        emit,
    };
    if workload.streams.iter().any(reads) {
        let fill = |session: &mut dyn Session, slot, object| {
            contents.fill(object, session.buffer(slot));
            session.write(slot, object)
        };
        facts.loaded = steps.each_object(Phase::Layout, "write", workload.objects, fill)?;
    }
    let (mut result, tally, used) = steps.measure()?;
    if workload.delete_after {
        let delete = |session: &mut dyn Session, slot, object| session.delete(slot, object);
        facts.deleted = steps.each_object(Phase::Settle, "delete", facts.loaded.max(used), delete)?;
    }
    facts.checked = tally.checked;
    facts.wrong = tally.wrong;
    facts.first_wrong = tally.first_wrong.map(|object| format!("iosonde-{object:012}"));
    steps.warn_of(&facts);
    result.layout = LayoutResult {
        written_bytes: facts.loaded * workload.object_bytes,
        kept_bytes: 0,
    };
    result.objects = Some(facts);
    Ok(result)
}

/// The steps of a run.
struct Steps<'a, 'r> {
    run: &'a RunInputs<'r>,
    store: &'a dyn Store,
    contents: &'a Contents,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
}

impl Steps<'_, '_> {
    /// Does something with each of the first objects, in a phase; returns how many there were.
    fn each_object(
        &mut self,
        phase: Phase,
        verb: &str,
        objects: u64,
        start: impl FnMut(&mut dyn Session, u32, u64) -> Result<(), i32>,
    ) -> Result<u64, ObjectsError> {
        if objects == 0 {
            return Ok(0);
        }
        let bytes = self.run.workload.object_bytes;
        let depth = bulk::depth(bytes, objects);
        let mut session = self.store.session(depth, bytes as usize)?;
        self.report(phase, Edge::Begin, 0);
        let clock = self.run.clock;
        let mut reported_ns = clock.now();
        let mut turn = |completed: u64| {
            if clock.now() >= reported_ns + REPORT_NS {
                reported_ns = clock.now();
                self.report(phase, Edge::Progress, completed * bytes);
            }
            !self.control.is_stopped()
        };
        let done = bulk::each_object(session.as_mut(), objects, depth, start, &mut turn);
        let done = done.map_err(|(object, result)| self.failure(verb, object, result))?;
        self.report(phase, Edge::End, done * bytes);
        Ok(done)
    }

    /// Ramp and measurement; returns what came of reads, and how many objects were used.
    fn measure(&mut self) -> Result<(RunResult, Tally, u64), ObjectsError> {
        let (run, workload) = (self.run, self.run.workload);
        let shared = Shared::default();
        let threads = Threads {
            run,
            store: self.store,
            contents: self.contents,
            shared: &shared,
        };
        let planned: Vec<(usize, u32)> = workload
            .streams
            .iter()
            .enumerate()
            .flat_map(|(stream, plan)| (0..plan.jobs).map(move |job| (stream, job)))
            .collect();
        let jobs = planned
            .iter()
            .map(|&(stream, job)| (stream, threads.job(stream, job)))
            .collect();
        let cpus: std::collections::BTreeSet<u32> =
            workload.streams.iter().flat_map(|stream| stream.cpus.clone()).collect();
        let supervision = Supervision {
            clock: run.clock,
            shared: &shared,
            ramp_ns: workload.ramp_ns,
            ramp_may_end_early: false,
            ramp_until_steady: None,
            duration_ns: Some(workload.duration_ns),
            interval_ns: workload.interval_ns,
            streams: workload
                .streams
                .iter()
                .map(|stream| (stream.name.clone(), stream.arrival != Arrival::Closed))
                .collect(),
            watch: DeviceWatch::open(&run.observe.block_devices)?,
            pinned_cpus: cpus.into_iter().collect(),
        };
        let (mut tally, mut used) = (Tally::default(), 0);
        let store = self.store;
        let result = execute(supervision, jobs, self.control, &mut *self.emit, |returned| {
            let outcomes = gather(returned)?;
            for (outcome, &(stream, _)) in outcomes.iter().zip(&planned) {
                if let Some(failed) = outcome.failed {
                    let verb = verb(&workload.streams[stream]);
                    return Err(failure(store, verb, failed.object, failed.result));
                }
                tally.checked += outcome.tally.checked;
                tally.wrong += outcome.tally.wrong;
                tally.first_wrong = tally.first_wrong.or(outcome.tally.first_wrong);
                used = used.max(outcome.used);
            }
            Ok(finished(workload, &planned, outcomes))
        })?;
        Ok((result, tally, used))
    }

    fn warn_of(&mut self, facts: &ObjectsResult) {
        let Some(first) = &facts.first_wrong else { return };
        (self.emit)(Event::Warning(Warning {
            code: "wrong_objects".into(),
            message: format!(
                "{} of {} reads did not return what was written, the first one of `{first}`",
                facts.wrong, facts.checked
            ),
            hint: "the cluster or a device below it returned wrong data; see its messages and the kernel log".into(),
        }));
    }

    fn failure(&self, verb: &str, object: u64, result: i32) -> ObjectsError {
        failure(self.store, verb, object, result)
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) {
        let at_ns = self.run.clock.now();
        (self.emit)(Event::Phase(PhaseEvent {
            phase,
            edge,
            at_ns,
            bytes,
        }));
    }
}

/// What the jobs of a run share.
#[derive(Clone, Copy)]
struct Threads<'a> {
    run: &'a RunInputs<'a>,
    store: &'a dyn Store,
    contents: &'a Contents,
    shared: &'a Shared,
}

/// What a job's thread returns; nothing if the run was cancelled before it started.
type Returned = Result<Option<Outcome>, ObjectsError>;

impl<'a> Threads<'a> {
    fn job(self, number: usize, job: u32) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate: &Gate<'_>, recorder: Recorder| {
            let workload = self.run.workload;
            let stream = &workload.streams[number];
            pin(&stream.cpus, job);
            let session = match self.store.session(stream.queue_depth, workload.object_bytes as usize) {
                Ok(session) => session,
                Err(error) => {
                    gate.cancel();
                    return Err(error);
                }
            };
            let job = Job {
                session,
                clock: self.run.clock,
                contents: self.contents,
                object_bytes: workload.object_bytes,
                objects: workload.objects,
                operation: stream.operation,
                choice: self.choice(stream, number, job),
                arrivals: Arrivals::new(&stream.arrival, stream.jobs, job, 0, self.run.seed, number as u64),
                phases: JobPhases::new(self.phase_plan(), self.shared, recorder),
                flight: Flight::new(stream.queue_depth),
            };
            if !gate.pass() {
                return Ok(None);
            }
            let outcome = job.drive();
            if outcome.failed.is_some() {
                self.shared.stop();
            }
            Ok(Some(outcome))
        })
    }

    fn choice(self, stream: &ObjectStream, number: usize, job: u32) -> Choice {
        match stream.operation {
            ObjectOperation::RandomRead => {
                Choice::Random(Rng::new(self.run.seed, &[CHOICE, number as u64, u64::from(job)]))
            }
            _ => Choice::Sequential {
                next: u64::from(job),
                step: u64::from(stream.jobs),
            },
        }
    }

    fn phase_plan(self) -> PhasePlan {
        PhasePlan {
            ramp: (self.run.workload.ramp_ns > 0).then_some(Budget::UNLIMITED),
            measure: Budget::UNLIMITED,
            duration_ns: Some(self.run.workload.duration_ns),
            active: None,
            largest_bytes: self.run.workload.object_bytes,
        }
    }
}

fn gather(returned: Vec<std::thread::Result<Returned>>) -> Result<Vec<Outcome>, ObjectsError> {
    let mut outcomes = Vec::new();
    for joined in returned {
        let panicked = |_| {
            let hint = "please report this with the spec that caused it";
            ObjectsError::new("internal", "a job's thread panicked", hint)
        };
        outcomes.extend(joined.map_err(panicked)??);
    }
    Ok(outcomes)
}

fn finished(workload: &ObjectsWorkload, planned: &[(usize, u32)], outcomes: Vec<Outcome>) -> Finished {
    Finished {
        end_ns: outcomes.iter().map(|outcome| outcome.totals.end_ns).max(),
        jobs: planned
            .iter()
            .zip(outcomes)
            .map(|(&(stream, job), outcome)| JobResult {
                stream: workload.streams[stream].name.clone(),
                job,
                operations: outcome.totals.operations,
                bytes: outcome.totals.bytes,
                last_completion_ns: outcome.totals.last_completion_ns,
                usage: outcome.totals.usage,
                abandoned: outcome.abandoned,
                schedule: outcome.schedule,
                pacing: Some(outcome.totals.pacing),
            })
            .collect(),
        backend: BackendInEffect {
            kind: match workload.store {
                ObjectStore::Rados { .. } => "rados".into(),
                ObjectStore::Memory => "memory".into(),
                ObjectStore::S3 { .. } => "s3".into(),
            },
            ..BackendInEffect::default()
        },
    }
}

fn reads(stream: &ObjectStream) -> bool {
    stream.operation != ObjectOperation::Write
}

fn verb(stream: &ObjectStream) -> &'static str {
    if reads(stream) { "read" } else { "write" }
}

fn failure(store: &dyn Store, verb: &str, object: u64, result: i32) -> ObjectsError {
    let (code, reason, hint) = store.explain(result);
    ObjectsError::new(
        code,
        format!("cannot {verb} the object `iosonde-{object:012}`: {reason}"),
        hint,
    )
}

#[cfg(test)]
mod tests;
