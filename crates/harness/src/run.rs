//! One run as its workload sees it: inputs, events, whether it is to stop, and the measurement.

use std::time::Duration;

use crate::metrics::{DeviceWatch, usage};
use iosonde_protocol::{Edge, Event, Interval, Outcome, Phase, PhaseEvent, RunResult, Warning};

use crate::control::Control;
use crate::error::RunError;
use crate::measure::{Load, Measured, RunInputs, measure};
use crate::plan::LoadPlan;
use crate::start::{AgreedStart, await_start};

/// Interval of progress reports of a phase, in nanoseconds.
const REPORT_NS: u64 = 1_000_000_000;

/// A run in progress.
pub struct Run<'a> {
    pub inputs: RunInputs<'a>,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
    /// Until the measurement.
    watch: Option<DeviceWatch>,
    reported_ns: u64,
}

impl<'a> Run<'a> {
    /// A run whose events go to `emit`.
    ///
    /// # Errors
    /// When a device cannot be observed.
    pub fn new(
        inputs: RunInputs<'a>,
        control: &'a mut Control,
        emit: &'a mut dyn FnMut(Event),
    ) -> Result<Run<'a>, RunError> {
        Ok(Run {
            watch: Some(DeviceWatch::open(&inputs.observe.block_devices)?),
            inputs,
            control,
            emit,
            reported_ns: 0,
        })
    }

    /// A phase begins now; returns the time.
    pub fn begin(&mut self, phase: Phase) -> u64 {
        self.reported_ns = self.report(phase, Edge::Begin, 0);
        self.reported_ns
    }

    /// A phase continues, which is reported about once a second; returns whether it is to.
    pub fn progress(&mut self, phase: Phase, bytes: u64) -> bool {
        if self.inputs.clock.now() >= self.reported_ns + REPORT_NS {
            self.reported_ns = self.report(phase, Edge::Progress, bytes);
        }
        !self.is_stopped()
    }

    /// A phase ends now; returns the time.
    pub fn end(&mut self, phase: Phase, bytes: u64) -> u64 {
        self.report(phase, Edge::End, bytes)
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) -> u64 {
        let at_ns = self.inputs.clock.now();
        self.emit(Event::Phase(PhaseEvent {
            phase,
            edge,
            at_ns,
            bytes,
        }));
        at_ns
    }

    /// Emits an event.
    pub fn emit(&mut self, event: Event) {
        (self.emit)(event);
    }

    /// Emits a warning.
    pub fn warn(&mut self, warning: Warning) {
        self.emit(Event::Warning(warning));
    }

    /// True if the run is to end before its own end.
    pub fn is_stopped(&mut self) -> bool {
        self.control.is_stopped()
    }

    /// Waits, but not beyond a request to stop.
    pub fn wait(&mut self, duration: Duration) {
        self.control.wait(duration);
    }

    /// For a load on a virtual clock: waits for the agreed start, from which virtual time counts. None if there is none, or the run
    /// is stopped before.
    pub fn await_start(&mut self) -> Option<AgreedStart> {
        let unix_ns = await_start(self.control, self.inputs.clock, 0, self.emit)?;
        Some(AgreedStart::on_virtual_clock(unix_ns))
    }

    /// Carries out ramp and measurement; `at_interval` adds to each interval what the harness does not know.
    ///
    /// # Errors
    /// When a thread cannot be created, or the first error of a job.
    pub fn measure<L: Load>(
        &mut self,
        plan: &LoadPlan<'_>,
        load: &L,
        at_interval: &mut dyn FnMut(&mut Interval),
    ) -> Result<Measured<L::Found>, RunError> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => DeviceWatch::open(&self.inputs.observe.block_devices)?,
        };
        let emit = &mut *self.emit;
        let mut completed = |event| match event {
            Event::Interval(mut interval) => {
                at_interval(&mut interval);
                emit(Event::Interval(interval));
            }
            other => emit(other),
        };
        measure(plan, load, self.inputs, watch, self.control, &mut completed)
    }

    /// The result of a run in which nothing is measured, for example because it was stopped before.
    pub fn unmeasured(&mut self) -> RunResult {
        let now_ns = self.inputs.clock.now();
        RunResult {
            outcome: match self.is_stopped() {
                true => Outcome::Stopped,
                false => Outcome::Complete,
            },
            begin_ns: now_ns,
            end_ns: now_ns,
            peak_memory_bytes: usage::peak_memory_bytes(),
            ..RunResult::default()
        }
    }
}
