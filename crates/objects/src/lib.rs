//! The objects workload: writes, reads and deletes of whole objects in an object store.
//!
//! [`Objects`] lists its steps. `store` is what a store has to offer, `rados`, `s3` and `memory` are stores, `content` is what
//! objects contain, `bulk` loads and deletes, `job` is the measuring loop.

mod bulk;
mod check;
mod content;
mod job;
mod memory;
mod rados;
mod s3;
mod store;

use iosonde_harness::load::Rng;
use iosonde_harness::{JobDone, JobStart, Load, LoadPlan, Measured, Run, RunError, RunInputs, StreamPlan, Workload};
use iosonde_protocol::{
    BackendInEffect, ObjectOperation, ObjectStore, ObjectStream, ObjectsResult, ObjectsWorkload, Phase, Ramp,
    RunResult, Warning,
};

use crate::content::Contents;
use crate::job::{Choice, Failed, Flight, Found, Job};
use crate::memory::Memory;
use crate::rados::{Endpoint, Rados};
use crate::s3::S3;
use crate::store::{Session, Store};

/// Separates the choice of objects from other random numbers of a run.
const CHOICE: u64 = 0x0b1e_c700;

/// The objects workload of a spec.
pub struct Objects<'a>(pub &'a ObjectsWorkload);

impl Workload for Objects<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        Some(plan(self.0))
    }

    fn check(&self) -> Result<(), RunError> {
        check::check(self.0)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let (workload, clock) = (self.0, run.inputs.clock);
        match &workload.store {
            ObjectStore::Memory => run_on(workload, &Memory::new(clock), run),
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
                    timeout_ns: workload.timeout_ns,
                };
                run_on(workload, &Rados::connect(&endpoint, clock)?, run)
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
                    timeout_ns: workload.timeout_ns,
                };
                run_on(workload, &S3::connect(&endpoint, clock)?, run)
            }
        }
    }
}

fn plan(workload: &ObjectsWorkload) -> LoadPlan<'_> {
    let streams = workload.streams.iter().map(|stream| StreamPlan {
        arrival: &stream.arrival,
        largest_bytes: workload.object_bytes,
        ..StreamPlan::closed(&stream.name, stream.jobs, &stream.cpus)
    });
    LoadPlan {
        ramp: Ramp {
            duration_ns: workload.ramp_ns,
            ..Ramp::default()
        },
        duration_ns: Some(workload.duration_ns),
        interval_ns: workload.interval_ns,
        streams: streams.collect(),
    }
}

/// Loads what is read, measures, and deletes.
fn run_on(workload: &ObjectsWorkload, store: &dyn Store, run: &mut Run<'_>) -> Result<RunResult, RunError> {
    let contents = Contents::new(workload.content_seed, workload.object_bytes as usize);
    let load = Operations {
        workload,
        store,
        contents: &contents,
        inputs: run.inputs,
    };
    let (client, library) = store.client();
    let mut facts = ObjectsResult {
        client,
        library,
        ..ObjectsResult::default()
    };
    if workload.streams.iter().any(reads) {
        let fill = |session: &mut dyn Session, slot, object| {
            contents.fill(object, session.buffer(slot));
            session.write(slot, object)
        };
        facts.loaded = load.each_object(run, Phase::Layout, "write", workload.objects, fill)?;
    }
    let Measured { mut result, found } = run.measure(&plan(workload), &load, &mut |_| {})?;
    if workload.delete_after {
        let used = found.iter().map(|found| found.used).max().unwrap_or(0);
        let delete = |session: &mut dyn Session, slot, object| session.delete(slot, object);
        facts.deleted = load.each_object(run, Phase::Settle, "delete", facts.loaded.max(used), delete)?;
    }
    facts.checked = found.iter().map(|found| found.checked).sum();
    facts.wrong = found.iter().map(|found| found.wrong).sum();
    facts.first_wrong = found.iter().find_map(|found| found.first_wrong).map(name);
    warn_of(run, &facts);
    result.backend = BackendInEffect {
        kind: match workload.store {
            ObjectStore::Rados { .. } => "rados".into(),
            ObjectStore::Memory => "memory".into(),
            ObjectStore::S3 { .. } => "s3".into(),
        },
        ..BackendInEffect::default()
    };
    result.layout.written_bytes = facts.loaded * workload.object_bytes;
    result.objects = Some(facts);
    Ok(result)
}

fn warn_of(run: &mut Run<'_>, facts: &ObjectsResult) {
    let Some(first) = &facts.first_wrong else { return };
    run.warn(Warning {
        code: "wrong_objects".into(),
        message: format!(
            "{} of {} reads did not return what was written, the first one of `{first}`",
            facts.wrong, facts.checked
        ),
        hint: "the cluster or a device below it returned wrong data; see its messages and the kernel log".into(),
    });
}

/// The load: what its jobs share.
struct Operations<'a> {
    workload: &'a ObjectsWorkload,
    store: &'a dyn Store,
    contents: &'a Contents,
    inputs: RunInputs<'a>,
}

impl Operations<'_> {
    /// Does something with each of the first objects, in a phase; returns how many there were.
    fn each_object(
        &self,
        run: &mut Run<'_>,
        phase: Phase,
        verb: &str,
        objects: u64,
        start: impl FnMut(&mut dyn Session, u32, u64) -> Result<(), i32>,
    ) -> Result<u64, RunError> {
        if objects == 0 {
            return Ok(0);
        }
        let bytes = self.workload.object_bytes;
        let depth = bulk::depth(bytes, objects);
        let mut session = self.store.session(depth, bytes as usize)?;
        run.begin(phase);
        let turn = |completed: u64| run.progress(phase, completed * bytes);
        let done = bulk::each_object(session.as_mut(), objects, depth, start, turn);
        let done = done.map_err(|(object, result)| self.failure(verb, Failed { object, result }))?;
        run.end(phase, done * bytes);
        Ok(done)
    }

    fn choice(&self, stream: &ObjectStream, number: usize, job: u32) -> Choice {
        match stream.operation {
            ObjectOperation::RandomRead => {
                Choice::Random(Rng::new(self.inputs.seed, &[CHOICE, number as u64, u64::from(job)]))
            }
            _ => Choice::Sequential {
                next: u64::from(job),
                step: u64::from(stream.jobs),
            },
        }
    }

    fn failure(&self, verb: &str, Failed { object, result }: Failed) -> RunError {
        let reason = self.store.explain(result);
        RunError {
            message: format!("cannot {verb} the object `{}`: {}", name(object), reason.message),
            ..reason
        }
    }
}

impl Load for Operations<'_> {
    type Found = Found;

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<Found>>, RunError> {
        let (workload, number) = (self.workload, start.place.stream);
        let stream = &workload.streams[number];
        let job = Job {
            session: self.store.session(stream.queue_depth, workload.object_bytes as usize)?,
            clock: self.inputs.clock,
            contents: self.contents,
            object_bytes: workload.object_bytes,
            objects: workload.objects,
            operation: stream.operation,
            choice: self.choice(stream, number, start.place.job),
            arrivals: start.arrivals,
            phases: start.phases,
            flight: Flight::new(stream.queue_depth),
        };
        if !start.gate.pass() {
            return Ok(None);
        }
        let verb = if reads(stream) { "read" } else { "write" };
        job.drive().map(Some).map_err(|failed| self.failure(verb, failed))
    }
}

fn reads(stream: &ObjectStream) -> bool {
    stream.operation != ObjectOperation::Write
}

fn name(object: u64) -> String {
    format!("iosonde-{object:012}")
}

#[cfg(test)]
mod tests;
