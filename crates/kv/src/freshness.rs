//! The last acknowledged write of every record, to detect values that are older.
//!
//! Writers of one record take turns, so that its generations increase in the order in which they are applied; a value
//! read must then have at least the generation that was acknowledged before the read began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::records::generation_of;

/// Locks that the records share.
const LOCKS: usize = 4096;
/// Generations of a run: its base, which is a multiple of this, and those after it.
const GENERATIONS: u64 = 1 << 40;
/// Records that can be tracked: their generations take 1 GiB.
pub(crate) const RECORDS_MAX: u64 = 1 << 27;

/// Generations of a run, and the last acknowledged one of each record.
pub(crate) struct Freshness {
    base: u64,
    issued: AtomicU64,
    /// 0 before the first write.
    acknowledged: Box<[AtomicU64]>,
    locks: Box<[Mutex<()>]>,
}

impl Freshness {
    /// For records numbered below `count`; `random` distinguishes this run's generations from those of others.
    pub(crate) fn new(count: u64, random: u64) -> Freshness {
        Freshness {
            base: (random / GENERATIONS * GENERATIONS) | (1 << 63),
            issued: AtomicU64::new(1),
            acknowledged: (0..count).map(|_| AtomicU64::new(0)).collect(),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Excludes other writers of a record until the guard is dropped.
    pub(crate) fn lock(&self, number: u64) -> MutexGuard<'_, ()> {
        let lock = &self.locks[number as usize % LOCKS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A generation larger than all before.
    pub(crate) fn issue(&self) -> u64 {
        self.base + self.issued.fetch_add(1, Ordering::Relaxed)
    }

    /// A write has completed. Records inserted by the run are not tracked.
    pub(crate) fn acknowledge(&self, number: u64, generation: u64) {
        if let Some(last) = self.acknowledged.get(number as usize) {
            last.store(generation, Ordering::Release);
        }
    }

    /// The generation that a read of the record must return at least.
    pub(crate) fn expected(&self, number: u64) -> u64 {
        self.acknowledged
            .get(number as usize)
            .map_or(0, |last| last.load(Ordering::Acquire))
    }

    /// Returns true if a value is older than expected.
    pub(crate) fn is_stale(&self, value: &[u8], expected: u64) -> bool {
        let is_new_enough = |generation| (expected..self.base.saturating_add(GENERATIONS)).contains(&generation);
        expected != 0 && !generation_of(value).is_some_and(is_new_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(generation: u64) -> Vec<u8> {
        [generation.to_le_bytes(), [0; 8]].concat()
    }

    #[test]
    fn values_before_the_last_acknowledged_write_are_stale() {
        let freshness = Freshness::new(10, 0xabcd_0000_1234_5678);
        assert_eq!(freshness.expected(3), 0);
        assert!(!freshness.is_stale(&value(0), 0), "nothing was written yet");
        let (first, second) = (freshness.issue(), freshness.issue());
        freshness.acknowledge(3, second);
        let expected = freshness.expected(3);
        assert!(!freshness.is_stale(&value(second), expected));
        let newer = value(freshness.issue());
        assert!(!freshness.is_stale(&newer, expected), "it is in flight");
        assert!(freshness.is_stale(&value(first), expected));
        assert!(freshness.is_stale(&value(0), expected), "the loaded value");
        assert!(freshness.is_stale(&value(u64::MAX), expected), "a value of another run");
        assert_eq!(freshness.expected(4), 0);
        assert_eq!(freshness.expected(1000), 0, "an inserted record");
    }
}
