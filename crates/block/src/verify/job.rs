//! Verification in the measuring loop: seals what a job writes, checks what it reads. Allocates and locks nothing.

use iosonde_harness::load::Io;
use iosonde_protocol::{Durability, Stream};

use super::crc::Crc;
use super::crc::{SECTOR_BYTES, Sector};
use super::entry::Entry;
use super::journal::Journal;
use super::judge::{Judge, Tally};
use super::sector::{self, Seal};
use super::state::Allowed;

/// Acknowledged writes that are remembered until a flush; beyond that the oldest are not known to be durable.
const UNFLUSHED_MAX: usize = 1 << 20;

/// One job's part of the verification of its file.
pub(crate) struct JobVerifier<'a> {
    journal: &'a Journal,
    judge: Judge,
    checks_reads: bool,
    durability: DurabilityOfWrites,
    units_per_slot: usize,
    /// For each slot and unit of its read: what the unit might hold when the read began.
    at_start: Vec<Allowed>,
    tally: Tally,
}

enum DurabilityOfWrites {
    Unknown,
    WhenAcknowledged,
    WhenFlushed(Unflushed),
}

impl<'a> JobVerifier<'a> {
    /// `file` numbers the file in findings.
    pub(crate) fn new(
        journal: &'a Journal,
        file: usize,
        stream: &Stream,
        queue_depth: u32,
        checks_reads: bool,
    ) -> Self {
        let largest = stream.block_sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
        let units_per_slot = (largest / journal.unit_bytes()) as usize;
        let durability = match stream.durability {
            Durability::None => DurabilityOfWrites::Unknown,
            Durability::Dsync => DurabilityOfWrites::WhenAcknowledged,
            Durability::Flush { every } => {
                // Writes go on while a flush is in flight, so those of two rounds may be waiting.
                let writes = every.saturating_mul(2).saturating_add(u64::from(queue_depth));
                let units = writes.saturating_mul(units_per_slot as u64).min(UNFLUSHED_MAX as u64);
                DurabilityOfWrites::WhenFlushed(Unflushed::new(units as usize, queue_depth))
            }
        };
        JobVerifier {
            judge: Judge::new(journal, file),
            journal,
            checks_reads,
            durability,
            units_per_slot,
            at_start: vec![Allowed::from(0); queue_depth as usize * units_per_slot],
            tally: Tally::new(),
        }
    }

    /// Before a write is submitted: enters it and seals its sectors.
    #[inline]
    pub(crate) fn begin_write(&mut self, io: &Io, buffer: &mut [u8]) {
        let sectors = sectors_mut(buffer);
        seal_write(self.journal, self.judge.crc, io.offset_bytes, sectors);
    }

    /// After a write has completed.
    #[inline]
    pub(crate) fn end_write(&mut self, io: &Io) {
        let first = (io.offset_bytes / self.journal.unit_bytes()) as usize;
        for (number, entry) in self.entries(io).iter().enumerate() {
            let Some(holds) = entry.end(first + number) else {
                continue;
            };
            match &mut self.durability {
                DurabilityOfWrites::Unknown => {}
                DurabilityOfWrites::WhenAcknowledged => entry.set_durable(first + number, holds),
                DurabilityOfWrites::WhenFlushed(unflushed) => unflushed.push(first + number, holds),
            }
        }
    }

    /// Before a read is submitted: what it finds will be no older than what the units hold now.
    #[inline]
    pub(crate) fn begin_read(&mut self, slot: u32, io: &Io) {
        if !self.checks_reads {
            return;
        }
        let begin = slot as usize * self.units_per_slot;
        let entries = self.entries(io);
        for (allowed, entry) in self.at_start[begin..].iter_mut().zip(entries) {
            *allowed = entry.state().allowed();
        }
    }

    /// After a read has completed: its data are no newer than the writes submitted until now.
    #[inline]
    pub(crate) fn end_read(&mut self, slot: u32, io: &Io, buffer: &[u8]) {
        if !self.checks_reads {
            return;
        }
        let begin = slot as usize * self.units_per_slot;
        let (entries, at_start) = (self.entries(io), &self.at_start[begin..]);
        let allowed = |number: usize| {
            let (before, newest) = (at_start[number], entries[number].state().issued());
            let allowed = Allowed {
                newest,
                may_mix: before.may_mix || newest != before.newest,
                ..before
            };
            // Before the first write anything may be there.
            (before.oldest != 0).then_some(allowed)
        };
        self.judge
            .check(&mut self.tally, entries, io.offset_bytes, sectors(buffer), allowed);
    }

