//! The start of a load at an agreed instant of `CLOCK_REALTIME`, together with loads on other hosts.
//!
//! The controller sleeps until shortly before the instant. It looks at the wall clock again and again, which may be set
//! meanwhile, and wakes at once for a request to stop. Only then the instant is converted to the run's clock, on which the jobs
//! wait for it: asleep, and for the last microseconds spinning ([`crate::wait_until`]).

use std::time::Duration;

use crate::metrics::clock::{self, Clock};
use iosonde_protocol::{Event, Ready, Start, StartResult};

use crate::control::Control;

/// Time before the instant at which jobs are released, so that they sleep until then by themselves.
pub(crate) const LEAD_NS: u64 = 50_000_000;
/// Added to the instant, so that the start is never early: the wall clock may be slewed by 500 ppm (adjtimex(2)), which is
/// 25 us within the lead, and a reading of both clocks is exact to 1 us. All hosts add the same.
const MARGIN_NS: u64 = 27_000;
/// The longest sleep: a wall clock that is set is noticed after this time.
const POLL_NS: u64 = 50_000_000;

/// An instant at which a load starts.
#[derive(Debug, Clone, Copy)]
pub struct AgreedStart {
    requested_unix_ns: u64,
    started_unix_ns: u64,
    started_ns: u64,
}

/// Reports that everything is prepared, and waits until `lead_ns` before the instant; returns its Unix time. None if there is no
/// such instant, or the run is stopped before.
pub(crate) fn await_start(
    control: &mut Control,
    clock: Clock,
    lead_ns: u64,
    emit: &mut dyn FnMut(Event),
) -> Option<u64> {
    control.start()?;
    emit(Event::Ready(Ready { at_ns: clock.now() }));
    while !control.is_stopped() {
        match control.start() {
            Some(Start::At { unix_ns }) => return await_instant(control, unix_ns, lead_ns),
            _ => control.wait(Duration::from_nanos(POLL_NS)),
        }
    }
    None
}

/// Waits until `lead_ns` before a Unix time, and returns it; none if the run is stopped before.
pub(crate) fn await_instant(control: &mut Control, unix_ns: u64, lead_ns: u64) -> Option<u64> {
    while !control.is_stopped() {
        let left_ns = unix_ns.saturating_sub(clock::unix_ns().saturating_add(lead_ns));
        if left_ns == 0 {
            return Some(unix_ns);
        }
        control.wait(Duration::from_nanos(left_ns.min(POLL_NS)));
    }
    None
}

impl AgreedStart {
    /// The start at a Unix time that is [`LEAD_NS`] away, but not before an instant of the run's clock.
    pub(crate) fn new(requested_unix_ns: u64, clock: Clock, earliest_ns: u64) -> AgreedStart {
        let reading = clock.wall();
        let started_ns = reading
            .clock_ns(requested_unix_ns.saturating_add(MARGIN_NS))
            .max(earliest_ns);
        AgreedStart {
            requested_unix_ns,
            started_unix_ns: reading.unix_ns(started_ns),
            started_ns,
        }
    }

    /// A start that is now, of a load on a virtual clock that starts at 0.
    pub(crate) fn on_virtual_clock(requested_unix_ns: u64) -> AgreedStart {
        AgreedStart {
            requested_unix_ns,
            started_unix_ns: clock::unix_ns(),
            started_ns: 0,
        }
    }

    /// From when phases and intervals count, in nanoseconds since the run's 0.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// The start of a load whose last job started at `last_job_ns`, and which ended at `end_ns`.
    pub(crate) fn result(&self, last_job_ns: u64, end_ns: u64, clock: Clock) -> StartResult {
        StartResult {
            last_job_ns,
            end_unix_ns: clock.wall().unix_ns(end_ns),
            ..self.virtual_result(end_ns)
        }
    }

    /// The start of a load on a virtual clock, which starts all jobs at once.
    pub fn virtual_result(&self, end_ns: u64) -> StartResult {
        StartResult {
            requested_unix_ns: self.requested_unix_ns,
            started_unix_ns: self.started_unix_ns,
            started_ns: self.started_ns,
            last_job_ns: self.started_ns,
            end_unix_ns: self.started_unix_ns + end_ns.saturating_sub(self.started_ns),
        }
    }
}
