//! Sleeping until an instant, as precisely as required.

use iosonde_harness::metrics::clock::Clock;
use rustix::thread::{Timespec, nanosleep};

/// Sleeps for a job that has nothing in flight.
///
/// A timer wakes a thread tens of microseconds late: the processor has to leave its idle state and the scheduler to
/// choose the thread. So the last part before an instant that matters is spent watching the clock.
pub(super) struct Nap {
    clock: Clock,
    spin_ns: u64,
    spun_ns: u64,
}

impl Nap {
    pub(super) fn new(clock: Clock, spin_ns: u64) -> Nap {
        Nap {
            clock,
            spin_ns,
            spun_ns: 0,
        }
    }

    /// Exactly until an instant; a signal ends it earlier.
    pub(super) fn until_due(&mut self, instant_ns: u64) {
        let now_ns = self.clock.now();
        if instant_ns.saturating_sub(now_ns) > self.spin_ns {
            self.idle(instant_ns - self.spin_ns);
        } else {
            self.spin(now_ns, instant_ns, || false);
        }
    }

    /// About until an instant; a signal ends it earlier.
    pub(super) fn idle(&self, instant_ns: u64) {
        let left_ns = instant_ns.saturating_sub(self.clock.now());
        let request = Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let _ = nanosleep(&request);
    }

    /// Time before an instant at which sleeping must end, in nanoseconds.
    pub(super) fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// CPU time spent watching the clock.
    pub(super) fn spun_ns(&self) -> u64 {
        self.spun_ns
    }

    /// Watches the clock from `now_ns` to `instant_ns`, or until `found` returns true.
    pub(super) fn spin(&mut self, now_ns: u64, instant_ns: u64, mut found: impl FnMut() -> bool) {
        let mut at_ns = now_ns;
        while at_ns < instant_ns && !found() {
            std::hint::spin_loop();
            at_ns = self.clock.now();
        }
        self.spun_ns += at_ns - now_ns;
    }
}
