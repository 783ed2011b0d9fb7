//! From streams to jobs: who does what, in which part of the target, within which limits.

use iosonde_harness::{Budget, PhasePlan};
use iosonde_load::{Arrivals, Generator, regions};
use iosonde_protocol::{
    Arrival, BlockWorkload, Durability, JobResult, Pacing, ScheduleResult, Sharing, Stream, Target, Usage,
};

use crate::check::in_stream;
use crate::error::BlockError;
use crate::job::{JobOutcome, JobPlan};
use crate::payload::Filler;
use crate::target;

/// One job, or one lane of it where a backend can hold only one I/O (see [`plans`]).
pub(crate) struct PlannedJob {
    pub stream: usize,
    pub job: u32,
    pub plan: JobPlan,
}

/// The jobs of a workload, to begin at `begin_ns`.
///
/// With `lanes_of(stream)` above 1, each job is divided into that many threads with one I/O in flight each, which
/// together visit exactly the job's sequence: lane `i` takes every n-th I/O from the i-th.
pub(crate) fn plans(
    workload: &BlockWorkload,
    seed: u64,
    begin_ns: u64,
    lanes_of: &dyn Fn(usize) -> u32,
) -> Result<Vec<PlannedJob>, BlockError> {
    let mut planned_jobs = Vec::new();
    for (number, stream) in workload.streams.iter().enumerate() {
        let regions = regions(stream, target::size_bytes(&workload.target)).map_err(in_stream(stream))?;
        let lanes = lanes_of(number);
        let visit = visit(&workload.target, stream);
        for job in 0..stream.jobs {
            let generator =
                Generator::new(&visit, job, regions[job as usize], seed, number as u64).map_err(in_stream(stream))?;
            for lane in 0..lanes {
                let place = Place {
                    number,
                    job,
                    lane,
                    lanes,
                };
                let plan = plan(workload, stream, &place, generator.clone(), seed, begin_ns);
                planned_jobs.push(PlannedJob {
                    stream: number,
                    job,
                    plan,
                });
            }
        }
    }
    Ok(planned_jobs)
}

/// What a job, or one lane of it, did: its stream, its number there, and the outcome.
pub(crate) type JobOfStream = (usize, u32, JobOutcome);

/// Sums the lanes of each job.
pub(crate) fn job_results(workload: &BlockWorkload, outcomes: &[JobOfStream]) -> Vec<JobResult> {
    let mut results: Vec<JobResult> = Vec::new();
    for (stream, job, outcome) in outcomes {
        let name = &workload.streams[*stream].name;
        match results.last_mut() {
            Some(last) if last.stream == *name && last.job == *job => add(last, outcome),
            _ => {
                let mut result = JobResult {
                    stream: name.clone(),
                    job: *job,
                    operations: 0,
                    bytes: 0,
                    last_completion_ns: 0,
                    usage: Usage::default(),
                    abandoned: 0,
                    schedule: None,
                    pacing: None,
                };
                add(&mut result, outcome);
                results.push(result);
            }
        }
    }
    results
}

fn add(result: &mut JobResult, outcome: &JobOutcome) {
    result.operations += outcome.phases.operations;
    result.bytes += outcome.phases.bytes;
    result.last_completion_ns = result.last_completion_ns.max(outcome.phases.last_completion_ns);
    result.abandoned += outcome.abandoned;
    if let Some(part) = outcome.schedule {
        add_schedule(result.schedule.get_or_insert_default(), &part);
    }
    let (sum, part) = (&mut result.usage, &outcome.phases.usage);
    sum.wall_ns = sum.wall_ns.max(part.wall_ns);
    sum.user_ns += part.user_ns;
    sum.system_ns += part.system_ns;
    sum.voluntary_switches += part.voluntary_switches;
    sum.involuntary_switches += part.involuntary_switches;
    sum.minor_faults += part.minor_faults;
    sum.major_faults += part.major_faults;
    sum.fs_inputs += part.fs_inputs;
    sum.fs_outputs += part.fs_outputs;
    result.pacing = Some(match result.pacing {
        None => outcome.phases.pacing,
        Some(pacing) => together(&pacing, &outcome.phases.pacing),
    });
}

/// Two lanes of a job: it starts when the first of them starts, and is exhausted when the last is.
fn together(one: &Pacing, other: &Pacing) -> Pacing {
    Pacing {
        first_start_ns: [one.first_start_ns, other.first_start_ns].into_iter().flatten().min(),
        exhausted_ns: one.exhausted_ns.zip(other.exhausted_ns).map(|(a, b)| a.max(b)),
        turnaround_ns: one.turnaround_ns + other.turnaround_ns,
        cpu_wait_ns: one.cpu_wait_ns.zip(other.cpu_wait_ns).map(|(a, b)| a + b),
    }
}

/// The stream as its generators see it: jobs with files of their own share nothing, so each begins at its file's start.
fn visit(target: &Target, stream: &Stream) -> Stream {
    let mut visit = stream.clone();
    if matches!(target, Target::FilePerJob { .. }) {
        visit.span.sharing = Sharing::Split;
    }
    visit
}

fn add_schedule(sum: &mut ScheduleResult, part: &ScheduleResult) {
    sum.due += part.due;
    sum.started += part.started;
    sum.start_lag_ns_sum += part.start_lag_ns_sum;
    sum.start_lag_ns_max = sum.start_lag_ns_max.max(part.start_lag_ns_max);
    sum.spun_ns += part.spun_ns;
}

struct Place {
    number: usize,
    job: u32,
    lane: u32,
    lanes: u32,
}

fn plan(
    workload: &BlockWorkload,
    stream: &Stream,
    place: &Place,
    generator: Generator,
    seed: u64,
    begin_ns: u64,
) -> JobPlan {
    let threads = u64::from(stream.jobs) * u64::from(place.lanes);
    let thread = u64::from(place.job) * u64::from(place.lanes) + u64::from(place.lane);
    let share = |total: u64| total / threads + u64::from(thread < total % threads);
    let largest_bytes = stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
    let arrivals = Arrivals::new(
        &stream.arrival,
        threads as u32,
        thread as u32,
        begin_ns,
        seed,
        place.number as u64,
    );
    let has_ramp = workload.ramp.duration_ns > 0;
    JobPlan {
        generator,
        lane: place.lane,
        lanes: place.lanes,
        arrivals,
        queue_depth: if place.lanes > 1 { 1 } else { stream.queue_depth },
        flush_every: match stream.durability {
            Durability::Flush { every } => Some(every),
            Durability::None | Durability::Dsync => None,
        },
        filler: Filler::new(
            stream.payload,
            workload.verify.is_some(),
            seed,
            &[0xda7a, place.number as u64, thread],
        ),
        phases: PhasePlan {
            ramp: has_ramp.then(|| Budget {
                bytes: workload.ramp.bytes.map_or(u64::MAX, share),
                ..Budget::UNLIMITED
            }),
            measure: Budget {
                bytes: stream.limit_bytes.map_or(u64::MAX, share),
                operations: stream.limit_operations.map_or(u64::MAX, share),
            },
            duration_ns: workload.duration_ns,
            active: stream.active,
            largest_bytes,
        },
    }
}

/// Whether a stream's I/Os start by a schedule.
pub(crate) fn is_open_loop(stream: &Stream) -> bool {
    stream.arrival != Arrival::Closed
}
