//! Journal entry of one unit: two words, each with a check of its own content.
//!
//! | word | bits | field |
//! |---|---|---|
//! | state | 0..58 | [`UnitState`] |
//! | | 58..64 | check |
//! | reads | 0..32 | the oldest generation that is durable; 0 if none is |
//! | | 32..56 | the low bits of the generation that a read found last; 0 if there was none |
//! | | 56..64 | check |
//!
//! A check depends on the number of the unit as well, so an entry of another unit is found too. A word changes in one
//! atomic instruction and reaches the medium whole, so the check holds whenever the process or the machine stops. A word
//! of zeros was never set.

use std::sync::atomic::{AtomicU64, Ordering};

use super::state::{UnitState, is_before};

pub(super) const ENTRY_BYTES: usize = 16;
/// Bytes of an entry that the checksum of a settled journal covers: what reads have found changes later.
pub(super) const SETTLED_BYTES: usize = 12;

const SEEN_SHIFT: u32 = 32;
const SEEN_BITS: u32 = 24;

/// The check of a word, in its uppermost bits.
#[derive(Clone, Copy)]
struct Check {
    bits: u32,
    /// Any six neighbouring bits have both values, so a changed bit of the content changes the check.
    multiplier: u64,
}

const STATE: Check = Check {
    bits: 6,
    multiplier: 0x9e2d_59b3_4a6c_d235,
};
/// With another multiplier: an entry of another unit would otherwise pass both checks or none.
const READS: Check = Check {
    bits: 8,
    multiplier: STATE.multiplier.reverse_bits(),
};

impl Check {
    /// The word that has this content; 0 if that is 0.
    #[inline]
    fn word(self, unit: usize, content: u64) -> u64 {
        let mixed = (content ^ unit as u64).wrapping_mul(self.multiplier);
        match content {
            0 => 0,
            _ => content | mixed & !self.content_mask(),
        }
    }

    #[inline]
    fn content(self, word: u64) -> u64 {
        word & self.content_mask()
    }

    #[inline]
    fn is_sound(self, unit: usize, word: u64) -> bool {
        word == self.word(unit, self.content(word))
    }

    #[inline]
    fn content_mask(self) -> u64 {
        u64::MAX >> self.bits
    }
}

/// Journal entry of one unit; see the module. Changes need its number.
#[repr(C)]
pub(crate) struct Entry {
    state: AtomicU64,
    reads: AtomicU64,
}

impl Entry {
    #[inline]
    pub(crate) fn state(&self) -> UnitState {
        UnitState(STATE.content(self.state.load(Ordering::Acquire)))
    }

    /// Enters a write; returns its generation.
    #[inline]
    pub(crate) fn begin(&self, unit: usize) -> u32 {
        self.change(unit, UnitState::submitted).issued()
    }

    /// Acknowledges a write; returns what the unit then holds, if no other is in flight.
    #[inline]
    pub(crate) fn end(&self, unit: usize) -> Option<u32> {
        let state = self.change(unit, UnitState::ended);
        (state.in_flight() == 0).then(|| state.allowed().oldest)
    }

    /// Nobody writes any more.
    pub(super) fn settle(&self, unit: usize) {
        let state = self.state();
        if state.in_flight() > 0 {
            self.state.store(STATE.word(unit, state.settled().0), Ordering::Release);
        }
    }

    /// Marks all writes up to an acknowledged generation as durable.
    #[inline]
    pub(crate) fn set_durable(&self, unit: usize, generation: u32) {
        self.change_reads(unit, |Reads { durable, seen }| {
            (durable == 0 || is_before(durable, generation)).then_some(Reads {
                durable: generation,
                seen,
            })
        });
    }

    /// A read has found this generation.
    #[inline]
    pub(crate) fn set_seen(&self, unit: usize, generation: u32) {
        let new = low_bits(generation);
        self.change_reads(unit, |Reads { durable, seen }| {
            (seen != new).then_some(Reads { durable, seen: new })
        });
    }

    /// The oldest generation that is durable; 0 if none is.
    pub(crate) fn durable(&self) -> u32 {
        self.reads().durable
    }

    /// The generation that a read found last; 0 if there was none.
    pub(crate) fn seen(&self) -> u32 {
        match self.reads().seen {
            0 => 0,
            // The last one submitted with these bits.
            seen => {
                let issued = self.state().issued();
                issued.wrapping_sub(low_bits(issued.wrapping_sub(seen)))
            }
        }
    }

    /// Returns true if both words have the check of their content.
    pub(super) fn is_sound(&self, unit: usize) -> bool {
        STATE.is_sound(unit, self.state.load(Ordering::Acquire))
            && READS.is_sound(unit, self.reads.load(Ordering::Acquire))
    }

