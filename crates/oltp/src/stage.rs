//! What happens around the measurement: events of phases, and whether the run is to stop.

use std::time::Duration;

use iosonde_harness::Control;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{Edge, Event, Phase, PhaseEvent};

const REPORT_NS: u64 = 1_000_000_000;

/// The run as seen by its steps.
pub(crate) struct Stage<'a> {
    clock: Clock,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
    reported_ns: u64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(clock: Clock, control: &'a mut Control, emit: &'a mut dyn FnMut(Event)) -> Stage<'a> {
        Stage {
            clock,
            control,
            emit,
            reported_ns: 0,
        }
    }

    /// A phase begins now.
    pub(crate) fn begin(&mut self, phase: Phase) -> u64 {
        let at_ns = self.report(phase, Edge::Begin, 0);
        self.reported_ns = at_ns;
        at_ns
    }

    /// A phase continues; reported once a second.
    pub(crate) fn progress(&mut self, phase: Phase, bytes: u64) {
        if self.clock.now() >= self.reported_ns + REPORT_NS {
            self.reported_ns = self.report(phase, Edge::Progress, bytes);
        }
    }

    /// A phase ends now.
    pub(crate) fn end(&mut self, phase: Phase, bytes: u64) -> u64 {
        self.report(phase, Edge::End, bytes)
    }

    pub(crate) fn emit(&mut self, event: Event) {
        (self.emit)(event);
    }

    pub(crate) fn wait(&mut self, duration: Duration) {
        self.control.wait(duration);
    }

    pub(crate) fn is_stopped(&mut self) -> bool {
        self.control.is_stopped()
    }

    /// For the measurement, which has events of its own.
    pub(crate) fn parts(&mut self) -> (&mut Control, &mut dyn FnMut(Event)) {
        (self.control, self.emit)
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) -> u64 {
        let at_ns = self.clock.now();
        (self.emit)(Event::Phase(PhaseEvent {
            phase,
            edge,
            at_ns,
            bytes,
        }));
        at_ns
    }
}
