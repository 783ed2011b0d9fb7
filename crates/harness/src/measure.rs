//! Ramp and measurement: runs the jobs of a load, each in its own thread, and puts together what they did.

use std::thread;

use crate::load::Arrivals;
use crate::metrics::{Clock, DeviceWatch, usage};
use crate::target::Targets;
use iosonde_protocol::{
    Event, Evidence, JobResult, JobThreads, Observe, Outcome, Pacing, RunResult, ScheduleResult, Usage,
};

use crate::control::Control;
use crate::error::RunError;
use crate::phases::{JobPhases, JobTotals, Shared};
use crate::pin;
use crate::plan::{LoadPlan, Place};
use crate::recorder::Recorder;
use crate::supervisor::{Gate, Supervised, Supervision, supervise};

/// A load that is ready: what the jobs of a workload share, and what each of them does.
pub trait Load: Sync {
    /// Results of a thread besides the counts of its phases.
    type Found: Send;

    /// Threads of each job of a stream.
    fn lanes(&self, _stream: usize) -> u32 {
        1
    }

    /// One thread of a job: prepares, passes the gate, and loads until its phases have ended. None if the gate is closed.
    ///
    /// # Errors
    /// When it cannot prepare, or an operation fails; the run then ends for all jobs.
    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<Self::Found>>, RunError>;
}

/// Inputs of a job.
pub struct JobStart<'a> {
    pub place: Place,
    /// Its phases, which have not started.
    pub phases: JobPhases<'a>,
    /// When its operations start; none in closed loop.
    pub arrivals: Option<Arrivals>,
    /// Where it waits for the others.
    pub gate: &'a Gate<'a>,
}

/// Outcome of a thread of a job.
pub struct JobDone<T> {
    /// Counts of its phases.
    pub totals: JobTotals,
    /// In open loop, how it kept its schedule.
    pub schedule: Option<ScheduleResult>,
    /// Operations that had not come back when it ended.
    pub abandoned: u64,
    /// Its other results.
    pub found: T,
}

impl<T> JobDone<T> {
    /// A job in closed loop whose operations have all come back.
    pub fn new(totals: JobTotals, found: T) -> JobDone<T> {
        JobDone {
            totals,
            schedule: None,
            abandoned: 0,
            found,
        }
    }
}

/// Inputs of a run besides its workload.
#[derive(Clone, Copy)]
pub struct RunInputs<'a> {
    /// Seed of every random choice.
    pub seed: u64,
    /// Devices to observe.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// Opens the paths of the workload.
    pub targets: &'a Targets,
}

/// Results of a measurement.
pub struct Measured<T> {
    /// Without what the workload knows: backend, layout, facts of its own.
    pub result: RunResult,
    /// Results of each thread, in the order of [`LoadPlan::places`].
    pub found: Vec<T>,
}

pub(crate) fn measure<L: Load>(
    plan: &LoadPlan<'_>,
    load: &L,
    inputs: RunInputs<'_>,
    watch: DeviceWatch,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<Measured<L::Found>, RunError> {
    let shared = Shared::default();
    let places = plan.places(|stream| load.lanes(stream));
    let threads = Threads {
        plan,
        load,
        seed: inputs.seed,
        shared: &shared,
    };
    let jobs = places.iter().map(|place| (place.stream, threads.job(*place))).collect();
    let mut pinned_cpus: Vec<u32> = places.iter().filter_map(|place| plan.cpu(*place)).collect();
    pinned_cpus.sort_unstable();
    pinned_cpus.dedup();
    let supervision = Supervision {
        clock: inputs.clock,
        shared: &shared,
        plan,
        watch,
        pinned_cpus,
    };
    let mut supervised = supervise(supervision, jobs, control, emit)
        .map_err(|error| RunError::thread(&error).at("starting the jobs"))?;
    let (done, job_cpus) = gather(plan, &places, std::mem::take(&mut supervised.jobs))?;
    let jobs = job_results(plan, &places, &done);
    let end_ns = done.iter().map(|done| done.totals.end_ns).max();
    let mut result = result(&shared, supervised, jobs, end_ns, inputs.clock);
    result.evidence.get_or_insert_default().job_cpus = job_cpus;
    Ok(Measured {
        result,
        found: done.into_iter().map(|done| done.found).collect(),
    })
}

/// State shared by the threads of a load.
struct Threads<'a, L> {
    plan: &'a LoadPlan<'a>,
    load: &'a L,
    seed: u64,
    shared: &'a Shared,
}

