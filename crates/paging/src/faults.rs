//! Classification of accesses as page faults.
//!
//! The kernel counts the faults of each thread (`getrusage(2)`), but asking it costs hundreds of nanoseconds, several times an
//! access that hits. A fault takes far longer than a hit. So only accesses that took at least a threshold are classified by
//! the counters, and shorter ones are hits. The threshold is half of the fastest minor fault on this machine. Faults that
//! were missed nevertheless remain in the counters, and the result states their number.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use iosonde_harness::metrics::clock::Clock;
use memmap2::{Advice, MmapMut};

/// Page faults of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub minor: u64,
    pub major: u64,
}

impl Faults {
    /// Those of the calling thread so far.
    #[inline]
    pub(crate) fn of_thread() -> Faults {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the call fills the structure that it is given; it fails only for a bad address or an unknown `who`, and
        // then nothing is read.
        unsafe {
            if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
                return Faults::default();
            }
            let usage = usage.assume_init();
            Faults {
                minor: usage.ru_minflt as u64,
                major: usage.ru_majflt as u64,
            }
        }
    }

    /// Those since an earlier reading.
    #[inline]
    pub(crate) fn since(self, earlier: Faults) -> Faults {
        Faults {
            minor: self.minor - earlier.minor,
            major: self.major - earlier.major,
        }
    }

    /// All of several threads.
    pub(crate) fn add(&mut self, other: Faults) {
        self.minor += other.minor;
        self.major += other.major;
    }
}

/// Classification of accesses on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Classification {
    /// Accesses that took at least this long are classified by the kernel's counters.
    pub threshold_ns: u64,
    pub fastest_minor_fault_ns: u64,
    /// Cost of reading the counters once.
    pub counters_cost_ns: f64,
}

/// Pages whose first touch is timed.
const FAULTS: usize = 512;
/// Readings of the counters in a batch, and batches; the cheapest counts.
const READINGS: u32 = 200;
const BATCHES: u32 = 5;
/// No page fault is faster than an exception and the return from it.
const THRESHOLD_NS_MIN: u64 = 100;

impl Classification {
    /// Measures this machine; takes a millisecond.
    pub(crate) fn calibrate(clock: Clock) -> Classification {
        let fastest_minor_fault_ns = fastest_minor_fault_ns(clock);
        let batch_ns = |_| {
            let begin_ns = clock.now();
            (0..READINGS).for_each(|_| {
                std::hint::black_box(Faults::of_thread());
            });
            clock.now() - begin_ns
        };
        let best_ns = (0..BATCHES).map(batch_ns).min().unwrap_or_default();
        Classification {
            threshold_ns: (fastest_minor_fault_ns / 2).max(THRESHOLD_NS_MIN),
            fastest_minor_fault_ns,
            counters_cost_ns: best_ns as f64 / f64::from(READINGS),
        }
    }
}

/// The fastest first touch of a page of anonymous memory; 0 where no memory can be mapped.
fn fastest_minor_fault_ns(clock: Clock) -> u64 {
    let page_bytes = rustix::param::page_size();
    let Ok(memory) = MmapMut::map_anon(FAULTS * page_bytes) else {
        return 0;
    };
    let _ = memory.advise(Advice::NoHugePage);
    let touch_ns = |page: usize| {
        // SAFETY: the word is in the mapping, aligned, and is accessed by this thread only.
        let word = unsafe { &*memory.as_ptr().add(page * page_bytes).cast::<AtomicU64>() };
        let begin_ns = clock.now();
        word.store(1, Ordering::Relaxed);
        clock.now() - begin_ns
    };
    (0..FAULTS).map(touch_ns).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_touch_of_a_page_is_a_minor_fault_slower_than_the_threshold() {
        let memory = MmapMut::map_anon(rustix::param::page_size()).unwrap();
        // SAFETY: the word is the first of the mapping and is accessed by this thread only.
        let word = unsafe { &*memory.as_ptr().cast::<AtomicU64>() };
        let before = Faults::of_thread();
        word.store(1, Ordering::Relaxed);
        let first = Faults::of_thread();
        word.store(2, Ordering::Relaxed);
        let second = Faults::of_thread();
        assert!(first.since(before).minor >= 1);
        assert_eq!(second.since(first), Faults::default());
        let found = Classification::calibrate(Clock::start());
        assert!(found.threshold_ns >= THRESHOLD_NS_MIN);
        assert!(found.fastest_minor_fault_ns > THRESHOLD_NS_MIN, "{found:?}");
        assert!(found.threshold_ns <= found.fastest_minor_fault_ns, "{found:?}");
        assert!(found.counters_cost_ns > 0.0);
    }
}
