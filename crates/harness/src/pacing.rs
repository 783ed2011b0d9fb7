//! Waiting of a job's thread for an instant: the same for every workload, so that their latencies can be compared.

use std::time::Duration;

use crate::metrics::clock::Clock;

/// Sleeping is not exact to the microsecond, so a thread spins for the last part.
pub const SPIN_NS: u64 = 60_000;
/// The longest sleep of a job that has nothing to do: it must notice the end.
const NAP_NS: u64 = 50_000_000;

/// Sleeps once, but not for the last [`SPIN_NS`] before an instant, in which it returns at once; returns the time.
#[inline]
pub fn wait_until(clock: Clock, instant_ns: u64) -> u64 {
    let left_ns = instant_ns.saturating_sub(clock.now());
    if left_ns > SPIN_NS {
        std::thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(NAP_NS)));
    } else {
        std::hint::spin_loop();
    }
    clock.now()
}

/// The same for the start of an operation that is due at an instant; adds what was spun to `spun_ns`.
#[inline]
pub fn wait_until_due(clock: Clock, now_ns: u64, due_ns: u64, spun_ns: &mut u64) -> u64 {
    let woken_ns = wait_until(clock, due_ns);
    if due_ns.saturating_sub(now_ns) <= SPIN_NS {
        *spun_ns += woken_ns - now_ns;
    }
    woken_ns
}
