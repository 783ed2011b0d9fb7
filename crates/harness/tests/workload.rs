//! A workload of the smallest kind through the driver, as ARCHITECTURE.md describes how one is added.

use std::sync::atomic::{AtomicU64, Ordering};

use iosonde_harness::load::Schedule;
use iosonde_harness::metrics::clock::{Clock, unix_ns};
use iosonde_harness::target::Targets;
use iosonde_harness::{
    Control, JobDone, JobStart, Load, LoadPlan, Remote, Run, RunError, RunInputs, Stage, StreamPlan, Workload,
    carry_out, wait_until, wait_until_due,
};
use iosonde_protocol::{Arrival, Event, Observe, Operation, Outcome, Ramp, RunResult, Start};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Failures of the second job of a run.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    CannotPrepare,
    Fails,
    Panics,
}

struct Count {
    arrival: Arrival,
    limit_operations: Option<u64>,
    duration_ns: Option<u64>,
    trouble: Trouble,
    cpus: Vec<u32>,
}

impl Workload for Count {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        Some(LoadPlan {
            ramp: Ramp::default(),
            duration_ns: self.duration_ns,
            interval_ns: 100_000_000,
            streams: vec![StreamPlan {
                arrival: &self.arrival,
                limit_operations: self.limit_operations,
                ..StreamPlan::closed("main", 3, &self.cpus)
            }],
        })
    }

    fn check(&self) -> Result<(), RunError> {
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let counter = Counter {
            count: AtomicU64::new(0),
            clock: run.inputs.clock,
            trouble: self.trouble,
        };
        let plan = self.plan().expect("it always measures");
        let measured = run.measure(&plan, &counter, &mut |_| {})?;
        let counted: u64 = measured.found.iter().sum();
        assert_eq!(counted, counter.count.into_inner());
        Ok(measured.result)
    }
}

struct Counter {
    count: AtomicU64,
    clock: Clock,
    trouble: Trouble,
}

impl Load for Counter {
    type Found = u64;

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<u64>>, RunError> {
        let is_second = start.place.job == 1;
        if is_second && self.trouble == Trouble::CannotPrepare {
            return Err(RunError::unsupported("nothing to count with", ""));
        }
        if !start.gate.pass() {
            return Ok(None);
        }
        let mut phases = start.phases;
        let begin_ns = phases.begin();
        let mut now_ns = self.clock.now();
        assert!(now_ns >= begin_ns, "the gate opens at the first instant of the run");
        match self.trouble {
            Trouble::Fails if is_second => return Err(RunError::internal("the counter is full")),
            Trouble::Panics if is_second => panic!("as the test requires"),
            _ => {}
        }
        let mut schedule = start.arrivals.map(|arrivals| Schedule::new(arrivals, begin_ns));
        let (mut counted, mut spun_ns) = (0, 0);
        loop {
            phases.advance(now_ns, 0);
            phases.notice_exhaustion(now_ns, 0);
            if phases.stage() == Stage::Drain {
                break;
            }
            let due_ns = schedule.as_ref().map_or(0, Schedule::next_ns);
            if !phases.may_issue() {
                now_ns = wait_until(self.clock, phases.idle_until(now_ns));
            } else if due_ns > now_ns {
                let until_ns = due_ns.min(phases.idle_until(now_ns));
                now_ns = wait_until_due(self.clock, now_ns, until_ns, &mut spun_ns);
            } else {
                let intended_ns = schedule.as_mut().map(Schedule::take);
                self.count.fetch_add(1, Ordering::Relaxed);
                counted += 1;
                let end_ns = self.clock.now();
                phases.take(1);
                phases.advance_to_completion(end_ns);
                let response_ns = intended_ns.map(|intended_ns| end_ns - intended_ns);
                phases.record(Operation::Write, 1, end_ns, end_ns - now_ns, response_ns);
                now_ns = end_ns;
            }
        }
        let end_ns = phases.ended_ns();
        Ok(Some(JobDone {
            schedule: schedule.map(|schedule| schedule.into_result(end_ns, spun_ns)),
            ..JobDone::new(phases.into_outcome(), counted)
        }))
    }
}

fn counting(trouble: Trouble) -> Count {
    Count {
        arrival: Arrival::Closed,
        limit_operations: Some(100),
        duration_ns: None,
        trouble,
        cpus: Vec::new(),
    }
}

fn for_an_hour(trouble: Trouble) -> Count {
    Count {
        limit_operations: None,
        duration_ns: Some(HOUR_NS),
        ..counting(trouble)
    }
}

fn operations(result: &RunResult) -> Vec<u64> {
    result.jobs.iter().map(|job| job.operations).collect()
}

