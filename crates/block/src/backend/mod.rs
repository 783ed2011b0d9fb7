//! The narrow edge between the driver loop and whatever carries out I/O.
//!
//! A backend owns the clock the loop reads, because a simulated device has a time of its own. One backend serves one
//! job, in that job's thread; nothing in it is shared.

mod nap;
mod null;
mod simulated;
mod sync;
mod uring;
mod virtual_device;

use std::os::fd::RawFd;

use iosonde_load::Io;
use iosonde_protocol::BackendInEffect;

pub(crate) use null::NullBackend;
pub(crate) use simulated::SimulatedDevice;
pub(crate) use sync::SyncBackend;
pub(crate) use uring::{UringBackend, UringFeatures, probe};
pub(crate) use virtual_device::{VirtualDevice, VirtualPort};

use crate::buffer::Arena;

/// How long a backend may wait for completions.
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
    fn submit_and_wait(&mut self, wait: Wait) -> std::io::Result<()>;

    /// Reports every completed I/O: its slot, and bytes moved or a negative error number.
    fn reap(&mut self, complete: impl FnMut(u32, i32));

    /// CPU time spent watching the clock in [`Wait::Due`], in nanoseconds.
    fn spun_ns(&self) -> u64;

    /// How I/O is really done.
    fn in_effect(&self) -> BackendInEffect;
}

/// What a backend of a job on real files needs.
pub struct JobFiles<'a> {
    /// The file all I/Os of the job go to.
    pub fd: RawFd,
    /// The buffers, one for each slot.
    pub arena: &'a Arena,
    /// How long before an instant to watch the clock instead of sleeping, in nanoseconds.
    pub spin_ns: u64,
}
