//! Runs the jobs of a computation, one thread each, and puts together what they did.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use iosonde_block::{
    Arena, Backend, Done, JobFiles, JobResources, Transport, Wanted, Work, allow_uring, has_abandoned, merge_effects,
};
use iosonde_harness::{
    Code, Gate, JobDone, JobStart, Load, LoadPlan, Measured, Place as JobPlace, Run, RunError, RunInputs, StreamPlan,
};
use iosonde_protocol::{BackendInEffect, GraphResult, GraphWorkload, Ramp, RequestSize, RunResult, Warning};

use crate::build::require_memory;
use crate::cache::Cache;
use crate::csr::{PAGE_BYTES, PAGE_EDGES};
use crate::job::{Found, Job, JobPlan, ReadFailure, slots};
use crate::layout::{self, Graph};
use crate::pagerank::{Program, block_share};
use crate::team::{Place, Team};

/// The only stream of a run.
const STREAM: &str = "main";

/// Result of a computation.
pub(crate) struct Computed {
    pub result: RunResult,
    /// Facts from the jobs; those of the graph are added later.
    pub facts: GraphResult,
}

/// The load of a workload.
pub(crate) fn plan(workload: &GraphWorkload) -> LoadPlan<'_> {
    LoadPlan {
        ramp: Ramp::default(),
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: vec![StreamPlan {
            ends_by_itself: true,
            ..StreamPlan::closed(STREAM, workload.jobs, &workload.cpus)
        }],
    }
}

/// Fails early if state, cache and buffers do not fit into memory.
pub(crate) fn check_memory(workload: &GraphWorkload, state_bytes: u64) -> Result<(), RunError> {
    let reading = &workload.reading;
    let buffers = u64::from(workload.jobs) * u64::from(slots(reading.queue_depth)) * reading.request_bytes;
    let needed = state_bytes + reading.cache_bytes + buffers;
    require_memory("the computation", needed).map_err(|error| error.at("vertex state, page cache and buffers"))
}

/// Runs a program to its end.
pub(crate) fn compute<P: Program>(
    workload: &GraphWorkload,
    graph: &Graph,
    program: &P,
    run: &mut Run<'_>,
) -> Result<Computed, RunError> {
    let transport = choose_transport(workload, graph, run)?;
    let computation = Computation {
        workload,
        inputs: run.inputs,
        graph,
        program,
        transport: &transport,
        team: Team::new(workload.jobs as usize),
        shares: graph.csr.shares(workload.jobs),
    };
    let Measured { mut result, found } = run.measure(&plan(workload), &computation, &mut |_| {})?;
    let mut facts = GraphResult::default();
    for part in found {
        merge_effects(&mut result.backend, part.in_effect);
        result.buffer_bytes += part.buffer_bytes;
        note(&mut facts, &part.found);
    }
    (facts.iterations, facts.is_complete) = computation.team.into_iterations();
    Ok(Computed { result, facts })
}

fn choose_transport(workload: &GraphWorkload, graph: &Graph, run: &mut Run<'_>) -> Result<Transport, RunError> {
    let wanted = Wanted {
        backend: &workload.backend,
        file: Some(&graph.file),
        queue_depth: workload.reading.queue_depth,
        may_poll: true,
        largest_bytes: workload.reading.request_bytes,
        durable_writes: false,
    };
    let (transport, refused) = Transport::choose(&wanted).map_err(|why| why.into_error(&workload.backend))?;
    if let Some(error) = refused {
        run.warn(Warning {
            code: "uring_unavailable".into(),
            message: format!(
                "the run uses the backend `sync`, one read at a time in each job: io_uring failed: {error}"
            ),
            hint: format!("{}, or use more jobs", allow_uring(&error)),
        });
    }
    Ok(transport)
}

/// Adds what a job found.
fn note(facts: &mut GraphResult, found: &Found) {
    let tally = &found.tally;
    facts.traversed_edges += found.edges;
    facts.io_wait_ns += tally.io_wait_ns;
    facts.job_wait_ns += tally.job_wait_ns;
    facts.needed_bytes += tally.needed_pages * PAGE_BYTES;
    facts.cache_hit_bytes += tally.cached_pages * PAGE_BYTES;
    let sizes = (0..).zip(&tally.reads).filter(|(_, count)| **count > 0);
    for (bytes, count) in sizes.map(|(pages, count)| (pages * PAGE_BYTES, *count)) {
        match facts.request_sizes.binary_search_by_key(&bytes, |size| size.bytes) {
            Ok(place) => facts.request_sizes[place].count += count,
            Err(place) => facts.request_sizes.insert(place, RequestSize { bytes, count }),
        }
    }
}