    /// Before a flush is submitted: it covers what was acknowledged until now.
    #[inline]
    pub(crate) fn begin_flush(&mut self, slot: u32) {
        if let DurabilityOfWrites::WhenFlushed(unflushed) = &mut self.durability {
            unflushed.mark(slot);
        }
    }

    /// After a flush has completed.
    #[inline]
    pub(crate) fn end_flush(&mut self, slot: u32) {
        let entries = self.journal.entries();
        if let DurabilityOfWrites::WhenFlushed(unflushed) = &mut self.durability {
            unflushed.drain(slot, |unit, generation| entries[unit].set_durable(unit, generation));
        }
    }

    pub(crate) fn into_tally(self) -> Tally {
        self.tally
    }

    #[inline]
    fn entries(&self, io: &Io) -> &'a [Entry] {
        let unit_bytes = self.journal.unit_bytes();
        let first = (io.offset_bytes / unit_bytes) as usize;
        &self.journal.entries()[first..first + (u64::from(io.bytes) / unit_bytes) as usize]
    }
}

/// Enters a write of whole units at `offset_bytes` and seals its sectors.
#[inline]
pub(crate) fn seal_write(journal: &Journal, crc: Crc, offset_bytes: u64, sectors: &mut [Sector]) {
    let unit_bytes = journal.unit_bytes();
    let first = (offset_bytes / unit_bytes) as usize;
    let mut position = offset_bytes;
    for ((unit, number), entry) in sectors
        .chunks_exact_mut(unit_bytes as usize / SECTOR_BYTES)
        .zip(first..)
        .zip(&journal.entries()[first..])
    {
        let seal = Seal {
            position,
            generation: entry.begin(number),
            identity: journal.identity(),
        };
        sector::seal(crc, unit, seal);
        position += unit_bytes;
    }
}

pub(crate) fn sectors(buffer: &[u8]) -> &[Sector] {
    buffer.as_chunks().0
}

pub(crate) fn sectors_mut(buffer: &mut [u8]) -> &mut [Sector] {
    buffer.as_chunks_mut().0
}

/// Acknowledged writes that no flush has covered yet, oldest first: a ring.
struct Unflushed {
    /// Unit and what it holds, of which the `n`-th pushed lies at `n % len`.
    ring: Vec<(usize, u32)>,
    pushed: u64,
    drained: u64,
    /// For each slot: how many had been pushed when its flush began.
    marks: Vec<u64>,
}

impl Unflushed {
    fn new(units: usize, queue_depth: u32) -> Unflushed {
        Unflushed {
            ring: vec![(0, 0); units.max(1)],
            pushed: 0,
            drained: 0,
            marks: vec![0; queue_depth as usize],
        }
    }

    #[inline]
    fn push(&mut self, unit: usize, generation: u32) {
        let length = self.ring.len() as u64;
        self.ring[(self.pushed % length) as usize] = (unit, generation);
        self.pushed += 1;
        // Overwritten entries are never known to be durable: the later check is weaker by them, and still right.
        self.drained = self.drained.max(self.pushed.saturating_sub(length));
    }

    fn mark(&mut self, slot: u32) {
        self.marks[slot as usize] = self.pushed;
    }

    fn drain(&mut self, slot: u32, mut durable: impl FnMut(usize, u32)) {
        let length = self.ring.len() as u64;
        while self.drained < self.marks[slot as usize] {
            let (unit, generation) = self.ring[(self.drained % length) as usize];
            durable(unit, generation);
            self.drained += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_began_and_what_does_not_fit_is_forgotten() {
        let mut unflushed = Unflushed::new(8, 2);
        unflushed.push(1, 10);
        unflushed.mark(0);
        unflushed.push(2, 20);
        unflushed.mark(1);
        unflushed.push(3, 30);
        let mut durable = Vec::new();
        unflushed.drain(0, |unit, generation| durable.push((unit, generation)));
        assert_eq!(durable, [(1, 10)]);
        unflushed.drain(1, |unit, generation| durable.push((unit, generation)));
        assert_eq!(durable, [(1, 10), (2, 20)]);
        let mut unflushed = Unflushed::new(2, 1);
        (0..5).for_each(|unit| unflushed.push(unit, 1));
        unflushed.mark(0);
        let mut durable = Vec::new();
        unflushed.drain(0, |unit, _| durable.push(unit));
        assert_eq!(durable, [3, 4]);
    }
}
