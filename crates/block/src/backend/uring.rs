//! `io_uring`: one ring a job, made in the job's own thread.
//!
//! The ring is set up for a single issuer with deferred task work (Linux 6.1), so completions are handled only when the
//! loop asks for them and no interrupt disturbs it between two I/Os; older kernels get what they have. Files, buffers and
//! the ring's own descriptor are registered, which saves reference counting for each I/O and each call.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::cqueue::{self, CompletionQueue};
use io_uring::squeue::{self, SubmissionQueue};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, opcode};
use iosonde_harness::load::Io;
use iosonde_harness::metrics::clock::Clock;
use iosonde_protocol::{BackendInEffect, Fallback, Operation, UringOptions};

use super::nap::Nap;
use super::uring_features::{Asked, UringFeatures, grant};
use super::{BATCH, BATCH_AT_ONCE, Backend, JobFiles, Wait, queue};
use crate::buffer::Arena;

/// The kernel's limit for one registered buffer.
const REGISTERED_BUFFER_MAX: usize = 1 << 30;

/// Finds out, by real I/Os on a file, which of `options` can be had. An error means that there is no `io_uring` here.
///
/// `may_poll` is false if the stream also trims or flushes, which a completion-polled ring cannot do.
pub(crate) fn probe(file: &File, options: &UringOptions, may_poll: bool) -> io::Result<UringFeatures> {
    let no_polling = match may_poll {
        true => queue::no_polling(file),
        false => Some("polling needs direct reads and writes without trims and flushes".to_string()),
    };
    let asked = Asked {
        kind: "uring",
        options,
        no_polling,
    };
    grant(asked, &|features| {
        try_read(features, BlockEntries, file.as_raw_fd(), 4096, Arena::new(1, 4096)?)
    })
}

/// Reads the first bytes of a file through a ring of these features, into the first slot of `arena`.
pub(super) fn try_read<E: Entries>(
    features: &UringFeatures,
    entries: E,
    fd: RawFd,
    bytes: u32,
    arena: Arena,
) -> io::Result<()> {
    let mut ring = features.ring::<E::Submission, E::Completion>(1)?;
    let files = JobFiles {
        fd,
        arena: &arena,
        spin_ns: 0,
    };
    let mut backend = UringBackend::new(&mut ring, entries, Clock::monotonic(), &files, features)?;
    if !backend.registrations_hold(features) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let read = Io {
        operation: Operation::Read,
        offset_bytes: 0,
        bytes,
    };
    let tried = super::try_one(&mut backend, &read);
    drop(backend);
    if super::is_abandoned(&tried) {
        std::mem::forget(ring);
        arena.leak();
    }
    tried
}

/// Encoding of I/Os in a ring's submission entries, and decoding of its completions.
pub(crate) trait Entries: Sized {
    /// An entry of its submission queue.
    type Submission: squeue::EntryMarker;
    /// An entry of its completion queue.
    type Completion: cqueue::EntryMarker;

    /// Describes an I/O.
    fn describe(&mut self, place: &Place, slot: u32, io: &Io) -> Self::Submission;

    /// The slot of a completed I/O, and the bytes that it moved or a negative error number.
    fn outcome(&self, completion: &Self::Completion) -> (u32, i32);
}

/// Destination of a ring's I/Os, and the memory that they go through.
pub(crate) struct Place {
    /// The file's descriptor, or its number among the registered ones if `flags` has that bit.
    pub(super) file: Fd,
    pub(super) flags: squeue::Flags,
    /// Slots in each registered buffer; none if buffers are not registered.
    slots_per_buffer: Option<u32>,
    base: *mut u8,
    slot_bytes: usize,
}

impl Place {
    /// The slot's buffer.
    #[inline]
    pub(super) fn buffer(&self, slot: u32) -> *mut u8 {
        self.base.wrapping_add(slot as usize * self.slot_bytes)
    }

    /// The registered buffer in which the slot is; none if buffers are not registered.
    #[inline]
    pub(super) fn registered(&self, slot: u32) -> Option<u16> {
        self.slots_per_buffer.map(|slots| (slot / slots) as u16)
    }
}

/// Reads, writes, trims and flushes of a file or block device.
pub(crate) struct BlockEntries;

