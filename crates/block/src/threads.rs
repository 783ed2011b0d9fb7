//! Runs a workload's jobs in real time, one thread each, on files or on nothing.

use std::os::fd::{AsRawFd, RawFd};

use iosonde_harness::{JobDone, JobStart, Load, Measured, Run, RunError, RunInputs};
use iosonde_protocol::{Backend, BackendInEffect, BlockWorkload, Durability, IoMode, RunResult, Stream, Warning};

use crate::backend::{self, JobFiles};
use crate::buffer::{Arena, available_memory_bytes};
use crate::error::IoFailure;
use crate::job::{Job, JobPlan, drive};
use crate::prepare::{self, largest_bytes};
use crate::target::{self, StreamFiles};
use crate::transport::{Done, JobResources, Transport, Wanted, Work, allow_uring, has_abandoned};
use crate::verify::{JobVerifier, Session};
use crate::{error, evidence};

/// Descriptor where the engine opens no file.
const NO_FILE: RawFd = -1;
/// Hint where memory does not suffice.
const SMALLER: &str = "use fewer jobs, a smaller queue depth or smaller blocks";
/// Buffers may take this share of the free memory.
const MEMORY_SHARE: f64 = 0.8;

/// Carries the workload out in real time.
pub(crate) fn measure(
    workload: &BlockWorkload,
    verification: Option<&Session>,
    run: &mut Run<'_>,
) -> Result<RunResult, RunError> {
    let targets = run.inputs.targets;
    let files = workload
        .streams
        .iter()
        .map(|stream| target::open_stream(targets, workload, stream))
        .collect::<Result<Vec<_>, _>>()?;
    let transports = choose_transports(workload, &files, run)?;
    check_memory(workload)?;
    let ios = Ios {
        workload,
        inputs: run.inputs,
        files: &files,
        transports: &transports,
        verification,
    };
    let before = evidence::examine(targets, workload);
    let Measured { mut result, found } = run.measure(&prepare::load_plan(workload), &ios, &mut |_| {})?;
    let after = evidence::examine(targets, workload);
    evidence::add(result.evidence.get_or_insert_default(), &before, &after);
    result.buffer_bytes = found.iter().map(|found| found.buffer_bytes).sum();
    for found in found {
        merge_effects(&mut result.backend, found.in_effect);
    }
    Ok(result)
}

/// Finds out, stream by stream, what the kernel supports, and warns where it is less than requested.
fn choose_transports(
    workload: &BlockWorkload,
    files: &[StreamFiles],
    run: &mut Run<'_>,
) -> Result<Vec<Transport>, RunError> {
    if let Some(transports) = Transport::take_over(workload)? {
        return Ok(transports);
    }
    workload
        .streams
        .iter()
        .zip(files)
        .map(|(stream, files)| choose_transport(workload, stream, files, run))
        .collect()
}

fn choose_transport(
    workload: &BlockWorkload,
    stream: &Stream,
    files: &StreamFiles,
    run: &mut Run<'_>,
) -> Result<Transport, RunError> {
    let only_reads_and_writes = stream.mix.trim_fraction == 0.0
        && !matches!(stream.durability, Durability::Flush { .. })
        && stream.io_mode == IoMode::Direct;
    let (transport, refused) = Transport::choose(&Wanted {
        backend: &workload.backend,
        file: files.files.first(),
        queue_depth: stream.queue_depth,
        may_poll: only_reads_and_writes,
        largest_bytes: largest_bytes(stream),
        durable_writes: stream.durability == Durability::Dsync,
    })
    .map_err(|why| why.into_error(&workload.backend))?;
    if let Some(error) = refused {
        run.warn(uring_refused(&stream.name, &error));
    }
    Ok(transport)
}

fn uring_refused(stream: &str, error: &std::io::Error) -> Warning {
    Warning {
        code: "uring_unavailable".into(),
        message: format!(
            "stream `{stream}` runs with backend `sync`, one thread for each I/O in flight: io_uring failed: {error}"
        ),
        hint: format!("{}: threads cost more CPU and reach fewer IOPS", allow_uring(error)),
    }
}

fn check_memory(workload: &BlockWorkload) -> Result<(), RunError> {
    if matches!(workload.backend, Backend::Null) {
        return Ok(());
    }
    let needed: u64 = workload
        .streams
        .iter()
        .map(|stream| u64::from(stream.jobs) * u64::from(stream.queue_depth) * largest_bytes(stream))
        .sum();
    let available = available_memory_bytes();
    if needed as f64 > available as f64 * MEMORY_SHARE {
        let message = format!("the I/O buffers need {needed} bytes and {available} are available");
        return Err(RunError::unsupported(message, SMALLER));
    }
    Ok(())
}

