//! Intervals and result of a load on a virtual clock, whose driver moves time by itself.

use crate::metrics::{device, usage};
use iosonde_protocol::{BackendInEffect, DeviceUsage, Event, Outcome, Phase, RunResult, SteadyRamp, Usage};

use crate::collector::Collector;
use crate::measure::{JobDone, job_results};
use crate::phases::{JobPhases, Shared};
use crate::plan::{LoadPlan, Place};
use crate::recorder::{Exchange, Recorder};
use crate::run::Run;
use crate::start::AgreedStart;

/// A load on a virtual clock.
pub struct VirtualRun<'a> {
    shared: &'a Shared,
    plan: &'a LoadPlan<'a>,
    collector: Collector,
    meter: Meter,
    agreed: Option<AgreedStart>,
    began: Usage,
}

impl<'a> VirtualRun<'a> {
    /// Waits for the agreed start, if there is one. `devices` are the counters of the devices before the load.
    pub fn new(
        plan: &'a LoadPlan<'a>,
        shared: &'a Shared,
        ramp: Option<SteadyRamp>,
        devices: Vec<DeviceUsage>,
        run: &mut Run<'_>,
    ) -> VirtualRun<'a> {
        shared.set_begin(0, plan.ramp.duration_ns);
        let agreed = run.await_start();
        if run.is_stopped() {
            shared.stop();
        }
        VirtualRun {
            shared,
            plan,
            collector: Collector::new(plan.open_loops(), plan.interval_ns).with_ramp(ramp),
            meter: Meter::new(plan, devices),
            agreed,
            began: usage::process(0),
        }
    }

    /// The phases of a job, which are to be created in the order of their places.
    pub fn phases(&mut self, place: Place) -> JobPhases<'a> {
        let exchange = Exchange::new();
        self.collector.add(place.stream, exchange.clone());
        let recorder = Recorder::new(exchange, self.plan.interval_ns);
        JobPhases::new(self.plan.phases(place), self.shared, recorder)
    }

    /// Ends the intervals that have ended by now; to be called at each instant.
    pub fn tick(&mut self, now_ns: u64, devices: &dyn Fn() -> Vec<DeviceUsage>) {
        let begin_ns = self.shared.measure_begin();
        self.meter.tick(now_ns, begin_ns, devices, &mut self.collector);
    }

    /// The job at this place has ended.
    pub fn job_finished(&mut self, number: usize, devices: Vec<DeviceUsage>) {
        self.meter.note(devices, &mut self.collector);
        self.collector.job_finished(number);
    }

    /// Emits complete intervals; to be called once in each interval at least. Returns true if the ramp may end now.
    pub fn look(&mut self, now_ns: u64, run: &mut Run<'_>) -> bool {
        self.collector.drain();
        let ready = self.collector.ready().into_iter();
        ready.for_each(|interval| run.emit(Event::Interval(interval)));
        if now_ns < self.shared.measure_begin() {
            return self.collector.is_ramp_steady();
        }
        if let Some(warning) = self.collector.end_ramp() {
            run.warn(warning);
        }
        false
    }

    /// Results of the jobs, in the order of their places.
    pub fn result<T>(
        self,
        places: &[Place],
        done: &[JobDone<T>],
        devices: &[DeviceUsage],
        backend: BackendInEffect,
    ) -> RunResult {
        let begin_ns = self.shared.measure_begin();
        let end_ns = done.iter().map(|done| done.totals.end_ns).max().unwrap_or(begin_ns);
        RunResult {
            outcome: match self.shared.is_stopped() {
                true => Outcome::Stopped,
                false => Outcome::Complete,
            },
            begin_ns: begin_ns.min(end_ns),
            end_ns,
            start: self.agreed.map(|agreed| agreed.virtual_result(end_ns)),
            jobs: job_results(self.plan, places, done),
            process: usage::process(end_ns).since(&self.began),
            peak_memory_bytes: usage::peak_memory_bytes(),
            devices: device::difference(devices, &self.meter.measured_from),
            backend,
            ..RunResult::default()
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
    fn new(plan: &LoadPlan<'_>, devices: Vec<DeviceUsage>) -> Meter {
        Meter {
            interval_ns: plan.interval_ns,
            phase: if plan.ramp.duration_ns > 0 {
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

    fn tick(
        &mut self,
        now_ns: u64,
        measure_begin_ns: u64,
        devices: &dyn Fn() -> Vec<DeviceUsage>,
        collector: &mut Collector,
    ) {
        if self.phase == Phase::Ramp && now_ns >= measure_begin_ns {
            self.end_intervals(measure_begin_ns, devices, collector);
            self.note(devices(), collector);
            (self.phase, self.origin_ns, self.index) = (Phase::Measure, measure_begin_ns, 0);
            self.before = devices();
            self.measured_from = self.before.clone();
        }
        self.end_intervals(now_ns, devices, collector);
    }

    /// Notes what happened in the interval so far.
    fn note(&self, devices: Vec<DeviceUsage>, collector: &mut Collector) {
        let devices = device::difference(&devices, &self.before);
        collector.note_usage(self.phase, self.index, Usage::default(), devices);
    }

    fn end_intervals(&mut self, now_ns: u64, devices: &dyn Fn() -> Vec<DeviceUsage>, collector: &mut Collector) {
        while now_ns >= self.origin_ns + (self.index + 1) * self.interval_ns {
            self.note(devices(), collector);
            self.before = devices();
            self.index += 1;
        }
    }
}
