//! Runs all jobs of a workload against one device on a virtual clock, in one thread.
//!
//! Time moves from one completion, or one scheduled action of a job, to the next. Only jobs
//! that have something to do then are looked at, so that an I/O costs the same with one job and with a hundred.

use std::cell::RefCell;
use std::rc::Rc;

use iosonde_harness::{Collector, Control, Exchange, Recorder, Shared};
use iosonde_metrics::usage;
use iosonde_protocol::{
    Backend, BackendInEffect, BlockWorkload, DeviceUsage, Durability, Event, LayoutResult, MediaUsage, Outcome, Phase,
    RunResult, Usage,
};

use crate::backend::{Backend as _, SimulatedDevice, VirtualDevice, VirtualPort};
use crate::error::BlockError;
use crate::job::{Job, turn};
use crate::prepare;

/// Events between two checks for a stop request; a new interval is looked at in any case, so that jobs
/// never run out of empty records.
const EVENTS_PER_POLL: u32 = 4096;

/// Carries the workload out on servers of known service time.
pub(crate) fn run(
    workload: &BlockWorkload,
    seed: u64,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, BlockError> {
    let Backend::Simulated {
        servers,
        read_service_ns,
        write_service_ns,
        service,
        ref stalls,
    } = workload.backend
    else {
        return Err(BlockError::Internal("a simulation without a simulated backend".into()));
    };
    let device = SimulatedDevice::new(servers, (read_service_ns, write_service_ns), service, stalls, seed);
    run_on(device, workload, seed, control, emit).map(|(result, _)| result)
}

/// Carries the workload out on a device; its time is the device's, not ours. Gives the device back.
pub(crate) fn run_on<D: VirtualDevice>(
    device: D,
    workload: &BlockWorkload,
    seed: u64,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<(RunResult, D), BlockError> {
    let device = Rc::new(RefCell::new(device));
    let shared = Shared::default();
    shared.set_begin(0, workload.ramp.duration_ns);
    let streams = workload
        .streams
        .iter()
        .map(|stream| (stream.name.clone(), prepare::is_open_loop(stream)));
    let mut collector = Collector::new(streams, workload.interval_ns).with_ramp(workload.ramp.until_steady);
    let mut planned_jobs = Vec::new();
    for (number, planned) in prepare::plans(workload, seed, 0, &|_| 1)?.into_iter().enumerate() {
        let exchange = Exchange::new();
        collector.add(planned.stream, exchange.clone());
        let mut job = Job::new(
            planned.plan,
            &shared,
            None,
            Recorder::new(exchange, workload.interval_ns),
        );
        job.begin();
        let durable = workload.streams[planned.stream].durability == Durability::Dsync;
        planned_jobs.push(PlannedJob {
            stream: planned.stream,
            job_number: planned.job,
            job,
            port: VirtualPort::new(Rc::clone(&device), number, durable),
        });
    }
    let began = usage::process(0);
    let meter = Meter::new(workload, device.borrow().usage());
    let result = Simulation {
        meter,
        device: Rc::clone(&device),
        shared: &shared,
        instants: vec![0; planned_jobs.len()],
        // Every job acts at the beginning.
        acting: (0..planned_jobs.len()).collect(),
        planned_jobs,
        collector,
    }
    .run(control, emit, workload, &began);
    let device = Rc::into_inner(device).expect("the jobs and their ports are gone");
    Ok((result, device.into_inner()))
}

struct PlannedJob<'a, D> {
    stream: usize,
    job_number: u32,
    job: Job<'a>,
    port: VirtualPort<D>,
}

/// An instant that never comes: of jobs that have ended.
const NEVER: u64 = u64::MAX;

struct Simulation<'a, D> {
    device: Rc<RefCell<D>>,
    shared: &'a Shared,
    planned_jobs: Vec<PlannedJob<'a, D>>,
    /// The next scheduled action of each job.
    instants: Vec<u64>,
    /// Jobs that act at the present instant.
    acting: Vec<usize>,
    meter: Meter,
    collector: Collector,
}