/// Result of a thread, with the CPUs that it was allowed to run on; nothing if the run was cancelled before it started.
type Returned<T> = Result<Option<(JobDone<T>, String)>, RunError>;

impl<'a, L: Load> Threads<'a, L> {
    fn job(&self, place: Place) -> crate::supervisor::Job<'a, Returned<L::Found>> {
        let Threads {
            plan,
            load,
            seed,
            shared,
        } = *self;
        Box::new(move |gate: &Gate<'_>, recorder: Recorder| {
            let others = StopOnPanic(shared);
            if let Some(cpu) = plan.cpu(place) {
                pin::pin(cpu, place.job)?;
            }
            let cpus = pin::list_format(&pin::allowed_cpus());
            let done = load.job(JobStart {
                place,
                phases: JobPhases::new(plan.phases(place), shared, recorder),
                arrivals: plan.arrivals(place, seed),
                gate,
            });
            if done.is_err() {
                shared.stop();
            }
            drop(others);
            Ok(done?.map(|done| (done, cpus)))
        })
    }
}

/// Ends the load of all jobs when the thread that has it panics.
struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Results of all threads and their CPUs, or the first error among them.
fn gather<T>(
    plan: &LoadPlan<'_>,
    places: &[Place],
    returned: Vec<thread::Result<Returned<T>>>,
) -> Result<(Vec<JobDone<T>>, Vec<String>), RunError> {
    let mut all = Vec::new();
    for (joined, place) in returned.into_iter().zip(places) {
        let done = joined.unwrap_or_else(|_| Err(RunError::internal("a job's thread panicked")));
        all.extend(done.map_err(|error| error.at(format!("stream `{}`", plan.streams[place.stream].name)))?);
    }
    Ok(all.into_iter().unzip())
}

/// One result for each job: the sum of its threads.
pub fn job_results<T>(plan: &LoadPlan<'_>, places: &[Place], done: &[JobDone<T>]) -> Vec<JobResult> {
    let mut results: Vec<JobResult> = Vec::new();
    for (place, done) in places.iter().zip(done) {
        if place.lane == 0 {
            results.push(JobResult {
                stream: plan.streams[place.stream].name.to_owned(),
                job: place.job,
                operations: 0,
                bytes: 0,
                last_completion_ns: 0,
                usage: Usage::default(),
                abandoned: 0,
                schedule: None,
                pacing: None,
            });
        }
        add(results.last_mut().expect("a job has a first thread"), *place, done);
    }
    results
}

fn add<T>(result: &mut JobResult, place: Place, done: &JobDone<T>) {
    let totals = &done.totals;
    result.operations += totals.operations;
    result.bytes += totals.bytes;
    result.last_completion_ns = result.last_completion_ns.max(totals.last_completion_ns);
    result.abandoned += done.abandoned;
    if let Some(part) = done.schedule {
        let sum = result.schedule.get_or_insert_default();
        sum.due += part.due;
        sum.started += part.started;
        sum.start_lag_ns_sum += part.start_lag_ns_sum;
        sum.start_lag_ns_max = sum.start_lag_ns_max.max(part.start_lag_ns_max);
        sum.spun_ns += part.spun_ns;
    }
    let (sum, part) = (&mut result.usage, &totals.usage);
    sum.wall_ns = sum.wall_ns.max(part.wall_ns);
    sum.user_ns += part.user_ns;
    sum.system_ns += part.system_ns;
    sum.voluntary_switches += part.voluntary_switches;
    sum.involuntary_switches += part.involuntary_switches;
    sum.minor_faults += part.minor_faults;
    sum.major_faults += part.major_faults;
    sum.fs_inputs += part.fs_inputs;
    sum.fs_outputs += part.fs_outputs;
    let own = Pacing {
        threads: (place.lanes > 1).then(|| JobThreads {
            count: 1,
            busiest_cpu_ns: part.user_ns + part.system_ns,
            busiest_cpu_wait_ns: totals.pacing.cpu_wait_ns,
        }),
        ..totals.pacing
    };
    result.pacing = Some(result.pacing.map_or(own, |pacing| together(&pacing, &own)));
}

