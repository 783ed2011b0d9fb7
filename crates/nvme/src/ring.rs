//! The rings of a queue pair in memory, with their doorbells: where the state machine meets the device.

use std::sync::atomic::Ordering;

use crate::NvmeError;
use crate::bus::Bus;
use crate::command::{COMMAND_BYTES, Command};
use crate::completion::{COMPLETION_BYTES, Completion, PHASE};
use crate::doorbell::{Doorbell, ShadowPages};
use crate::memory::{DoorbellRegister, Memory, PAGE_BYTES};
use crate::queue::{Queue, Step, Submitted};
use crate::registers::{Capabilities, DOORBELLS};

/// A queue pair that exists on a controller.
pub(crate) struct Rings {
    pub queue: Queue,
    submissions: Memory,
    completions: Memory,
    addresses: (u64, u64),
    submission_doorbell: Doorbell,
    completion_doorbell: Doorbell,
}

impl Rings {
    /// Zeroed rings of a queue pair, mapped for the device. The caller creates the queues on the controller.
    pub fn new<B: Bus>(
        bus: &B,
        capabilities: Capabilities,
        queue: Queue,
        shadows: Option<&ShadowPages>,
    ) -> Result<Rings, NvmeError> {
        let (number, entries) = (queue.number(), queue.entries());
        let ring = |entry_bytes: usize| -> Result<(Memory, u64), NvmeError> {
            let bytes = (usize::from(entries) * entry_bytes).next_multiple_of(PAGE_BYTES);
            let memory =
                Memory::near(bytes, bus.numa_node()).map_err(NvmeError::system("allocate memory for a queue"))?;
            let address = bus
                .map(&memory)
                .map_err(NvmeError::system("map memory for the device"))?;
            Ok((memory, address))
        };
        let doorbell = |is_completion| {
            let offset = capabilities.doorbell(number, is_completion);
            if offset + 4 > bus.registers().bytes() {
                return Err(NvmeError::Unsupported(format!(
                    "the controller has no doorbell for queue {number}"
                )));
            }
            let shadow = shadows.and_then(|pages| pages.at(offset - DOORBELLS));
            Ok(Doorbell::new(DoorbellRegister::new(bus.registers(), offset), shadow))
        };
        let (submission_doorbell, completion_doorbell) = (doorbell(false)?, doorbell(true)?);
        let (submissions, submission_address) = ring(COMMAND_BYTES)?;
        let (completions, completion_address) = ring(COMPLETION_BYTES)?;
        Ok(Rings {
            queue,
            submissions,
            completions,
            addresses: (submission_address, completion_address),
            submission_doorbell,
            completion_doorbell,
        })
    }

    pub fn submission_address(&self) -> u64 {
        self.addresses.0
    }

    pub fn completion_address(&self) -> u64 {
        self.addresses.1
    }

    /// Copies a command into the ring; `None` if the queue is full. The controller sees it after [`Rings::ring`].
    #[inline]
    pub fn submit(&mut self, command: Command, user: u32, deadline_ns: u64) -> Option<Submitted> {
        let submitted = self.queue.submit(user, deadline_ns)?;
        let Command(dwords) = command.with_identifier(submitted.identifier);
        let entry =
            &self.submissions.quads()[usize::from(submitted.entry) * (COMMAND_BYTES / 8)..][..COMMAND_BYTES / 8];
        for (quad, pair) in entry.iter().zip(dwords.chunks_exact(2)) {
            quad.store(u64::from(pair[0]) | u64::from(pair[1]) << 32, Ordering::Relaxed);
        }
        Some(submitted)
    }

    /// Writes the doorbells that are due.
    #[inline]
    pub fn ring(&mut self) {
        if let Some(tail) = self.queue.submission_doorbell() {
            self.submission_doorbell.ring(tail);
        }
        if let Some(head) = self.queue.completion_doorbell() {
            self.completion_doorbell.ring(head);
        }
    }

    /// Writes to doorbell registers so far.
    pub fn doorbell_writes(&self) -> u64 {
        self.submission_doorbell.writes() + self.completion_doorbell.writes()
    }

    /// Returns true if the controller has written the next completion.
    #[inline]
    pub fn has_completion(&self) -> bool {
        let (entry, phase) = self.queue.next_completion();
        let last = self.completions.words()[usize::from(entry) * 4 + 3].load(Ordering::Relaxed);
        (last & PHASE != 0) == phase
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub fn step(&mut self) -> Result<Step, NvmeError> {
        let (entry, phase) = self.queue.next_completion();
        let words = &self.completions.words()[usize::from(entry) * 4..][..4];
        // The controller writes the phase tag last, and what it wrote before is visible after this load.
        let last = words[3].load(Ordering::Acquire);
        if (last & PHASE != 0) != phase {
            return Ok(Step::Empty);
        }
        let dwords = [
            words[0].load(Ordering::Relaxed),
            0,
            words[2].load(Ordering::Relaxed),
            last,
        ];
        match self.queue.complete(&Completion::from_dwords(dwords)) {
            Step::Fault(fault) => Err(NvmeError::Protocol(fault)),
            step => Ok(step),
        }
    }
}
