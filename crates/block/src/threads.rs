//! Runs a workload's jobs in real time, one thread each, on files or on nothing.

use std::os::fd::{AsRawFd, RawFd};

use iosonde_harness::{Control, Gate, Recorder, Shared, Supervision, execute, pin};
use iosonde_metrics::clock::Clock;
use iosonde_metrics::device::DeviceWatch;
use iosonde_protocol::{
    Backend, BackendInEffect, BlockWorkload, Durability, Event, IoMode, RunResult, Stream, Warning,
};
use iosonde_target::Targets;

use crate::backend::JobFiles;
use crate::buffer::{Arena, available_memory_bytes};
use crate::error::{BlockError, IoFailureText};
use crate::evidence;
use crate::job::{Job, JobOutcome, JobPlan, drive};
use crate::prepare::{self, PlannedJob};
use crate::target::{self, StreamFiles};
use crate::transport::{JobResources, Transport, Wanted, Work};
use crate::verify::{JobVerifier, Session};

/// Descriptor where the engine opens no file.
const NO_FILE: RawFd = -1;
/// Buffers may take this share of the free memory.
const MEMORY_SHARE: f64 = 0.8;

/// Carries the workload out on real time.
pub(crate) fn run(
    input: &crate::RunInputs<'_>,
    verification: Option<&Session>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, BlockError> {
    let crate::RunInputs {
        workload,
        seed,
        observe,
        clock,
        targets,
    } = *input;
    let files = open_files(targets, workload)?;
    let transports = choose_transports(workload, &files, emit)?;
    check_memory(workload)?;
    // Schedules count from 0 and are moved to the real beginning once all threads are ready.
    let planned_jobs = prepare::plans(workload, seed, 0, &|stream| transports[stream].lanes())?;
    let watch = DeviceWatch::open(&observe.block_devices).map_err(|error| {
        BlockError::invalid(
            error.to_string(),
            "`observe.block_devices`",
            "name devices as `major:minor`, as in `lsblk`",
        )
    })?;
    let arenas = arenas(workload, &transports, &planned_jobs)?;
    let buffer_bytes = arenas.iter().flatten().map(|arena| arena.bytes() as u64).sum();
    let places: Vec<(usize, u32)> = planned_jobs
        .iter()
        .map(|planned| (planned.stream, planned.job))
        .collect();
    let shared = Shared::default();
    let common = Common {
        workload,
        clock,
        shared: &shared,
        files: &files,
        transports: &transports,
        verification,
    };
    let jobs = planned_jobs
        .into_iter()
        .zip(arenas)
        .map(|(planned, arena)| (planned.stream, common.job(planned, arena)))
        .collect();
    let supervision = Supervision {
        clock,
        shared: &shared,
        ramp_ns: workload.ramp.duration_ns,
        ramp_may_end_early: workload.ramp.bytes.is_some(),
        ramp_until_steady: workload.ramp.until_steady,
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: workload
            .streams
            .iter()
            .map(|stream| (stream.name.clone(), prepare::is_open_loop(stream)))
            .collect(),
        watch,
        pinned_cpus: pinned_cpus(workload),
    };
    let before = evidence::examine(targets, workload);
    let mut result = execute(supervision, jobs, control, emit, |returned| {
        gather(&common, returned, &places)
    })?;
    let after = evidence::examine(targets, workload);
    evidence::add(result.evidence.get_or_insert_default(), &before, &after);
    result.buffer_bytes = buffer_bytes;
    Ok(result)
}

/// The CPUs that jobs are pinned to, each once.
fn pinned_cpus(workload: &BlockWorkload) -> Vec<u32> {
    let mut cpus: Vec<u32> = workload
        .streams
        .iter()
        .flat_map(|stream| stream.cpus.iter().take(stream.jobs as usize).copied())
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// What the threads of a run share.
#[derive(Clone, Copy)]
struct Common<'a> {
    workload: &'a BlockWorkload,
    clock: Clock,
    shared: &'a Shared,
    files: &'a [StreamFiles],
    transports: &'a [Transport],
    verification: Option<&'a Session>,
}

/// What a job's thread returns; nothing if it did not start because another could not, whose error is reported.
type Returned = Result<Option<Finished>, BlockError>;

/// What a job did.
struct Finished {
    outcome: JobOutcome,
    in_effect: BackendInEffect,
}

/// What all jobs did, or the first failure among them.
fn gather(
    common: &Common<'_>,
    returned: Vec<std::thread::Result<Returned>>,
    places: &[(usize, u32)],
) -> Result<iosonde_harness::Finished, BlockError> {
    let mut outcomes = Vec::new();
    let mut backend = BackendInEffect::default();
    for (joined, (stream, job)) in returned.into_iter().zip(places) {
        let joined = joined.map_err(|_| BlockError::Internal("a job's thread panicked".into()))??;
        let Some(finished) = joined else { continue };
        if let Some(failure) = finished.outcome.failure {
            let path = common.files[*stream].of_job(*job).1.display().to_string();
            let name = &common.workload.streams[*stream].name;
            return Err(BlockError::Io(IoFailureText::new(name, &path, failure)));
        }
        merge_effects(&mut backend, finished.in_effect);
        outcomes.push((*stream, *job, finished.outcome));
    }
    Ok(iosonde_harness::Finished {
        end_ns: outcomes.iter().map(|(_, _, outcome)| outcome.phases.end_ns).max(),
        jobs: prepare::job_results(common.workload, &outcomes),
        backend,
    })
}

fn open_files(targets: &Targets, workload: &BlockWorkload) -> Result<Vec<StreamFiles>, BlockError> {
    workload
        .streams
        .iter()
        .map(|stream| target::open_stream(targets, workload, stream))
        .collect()
}

/// Finds out, stream by stream, what the kernel supports, and warns where it is less than requested.
fn choose_transports(
    workload: &BlockWorkload,
    files: &[StreamFiles],
    emit: &mut dyn FnMut(Event),
) -> Result<Vec<Transport>, BlockError> {
    if let Some(transports) = Transport::take_over(workload)? {
        return Ok(transports);
    }
    workload
        .streams
        .iter()
        .zip(files)
        .map(|(stream, files)| choose_transport(workload, stream, files, emit))
        .collect()
}

fn choose_transport(
    workload: &BlockWorkload,
    stream: &Stream,
    files: &StreamFiles,
    emit: &mut dyn FnMut(Event),
) -> Result<Transport, BlockError> {
    let only_reads_and_writes = stream.mix.trim_fraction == 0.0
        && !matches!(stream.durability, Durability::Flush { .. })
        && stream.io_mode == IoMode::Direct;
    let (transport, refused) = Transport::choose(&Wanted {
        backend: &workload.backend,
        file: files.files.first(),
        queue_depth: stream.queue_depth,
        may_poll: only_reads_and_writes,
        largest_bytes: stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0),
        durable_writes: stream.durability == Durability::Dsync,
    })?;
    if let Some(error) = refused {
        emit(Event::Warning(uring_refused(&stream.name, &error)));
    }
    Ok(transport)
}