/// Two threads of a job: it starts when the first of them starts, and is exhausted when the last is.
fn together(one: &Pacing, other: &Pacing) -> Pacing {
    Pacing {
        first_start_ns: [one.first_start_ns, other.first_start_ns].into_iter().flatten().min(),
        exhausted_ns: one.exhausted_ns.zip(other.exhausted_ns).map(|(a, b)| a.max(b)),
        turnaround_ns: one.turnaround_ns + other.turnaround_ns,
        cpu_wait_ns: one.cpu_wait_ns.zip(other.cpu_wait_ns).map(|(a, b)| a + b),
        threads: one.threads.zip(other.threads).map(|(a, b)| busier(a, b)),
    }
}

/// Threads of a job, of which the busiest is the one whose time to run and to wait for a CPU is the longest.
fn busier(one: JobThreads, other: JobThreads) -> JobThreads {
    let ready_ns = |threads: &JobThreads| threads.busiest_cpu_ns + threads.busiest_cpu_wait_ns.unwrap_or(0);
    let busiest = if ready_ns(&one) < ready_ns(&other) { other } else { one };
    JobThreads {
        count: one.count + other.count,
        ..busiest
    }
}

fn result<T>(
    shared: &Shared,
    supervised: Supervised<T>,
    jobs: Vec<JobResult>,
    end_ns: Option<u64>,
    clock: Clock,
) -> RunResult {
    let begin_ns = shared.measure_begin();
    let end_ns = end_ns.unwrap_or(begin_ns);
    let stalls = supervised.collector.stalls(begin_ns.min(end_ns)..end_ns);
    let start = supervised.start;
    RunResult {
        outcome: match shared.is_stopped() {
            true => Outcome::Stopped,
            false => Outcome::Complete,
        },
        begin_ns: begin_ns.min(end_ns),
        end_ns,
        start: start.map(|(agreed, last_job_ns)| agreed.result(last_job_ns, end_ns, clock)),
        jobs,
        process: supervised.process,
        peak_memory_bytes: usage::peak_memory_bytes(),
        devices: supervised.devices,
        evidence: Some(Evidence {
            machine: supervised.machine.all,
            pinned: supervised.machine.pinned,
            cores: supervised.machine.cores,
            kernel: supervised.kernel,
            stalls: Some(stalls),
            ..Evidence::default()
        }),
        ..RunResult::default()
    }
}

#[cfg(test)]
mod tests {
    use iosonde_protocol::Ramp;

    use super::*;
    use crate::plan::StreamPlan;

    fn thread(cpu_ns: u64, cpu_wait_ns: u64) -> JobDone<()> {
        let usage = Usage {
            user_ns: cpu_ns / 2,
            system_ns: cpu_ns - cpu_ns / 2,
            ..Usage::default()
        };
        let pacing = Pacing {
            cpu_wait_ns: Some(cpu_wait_ns),
            ..Pacing::default()
        };
        let totals = JobTotals {
            usage,
            pacing,
            ..JobTotals::default()
        };
        JobDone::new(totals, ())
    }

    fn plan_of(jobs: u32) -> LoadPlan<'static> {
        LoadPlan {
            ramp: Ramp::default(),
            duration_ns: Some(1),
            interval_ns: 1,
            streams: vec![StreamPlan::closed("main", jobs, &[])],
        }
    }

    #[test]
    fn a_job_of_several_threads_has_their_sums_and_the_busiest_of_them_and_one_thread_has_none_besides() {
        let plan = plan_of(1);
        let places = plan.places(|_| 3);
        let [job] = &job_results(&plan, &places, &[thread(10, 0), thread(20, 75), thread(90, 4)])[..] else {
            panic!("one job");
        };
        let pacing = job.pacing.unwrap();
        assert_eq!(job.usage.user_ns + job.usage.system_ns, 120);
        assert_eq!(pacing.cpu_wait_ns, Some(79));
        let threads = JobThreads {
            count: 3,
            busiest_cpu_ns: 20,
            busiest_cpu_wait_ns: Some(75),
        };
        assert_eq!(pacing.threads, Some(threads));
        let plan = plan_of(2);
        let jobs = job_results(&plan, &plan.places(|_| 1), &[thread(10, 0), thread(20, 0)]);
        assert!(jobs.iter().all(|job| job.pacing.unwrap().threads.is_none()));
    }
}
