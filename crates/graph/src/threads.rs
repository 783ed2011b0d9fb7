//! Runs the jobs of a computation, one thread each, and puts together what they did.

use std::io;
use std::os::fd::AsRawFd;

use iosonde_block::{
    Arena, Backend, JobFiles, JobResources, Transport, Wanted, Work, available_memory_bytes, merge_effects,
};
use iosonde_harness::{
    Budget, Control, Finished, Gate, JobPhases, PhasePlan, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_metrics::DeviceWatch;
use iosonde_protocol::{
    BackendInEffect, Event, GraphResult, GraphWorkload, JobResult, RequestSize, RunResult, Warning,
};

use crate::RunInputs;
use crate::cache::Cache;
use crate::csr::{PAGE_BYTES, PAGE_EDGES};
use crate::error::GraphError;
use crate::job::{Job, JobOutcome, JobPlan, ReadFailure, slots};
use crate::layout::{self, Graph};
use crate::program::{Program, block_share};
use crate::team::{Place, Team};

/// The only stream of a run.
pub(crate) const STREAM: &str = "main";
/// State, cache and buffers may take this share of the free memory.
const MEMORY_SHARE: f64 = 0.8;

/// What a computation did.
pub(crate) struct Computed {
    pub result: RunResult,
    /// What the jobs found; of the graph nothing yet.
    pub facts: GraphResult,
}

/// Inputs of a computation.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub run: &'a RunInputs<'a>,
    pub graph: &'a Graph,
}

/// Fails early if state, cache and buffers do not fit into memory.
pub(crate) fn check_memory(workload: &GraphWorkload, state_bytes: u64) -> Result<(), GraphError> {
    let reading = &workload.reading;
    let buffers = u64::from(workload.jobs) * u64::from(slots(reading.queue_depth)) * reading.request_bytes;
    let needed = state_bytes + reading.cache_bytes + buffers;
    let available = available_memory_bytes();
    match needed as f64 > available as f64 * MEMORY_SHARE {
        true => {
            Err(GraphError::memory("the computation", needed, available).at("vertex state, page cache and buffers"))
        }
        false => Ok(()),
    }
}