impl<D: VirtualDevice> Simulation<'_, D> {
    fn run(
        mut self,
        control: &mut Control,
        emit: &mut dyn FnMut(Event),
        workload: &BlockWorkload,
        began: &Usage,
    ) -> RunResult {
        let (mut events, mut interval, mut running) = (0_u32, 0, self.planned_jobs.len());
        loop {
            running -= self.act();
            if running == 0 {
                break;
            }
            self.move_on();
            events += 1;
            let interval_now = self.device.borrow().now() / workload.interval_ns;
            if interval_now != interval || events.is_multiple_of(EVENTS_PER_POLL) {
                interval = interval_now;
                self.look(control, emit);
            }
        }
        self.look(control, emit);
        self.result(workload, began)
    }

    /// Lets jobs act at the present instant; how many have ended by that.
    fn act(&mut self) -> usize {
        let now_ns = self.device.borrow().now();
        self.meter
            .tick(now_ns, self.shared.measure_begin(), &self.device, &mut self.collector);
        let mut finished = 0;
        for number in std::mem::take(&mut self.acting) {
            if self.instants[number] == NEVER && self.planned_jobs[number].job.is_done() {
                continue;
            }
            let planned = &mut self.planned_jobs[number];
            turn(&mut planned.job, &mut planned.port, now_ns);
            self.instants[number] = planned.job.next_instant();
            if planned.job.is_done() {
                self.instants[number] = NEVER;
                self.meter.note(&self.device, &mut self.collector);
                self.collector.job_finished(number);
                finished += 1;
            }
        }
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
            self.planned_jobs[job].port.deliver(slot, result);
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
        self.acting = (0..self.planned_jobs.len()).collect();
    }

    fn end_ramp_if_all_wait(&mut self, now_ns: u64) {
        if self.shared.measure_begin() > now_ns && self.shared.waiting() as usize == self.planned_jobs.len() {
            self.end_ramp(now_ns);
        }
    }

    fn end_ramp(&mut self, now_ns: u64) {
        self.shared.set_measure_begin(now_ns);
        self.instants
            .iter_mut()
            .for_each(|instant| *instant = (*instant).min(now_ns));
    }

    fn look(&mut self, control: &mut Control, emit: &mut dyn FnMut(Event)) {
        self.collector.drain();
        self.collector
            .ready()
            .into_iter()
            .for_each(|interval| emit(Event::Interval(interval)));
        let now_ns = self.device.borrow().now();
        if now_ns >= self.shared.measure_begin() {
            if let Some(warning) = self.collector.end_ramp() {
                emit(Event::Warning(warning));
            }
        } else if self.collector.is_ramp_steady() {
            self.end_ramp(now_ns);
        }
        if control.is_stopped() && !self.shared.is_stopped() {
            self.shared.stop();
            self.everybody_acts();
        }
    }

    fn result(self, workload: &BlockWorkload, began: &Usage) -> RunResult {
        let begin_ns = self.shared.measure_begin();
        let backend = self
            .planned_jobs
            .first()
            .map_or_else(BackendInEffect::default, |planned| planned.port.in_effect());
        let stopped = self.shared.is_stopped();
        let outcomes: Vec<prepare::JobOfStream> = self
            .planned_jobs
            .into_iter()
            .map(|planned| (planned.stream, planned.job_number, planned.job.into_outcome(0)))
            .collect();
        let end_ns = outcomes
            .iter()
            .map(|(_, _, outcome)| outcome.phases.end_ns)
            .max()
            .unwrap_or(begin_ns);
        RunResult {
            outcome: if stopped { Outcome::Stopped } else { Outcome::Complete },
            begin_ns: begin_ns.min(end_ns),
            end_ns,
            jobs: prepare::job_results(workload, &outcomes),
            process: usage::difference(&usage::process(end_ns), began),
            peak_memory_bytes: usage::peak_memory_bytes(),
            buffer_bytes: 0,
            devices: self.meter.of_measurement(&self.device.borrow().usage()),
            backend,
            layout: LayoutResult::default(),
            evidence: None,
            store: None,
            oltp: None,
            paging: None,
            graph: None,
            objects: None,
            verification: None,
        }
    }
}

