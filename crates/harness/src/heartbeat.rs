//! Detects that the engine itself did not run: stopped by a signal, frozen by a control group, or without a CPU.
//!
//! A thread of its own sleeps for 5 ms at a time. If it wakes late, no thread of the process could be sure to run
//! meanwhile, so latencies of that time are not the target's. It does no I/O and shares nothing with the jobs, so their
//! queue depth makes no difference. Its 200 wake-ups a second cost about 0.1 % of one core.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::metrics::clock::Clock;
use iosonde_protocol::EngineStalls;

/// Length of a sleep.
const BEAT_NS: u64 = 5_000_000;
/// The scheduler may wake a thread this much late on a busy machine; beyond it the engine counts as stalled.
const LATE_NS: u64 = 5_000_000;

/// A running heartbeat; it ends when this is dropped.
pub(crate) struct Heartbeat {
    clock: Clock,
    pulse: Arc<Pulse>,
    thread: Option<JoinHandle<()>>,
}

struct Pulse {
    stop: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// When the thread is to wake next.
    due_ns: u64,
    /// From when it was due to when it woke, in ascending order.
    stalls: Vec<Range<u64>>,
}

impl Pulse {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self, clock: Clock) {
        while !self.stop.load(Ordering::Relaxed) {
            let due_ns = clock.now() + BEAT_NS;
            self.state().due_ns = due_ns;
            std::thread::sleep(Duration::from_nanos(BEAT_NS));
            let now_ns = clock.now();
            if is_late(due_ns, now_ns) {
                let mut state = self.state();
                state.stalls.push(due_ns..now_ns);
                // Both at once, so that no stall is counted twice.
                state.due_ns = u64::MAX;
            }
        }
    }
}

fn is_late(due_ns: u64, now_ns: u64) -> bool {
    now_ns >= due_ns.saturating_add(LATE_NS)
}

impl Heartbeat {
    /// Starts the thread.
    pub(crate) fn start(clock: Clock) -> io::Result<Heartbeat> {
        let pulse = Arc::new(Pulse {
            stop: AtomicBool::new(false),
            state: Mutex::new(State {
                due_ns: u64::MAX,
                stalls: Vec::new(),
            }),
        });
        let own = pulse.clone();
        let thread = Builder::new().name("heartbeat".into()).spawn(move || own.beat(clock))?;
        Ok(Heartbeat {
            clock,
            pulse,
            thread: Some(thread),
        })
    }

    /// Stalls in a part of the run up to now, with the one that has not ended yet.
    pub(crate) fn stalls(&self, within: Range<u64>) -> EngineStalls {
        let now_ns = self.clock.now();
        let state = self.pulse.state();
        let present = is_late(state.due_ns, now_ns).then(|| state.due_ns..now_ns);
        sum(state.stalls.iter().cloned().chain(present), &within)
    }
}

fn sum(stalls: impl Iterator<Item = Range<u64>>, within: &Range<u64>) -> EngineStalls {
    let mut sum = EngineStalls::default();
    for stall in stalls {
        let inside_ns = stall.end.min(within.end).saturating_sub(stall.start.max(within.start));
        sum.stalled_ns += inside_ns;
        sum.longest_ns = sum.longest_ns.max(inside_ns);
        sum.count += u64::from(inside_ns > 0);
    }
    sum
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.pulse.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_in_each_part_of_the_run_by_its_share_and_waking_in_time_is_none() {
        let stalls = || [100..150, 180..400].into_iter();
        let expected = |stalled_ns, longest_ns, count| EngineStalls {
            stalled_ns,
            longest_ns,
            count,
        };
        assert_eq!(sum(stalls(), &(0..100)), expected(0, 0, 0));
        assert_eq!(sum(stalls(), &(100..200)), expected(70, 50, 2));
        assert_eq!(sum(stalls(), &(200..300)), expected(100, 100, 1));
        assert_eq!(sum(stalls(), &(0..1000)), expected(270, 220, 2));
        assert!(!is_late(1_000_000, 1_000_000 + LATE_NS - 1));
        assert!(is_late(1_000_000, 1_000_000 + LATE_NS));
        assert!(!is_late(u64::MAX, 10), "it is awake");
    }
}