    /// Returns true if nothing is known of the unit. Of a unit that was written neither word is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0 || self.reads.load(Ordering::Acquire) == 0
    }

    /// Returns true if writes could have led to it: every durable generation was submitted.
    pub(super) fn is_possible(&self) -> bool {
        is_submitted(self.durable(), self.state().issued())
    }

    /// The same of another unit.
    pub(super) fn copy_for(&self, unit: usize) -> Entry {
        Entry::new(unit, self.state(), self.reads())
    }

    pub(super) fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.state.load(Ordering::Acquire).to_le_bytes());
        bytes[8..].copy_from_slice(&self.reads.load(Ordering::Acquire).to_le_bytes());
        bytes
    }

    fn new(unit: usize, state: UnitState, reads: Reads) -> Entry {
        Entry {
            state: STATE.word(unit, state.0).into(),
            reads: reads.word(unit).into(),
        }
    }

    fn reads(&self) -> Reads {
        Reads::from_word(self.reads.load(Ordering::Acquire))
    }

    #[inline]
    fn change(&self, unit: usize, step: impl Fn(UnitState) -> UnitState) -> UnitState {
        let mut before = self.state.load(Ordering::Relaxed);
        loop {
            let after = step(UnitState(STATE.content(before)));
            match self.state.compare_exchange_weak(
                before,
                STATE.word(unit, after.0),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return after,
                Err(now) => before = now,
            }
        }
    }

    #[inline]
    fn change_reads(&self, unit: usize, step: impl Fn(Reads) -> Option<Reads>) {
        // An error says that there was nothing to change.
        let _ = self.reads.fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
            step(Reads::from_word(word)).map(|reads| reads.word(unit))
        });
    }
}

#[derive(Clone, Copy)]
struct Reads {
    durable: u32,
    seen: u32,
}

impl Reads {
    #[inline]
    fn from_word(word: u64) -> Reads {
        Reads {
            durable: word as u32,
            seen: low_bits((word >> SEEN_SHIFT) as u32),
        }
    }

    #[inline]
    fn word(self, unit: usize) -> u64 {
        READS.word(unit, u64::from(self.durable) | u64::from(self.seen) << SEEN_SHIFT)
    }
}

#[inline]
fn low_bits(generation: u32) -> u32 {
    generation & ((1 << SEEN_BITS) - 1)
}

fn is_submitted(generation: u32, issued: u32) -> bool {
    generation == 0 || (issued != 0 && !is_before(issued, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_harness::load::Rng;

    fn entry(unit: usize, writes: u32) -> Entry {
        let entry = Entry::new(unit, UnitState(0), Reads { durable: 0, seen: 0 });
        for _ in 0..writes {
            let generation = entry.begin(unit);
            assert_eq!(entry.end(unit), Some(generation));
            entry.set_durable(unit, generation);
            entry.set_seen(unit, generation);
        }
        entry
    }

    #[test]
    fn every_change_keeps_the_checks_and_what_a_read_found_is_known_for_long() {
        for unit in [0, 1, 255, 256, 1 << 40] {
            let entry = entry(unit, 70_000);
            assert!(entry.is_sound(unit) && entry.is_possible() && !entry.is_empty());
            assert_eq!((entry.durable(), entry.seen()), (70_000, 70_000));
            entry.begin(unit);
            assert!(entry.is_sound(unit));
            entry.settle(unit);
            assert!(entry.is_sound(unit) && entry.copy_for(unit + 9).is_sound(unit + 9));
        }
        let entry = entry(3, 5);
        let state = STATE.word(3, u64::from(5 + (1_u32 << SEEN_BITS) - 1));
        entry.state.store(state, Ordering::Relaxed);
        assert_eq!(entry.seen(), 5);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for (unit, writes) in [(0, 1), (7, 1), (1_000, 300), (1 << 30, 70_000)] {
            let entry = entry(unit, writes);
            for bit in 0..64 {
                for word in [&entry.state, &entry.reads] {
                    word.fetch_xor(1 << bit, Ordering::Relaxed);
                    assert!(!entry.is_sound(unit), "bit {bit} of unit {unit}");
                    word.fetch_xor(1 << bit, Ordering::Relaxed);
                }
            }
        }
    }

    #[test]
    fn of_arbitrary_bytes_and_of_entries_of_other_units_few_pass() {
        let mut rng = Rng::new(5, &[]);
        let passed = |entries: &mut dyn FnMut() -> Entry| (0..100_000).filter(|_| entries().is_sound(9)).count();
        let mut arbitrary = || Entry {
            state: rng.below(u64::MAX).into(),
            reads: rng.below(u64::MAX).into(),
        };
        // One in 2^14 is expected.
        assert!(passed(&mut arbitrary) < 30);
        let mut unit = 9;
        let mut moved = || {
            unit += 1;
            entry(unit, 3)
        };
        assert!(passed(&mut moved) < 30);
    }
}