/// A feature counts as in effect when every job has it; refusals are listed once.
pub fn merge_effects(sum: &mut BackendInEffect, part: BackendInEffect) {
    if sum.kind.is_empty() {
        *sum = part;
        return;
    }
    if sum.kind != part.kind {
        sum.kind = "mixed".into();
    }
    sum.features.retain(|feature| part.features.contains(feature));
    for fallback in part.fallbacks {
        if !sum.fallbacks.contains(&fallback) {
            sum.fallbacks.push(fallback);
        }
    }
}

/// The load: what its threads share.
struct Ios<'a> {
    workload: &'a BlockWorkload,
    inputs: RunInputs<'a>,
    files: &'a [StreamFiles],
    transports: &'a [Transport],
    verification: Option<&'a Session>,
}

/// Results of a thread.
struct Found {
    in_effect: BackendInEffect,
    failure: Option<IoFailure>,
    buffer_bytes: u64,
}

impl Load for Ios<'_> {
    type Found = Found;

    fn lanes(&self, stream: usize) -> u32 {
        self.transports[stream].lanes()
    }

    fn job(&self, start: JobStart<'_>) -> Done<Found> {
        let place = start.place;
        let stream = &self.workload.streams[place.stream];
        let (files, transport) = (&self.files[place.stream], &self.transports[place.stream]);
        let plan = prepare::plan(self.workload, self.inputs.seed, place)?;
        let arena = self.arena(transport, &plan, largest_bytes(stream))?;
        let resources = JobResources {
            clock: self.inputs.clock,
            queue_depth: plan.queue_depth,
            spin_ns: stream.spin_ns,
            files: arena.as_ref().map(|arena| JobFiles {
                fd: files.of_job(place.job).0.map_or(NO_FILE, AsRawFd::as_raw_fd),
                arena,
                spin_ns: stream.spin_ns,
            }),
        };
        let verifier = self.verification.map(|session| {
            let path = files.of_job(place.job).1;
            session.of_job(path, stream, plan.queue_depth)
        });
        let worker = Worker {
            verification: self.verification,
            verifier,
            plan,
            arena: arena.as_ref(),
            start,
        };
        let done = transport.drive(worker, &resources);
        if let (true, Some(arena)) = (has_abandoned(&done), arena) {
            // I/Os that never came back may still write to their buffers.
            arena.leak();
        }
        match done {
            Ok(Some(JobDone {
                found: Found {
                    failure: Some(failure), ..
                },
                ..
            })) => Err(error::io_failed(files.of_job(place.job).1, &failure)),
            done => done,
        }
    }
}

impl Ios<'_> {
    /// Buffers of a thread; none where nothing is moved.
    fn arena(&self, transport: &Transport, plan: &JobPlan, slot_bytes: u64) -> Result<Option<Arena>, RunError> {
        if matches!(self.workload.backend, Backend::Null) {
            return Ok(None);
        }
        let arena = transport.arena(plan.queue_depth, slot_bytes);
        arena
            .map(Some)
            .map_err(|error| RunError::unsupported(format!("no memory for the I/O buffers: {error}"), SMALLER))
    }
}

struct Worker<'a> {
    verification: Option<&'a Session>,
    verifier: Option<JobVerifier<'a>>,
    plan: JobPlan,
    arena: Option<&'a Arena>,
    start: JobStart<'a>,
}

impl Work for Worker<'_> {
    type Found = Found;

    fn run<B: backend::Backend>(self, backend: &mut B) -> Done<Found> {
        let JobStart {
            phases, arrivals, gate, ..
        } = self.start;
        let mut job = Job::new(self.plan, phases, arrivals, self.arena).verified(self.verifier);
        if !gate.pass() {
            return Ok(None);
        }
        let driven = drive(&mut job, backend);
        let JobDone {
            totals,
            schedule,
            abandoned,
            found,
        } = job.into_done(backend.spun_ns());
        if let (Some(session), Some(tally)) = (self.verification, found.tally) {
            session.add(tally);
        }
        driven.map_err(|error| RunError::internal(format!("the kernel refused to take or return I/Os: {error}")))?;
        Ok(Some(JobDone {
            totals,
            schedule,
            abandoned,
            found: Found {
                in_effect: backend.in_effect(),
                failure: found.failure.map(|failure| IoFailure {
                    cause: backend.failure_cause(),
                    ..failure
                }),
                buffer_bytes: self.arena.map_or(0, |arena| arena.bytes() as u64),
            },
        }))
    }
}