impl Inputs<'_> {
    /// Runs a program to its end.
    pub(crate) fn compute<P: Program>(
        &self,
        program: &P,
        watch: DeviceWatch,
        control: &mut Control,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Computed, GraphError> {
        let (run, workload) = (self.run, self.run.workload);
        let transport = self.choose_transport(emit)?;
        let (shared, team) = (Shared::default(), Team::new(workload.jobs as usize));
        let arenas = self.arenas(&transport)?;
        let buffer_bytes = arenas.iter().map(|arena| arena.bytes() as u64).sum();
        let threads = Threads {
            inputs: *self,
            program,
            transport: &transport,
            shared: &shared,
            team: &team,
        };
        let shares = self.graph.csr.shares(workload.jobs);
        let jobs = (0..).zip(arenas).zip(shares);
        let jobs = jobs
            .map(|((job, arena), vertices)| (0, threads.job(job, arena, vertices)))
            .collect();
        let supervision = Supervision {
            clock: run.clock,
            shared: &shared,
            ramp_ns: 0,
            ramp_may_end_early: false,
            ramp_until_steady: None,
            duration_ns: workload.duration_ns,
            interval_ns: workload.interval_ns,
            streams: vec![(STREAM.to_owned(), false)],
            watch,
            pinned_cpus: pinned_cpus(workload),
        };
        let mut facts = GraphResult::default();
        let mut result = execute(supervision, jobs, control, emit, |returned| {
            self.gather(returned, &mut facts)
        })?;
        (facts.iterations, facts.is_complete) = team.into_iterations();
        result.buffer_bytes = buffer_bytes;
        Ok(Computed { result, facts })
    }

    fn choose_transport(&self, emit: &mut dyn FnMut(Event)) -> Result<Transport, GraphError> {
        let workload = self.run.workload;
        let (transport, refused) = Transport::choose(&Wanted {
            backend: &workload.backend,
            file: Some(&self.graph.file),
            queue_depth: workload.reading.queue_depth,
            may_poll: true,
            largest_bytes: workload.reading.request_bytes,
            durable_writes: false,
        })?;
        if let Some(error) = refused {
            emit(Event::Warning(Warning {
                code: "uring_unavailable".into(),
                message: format!("the run uses the backend `sync`, one read at a time in each job: io_uring failed: {error}"),
                hint: "allow io_uring (`sysctl kernel.io_uring_disabled=0`, or the container's seccomp profile), or use more jobs"
                    .into(),
            }));
        }
        Ok(transport)
    }

    fn arenas(&self, transport: &Transport) -> Result<Vec<Arena>, GraphError> {
        let (workload, reading) = (self.run.workload, &self.run.workload.reading);
        let arena = |_| transport.arena(slots(reading.queue_depth), reading.request_bytes);
        let arenas: io::Result<Vec<Arena>> = (0..workload.jobs).map(arena).collect();
        arenas.map_err(|error| {
            GraphError::new(
                "unsupported",
                format!("no memory for the buffers: {error}"),
                "use fewer jobs, a smaller queue depth or smaller requests",
            )
        })
    }

    /// What all jobs did, or the first failure among them.
    fn gather(
        &self,
        returned: Vec<std::thread::Result<Returned>>,
        facts: &mut GraphResult,
    ) -> Result<Finished, GraphError> {
        let path = layout::path(&self.run.workload.target);
        let mut backend = BackendInEffect::default();
        let mut jobs = Vec::new();
        let mut end_ns = None;
        for (job, joined) in (0..).zip(returned) {
            let panicked = |_| GraphError::new("internal", "a job's thread panicked", REPORT);
            let Some(done) = joined.map_err(panicked)?? else {
                continue;
            };
            if let Some(failure) = done.outcome.failure {
                return Err(failed(&failure, path));
            }
            merge_effects(&mut backend, done.in_effect);
            note(facts, &done.outcome);
            let totals = done.outcome.totals;
            end_ns = end_ns.max(Some(totals.end_ns));
            jobs.push(JobResult {
                stream: STREAM.to_owned(),
                job,
                operations: totals.operations,
                bytes: totals.bytes,
                last_completion_ns: totals.last_completion_ns,
                usage: totals.usage,
                abandoned: done.outcome.abandoned,
                schedule: None,
                pacing: Some(totals.pacing),
            });
        }
        Ok(Finished { jobs, end_ns, backend })
    }
}

const REPORT: &str = "please report this with the spec that caused it";

/// Adds what a job found.
fn note(facts: &mut GraphResult, outcome: &JobOutcome) {
    let tally = &outcome.tally;
    facts.traversed_edges += outcome.edges;
    facts.io_wait_ns += tally.io_wait_ns;
    facts.job_wait_ns += tally.job_wait_ns;
    facts.needed_bytes += (tally.needed_pages - tally.gap_pages) * PAGE_BYTES;
    facts.cache_hit_bytes += tally.cached_pages * PAGE_BYTES;
    facts.gap_bytes += tally.gap_pages * PAGE_BYTES;
    let sizes = (0..).zip(&tally.reads).filter(|(_, count)| **count > 0);
    for (bytes, count) in sizes.map(|(pages, count)| (pages * PAGE_BYTES, *count)) {
        match facts.request_sizes.binary_search_by_key(&bytes, |size| size.bytes) {
            Ok(place) => facts.request_sizes[place].count += count,
            Err(place) => facts.request_sizes.insert(place, RequestSize { bytes, count }),
        }
    }
}

fn failed(failure: &ReadFailure, path: &std::path::Path) -> GraphError {
    let (offset, bytes) = (failure.offset_bytes, failure.bytes);
    if failure.result < 0 {
        let error = io::Error::from_raw_os_error(-failure.result);
        return GraphError::io(&format!("read {bytes} bytes at offset {offset} of"), path, &error)
            .at("phase `measure`");
    }
    GraphError::new(
        "io_error",
        format!(
            "reading {bytes} bytes at offset {offset} of `{}` returned only {} bytes",
            path.display(),
            failure.result
        ),
        "the file was truncated during the run: check whether something else writes to it",
    )
    .at("phase `measure`")
}

/// What the jobs of a run share.
struct Threads<'a, P: Program> {
    inputs: Inputs<'a>,
    program: &'a P,
    transport: &'a Transport,
    shared: &'a Shared,
    team: &'a Team,
}

/// What a job's thread returns; nothing if the run was cancelled before it started.
type Returned = Result<Option<Done>, GraphError>;

