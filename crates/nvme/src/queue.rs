//! A queue pair as a pure state machine: which entry comes next, which commands are in flight, what a completion means.
//!
//! Nothing here touches memory of the device. The caller copies a command into the entry that [`Queue::submit`] returns,
//! hands every entry of the completion ring to [`Queue::complete`], and writes the doorbell values that it is given.
//! Both rings have the same number of entries. The rules are those of the NVM Express Base Specification 2.0, section
//! 3.3.1 ("Memory-based Transport Queue Model"): a ring is empty if head and tail are equal, and full with one entry
//! free, so one command fewer than entries can be in flight.
//!
//! A controller is not trusted. A completion counts only if its phase tag is the expected one and it names this queue and
//! a command in flight; whatever else it has is a [`Fault`], after which the controller must be reset. An identifier
//! consists of the number of a slot and a generation that changes with each use of the slot, so a second completion of a
//! command is recognised when the slot is in use again.

use crate::completion::{Completion, Status};

/// Bits of an identifier that are the number of a slot; the rest is the generation.
const SLOT_BITS: u32 = 10;
/// Commands that one queue can have in flight.
pub const MOST_IN_FLIGHT: u16 = 1 << SLOT_BITS;
/// FFFFh is no identifier that a controller may report (section 3.3.3.1): the largest generation is left out.
const GENERATIONS: u16 = (1 << (16 - SLOT_BITS)) - 1;

/// A submission queue with its completion queue; see the module.
#[derive(Debug, Clone)]
pub struct Queue {
    number: u16,
    entries: u16,
    /// Next entry of the submission ring, and the value that its doorbell has.
    tail: u16,
    rung_tail: u16,
    /// Entries of the submission ring that the controller has not fetched, as far as completions report.
    head: u16,
    /// Next entry of the completion ring, and the value that its doorbell has.
    completion_head: u16,
    rung_completion_head: u16,
    /// True if consumed entries are reported only when free entries run short.
    defers: bool,
    /// Phase tag of new entries: 1 in the first pass, since the ring is zeroed when it is created.
    phase: bool,
    slots: Vec<Slot>,
    /// Stack of free slots.
    free: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    user: u32,
    deadline_ns: u64,
    generation: u16,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// An Abort command was sent for it.
    Aborting,
}

/// Entry and identifier of a submitted command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Entry of the submission ring.
    pub entry: u16,
    /// Identifier that the command must have.
    pub identifier: u16,
}

/// Meaning of an entry of the completion ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not written by the controller yet.
    Empty,
    /// The end of a command.
    Done {
        /// User value with which the command was submitted.
        user: u32,
        /// Status of the command.
        status: Status,
        result: u32,
    },
    /// The controller breaks the rules.
    Fault(Fault),
}

/// Violations of the queue rules by a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No command in flight has the identifier: it was completed before, or never submitted.
    #[error("a completion names command {0:#06x}, which is not in flight")]
    UnknownIdentifier(u16),
    /// The completion belongs to another submission queue.
    #[error("a completion names submission queue {0}")]
    OtherQueue(u16),
    /// The head is not between the last one and the tail.
    #[error("a completion reports head {0} of the submission queue, beyond the tail")]
    Head(u16),
}

/// A command whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    pub identifier: u16,
    /// True if an Abort command was sent for it already.
    pub is_aborting: bool,
}

impl Queue {
    /// An empty queue pair with rings of `entries` entries, 2 or more.
    pub fn new(number: u16, entries: u16) -> Queue {
        assert!(entries >= 2, "a ring has 2 entries or more");
        let slots = (entries - 1).min(MOST_IN_FLIGHT);
        let slot = Slot {
            user: 0,
            deadline_ns: 0,
            generation: 0,
            state: State::Free,
        };
        Queue {
            number,
            entries,
            tail: 0,
            rung_tail: 0,
            head: 0,
            completion_head: 0,
            rung_completion_head: 0,
            defers: false,
            phase: true,
            slots: vec![slot; slots.into()],
            free: (0..slots).rev().collect(),
        }
    }

    /// The same queue for polling, with fewer writes to the completion queue head doorbell: only when more than half of the
    /// entries that no command in flight needs were consumed without being reported. The controller always has a free entry
    /// for each command in flight, so it never waits for the doorbell.
    pub fn deferring(mut self) -> Queue {
        self.defers = true;
        self
    }

    /// Queue identifier.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Entries of each ring.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Commands in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes the next entry of the submission ring for a command; `None` if the ring is full or all identifiers are in use.
    #[inline]
    pub fn submit(&mut self, user: u32, deadline_ns: u64) -> Option<Submitted> {
        let next = self.after(self.tail);
        if next == self.head {
            return None;
        }
        let number = self.free.pop()?;
        let slot = &mut self.slots[usize::from(number)];
        slot.user = user;
        slot.deadline_ns = deadline_ns;
        slot.generation = if slot.generation + 1 == GENERATIONS {
            0
        } else {
            slot.generation + 1
        };
        slot.state = State::InFlight;
        let identifier = slot.generation << SLOT_BITS | number;
        let entry = std::mem::replace(&mut self.tail, next);
        Some(Submitted { entry, identifier })
    }