impl Entries for BlockEntries {
    type Submission = squeue::Entry;
    type Completion = cqueue::Entry;

    #[inline]
    fn describe(&mut self, place: &Place, slot: u32, io: &Io) -> squeue::Entry {
        let buffer = place.buffer(slot);
        let (file, offset) = (place.file, io.offset_bytes);
        let entry = match (io.operation, place.registered(slot)) {
            (Operation::Read, None) => opcode::Read::new(file, buffer, io.bytes).offset(offset).build(),
            (Operation::Write, None) => opcode::Write::new(file, buffer, io.bytes).offset(offset).build(),
            (Operation::Read, Some(number)) => opcode::ReadFixed::new(file, buffer, io.bytes, number)
                .offset(offset)
                .build(),
            (Operation::Write, Some(number)) => opcode::WriteFixed::new(file, buffer, io.bytes, number)
                .offset(offset)
                .build(),
            (Operation::Trim, _) => opcode::Fallocate::new(file, u64::from(io.bytes))
                .offset(offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            (Operation::Flush, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            _ => unreachable!("no block I/O"),
        };
        entry.flags(place.flags).user_data(u64::from(slot))
    }

    #[inline]
    fn outcome(&self, completion: &cqueue::Entry) -> (u32, i32) {
        (completion.user_data() as u32, completion.result())
    }
}

/// The backend behind `{"kind": "uring"}`, and with entries of another kind behind `{"kind": "uring_nvme"}`.
pub(crate) struct UringBackend<'ring, E: Entries> {
    clock: Clock,
    nap: Nap,
    submitter: Submitter<'ring>,
    submissions: SubmissionQueue<'ring, E::Submission>,
    completions: CompletionQueue<'ring, E::Completion>,
    entries: E,
    place: Place,
    /// True if a kernel thread polls for submissions.
    is_submission_polled: bool,
    /// I/Os pushed and not yet reaped.
    outstanding: usize,
    batch: usize,
    in_effect: BackendInEffect,
}

impl<'ring, E: Entries> UringBackend<'ring, E> {
    /// Takes a ring made by [`UringFeatures::ring`] in this thread. A registration that fails at this size is left out,
    /// and reported in [`Backend::in_effect`].
    pub(crate) fn new(
        ring: &'ring mut IoUring<E::Submission, E::Completion>,
        entries: E,
        clock: Clock,
        files: &JobFiles<'_>,
        features: &UringFeatures,
    ) -> io::Result<UringBackend<'ring, E>> {
        let (mut submitter, submissions, completions) = ring.split();
        let mut in_effect = features.in_effect();
        let mut refuse = |feature: &str, error: &io::Error| {
            in_effect.features.retain(|name| name != feature);
            in_effect.fallbacks.push(Fallback {
                feature: feature.into(),
                reason: error.to_string(),
            });
        };
        let fixed_file = features.options.registered_files
            && submitter
                .register_files(&[files.fd])
                .inspect_err(|error| refuse("registered_files", error))
                .is_ok();
        let slots_per_buffer = features
            .options
            .registered_buffers
            .then(|| register_buffers(&submitter, files.arena))
            .and_then(|result| result.inspect_err(|error| refuse("registered_buffers", error)).ok());
        // Not every kernel can; nothing but a little speed depends on it.
        let _ = submitter.register_ring_fd();
        let place = Place {
            file: Fd(if fixed_file { 0 } else { files.fd }),
            flags: if fixed_file {
                squeue::Flags::FIXED_FILE
            } else {
                squeue::Flags::empty()
            },
            slots_per_buffer,
            base: files.arena.slot(0),
            slot_bytes: files.arena.slot_bytes(),
        };
        Ok(UringBackend {
            clock,
            nap: Nap::new(clock, files.spin_ns),
            submitter,
            submissions,
            completions,
            entries,
            place,
            is_submission_polled: features.options.submission_polling,
            outstanding: 0,
            batch: BATCH,
            in_effect,
        })
    }

    fn registrations_hold(&self, features: &UringFeatures) -> bool {
        self.place.flags.contains(squeue::Flags::FIXED_FILE) == features.options.registered_files
            && self.place.slots_per_buffer.is_some() == features.options.registered_buffers
    }

