//! Runs all jobs of a workload against one device on a virtual clock, in one thread.
//!
//! Time moves from one completion, or one scheduled action of a job, to the next. Only jobs
//! that have something to do then are looked at, so that an I/O costs the same with one job and with a hundred.

use std::cell::RefCell;
use std::rc::Rc;

use iosonde_harness::{Place, Run, RunError, Shared, VirtualRun};
use iosonde_protocol::{Backend, BackendInEffect, BlockWorkload, Durability, RunResult};

use crate::backend::{Backend as _, SimulatedDevice, VirtualDevice, VirtualPort};
use crate::job::{Job, turn};
use crate::prepare;

/// Events between two checks for a stop request; a new interval is looked at in any case, so that jobs
/// never run out of empty records.
const EVENTS_PER_POLL: u32 = 4096;

/// Carries the workload out on servers of known service time.
pub(crate) fn measure(workload: &BlockWorkload, run: &mut Run<'_>) -> Result<RunResult, RunError> {
    let Backend::Simulated {
        servers,
        read_service_ns,
        write_service_ns,
        service,
        ref stalls,
    } = workload.backend
    else {
        return Err(RunError::internal("a simulation without a simulated backend"));
    };
    let times = (read_service_ns, write_service_ns);
    let device = SimulatedDevice::new(servers, times, service, stalls, run.inputs.seed);
    measure_on(device, workload, run).map(|(result, _)| result)
}

/// Carries the workload out on a device; its time is the device's, not ours. Gives the device back.
pub(crate) fn measure_on<D: VirtualDevice>(
    device: D,
    workload: &BlockWorkload,
    run: &mut Run<'_>,
) -> Result<(RunResult, D), RunError> {
    let (device, seed) = (Rc::new(RefCell::new(device)), run.inputs.seed);
    let plan = prepare::load_plan(workload);
    let shared = Shared::default();
    let devices = device.borrow().usage();
    let mut intervals = VirtualRun::new(&plan, &shared, workload.ramp.until_steady, devices, run);
    let mut jobs = Vec::new();
    let places = plan.places(|_| 1);
    for place in &places {
        let phases = intervals.phases(*place);
        let job_plan = prepare::plan(workload, seed, *place)?;
        let mut job = Job::new(job_plan, phases, plan.arrivals(*place, seed), None);
        job.begin();
        let durable = workload.streams[place.stream].durability == Durability::Dsync;
        jobs.push(SimulatedJob {
            job,
            port: VirtualPort::new(Rc::clone(&device), place.number, durable),
        });
    }
    let simulation = Simulation {
        device: Rc::clone(&device),
        shared: &shared,
        instants: vec![0; jobs.len()],
        // Every job acts at the beginning.
        acting: (0..jobs.len()).collect(),
        jobs,
        intervals,
    };
    let result = simulation.run(run, workload.interval_ns, &places);
    let device = Rc::into_inner(device).expect("the jobs and their ports are gone");
    Ok((result, device.into_inner()))
}

struct SimulatedJob<'a, D> {
    job: Job<'a>,
    port: VirtualPort<D>,
}

/// An instant that never comes: of jobs that have ended.
const NEVER: u64 = u64::MAX;

struct Simulation<'a, D> {
    device: Rc<RefCell<D>>,
    shared: &'a Shared,
    jobs: Vec<SimulatedJob<'a, D>>,
    /// The next scheduled action of each job.
    instants: Vec<u64>,
    /// Jobs that act at the present instant.
    acting: Vec<usize>,
    intervals: VirtualRun<'a>,
}

impl<D: VirtualDevice> Simulation<'_, D> {
    fn run(mut self, run: &mut Run<'_>, interval_ns: u64, places: &[Place]) -> RunResult {
        let (mut events, mut interval, mut running) = (0_u32, 0, self.jobs.len());
        loop {
            running -= self.act();
            if running == 0 {
                break;
            }
            self.move_on();
            events += 1;
            let interval_now = self.device.borrow().now() / interval_ns;
            if interval_now != interval || events.is_multiple_of(EVENTS_PER_POLL) {
                interval = interval_now;
                self.look(run);
            }
        }
        self.look(run);
        self.result(places)
    }

    /// Lets jobs act at the present instant; how many have ended by that.
    fn act(&mut self) -> usize {
        let now_ns = self.device.borrow().now();
        self.intervals.tick(now_ns, &|| self.device.borrow().usage());
        let mut finished = 0;
        let mut acting = std::mem::take(&mut self.acting);
        for number in acting.drain(..) {
            if self.instants[number] == NEVER && self.jobs[number].job.is_done() {
                continue;
            }
            let planned = &mut self.jobs[number];
            turn(&mut planned.job, &mut planned.port, now_ns);
            self.instants[number] = planned.job.next_instant();
            if planned.job.is_done() {
                self.instants[number] = NEVER;
                self.intervals.job_finished(number, self.device.borrow().usage());
                finished += 1;
            }
        }
        self.acting = acting; // Its memory serves the next instant.
        self.end_ramp_if_all_wait(now_ns);
        finished
    }

    /// Moves time to the next instant at which something is to be done, and finds out by whom.
    fn move_on(&mut self) {
        let mut device = self.device.borrow_mut();
        let next_ns = self.instants.iter().copied().min().unwrap_or(NEVER);
        let limit_ns = next_ns.max(device.now());
        device.advance(limit_ns);
        while let Some((job, slot, result)) = device.completed() {
            self.jobs[job].port.deliver(slot, result);
            self.acting.push(job);
        }
        let now_ns = device.now();
        if next_ns <= now_ns {
            let due = self
                .instants
                .iter()
                .enumerate()
                .filter(|(_, instant)| **instant <= now_ns);
            self.acting.extend(due.map(|(number, _)| number));
        }
        // One that several I/Os came back to acts once; in a fixed order, whatever the reason.
        self.acting.sort_unstable();
        self.acting.dedup();
    }

    fn everybody_acts(&mut self) {
        self.acting = (0..self.jobs.len()).collect();
    }

    fn end_ramp_if_all_wait(&mut self, now_ns: u64) {
        if self.shared.measure_begin() > now_ns && self.shared.waiting() as usize == self.jobs.len() {
            self.end_ramp(now_ns);
        }
    }

    fn end_ramp(&mut self, now_ns: u64) {
        self.shared.set_measure_begin(now_ns);
        self.instants
            .iter_mut()
            .for_each(|instant| *instant = (*instant).min(now_ns));
    }

    fn look(&mut self, run: &mut Run<'_>) {
        let now_ns = self.device.borrow().now();
        if self.intervals.look(now_ns, run) {
            self.end_ramp(now_ns);
        }
        if run.is_stopped() && !self.shared.is_stopped() {
            self.shared.stop();
            self.everybody_acts();
        }
    }

    fn result(self, places: &[Place]) -> RunResult {
        let backend = self
            .jobs
            .first()
            .map_or_else(BackendInEffect::default, |first| first.port.in_effect());
        let done: Vec<_> = self.jobs.into_iter().map(|each| each.job.into_done(0)).collect();
        self.intervals
            .result(places, &done, &self.device.borrow().usage(), backend)
    }
}
