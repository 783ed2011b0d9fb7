//! Doorbells: how a queue reports its tail or head to the controller.
//!
//! A write to the register crosses the PCIe bus. On an emulated controller it leaves the virtual machine, which takes
//! longer than anything else in the driver. Such controllers have shadow doorbells (NVM Express Base Specification 2.0,
//! section 5.8, "Doorbell Buffer Config command", and annex B.5): the driver stores the position in memory, and the
//! controller polls it while it is busy. Before the controller stops polling, it stores the last position that it read as
//! the event index, and only a position beyond that needs a write to the register. Linux uses shadow doorbells if the
//! controller has them.

use std::sync::atomic::Ordering;

use crate::memory::{DoorbellRegister, Memory, PAGE_BYTES, before_device_write, between_write_and_read};

/// The two pages of Doorbell Buffer Config: shadow doorbells, then event indexes. Offsets in them are those of the
/// doorbell registers.
#[derive(Debug, Clone)]
pub(crate) struct ShadowPages(Memory);

impl ShadowPages {
    /// Bytes of both pages.
    pub const BYTES: usize = 2 * PAGE_BYTES;

    pub fn new(memory: Memory) -> ShadowPages {
        assert!(memory.bytes() >= ShadowPages::BYTES, "two pages");
        ShadowPages(memory)
    }

    /// The shadow at an offset from the first doorbell, for a queue that starts at position 0; none beyond the page.
    pub fn at(&self, offset: usize) -> Option<Shadow> {
        let shadow = (offset + 4 <= PAGE_BYTES).then(|| Shadow {
            pages: self.0.clone(),
            word: offset / 4,
        })?;
        for word in [shadow.word, shadow.event_word()] {
            shadow.pages.words()[word].store(0, Ordering::Relaxed);
        }
        Some(shadow)
    }
}

/// A shadow doorbell with its event index.
#[derive(Debug)]
pub(crate) struct Shadow {
    pages: Memory,
    word: usize,
}

impl Shadow {
    fn event_word(&self) -> usize {
        self.word + PAGE_BYTES / 4
    }

    /// Stores a position, after everything that was written to memory before.
    #[inline]
    fn store(&self, position: u16) {
        before_device_write();
        self.pages.words()[self.word].store(position.into(), Ordering::Release);
    }

    /// True if the register must be written because the controller may have stopped polling before this position.
    #[inline]
    fn has_passed_event(&self, last: u16, position: u16) -> bool {
        // The controller stores the event index and then reads the position; the driver stores the position and then reads
        // the event index. With a full barrier between store and load, at least one of them sees the other's store.
        between_write_and_read();
        let event = self.pages.words()[self.event_word()].load(Ordering::Relaxed) as u16;
        is_passed(event, last, position)
    }
}

/// Returns true if the event index is in the half-open range of positions from `last` to `position`.
#[inline]
fn is_passed(event: u16, last: u16, position: u16) -> bool {
    position.wrapping_sub(event).wrapping_sub(1) < position.wrapping_sub(last)
}

/// A doorbell of a queue that starts at position 0.
#[derive(Debug)]
pub(crate) struct Doorbell {
    register: DoorbellRegister,
    shadow: Option<Shadow>,
    position: u16,
    writes: u64,
}

impl Doorbell {
    pub fn new(register: DoorbellRegister, shadow: Option<Shadow>) -> Doorbell {
        Doorbell {
            register,
            shadow,
            position: 0,
            writes: 0,
        }
    }

    /// Reports a position, after everything that was written to memory before.
    #[inline]
    pub fn ring(&mut self, position: u16) {
        let last = std::mem::replace(&mut self.position, position);
        if let Some(shadow) = &self.shadow {
            shadow.store(position);
            if !shadow.has_passed_event(last, position) {
                return;
            }
        }
        self.writes += 1;
        self.register.write(position);
    }

    /// Writes to the register so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OFFSET: usize = 16;

    fn pages() -> ShadowPages {
        ShadowPages::new(Memory::allocate(ShadowPages::BYTES).expect("memory"))
    }

    #[test]
    fn an_event_index_is_passed_once_and_queues_beyond_the_page_have_none() {
        let entries = 64u16;
        for event in [0, 1, 31, 63] {
            for step in 1..entries {
                let passed = (0..entries).filter(|last| is_passed(event, *last, (last + step) % entries));
                let expected = (0..entries).filter(|last| (event + entries - last) % entries < step);
                assert!(passed.eq(expected), "event index {event}, steps of {step}");
            }
        }
        assert!(pages().at(PAGE_BYTES - 4).is_some());
        assert!(pages().at(PAGE_BYTES).is_none());
    }

    /// Next step of the model, each an atomic access to memory.
    #[derive(Debug, Clone, Copy)]
    enum Action {
        /// The driver stores a position some entries further.
        Store(u16),
        /// The driver reads the event index, and writes the register if need be.
        Check,
        /// The controller does its next step.
        Controller,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Stage {
        Asleep,
        Read,
        StoreEvent,
        ReadAgain,
    }

    proptest! {
        /// Accesses of driver and controller in any order.
        #[test]
        fn a_controller_that_stops_reading_has_seen_the_last_position(actions in prop::collection::vec(prop_oneof![
            (1u16..8).prop_map(Action::Store),
            Just(Action::Check),
            Just(Action::Controller),
        ], 0..200)) {
            let entries = 16;
            let pages = pages();
            let shadow = pages.at(OFFSET).expect("a shadow");
            let words = shadow.pages.words();
            let (mut checked, mut position) = (0, 0);
            let (mut is_rung, mut seen, mut stage) = (false, 0, Stage::Asleep);
            // At the end, both sides finish what they started.
            let end = [Action::Check].into_iter().chain([Action::Controller; 12]);
            for action in actions.into_iter().chain(end) {
                match action {
                    Action::Store(step) if checked == position => {
                        position = (position + step) % entries;
                        shadow.store(position);
                    }
                    Action::Check if checked != position => {
                        is_rung |= shadow.has_passed_event(checked, position);
                        checked = position;
                    }
                    Action::Controller => {
                        let stored = words[shadow.word].load(Ordering::SeqCst) as u16;
                        stage = match stage {
                            Stage::Asleep if is_rung => {
                                is_rung = false;
                                Stage::Read
                            }
                            Stage::Asleep => Stage::Asleep,
                            Stage::Read => {
                                seen = stored;
                                Stage::StoreEvent
                            }
                            Stage::StoreEvent => {
                                words[shadow.event_word()].store(seen.into(), Ordering::SeqCst);
                                Stage::ReadAgain
                            }
                            Stage::ReadAgain if stored == seen => Stage::Asleep,
                            Stage::ReadAgain => Stage::Read,
                        };
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(seen, position);
            prop_assert_eq!(stage, Stage::Asleep);
        }
    }
}
