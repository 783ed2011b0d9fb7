//! The narrow edge between the driver loop and whatever carries out I/O.
//!
//! A backend owns the clock the loop reads, because a simulated device has a time of its own. One backend serves one
//! job, in that job's thread; nothing in it is shared.

pub(crate) mod libaio;
mod nap;
mod null;
mod nvme;
mod nvme_command;
mod nvme_namespace;
mod queue;
mod simulated;
mod sync;
mod uring;
mod uring_features;
mod uring_nvme;
mod virtual_device;

use std::io;
use std::os::fd::RawFd;

use iosonde_harness::load::Io;
use iosonde_protocol::BackendInEffect;

pub(crate) use libaio::{AioContext, LibaioBackend};
pub(crate) use null::NullBackend;
pub(crate) use nvme::NvmeController;
pub(crate) use simulated::SimulatedDevice;
pub(crate) use sync::{Calls, SyncBackend};
pub(crate) use uring::{BlockEntries, Entries, UringBackend, probe};
pub(crate) use uring_features::UringFeatures;
pub(crate) use uring_nvme::NvmeRing;
pub use virtual_device::VirtualDevice;
pub(crate) use virtual_device::VirtualPort;

use crate::buffer::Arena;

/// A backend is unavailable on a target: the run fails with code `unsupported`, and the study continues without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Missing feature of the kernel or the target.
    pub reason: String,
    /// Imperative that makes it available, or an alternative.
    pub hint: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl ToString, hint: impl Into<String>) -> Unavailable {
        Unavailable {
            reason: reason.to_string(),
            hint: hint.into(),
        }
    }
}

/// I/Os submitted together to a target that takes its time. The kernel holds requests back until it has taken all of a
/// batch (a block plug), so one as deep as the queue leaves the device idle meanwhile, and all of it completes together
/// again. Measured on a virtio disk at queue depth 32, direct, with `io_uring`: 105,000 IOPS with batches of 8, as with 1,
/// and 89,000 with 32.
const BATCH: usize = 8;
/// I/Os submitted together where all were complete when the last call returned, as from the page cache: then no device
/// waits, and only the number of calls counts.
const BATCH_AT_ONCE: usize = 64;
/// Timeout of a probe's I/O, in nanoseconds.
const PROBE_NS: u64 = 2_000_000_000;

/// Limit of a backend's wait for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until one I/O completes.
    One,
    /// Until one I/O completes, or about until this instant: nothing depends on when exactly.
    Idle(u64),
    /// Until one I/O completes or exactly until this instant, when an I/O is due.
    Due(u64),
}

/// Carries out the I/Os of one job.
///
/// Between [`Backend::push`] and the completion that [`Backend::reap`] reports, the slot's buffer belongs to the I/O.
pub trait Backend {
    /// Now, in nanoseconds since the run's 0.
    fn now(&self) -> u64;

    /// The most I/Os that should be submitted together, as things are now.
    fn batch(&self) -> usize {
        usize::MAX
    }

    /// Takes an I/O to be submitted. There is room for `queue_depth` I/Os.
    fn push(&mut self, slot: u32, io: &Io);

    /// Submits what was pushed. What goes wrong shows in the next [`Backend::submit_and_wait`], which tries again.
    fn submit(&mut self) {}

    /// Submits what was pushed and waits. Returns early when a signal arrives.
    ///
    /// # Errors
    /// When the kernel neither takes nor returns I/Os.
    fn submit_and_wait(&mut self, wait: Wait) -> io::Result<()>;

    /// Reports every completed I/O: its slot, and bytes moved or a negative error number.
    fn reap(&mut self, complete: impl FnMut(u32, i32));

    /// CPU time spent watching the clock in [`Wait::Due`], in nanoseconds.
    fn spun_ns(&self) -> u64;

    /// Cause for which the device can no longer be used, if the backend knows more than the error numbers of its I/Os.
    fn failure_cause(&self) -> Option<String> {
        None
    }

    /// I/O interface and features in effect.
    fn in_effect(&self) -> BackendInEffect;
}

/// Resources for the backend of a job on real files.
pub struct JobFiles<'a> {
    /// The file all I/Os of the job go to.
    pub fd: RawFd,
    /// The buffers, one for each slot.
    pub arena: &'a Arena,
    /// Time before an instant during which to watch the clock instead of sleeping, in nanoseconds.
    pub spin_ns: u64,
}

/// Carries out one I/O, in slot 0. The error is the I/O's or the backend's.
fn try_one(backend: &mut impl Backend, io: &Io) -> io::Result<()> {
    backend.push(0, io);
    let deadline = backend.now() + PROBE_NS;
    let mut result = None;
    while result.is_none() {
        if backend.now() >= deadline {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        backend.submit_and_wait(Wait::Idle(deadline))?;
        backend.reap(|_, bytes| result = Some(bytes));
    }
    match result {
        Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}

/// Returns true if the I/O of [`try_one`] may still be in flight.
fn is_abandoned(tried: &io::Result<()>) -> bool {
    matches!(tried, Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT))
}
