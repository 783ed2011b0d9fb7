//! One blocking system call at a time, as IOzone and most applications do it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use iosonde_harness::load::Io;
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::metrics::usage;
use iosonde_protocol::{BackendInEffect, Fallback, Operation};

use super::nap::Nap;
use super::{Backend, JobFiles, Wait, queue};
use crate::buffer::Arena;

/// Reads by which the probe finds out whether the kernel polls.
const PROBE_READS: u64 = 32;

/// The system calls of reads and writes, with what the probe found out about them.
#[derive(Debug, Clone)]
pub(crate) enum Calls {
    /// `pread` and `pwrite`; with what was refused before, where they replace `io_uring`.
    Plain(Vec<Fallback>),
    /// `preadv2` and `pwritev2` with `RWF_HIPRI`. The kernel then polls, unless it gives a reason.
    HighPriority {
        /// Reason for not polling completions; `None` if they are polled.
        not_polled: Option<String>,
    },
}

impl Calls {
    /// Finds out by reads of the first page of a file whether the kernel supports `RWF_HIPRI` and polls for it.
    ///
    /// # Errors
    /// When it does not know the flag, or the read fails.
    pub(crate) fn high_priority(file: &File) -> io::Result<Calls> {
        let arena = Arena::new(1, 4096)?;
        let slept_before = usage::thread(0).voluntary_switches;
        for _ in 0..PROBE_READS {
            result_of(vectored(file.as_raw_fd(), Operation::Read, arena.slot(0), 4096, 0))?;
        }
        let slept = usage::thread(0).voluntary_switches - slept_before;
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let not_polled = queue::no_polling(file)
            .or_else(|| too_new(&release))
            .or_else(|| asleep(slept));
        Ok(Calls::HighPriority { not_polled })
    }

    /// Result of the probe.
    pub(crate) fn in_effect(&self) -> BackendInEffect {
        let polling = "completion_polling".to_string();
        let (kind, features, fallbacks) = match self {
            Calls::Plain(fallbacks) => ("sync", Vec::new(), fallbacks.clone()),
            Calls::HighPriority { not_polled: None } => ("preadv2", vec![polling], Vec::new()),
            Calls::HighPriority {
                not_polled: Some(reason),
            } => {
                let (feature, reason) = (polling, reason.clone());
                ("preadv2", Vec::new(), vec![Fallback { feature, reason }])
            }
        };
        BackendInEffect {
            kind: kind.into(),
            features,
            fallbacks,
        }
    }
}

/// Linux 5.19 and later ignore `RWF_HIPRI` of synchronous I/O (kernel commit 9650b453a3d4).
fn too_new(release: &str) -> Option<String> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next()?, numbers.next()?);
    (version >= (5, 19))
        .then(|| format!("Linux {release} ignores `RWF_HIPRI` of synchronous I/O, as do all releases since 5.19"))
}

/// A thread that polls does not sleep: the reason why it was not polling if it did. Only this shows that an older release
/// has the change of 5.19 too. The thread of a fast device may never sleep, polling or not.
fn asleep(slept: u64) -> Option<String> {
    (slept > PROBE_READS / 2).then(|| format!("the kernel slept in {slept} of {PROBE_READS} reads with `RWF_HIPRI`"))
}

/// The backend behind `{"kind": "sync"}` and `{"kind": "preadv2"}`, and what `uring` falls back to.
pub(crate) struct SyncBackend<'a> {
    clock: Clock,
    nap: Nap,
    fd: RawFd,
    base: *mut u8,
    slot_bytes: usize,
    pending: Option<(u32, Io)>,
    done: Option<(u32, i32)>,
    calls: &'a Calls,
}

impl<'a> SyncBackend<'a> {
    pub(crate) fn new(clock: Clock, files: &JobFiles<'_>, calls: &'a Calls) -> SyncBackend<'a> {
        SyncBackend {
            clock,
            nap: Nap::new(clock, files.spin_ns),
            fd: files.fd,
            base: files.arena.slot(0),
            slot_bytes: files.arena.slot_bytes(),
            pending: None,
            done: None,
            calls,
        }
    }

    fn carry_out(&self, slot: u32, io: &Io) -> i32 {
        let buffer = self.base.wrapping_add(slot as usize * self.slot_bytes);
        let result = match (self.calls, io.operation) {
            (Calls::HighPriority { .. }, Operation::Read | Operation::Write) => {
                vectored(self.fd, io.operation, buffer, io.bytes as usize, io.offset_bytes)
            }
            _ => self.plain(io, buffer),
        };
        result_of(result).map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |bytes| bytes as i32)
    }

    fn plain(&self, io: &Io, buffer: *mut u8) -> isize {
        let (bytes, offset) = (io.bytes as usize, io.offset_bytes as libc::off_t);
        // SAFETY: the buffer is a slot of the arena, which holds the largest block of the job, outlives the backend and
        // belongs to this I/O until it is reaped; the descriptor is open for the whole run.
        unsafe {
            match io.operation {
                Operation::Read => libc::pread(self.fd, buffer.cast(), bytes, offset),
                Operation::Write => libc::pwrite(self.fd, buffer.cast(), bytes, offset),
                Operation::Trim => {
                    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    libc::fallocate(self.fd, mode, offset, bytes as libc::off_t) as isize
                }
                Operation::Flush => libc::fdatasync(self.fd) as isize,
                _ => unreachable!("no block I/O"),
            }
        }
    }
}

/// `preadv2` or `pwritev2` with `RWF_HIPRI`. The buffer has room for this many bytes and no other user until then.
fn vectored(fd: RawFd, operation: Operation, buffer: *mut u8, bytes: usize, offset_bytes: u64) -> isize {
    let vector = libc::iovec {
        iov_base: buffer.cast(),
        iov_len: bytes,
    };
    let offset = offset_bytes as libc::off_t;
    // SAFETY: the vector lives until the call returns; its buffer is the caller's and has room for `bytes`.
    unsafe {
        match operation {
            Operation::Read => libc::preadv2(fd, &raw const vector, 1, offset, libc::RWF_HIPRI),
            _ => libc::pwritev2(fd, &raw const vector, 1, offset, libc::RWF_HIPRI),
        }
    }
}

fn result_of(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

impl Backend for SyncBackend<'_> {
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn push(&mut self, slot: u32, io: &Io) {
        debug_assert!(self.pending.is_none(), "sync holds one I/O");
        self.pending = Some((slot, *io));
    }

    fn submit_and_wait(&mut self, wait: Wait) -> io::Result<()> {
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
        self.calls.in_effect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_since_5_19_do_not_poll_for_synchronous_reads() {
        for polling in ["5.18.19", "4.19.0-27-amd64", "5.9.1", "unknown", ""] {
            assert_eq!(too_new(polling), None, "{polling}");
        }
        for ignoring in ["5.19.0-rc1", "6.1.0-32-amd64", "6.1", "10.0.1"] {
            assert!(too_new(ignoring).expect("it ignores the flag").contains(ignoring));
        }
    }
}