    /// After a call, looks at what it did: the kernel has moved the head of the submissions, and the next batch depends on
    /// whether anything is still in flight.
    #[inline]
    fn look(&mut self) {
        self.submissions.sync();
        self.completions.sync();
        let at_once = self.completions.len() == self.outstanding;
        self.batch = if at_once { BATCH_AT_ONCE } else { BATCH };
    }

    /// Submits, and returns as soon as a completion is there or the clock reaches `instant_ns`.
    fn wait_until_due(&mut self, instant_ns: u64) -> io::Result<usize> {
        let now_ns = self.clock.now();
        if instant_ns.saturating_sub(now_ns) > self.nap.spin_ns() {
            return self.wait_about(instant_ns - self.nap.spin_ns());
        }
        self.submitter.submit()?;
        let (submitter, completions) = (&self.submitter, &mut self.completions);
        let mut failure = None;
        self.nap.spin(now_ns, instant_ns, || {
            // SAFETY: nothing is submitted and nothing awaited; the call only runs deferred task work.
            let entered =
                unsafe { submitter.enter::<libc::sigset_t>(0, 0, io_uring::EnterFlags::GETEVENTS.bits(), None) };
            failure = entered.err();
            completions.sync();
            failure.is_some() || !CompletionQueue::is_empty(completions)
        });
        failure.map_or(Ok(0), Err)
    }

    /// Submits, and returns when a completion is there or a timer for `instant_ns` has woken the thread.
    fn wait_about(&mut self, instant_ns: u64) -> io::Result<usize> {
        let left_ns = instant_ns.saturating_sub(self.clock.now());
        let timeout = Timespec::new()
            .sec(left_ns / 1_000_000_000)
            .nsec((left_ns % 1_000_000_000) as u32);
        match self
            .submitter
            .submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
        {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(0),
            other => other,
        }
    }
}

/// Registers the arena as few large buffers: one page-table walk at start instead of one for each I/O.
fn register_buffers(submitter: &Submitter<'_>, arena: &Arena) -> io::Result<u32> {
    let slots_per_buffer = (REGISTERED_BUFFER_MAX / arena.slot_bytes()).max(1);
    let span = slots_per_buffer * arena.slot_bytes();
    let buffers: Vec<libc::iovec> = (0..arena.bytes())
        .step_by(span)
        .map(|start| libc::iovec {
            iov_base: arena.slot((start / arena.slot_bytes()) as u32).cast(),
            iov_len: span.min(arena.bytes() - start),
        })
        .collect();
    // SAFETY: the arena outlives the ring: its owner drops (or leaks) it after the job's loop has returned.
    unsafe { submitter.register_buffers(&buffers)? };
    Ok(slots_per_buffer as u32)
}

impl<E: Entries> Backend for UringBackend<'_, E> {
    #[inline]
    fn batch(&self) -> usize {
        self.batch
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) {
        let entry = self.entries.describe(&self.place, slot, io);
        // SAFETY: the slot's buffer belongs to this I/O until `reap` reports it, and the file stays open as long.
        while unsafe { self.submissions.push(&entry) }.is_err() {
            // Only with submission polling, and a ring that the kernel has limited to less than twice the queue depth.
            assert!(self.is_submission_polled, "the ring holds the queue depth");
            self.submissions.sync();
            std::hint::spin_loop();
        }
        self.outstanding += 1;
    }

    #[inline]
    fn submit(&mut self) {
        self.submissions.sync();
        let _ = self.submitter.submit();
        self.look();
    }

    #[inline]
    fn submit_and_wait(&mut self, wait: Wait) -> io::Result<()> {
        self.submissions.sync();
        let result = match wait {
            Wait::One => self.submitter.submit_and_wait(1),
            Wait::Due(instant_ns) => self.wait_until_due(instant_ns),
            Wait::Idle(instant_ns) => self.wait_about(instant_ns),
        };
        self.look();
        match result {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn reap(&mut self, mut complete: impl FnMut(u32, i32)) {
        self.completions.sync();
        self.outstanding -= self.completions.len();
        for completion in &mut self.completions {
            let (slot, result) = self.entries.outcome(&completion);
            complete(slot, result);
        }
    }

    fn spun_ns(&self) -> u64 {
        self.nap.spun_ns()
    }

    fn in_effect(&self) -> BackendInEffect {
        self.in_effect.clone()
    }
}
