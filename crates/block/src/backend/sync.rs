//! One blocking system call at a time, as IOzone and most applications do it.

use std::os::fd::RawFd;

use iosonde_load::Io;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{BackendInEffect, Fallback, Operation};

use super::nap::Nap;
use super::{Backend, JobFiles, Wait};

/// The backend behind `{"kind": "sync"}`, and what `uring` falls back to.
pub(crate) struct SyncBackend {
    clock: Clock,
    nap: Nap,
    fd: RawFd,
    base: *mut u8,
    slot_bytes: usize,
    pending: Option<(u32, Io)>,
    done: Option<(u32, i32)>,
    fallbacks: Vec<Fallback>,
}

impl SyncBackend {
    pub(crate) fn new(clock: Clock, files: &JobFiles<'_>, fallbacks: Vec<Fallback>) -> SyncBackend {
        SyncBackend {
            clock,
            nap: Nap::new(clock, files.spin_ns),
            fd: files.fd,
            base: files.arena.slot(0),
            slot_bytes: files.arena.slot_bytes(),
            pending: None,
            done: None,
            fallbacks,
        }
    }

    fn carry_out(&self, slot: u32, io: &Io) -> i32 {
        let buffer: *mut libc::c_void = self.base.wrapping_add(slot as usize * self.slot_bytes).cast();
        let (bytes, offset) = (io.bytes as usize, io.offset_bytes as libc::off_t);
        // SAFETY: the buffer is a slot of the arena, which holds the largest block of the job, outlives the backend and
        // belongs to this I/O until it is reaped; the descriptor is open for the whole run.
        let result = unsafe {
            match io.operation {
                Operation::Read => libc::pread(self.fd, buffer, bytes, offset),
                Operation::Write => libc::pwrite(self.fd, buffer, bytes, offset),
                Operation::Trim => {
                    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    libc::fallocate(self.fd, mode, offset, bytes as libc::off_t) as isize
                }
                Operation::Flush => libc::fdatasync(self.fd) as isize,
                _ => unreachable!("no block I/O"),
            }
        };
        if result < 0 {
            -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
        } else {
            result as i32
        }
    }
}

impl Backend for SyncBackend {
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn push(&mut self, slot: u32, io: &Io) {
        debug_assert!(self.pending.is_none(), "sync holds one I/O");
        self.pending = Some((slot, *io));
    }

    fn submit_and_wait(&mut self, wait: Wait) -> std::io::Result<()> {
        match (self.pending.take(), wait) {
            (Some((slot, io)), _) => self.done = Some((slot, self.carry_out(slot, &io))),
            (None, Wait::Due(instant_ns)) => self.nap.until_due(instant_ns),
            (None, Wait::Idle(instant_ns)) => self.nap.idle(instant_ns),
            (None, Wait::One) => {}
        }
        Ok(())
    }

    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        if let Some((slot, result)) = self.done.take() {
            complete(slot, result);
        }
    }

    fn spun_ns(&self) -> u64 {
        self.nap.spun_ns()
    }

    fn in_effect(&self) -> BackendInEffect {
        BackendInEffect {
            kind: "sync".into(),
            features: Vec::new(),
            fallbacks: self.fallbacks.clone(),
        }
    }
}
