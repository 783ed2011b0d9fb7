//! Verification without a device: what it costs for each I/O, and whether it is ever wrong, for `examples/data_cost`.

use std::io;
use std::path::Path;

use iosonde_harness::load::Io;
use iosonde_harness::target::Targets;
use iosonde_protocol::{
    Access, Arrival, BlockSize, Durability, FaultCounts, IoMode, Mix, Operation, Payload, Sharing, Span, Stream,
};

use super::job::JobVerifier;
use super::journal::{Journal, JournalError, new_history};
use super::sector::Identity;

/// A journal in a directory, to which one job's writes and reads can be shown.
pub struct Rehearsal {
    journal: Journal,
    block_bytes: u64,
}

impl Rehearsal {
    /// A file of so many blocks, nothing of which was written yet.
    ///
    /// # Errors
    /// When the journal cannot be made.
    pub fn new(directory: &Path, blocks: u64, block_bytes: u64) -> io::Result<Rehearsal> {
        let new = Identity {
            history: new_history(),
            file: 0,
        };
        let path = directory.join("rehearsal.verify");
        Ok(Rehearsal {
            journal: Journal::for_run(&Targets::default(), &path, block_bytes, blocks * block_bytes, new, true)
                .map_err(|error| match error {
                    JournalError::Io(error) => error,
                    JournalError::Damaged(reason) => io::Error::other(reason),
                })?,
            block_bytes,
        })
    }

    /// A job that writes and reads blocks, one at a time.
    pub fn job(&self) -> RehearsingJob<'_> {
        RehearsingJob {
            verifier: JobVerifier::new(&self.journal, 0, &stream(self.block_bytes), 1, true),
            block_bytes: self.block_bytes,
        }
    }
}

/// Verification part of a job's loop.
pub struct RehearsingJob<'a> {
    verifier: JobVerifier<'a>,
    block_bytes: u64,
}

impl RehearsingJob<'_> {
    /// Seals a write and acknowledges it.
    #[inline]
    pub fn write(&mut self, block: u64, buffer: &mut [u8]) {
        let io = self.io(Operation::Write, block);
        self.verifier.begin_write(&io, buffer);
        self.verifier.end_write(&io);
    }

    /// Checks a read.
    #[inline]
    pub fn read(&mut self, block: u64, buffer: &[u8]) {
        let io = self.io(Operation::Read, block);
        self.verifier.begin_read(0, &io);
        self.verifier.end_read(0, &io, buffer);
    }

    /// Bytes checked, and what was wrong with them.
    pub fn finish(self) -> (u64, FaultCounts) {
        let tally = self.verifier.into_tally();
        (tally.checked_bytes, tally.faults())
    }

    fn io(&self, operation: Operation, block: u64) -> Io {
        Io {
            operation,
            offset_bytes: block * self.block_bytes,
            bytes: self.block_bytes as u32,
        }
    }
}

/// Only block size and durability matter here.
fn stream(block_bytes: u64) -> Stream {
    Stream {
        name: "rehearsal".into(),
        jobs: 1,
        queue_depth: 1,
        access: Access::Sequential,
        mix: Mix {
            read_fraction: 0.5,
            trim_fraction: 0.0,
        },
        block_sizes: vec![BlockSize {
            bytes: block_bytes,
            weight: 1.0,
        }],
        span: Span {
            offset_bytes: 0,
            bytes: block_bytes,
            sharing: Sharing::Shared,
        },
        io_mode: IoMode::Direct,
        durability: Durability::None,
        arrival: Arrival::Closed,
        payload: Payload::Random,
        limit_bytes: None,
        limit_operations: None,
        active: None,
        spin_ns: 0,
        cpus: Vec::new(),
    }
}