fn uring_refused(stream: &str, error: &std::io::Error) -> Warning {
    Warning {
        code: "uring_unavailable".into(),
        message: format!("stream `{stream}` runs with backend `sync`, one thread for each I/O in flight: io_uring failed: {error}"),
        hint: "allow io_uring (`sysctl kernel.io_uring_disabled=0`, or the container's seccomp profile): threads cost more CPU and \
               reach fewer IOPS"
            .into(),
    }
}

fn check_memory(workload: &BlockWorkload) -> Result<(), BlockError> {
    if matches!(workload.backend, Backend::Null) {
        return Ok(());
    }
    let needed: u64 = workload
        .streams
        .iter()
        .map(|stream| {
            let block = stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
            u64::from(stream.jobs) * u64::from(stream.queue_depth) * block
        })
        .sum();
    let available = available_memory_bytes();
    if needed as f64 > available as f64 * MEMORY_SHARE {
        return Err(BlockError::Unsupported {
            message: format!("the I/O buffers need {needed} bytes and {available} are available"),
            hint: "use fewer jobs, a smaller queue depth or smaller blocks".into(),
        });
    }
    Ok(())
}

/// Buffers for every job; none where nothing is moved.
fn arenas(
    workload: &BlockWorkload,
    transports: &[Transport],
    planned_jobs: &[PlannedJob],
) -> Result<Vec<Option<Arena>>, BlockError> {
    if matches!(workload.backend, Backend::Null) {
        return Ok(planned_jobs.iter().map(|_| None).collect());
    }
    let arena = |planned: &PlannedJob| {
        let (depth, bytes) = (planned.plan.queue_depth, planned.plan.phases.largest_bytes);
        transports[planned.stream].arena(depth, bytes).map(Some)
    };
    planned_jobs
        .iter()
        .map(arena)
        .collect::<std::io::Result<_>>()
        .map_err(|error| BlockError::Unsupported {
            message: format!("no memory for the I/O buffers: {error}"),
            hint: "use fewer jobs, a smaller queue depth or smaller blocks".into(),
        })
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

impl<'a> Common<'a> {
    fn verifier(self, planned: &PlannedJob) -> Option<JobVerifier<'a>> {
        let session = self.verification?;
        let stream = &self.workload.streams[planned.stream];
        let path = self.files[planned.stream].of_job(planned.job).1;
        Some(session.of_job(path, stream, planned.plan.queue_depth))
    }

    /// A job's thread: prepares, waits for the others, runs the loop.
    fn job(self, planned: PlannedJob, arena: Option<Arena>) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate, recorder| {
            let stream = &self.workload.streams[planned.stream];
            pin(&stream.cpus, planned.job);
            let (files, transport) = (&self.files[planned.stream], &self.transports[planned.stream]);
            let resources = JobResources {
                clock: self.clock,
                queue_depth: planned.plan.queue_depth,
                spin_ns: stream.spin_ns,
                files: arena.as_ref().map(|arena| JobFiles {
                    fd: files.of_job(planned.job).0.map_or(NO_FILE, AsRawFd::as_raw_fd),
                    arena,
                    spin_ns: stream.spin_ns,
                }),
            };
            let worker = Worker {
                common: self,
                verifier: self.verifier(&planned),
                plan: planned.plan,
                arena: arena.as_ref(),
                recorder,
                gate,
            };
            let finished = transport.drive(worker, &resources);
            leak_if_abandoned(&finished, arena);
            finished
        })
    }
}