struct Done {
    outcome: JobOutcome,
    in_effect: BackendInEffect,
}

impl<'a, P: Program> Threads<'a, P> {
    fn job(&self, job: u32, arena: Arena, vertices: std::ops::Range<u32>) -> iosonde_harness::Job<'a, Returned> {
        let Threads {
            inputs,
            program,
            transport,
            shared,
            team,
        } = *self;
        let workload = inputs.run.workload;
        let plan = self.plan(job, vertices);
        Box::new(move |gate: &Gate<'_>, recorder: Recorder| {
            pin(&workload.cpus, job);
            let resources = JobResources {
                clock: inputs.run.clock,
                queue_depth: plan.depth,
                spin_ns: 0,
                files: Some(JobFiles {
                    fd: inputs.graph.file.as_raw_fd(),
                    arena: &arena,
                    spin_ns: 0,
                }),
            };
            let phases = JobPhases::new(phase_plan(workload), shared, recorder);
            let cache = inputs.cache(&plan);
            let worker = Worker {
                job: Job::new(plan, program, &inputs.graph.csr, team, phases, &arena, cache),
                shared,
                team,
                gate,
            };
            let done = transport.drive(worker, &resources);
            if <Worker<'_, '_, P> as Work>::has_abandoned(&done) {
                arena.leak();
            }
            done
        })
    }

    fn plan(&self, job: u32, vertices: std::ops::Range<u32>) -> JobPlan {
        let (workload, csr) = (self.inputs.run.workload, &self.inputs.graph.csr);
        let reading = &workload.reading;
        JobPlan {
            largest: reading.request_bytes / PAGE_BYTES,
            gap: reading.merge_gap_bytes / PAGE_BYTES,
            depth: self.transport.depth_of_thread(reading.queue_depth),
            is_blocking: self.transport.is_blocking(),
            vertices,
            applied: block_share(csr.vertices(), job, workload.jobs),
        }
    }
}

impl Inputs<'_> {
    /// A job's part of the page cache, in its own thread, so that its memory is near.
    fn cache(&self, plan: &JobPlan) -> Cache {
        let csr = &self.graph.csr;
        let vertices = &plan.vertices;
        let pages = match vertices.is_empty() {
            true => 0..0,
            false => {
                let first = csr.list(vertices.start).start / PAGE_EDGES;
                first..csr.list(vertices.end - 1).end.div_ceil(PAGE_EDGES).max(first)
            }
        };
        let workload = self.run.workload;
        Cache::new(pages, workload.reading.cache_bytes / u64::from(workload.jobs))
    }
}

fn phase_plan(workload: &GraphWorkload) -> PhasePlan {
    PhasePlan {
        ramp: None,
        measure: Budget::UNLIMITED,
        duration_ns: workload.duration_ns,
        active: None,
        largest_bytes: 0,
    }
}

struct Worker<'a, 'g, P: Program> {
    job: Job<'g, P>,
    shared: &'a Shared,
    team: &'a Team,
    gate: &'g Gate<'g>,
}

impl<P: Program> Work for Worker<'_, '_, P> {
    type Done = Returned;

    fn run<B: Backend>(self, backend: &mut B) -> Returned {
        let _place = Place(self.team);
        if !self.gate.pass() {
            return Ok(None);
        }
        let driven = self.job.drive(backend);
        if !matches!(&driven, Ok(outcome) if outcome.failure.is_none()) {
            self.shared.stop();
        }
        let outcome = driven.map_err(|error| {
            GraphError::new(
                "internal",
                format!("the kernel refused to take or return reads: {error}"),
                REPORT,
            )
        })?;
        let in_effect = backend.in_effect();
        Ok(Some(Done { outcome, in_effect }))
    }

    fn refused(self, reason: String) -> Returned {
        self.gate.cancel();
        Err(GraphError::new("internal", reason, REPORT))
    }

    fn has_abandoned(done: &Returned) -> bool {
        match done {
            Ok(Some(done)) => done.outcome.abandoned > 0,
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// The CPUs that jobs are pinned to, each once.
fn pinned_cpus(workload: &GraphWorkload) -> Vec<u32> {
    let cpus: std::collections::BTreeSet<u32> = workload.cpus.iter().take(workload.jobs as usize).copied().collect();
    cpus.into_iter().collect()
}