    /// Value for the submission queue tail doorbell, if entries were taken since the last call.
    #[inline]
    pub fn submission_doorbell(&mut self) -> Option<u16> {
        let is_new = self.tail != self.rung_tail;
        self.rung_tail = self.tail;
        is_new.then_some(self.tail)
    }

    /// Entry of the completion ring to look at next, and the phase tag that it has once the controller has written it.
    #[inline]
    pub fn next_completion(&self) -> (u16, bool) {
        (self.completion_head, self.phase)
    }

    /// Takes the entry of the completion ring at [`Queue::next_completion`].
    #[inline]
    pub fn complete(&mut self, entry: &Completion) -> Step {
        if entry.phase != self.phase {
            return Step::Empty;
        }
        match self.matched(entry) {
            Ok(number) => self.finish(number, entry),
            Err(fault) => Step::Fault(fault),
        }
    }

    /// Value for the completion queue head doorbell, if entries were taken since the last value.
    #[inline]
    pub fn completion_doorbell(&mut self) -> Option<u16> {
        let taken = self.distance(self.rung_completion_head, self.completion_head);
        let may_wait = if self.defers {
            (u32::from(self.entries) - 1 - self.in_flight() as u32) / 2
        } else {
            0
        };
        if taken <= may_wait {
            return None;
        }
        self.rung_completion_head = self.completion_head;
        Some(self.completion_head)
    }

    /// Commands whose deadline is over at this instant.
    pub fn expired(&self, now_ns: u64) -> impl Iterator<Item = Expired> + '_ {
        let numbered = (0u16..).zip(&self.slots);
        numbered
            .filter(move |(_, slot)| slot.state != State::Free && slot.deadline_ns <= now_ns)
            .map(|(number, slot)| Expired {
                identifier: slot.generation << SLOT_BITS | number,
                is_aborting: slot.state == State::Aborting,
            })
    }

    /// Notes that an Abort command was sent for a command in flight, which now has until `deadline_ns`. Its identifier and
    /// its buffer stay in use: an aborted command is completed like any other.
    pub fn abort(&mut self, identifier: u16, deadline_ns: u64) {
        if let Some(number) = self.in_use(identifier) {
            let slot = &mut self.slots[usize::from(number)];
            slot.state = State::Aborting;
            slot.deadline_ns = deadline_ns;
        }
    }

    /// Gives up the commands in flight and returns what they were submitted with. Call this after the controller was
    /// reset or is gone: it no longer accesses their buffers. The queue must not be used afterwards.
    pub fn abandon(&mut self) -> Vec<u32> {
        let mut users = Vec::new();
        for (number, slot) in (0u16..).zip(&mut self.slots) {
            if slot.state != State::Free {
                slot.state = State::Free;
                users.push(slot.user);
                self.free.push(number);
            }
        }
        users
    }

    #[inline]
    fn matched(&self, entry: &Completion) -> Result<u16, Fault> {
        if entry.submission_queue != self.number {
            return Err(Fault::OtherQueue(entry.submission_queue));
        }
        if self.distance(self.head, entry.submission_head) > self.distance(self.head, self.tail)
            || entry.submission_head >= self.entries
        {
            return Err(Fault::Head(entry.submission_head));
        }
        self.in_use(entry.identifier)
            .ok_or(Fault::UnknownIdentifier(entry.identifier))
    }

    #[inline]
    fn finish(&mut self, number: u16, entry: &Completion) -> Step {
        self.head = entry.submission_head;
        self.completion_head = self.after(self.completion_head);
        if self.completion_head == 0 {
            self.phase = !self.phase;
        }
        let slot = &mut self.slots[usize::from(number)];
        slot.state = State::Free;
        self.free.push(number);
        Step::Done {
            user: slot.user,
            status: entry.status,
            result: entry.result,
        }
    }

    /// The slot of a command in flight.
    #[inline]
    fn in_use(&self, identifier: u16) -> Option<u16> {
        let number = identifier & (MOST_IN_FLIGHT - 1);
        let slot = self.slots.get(usize::from(number))?;
        (slot.state != State::Free && slot.generation == identifier >> SLOT_BITS).then_some(number)
    }

    #[inline]
    fn after(&self, entry: u16) -> u16 {
        if entry + 1 == self.entries { 0 } else { entry + 1 }
    }

    /// Entries from one position of a ring forward to another.
    #[inline]
    fn distance(&self, from: u16, to: u16) -> u32 {
        let (from, to) = (u32::from(from), u32::from(to));
        if to >= from {
            to - from
        } else {
            to + u32::from(self.entries) - from
        }
    }
}