/// Notes what the devices did in each interval, on the clock that is theirs.
struct Meter {
    interval_ns: u64,
    phase: Phase,
    origin_ns: u64,
    index: u64,
    /// Devices at the beginning of the interval, and of the measurement.
    before: Vec<DeviceUsage>,
    measured_from: Vec<DeviceUsage>,
}

impl Meter {
    fn new(workload: &BlockWorkload, devices: Vec<DeviceUsage>) -> Meter {
        Meter {
            interval_ns: workload.interval_ns,
            phase: if workload.ramp.duration_ns > 0 {
                Phase::Ramp
            } else {
                Phase::Measure
            },
            origin_ns: 0,
            index: 0,
            measured_from: devices.clone(),
            before: devices,
        }
    }

    /// Ends the intervals that have ended by now.
    fn tick<D: VirtualDevice>(
        &mut self,
        now_ns: u64,
        measure_begin_ns: u64,
        device: &Rc<RefCell<D>>,
        collector: &mut Collector,
    ) {
        if self.phase == Phase::Ramp && now_ns >= measure_begin_ns {
            self.end_intervals(measure_begin_ns, device, collector);
            self.note(device, collector);
            (self.phase, self.origin_ns, self.index) = (Phase::Measure, measure_begin_ns, 0);
            self.before = device.borrow().usage();
            self.measured_from = self.before.clone();
        }
        self.end_intervals(now_ns, device, collector);
    }

    /// Notes what happened in the interval so far.
    fn note<D: VirtualDevice>(&self, device: &Rc<RefCell<D>>, collector: &mut Collector) {
        let devices = differences(&device.borrow().usage(), &self.before);
        collector.note_usage(self.phase, self.index, Usage::default(), devices);
    }

    fn end_intervals<D: VirtualDevice>(&mut self, now_ns: u64, device: &Rc<RefCell<D>>, collector: &mut Collector) {
        while now_ns >= self.origin_ns + (self.index + 1) * self.interval_ns {
            self.note(device, collector);
            self.before = device.borrow().usage();
            self.index += 1;
        }
    }

    fn of_measurement(&self, devices: &[DeviceUsage]) -> Vec<DeviceUsage> {
        differences(devices, &self.measured_from)
    }
}

fn differences(later: &[DeviceUsage], earlier: &[DeviceUsage]) -> Vec<DeviceUsage> {
    later
        .iter()
        .zip(earlier)
        .map(|(later, earlier)| DeviceUsage {
            device: later.device.clone(),
            reads: later.reads - earlier.reads,
            read_bytes: later.read_bytes - earlier.read_bytes,
            read_wait_ns: later.read_wait_ns - earlier.read_wait_ns,
            writes: later.writes - earlier.writes,
            write_bytes: later.write_bytes - earlier.write_bytes,
            write_wait_ns: later.write_wait_ns - earlier.write_wait_ns,
            in_flight: later.in_flight,
            busy_ns: later.busy_ns - earlier.busy_ns,
            discards: later.discards - earlier.discards,
            discard_bytes: later.discard_bytes - earlier.discard_bytes,
            flushes: later.flushes - earlier.flushes,
            media: later
                .media
                .zip(earlier.media)
                .map(|(later, earlier)| media_difference(&later, &earlier)),
            ..DeviceUsage::default()
        })
        .collect()
}

fn media_difference(later: &MediaUsage, earlier: &MediaUsage) -> MediaUsage {
    MediaUsage {
        media_read_bytes: later.media_read_bytes - earlier.media_read_bytes,
        media_write_bytes: later.media_write_bytes - earlier.media_write_bytes,
        copied_bytes: later.copied_bytes - earlier.copied_bytes,
        padded_bytes: later.padded_bytes - earlier.padded_bytes,
        erases: later.erases - earlier.erases,
        buffer_read_hits: later.buffer_read_hits - earlier.buffer_read_hits,
        buffer_write_hits: later.buffer_write_hits - earlier.buffer_write_hits,
    }
}