fn failed(failure: &ReadFailure, path: &Path) -> RunError {
    let (offset, bytes) = (failure.offset_bytes, failure.bytes);
    if failure.result < 0 {
        let error = std::io::Error::from_raw_os_error(-failure.result);
        return RunError::io(&format!("read {bytes} bytes at offset {offset} of"), path, &error).at("phase `measure`");
    }
    RunError::new(
        Code::IoError,
        format!(
            "reading {bytes} bytes at offset {offset} of `{}` returned only {} bytes",
            path.display(),
            failure.result
        ),
        "the file was truncated during the run: check whether something else writes to it",
    )
    .at("phase `measure`")
}

/// The load: what its jobs share.
struct Computation<'a, P: Program> {
    workload: &'a GraphWorkload,
    inputs: RunInputs<'a>,
    graph: &'a Graph,
    program: &'a P,
    transport: &'a Transport,
    team: Team,
    /// Vertices of each job.
    shares: Vec<Range<u32>>,
}

/// Results of a job, and its ways of reading.
struct Part {
    found: Found,
    in_effect: BackendInEffect,
    buffer_bytes: u64,
}

impl<P: Program> Load for Computation<'_, P> {
    type Found = Part;

    fn job(&self, start: JobStart<'_>) -> Done<Part> {
        let plan = self.plan(start.place);
        let arena = self.arena()?;
        let resources = JobResources {
            clock: self.inputs.clock,
            queue_depth: plan.depth,
            spin_ns: 0,
            files: Some(JobFiles {
                fd: self.graph.file.as_raw_fd(),
                arena: &arena,
                spin_ns: 0,
            }),
        };
        let (cache, csr) = (self.cache(&plan), &self.graph.csr);
        let worker = Worker {
            job: Job::new(plan, self.program, csr, &self.team, start.phases, &arena, cache),
            team: &self.team,
            gate: start.gate,
            buffer_bytes: arena.bytes() as u64,
        };
        let done = self.transport.drive(worker, &resources);
        if has_abandoned(&done) {
            arena.leak();
        }
        match done {
            Ok(Some(JobDone {
                found:
                    Part {
                        found: Found {
                            failure: Some(failure), ..
                        },
                        ..
                    },
                ..
            })) => Err(failed(&failure, layout::path(&self.workload.target))),
            done => done,
        }
    }
}

impl<P: Program> Computation<'_, P> {
    fn arena(&self) -> Result<Arena, RunError> {
        let reading = &self.workload.reading;
        let arena = self.transport.arena(slots(reading.queue_depth), reading.request_bytes);
        arena.map_err(|error| {
            RunError::unsupported(
                format!("no memory for the buffers: {error}"),
                "use fewer jobs, a smaller queue depth or smaller requests",
            )
        })
    }

    fn plan(&self, JobPlace { job, .. }: JobPlace) -> JobPlan {
        let reading = &self.workload.reading;
        JobPlan {
            largest: reading.request_bytes / PAGE_BYTES,
            depth: self.transport.depth_of_thread(reading.queue_depth),
            is_blocking: self.transport.is_blocking(),
            vertices: self.shares[job as usize].clone(),
            pages: self.pages(&self.shares[job as usize]),
            applied: block_share(self.graph.csr.vertices(), job, self.workload.jobs),
        }
    }

    /// Pages of the lists of these vertices.
    fn pages(&self, vertices: &Range<u32>) -> Range<u64> {
        let csr = &self.graph.csr;
        let first = csr.next_connected(vertices.start, vertices.end);
        if first >= vertices.end {
            return 0..0;
        }
        csr.list(first).start / PAGE_EDGES..csr.list(vertices.end - 1).end.div_ceil(PAGE_EDGES)
    }

    /// A job's part of the page cache, in its own thread, so that its memory is near.
    fn cache(&self, plan: &JobPlan) -> Cache {
        Cache::new(
            plan.pages.clone(),
            self.workload.reading.cache_bytes / u64::from(self.workload.jobs),
        )
    }
}

struct Worker<'a, P: Program> {
    job: Job<'a, P>,
    team: &'a Team,
    gate: &'a Gate<'a>,
    buffer_bytes: u64,
}

impl<P: Program> Work for Worker<'_, P> {
    type Found = Part;

    fn run<B: Backend>(self, backend: &mut B) -> Done<Part> {
        let _place = Place(self.team);
        if !self.gate.pass() {
            return Ok(None);
        }
        let driven = self.job.drive(backend);
        let done = driven
            .map_err(|error| RunError::internal(format!("the kernel refused to take or return reads: {error}")))?;
        Ok(Some(JobDone {
            totals: done.totals,
            schedule: None,
            abandoned: done.abandoned,
            found: Part {
                found: done.found,
                in_effect: backend.in_effect(),
                buffer_bytes: self.buffer_bytes,
            },
        }))
    }
}