/// I/Os that never came back may still write to their buffers.
fn leak_if_abandoned(finished: &Returned, arena: Option<Arena>) {
    if let (Ok(Some(Finished { outcome, .. })), Some(arena)) = (finished, arena)
        && outcome.abandoned > 0
    {
        arena.leak();
    }
}

struct Worker<'a, 'g> {
    common: Common<'a>,
    verifier: Option<JobVerifier<'a>>,
    plan: JobPlan,
    arena: Option<&'g Arena>,
    recorder: Recorder,
    gate: &'g Gate<'g>,
}

impl Work for Worker<'_, '_> {
    type Done = Returned;

    fn run<B: crate::backend::Backend>(self, backend: &mut B) -> Returned {
        let job = Job::new(self.plan, self.common.shared, self.arena, self.recorder);
        let mut job = job.verified(self.verifier);
        if !self.gate.pass() {
            return Ok(None);
        }
        let driven = drive(&mut job, backend);
        let mut outcome = job.into_outcome(backend.spun_ns());
        if let Some(failure) = &mut outcome.failure {
            failure.cause = backend.failure_cause();
        }
        if let (Some(session), Some(tally)) = (self.common.verification, outcome.tally.take()) {
            session.add(tally);
        }
        if outcome.failure.is_some() || driven.is_err() {
            self.common.shared.stop();
        }
        driven.map_err(|error| BlockError::Internal(format!("the kernel refused to take or return I/Os: {error}")))?;
        let in_effect = backend.in_effect();
        Ok(Some(Finished { outcome, in_effect }))
    }

    fn refused(self, reason: String) -> Returned {
        self.gate.cancel();
        Err(BlockError::Internal(reason))
    }

    fn has_abandoned(done: &Returned) -> bool {
        !matches!(done, Ok(Some(finished)) if finished.outcome.abandoned == 0)
    }
}