fn measured(workload: &Count, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, RunError> {
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    carry_out(workload, inputs, control, emit)
}

fn quietly(workload: &Count) -> Result<RunResult, RunError> {
    measured(workload, &mut Control::new().0, &mut |_| {})
}

#[test]
fn jobs_share_the_limit_of_their_stream_on_the_cpus_in_effect() {
    let mut in_intervals = 0;
    let mut count = |event| {
        if let Event::Interval(interval) = event {
            let operations = interval.streams.iter().flat_map(|stream| &stream.operations);
            in_intervals += operations.map(|operation| operation.count).sum::<u64>();
        }
    };
    let result = measured(&counting(Trouble::None), &mut Control::new().0, &mut count).unwrap();
    assert_eq!((operations(&result), in_intervals), (vec![34, 33, 33], 100));
    assert_eq!(result.outcome, Outcome::Complete);
    let allowed = quietly(&counting(Trouble::None)).unwrap().evidence.unwrap().job_cpus;
    assert!(allowed.len() == 3 && !allowed[0].is_empty(), "{allowed:?}");
    let first: u32 = allowed[0].split(['-', ',']).next().unwrap().parse().unwrap();
    let mut workload = counting(Trouble::None);
    workload.cpus = vec![first];
    let pinned = quietly(&workload).unwrap().evidence.unwrap().job_cpus;
    assert_eq!(pinned, vec![first.to_string(); 3]);
}

#[test]
fn an_open_loop_has_the_arrivals_of_its_rate() {
    let workload = Count {
        arrival: Arrival::Constant { rate: 300.0 },
        limit_operations: None,
        duration_ns: Some(100_000_000),
        ..counting(Trouble::None)
    };
    let result = quietly(&workload).unwrap();
    let due: u64 = result.jobs.iter().map(|job| job.schedule.unwrap().due).sum();
    assert_eq!(due, 30);
}

/// Carries out a workload with a start; `at_ready` is called when it is ready, with what starts and stops it.
fn started(
    workload: &Count,
    start: Start,
    at_ready: impl Fn(&Remote),
) -> (Result<RunResult, RunError>, Vec<&'static str>) {
    let (mut control, remote) = Control::new();
    control.set_start(Some(start));
    let mut order = Vec::new();
    let mut note = |event| match event {
        Event::Ready(_) => {
            order.push("ready");
            at_ready(&remote);
        }
        Event::Interval(_) => order.push("interval"),
        _ => {}
    };
    let result = measured(workload, &mut control, &mut note);
    (result, order)
}

#[test]
fn a_load_starts_at_the_agreed_instant_never_before_and_its_delay_is_recorded() {
    let unix_ns = unix_ns() + 300_000_000;
    for (start, in_command) in [
        (Start::At { unix_ns }, None),
        (Start::Command, Some(unix_ns + 100_000_000)),
    ] {
        let (result, order) = started(&counting(Trouble::None), start, |remote| {
            for requested in [in_command, Some(1)].into_iter().flatten() {
                remote.start(requested);
            }
        });
        let result = result.unwrap();
        let found = result.start.unwrap();
        assert_eq!(order[..2], ["ready", "interval"]);
        let first = in_command.unwrap_or(unix_ns);
        assert_eq!(found.requested_unix_ns, first, "only the first counts");
        assert!(found.started_unix_ns >= found.requested_unix_ns, "{found:?}");
        assert_eq!(found.started_ns, result.begin_ns);
        assert!(found.last_job_ns >= found.started_ns, "{found:?}");
        assert!(found.end_unix_ns >= found.started_unix_ns, "{found:?}");
    }
    let requested_unix_ns = iosonde_harness::metrics::clock::unix_ns() - 10_000_000_000;
    let unix_ns = requested_unix_ns;
    let (result, _) = started(&counting(Trouble::None), Start::At { unix_ns }, |_| ());
    let found = result.unwrap().start.unwrap();
    assert_eq!(found.requested_unix_ns, requested_unix_ns);
    assert!(found.started_unix_ns >= requested_unix_ns + 10_000_000_000, "{found:?}");
}

#[test]
fn a_stop_or_jobs_that_cannot_prepare_end_the_wait_for_a_start() {
    let far = Start::At { unix_ns: u64::MAX };
    for (start, at_ready) in [
        (far, Remote::stop as fn(&Remote)),
        (Start::Command, Remote::stop),
        (Start::Command, Remote::end_input),
    ] {
        let result = started(&for_an_hour(Trouble::None), start, at_ready).0.unwrap();
        assert_eq!((result.outcome, result.start), (Outcome::Stopped, None));
        assert_eq!(operations(&result), [0, 0, 0]);
    }
    let (result, order) = started(&counting(Trouble::CannotPrepare), Start::Command, |_| ());
    assert_eq!(result.unwrap_err().to_failure().code, "unsupported");
    assert!(order.is_empty(), "{order:?}");
}

#[test]
fn the_failure_of_a_job_ends_the_run_for_all_and_names_its_stream() {
    let mut pinned = for_an_hour(Trouble::None);
    pinned.cpus = vec![5000];
    use Trouble::{CannotPrepare, Fails, Panics};
    let stream = "stream `main`";
    for (workload, code, message, context) in [
        (for_an_hour(CannotPrepare), "unsupported", "nothing", stream),
        (for_an_hour(Fails), "internal", "the counter is full", stream),
        (for_an_hour(Panics), "internal", "a job's thread panicked", stream),
        (
            pinned,
            "unsupported",
            "job 0 cannot run on CPU 5000",
            "starting the jobs",
        ),
    ] {
        let failure = quietly(&workload).unwrap_err().to_failure();
        assert!(failure.message.starts_with(message), "{failure:?}");
        assert_eq!([&failure.code[..], &failure.context], [code, context]);
    }
}
