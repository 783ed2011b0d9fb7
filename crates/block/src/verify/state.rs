//! Valid contents of a unit: which generations, given the writes that were submitted and acknowledged.
//!
//! A unit is the smallest piece that any write of the run covers whole. Its writes are numbered from 1. As long as one
//! write follows the other, the unit holds the last one acknowledged. Writes in flight at the same time may reach the
//! medium in any order, or mixed by sector, so afterwards it may hold any of those that overlapped; a read during them may
//! find what was there before, too. All of this is one word, so that jobs share it without a lock:
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0..32 | issued | number of the last write submitted |
//! | 32..46 | in flight | writes submitted and not acknowledged |
//! | 46..52 | back | how far behind `issued` the oldest generation lies that may be there |
//! | 52..58 | next back | the same, once no write is in flight any more |
//!
//! The other bits are free for a check ([`super::entry`]). A distance that does not fit becomes [`ANY`]: every older
//! generation is then allowed, until writes stop overlapping. That weakens the check of a unit on which dozens of writes
//! overlap without a pause; it never raises a false alarm.

const IN_FLIGHT_SHIFT: u32 = 32;
const IN_FLIGHT_BITS: u32 = 14;
const BACK_SHIFT: u32 = 46;
const BACK_BITS: u32 = 6;
const NEXT_BACK_SHIFT: u32 = BACK_SHIFT + BACK_BITS;
/// As far as numbers that wrap can be distinguished.
const EVER: u32 = i32::MAX as u32;
/// A distance too large to be counted.
const ANY: u64 = (1 << BACK_BITS) - 1;

/// Most writes that may be in flight together.
pub(crate) const IN_FLIGHT_MAX: u64 = (1 << IN_FLIGHT_BITS) - 1;

/// The word; see the module. 0 is a unit that was never written under verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitState(pub(crate) u64);

/// Generations that a sector may have. Numbers wrap after 2^32, so they are compared by distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub oldest: u32,
    pub newest: u32,
    /// True if a write may have been in flight: a read through the page cache may then return half of the one and half
    /// of the other within a sector, since the kernel copies without a lock.
    pub may_mix: bool,
}

impl Allowed {
    #[inline]
    pub(crate) fn contains(self, generation: u32) -> bool {
        generation.wrapping_sub(self.oldest) <= self.newest.wrapping_sub(self.oldest)
    }

    /// This generation and all that follow.
    pub(crate) fn from(oldest: u32) -> Allowed {
        Allowed {
            oldest,
            newest: oldest.wrapping_add(EVER),
            may_mix: false,
        }
    }

    /// Returns true if there is no newest.
    pub(crate) fn is_open(self) -> bool {
        self.newest.wrapping_sub(self.oldest) == EVER
    }

    /// Returns true if a generation lies before all that are allowed.
    pub(crate) fn is_older(self, generation: u32) -> bool {
        is_before(generation, self.oldest)
    }
}

/// Returns true if one generation lies before another.
pub(crate) fn is_before(generation: u32, other: u32) -> bool {
    (generation.wrapping_sub(other) as i32) < 0
}

