//! Sets of vertices as bits.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of vertices that all jobs may add to.
pub(crate) struct Frontier(Vec<AtomicU64>);

impl Frontier {
    pub(crate) fn new(vertices: u32) -> Frontier {
        Frontier((0..vertices.div_ceil(64)).map(|_| AtomicU64::default()).collect())
    }

    #[inline]
    pub(crate) fn add(&self, vertex: u32) {
        let (word, bit) = (&self.0[(vertex / 64) as usize], 1 << (vertex % 64));
        // Most vertices are added many times, and reading is cheaper than writing to a line that others use.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The first member from `from`; `end` if none before it is one.
    #[inline]
    pub(crate) fn next(&self, from: u32, end: u32) -> u32 {
        if from >= end {
            return end;
        }
        let mut number = from / 64;
        let mut word = self.0[number as usize].load(Ordering::Relaxed) & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return (number * 64 + word.trailing_zeros()).min(end);
            }
            number += 1;
            if number >= end.div_ceil(64) {
                return end;
            }
            word = self.0[number as usize].load(Ordering::Relaxed);
        }
    }

    /// Members in whole blocks of vertices.
    pub(crate) fn count(&self, vertices: Range<u32>) -> u64 {
        let words = &self.0[(vertices.start / 64) as usize..vertices.end.div_ceil(64) as usize];
        words
            .iter()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum()
    }

    /// Removes all members in whole blocks of vertices.
    pub(crate) fn clear(&self, vertices: Range<u32>) {
        let words = &self.0[(vertices.start / 64) as usize..vertices.end.div_ceil(64) as usize];
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Bytes of memory for this many vertices.
    pub(crate) fn bytes(vertices: u64) -> u64 {
        vertices.div_ceil(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_order_within_bounds() {
        let set = Frontier::new(300);
        [0, 63, 64, 200, 299].into_iter().for_each(|vertex| set.add(vertex));
        let members = |from, end| {
            let mut next = from;
            std::iter::from_fn(|| {
                let found = set.next(next, end);
                next = found + 1;
                (found < end).then_some(found)
            })
            .collect::<Vec<u32>>()
        };
        assert_eq!(members(0, 300), [0, 63, 64, 200, 299]);
        assert_eq!(members(1, 200), [63, 64]);
        assert_eq!((set.count(0..300), set.next(300, 300)), (5, 300));
        set.clear(0..300);
        assert_eq!(set.next(0, 300), 300);
    }
}