impl UnitState {
    #[inline]
    pub(crate) fn issued(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn in_flight(self) -> u64 {
        (self.0 >> IN_FLIGHT_SHIFT) & IN_FLIGHT_MAX
    }

    fn back(self) -> u64 {
        (self.0 >> BACK_SHIFT) & ANY
    }

    fn next_back(self) -> u64 {
        (self.0 >> NEXT_BACK_SHIFT) & ANY
    }

    fn new(issued: u32, in_flight: u64, back: u64, next_back: u64) -> UnitState {
        debug_assert!(in_flight <= IN_FLIGHT_MAX, "the spec's check bounds the concurrency");
        UnitState(
            u64::from(issued)
                | in_flight << IN_FLIGHT_SHIFT
                | back.min(ANY) << BACK_SHIFT
                | next_back.min(ANY) << NEXT_BACK_SHIFT,
        )
    }

    /// A write begins; its generation is the new state's `issued`.
    #[inline]
    pub(crate) fn submitted(self) -> UnitState {
        let next_back = if self.in_flight() == 0 { 0 } else { self.next_back() + 1 };
        match self.issued().checked_add(1) {
            Some(issued) => UnitState::new(issued, self.in_flight() + 1, self.back() + 1, next_back),
            // 0 means that there is nothing, so the numbers begin again at 1.
            None => UnitState::new(1, self.in_flight() + 1, ANY, ANY),
        }
    }

    /// A write is acknowledged.
    #[inline]
    pub(crate) fn ended(self) -> UnitState {
        let in_flight = self.in_flight().saturating_sub(1);
        let back = if in_flight == 0 { self.next_back() } else { self.back() };
        UnitState::new(self.issued(), in_flight, back, self.next_back())
    }

    /// Nobody writes any more: what was in flight has come or will never come. A unit of which no write was ever
    /// acknowledged may hold anything, and counts as never written.
    pub(crate) fn settled(self) -> UnitState {
        if self.is_checkable() {
            UnitState::new(self.issued(), 0, self.back(), self.back())
        } else {
            UnitState(0)
        }
    }

    /// Returns true if anything is known of the unit's contents.
    #[inline]
    pub(crate) fn is_checkable(self) -> bool {
        // Generation 0 is whatever was there before the first write.
        self.issued() != 0 && (self.back() == ANY || u64::from(self.issued()) != self.back())
    }

    /// Allowed contents of the unit now.
    #[inline]
    pub(crate) fn allowed(self) -> Allowed {
        let newest = self.issued();
        let back = match self.back() {
            ANY => EVER,
            back => back as u32,
        };
        Allowed {
            oldest: newest.wrapping_sub(back),
            newest,
            may_mix: self.in_flight() > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_harness::load::Rng;

    const NEVER: UnitState = UnitState(0);

    fn range(allowed: Allowed) -> (u32, u32) {
        (allowed.oldest, allowed.newest)
    }

    #[test]
    fn the_last_write_remains_and_of_writes_that_overlap_any_may_have_come_last() {
        let mut state = NEVER;
        for generation in 1..2_000 {
            state = state.submitted();
            assert_eq!(state.issued(), generation);
            assert_eq!(range(state.allowed()), (generation - 1, generation));
            state = state.ended();
            assert_eq!(range(state.allowed()), (generation, generation));
        }
        let mut state = NEVER.submitted().ended().submitted().submitted();
        assert_eq!(range(state.allowed()), (1, 3));
        state = state.ended();
        assert_eq!(range(state.allowed()), (1, 3));
        state = state.ended();
        assert_eq!(range(state.allowed()), (2, 3));
        assert_eq!(range(state.submitted().ended().allowed()), (4, 4));
    }

    #[test]
    fn a_unit_whose_first_write_was_never_acknowledged_may_hold_anything_and_numbers_wrap() {
        let state = NEVER.submitted();
        assert!(!state.is_checkable());
        assert_eq!(state.settled(), NEVER);
        assert!(state.ended().is_checkable());
        let killed = state.ended().submitted().settled();
        assert_eq!((killed.in_flight(), range(killed.allowed())), (0, (1, 2)));
        assert_eq!(range(killed.submitted().ended().allowed()), (3, 3));
        let last = UnitState::new(u32::MAX, 0, 0, 0);
        let first = last.submitted().ended();
        assert_eq!(first.issued(), 1);
        assert!(first.is_checkable() && first.allowed().contains(1) && first.allowed().contains(u32::MAX));
        assert!(!first.allowed().contains(2));
        assert_eq!(range(first.submitted().ended().allowed()), (2, 2));
    }

    #[test]
    fn distances_that_do_not_fit_allow_everything_older_and_then_recover() {
        let mut state = NEVER.submitted();
        for _ in 0..10_000 {
            state = state.submitted().ended();
        }
        assert!(state.is_checkable() && state.allowed().contains(1));
        state = state.ended();
        assert!(state.allowed().contains(1));
        assert!(!state.allowed().contains(10_002), "it was never written");
        let state = state.submitted().ended();
        assert_eq!(range(state.allowed()), (10_002, 10_002));
    }

    /// The law: whatever order overlapping writes reach the medium in, what a read finds is allowed, and what was
    /// overwritten before any write of the last overlap began is not.
    #[test]
    fn whatever_the_order_what_is_there_is_allowed() {
        let mut rng = Rng::new(3, &[]);
        for _ in 0..300 {
            let (mut state, mut content) = (NEVER.submitted().ended(), 1);
            let mut in_flight: Vec<u32> = Vec::new();
            let mut reads: Vec<(Allowed, u32)> = Vec::new();
            for _ in 0..200 {
                match rng.below(5) {
                    0 | 1 if in_flight.len() < 6 => {
                        state = state.submitted();
                        in_flight.push(state.issued());
                    }
                    2 if !in_flight.is_empty() => {
                        // It reaches the medium now or did before; only then it is acknowledged.
                        content = in_flight.swap_remove(rng.below(in_flight.len() as u64) as usize);
                        state = state.ended();
                    }
                    3 => reads.push((state.allowed(), content)),
                    _ => {
                        for (begin, found) in reads.drain(..) {
                            let newest = state.issued();
                            assert!(Allowed { newest, ..begin }.contains(found), "{found} in {begin:?}");
                        }
                    }
                }
                assert!(state.allowed().contains(content));
                assert_eq!(state.in_flight(), in_flight.len() as u64);
            }
        }
    }
}
