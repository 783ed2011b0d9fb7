//! `io_uring`: one ring a job, made in the job's own thread.
//!
//! The ring is set up for a single issuer with deferred task work (Linux 6.1), so completions are handled only when the
//! loop asks for them and no interrupt disturbs it between two I/Os; older kernels get what they have. Files, buffers and
//! the ring's own descriptor are registered, which saves reference counting for each I/O and each call.

use std::io;
use std::os::fd::RawFd;

use io_uring::cqueue::CompletionQueue;
use io_uring::squeue::{self, SubmissionQueue};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, opcode};
use iosonde_load::Io;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{BackendInEffect, Fallback, Operation, UringOptions};

use super::nap::Nap;
use super::{Backend, JobFiles, Wait};
use crate::buffer::Arena;

/// The kernel's limit for one registered buffer.
const REGISTERED_BUFFER_MAX: usize = 1 << 30;
/// How long the kernel's submission thread polls before it sleeps, in milliseconds.
const SUBMISSION_THREAD_IDLE_MS: u32 = 2_000;
/// I/Os submitted together to a target that takes its time. The kernel holds requests back until it has taken all of a
/// batch (a block plug), so one as deep as the queue leaves the device idle meanwhile, and all of it completes together
/// again. Measured on a virtio disk at queue depth 32, direct: 105,000 IOPS with batches of 8, as with 1, and 89,000 with
/// 32.
const BATCH: usize = 8;
/// I/Os submitted together where all were complete when the last call returned, as from the page cache: then no device
/// waits, and only the number of calls counts.
const BATCH_AT_ONCE: usize = 64;
/// What the kernel and the target grant of what was asked for.
#[derive(Debug, Clone)]
pub(crate) struct UringFeatures {
    options: UringOptions,
    /// A single issuer and deferred task work (Linux 6.1).
    single_issuer: bool,
    /// Entries are taken in the order of the ring, without an array of their numbers (Linux 6.6).
    bare_submissions: bool,
    fallbacks: Vec<Fallback>,
}

impl UringFeatures {
    /// The features by name.
    pub(crate) fn names(&self) -> Vec<String> {
        [
            (self.single_issuer, "single_issuer"),
            (self.bare_submissions, "bare_submissions"),
            (
                self.single_issuer && !self.options.submission_polling,
                "deferred_task_work",
            ),
            (self.options.registered_files, "registered_files"),
            (self.options.registered_buffers, "registered_buffers"),
            (self.options.submission_polling, "submission_polling"),
            (self.options.completion_polling, "completion_polling"),
        ]
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| (*name).to_string())
        .collect()
    }

    /// A ring of this kind. Must be called in the thread that will use it.
    pub(crate) fn ring(&self, queue_depth: u32) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_submit_all();
        if self.options.submission_polling {
            builder.setup_sqpoll(SUBMISSION_THREAD_IDLE_MS);
        }
        if self.options.completion_polling {
            builder.setup_iopoll();
        }
        if self.bare_submissions {
            builder.setup_no_sqarray();
        }
        if self.single_issuer {
            builder.setup_single_issuer();
            if !self.options.submission_polling {
                builder.setup_defer_taskrun();
            }
        }
        builder.build(queue_depth.next_power_of_two())
    }
}

/// Finds out, by real I/Os on `fd`, which of `options` can be had. An error means that there is no `io_uring` here.
///
/// `reads_only` is false if the stream also trims or flushes, which a completion-polled ring cannot do.
pub(crate) fn probe(fd: RawFd, options: &UringOptions, reads_only: bool) -> io::Result<UringFeatures> {
    let plain = UringOptions {
        registered_files: false,
        registered_buffers: false,
        submission_polling: false,
        completion_polling: false,
    };
    let mut granted = UringFeatures {
        options: plain,
        single_issuer: true,
        bare_submissions: true,
        fallbacks: Vec::new(),
    };
    if granted.try_read(fd).is_err() {
        granted.bare_submissions = false;
        if granted.try_read(fd).is_err() {
            granted.single_issuer = false;
            granted.try_read(fd)?;
        }
    }
    type Switch = fn(&mut UringOptions) -> &mut bool;
    let wishes: [(&str, bool, Switch); 4] = [
        ("registered_files", options.registered_files, |o| {
            &mut o.registered_files
        }),
        ("registered_buffers", options.registered_buffers, |o| {
            &mut o.registered_buffers
        }),
        ("submission_polling", options.submission_polling, |o| {
            &mut o.submission_polling
        }),
        ("completion_polling", options.completion_polling, |o| {
            &mut o.completion_polling
        }),
    ];
    for (name, _, switch) in wishes.iter().filter(|(_, wanted, _)| *wanted) {
        *switch(&mut granted.options) = true;
        let refused = if *name == "completion_polling" && !reads_only {
            Some("a polled ring can neither trim nor flush".to_string())
        } else {
            granted.try_read(fd).err().map(|error| error.to_string())
        };
        if let Some(reason) = refused {
            *switch(&mut granted.options) = false;
            granted.fallbacks.push(Fallback {
                feature: (*name).to_string(),
                reason,
            });
        }
    }
    Ok(granted)
}

impl UringFeatures {
    /// Reads the first page of `fd` through a ring of this kind.
    fn try_read(&self, fd: RawFd) -> io::Result<()> {
        let arena = Arena::new(1, 4096)?;
        let clock = Clock::monotonic();
        let mut ring = self.ring(1)?;
        let mut backend = UringBackend::new(
            &mut ring,
            clock,
            &JobFiles {
                fd,
                arena: &arena,
                spin_ns: 0,
            },
            self,
        )?;
        if !backend.registrations_hold(self) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        backend.push(
            0,
            &Io {
                operation: Operation::Read,
                offset_bytes: 0,
                bytes: 4096,
            },
        );
        let deadline = clock.now() + 2_000_000_000;
        let mut result = None;
        while result.is_none() {
            backend.submit_and_wait(Wait::Idle(deadline))?;
            backend.reap(|_, bytes| result = Some(bytes));
            if result.is_none() && clock.now() >= deadline {
                drop(backend);
                arena.leak();
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
        match result {
            Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(()),
        }
    }
}

/// The backend behind `{"kind": "uring"}`.
pub(crate) struct UringBackend<'ring> {
    clock: Clock,
    nap: Nap,
    submitter: Submitter<'ring>,
    submissions: SubmissionQueue<'ring>,
    completions: CompletionQueue<'ring>,
    /// The file's descriptor, or its number among the registered ones if `flags` says so.
    file: Fd,
    flags: squeue::Flags,
    /// Slots in each registered buffer; none if buffers are not registered.
    slots_per_buffer: Option<u32>,
    base: *mut u8,
    slot_bytes: usize,
    /// I/Os pushed and not yet reaped.
    outstanding: usize,
    batch: usize,
    in_effect: BackendInEffect,
}

impl<'ring> UringBackend<'ring> {
    /// Takes a ring made by [`UringFeatures::ring`] in this thread. A registration that fails at this size is left out,
    /// and said so in [`Backend::in_effect`].
    pub(crate) fn new(
        ring: &'ring mut IoUring,
        clock: Clock,
        files: &JobFiles<'_>,
        features: &UringFeatures,
    ) -> io::Result<UringBackend<'ring>> {
        let (mut submitter, submissions, completions) = ring.split();
        let mut in_effect = BackendInEffect {
            kind: "uring".into(),
            features: features.names(),
            fallbacks: features.fallbacks.clone(),
        };
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
        Ok(UringBackend {
            clock,
            nap: Nap::new(clock, files.spin_ns),
            submitter,
            submissions,
            completions,
            file: Fd(if fixed_file { 0 } else { files.fd }),
            flags: if fixed_file {
                squeue::Flags::FIXED_FILE
            } else {
                squeue::Flags::empty()
            },
            slots_per_buffer,
            base: files.arena.slot(0),
            slot_bytes: files.arena.slot_bytes(),
            outstanding: 0,
            batch: BATCH,
            in_effect,
        })
    }

    fn registrations_hold(&self, features: &UringFeatures) -> bool {
        self.flags.contains(squeue::Flags::FIXED_FILE) == features.options.registered_files
            && self.slots_per_buffer.is_some() == features.options.registered_buffers
    }

    #[inline]
    fn entry(&self, slot: u32, io: &Io) -> squeue::Entry {
        let buffer = self.base.wrapping_add(slot as usize * self.slot_bytes);
        let (file, offset) = (self.file, io.offset_bytes);
        let entry = match (io.operation, self.slots_per_buffer) {
            (Operation::Read, None) => opcode::Read::new(file, buffer, io.bytes).offset(offset).build(),
            (Operation::Write, None) => opcode::Write::new(file, buffer, io.bytes).offset(offset).build(),
            (Operation::Read, Some(slots)) => opcode::ReadFixed::new(file, buffer, io.bytes, (slot / slots) as u16)
                .offset(offset)
                .build(),
            (Operation::Write, Some(slots)) => opcode::WriteFixed::new(file, buffer, io.bytes, (slot / slots) as u16)
                .offset(offset)
                .build(),
            (Operation::Trim, _) => opcode::Fallocate::new(file, u64::from(io.bytes))
                .offset(offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            (Operation::Flush, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            _ => unreachable!("no block I/O"),
        };
        entry.flags(self.flags).user_data(u64::from(slot))
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

impl Backend for UringBackend<'_> {
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
        let entry = self.entry(slot, io);
        // SAFETY: the slot's buffer belongs to this I/O until `reap` reports it, and the file stays open as long.
        unsafe { self.submissions.push(&entry) }.expect("the ring holds the queue depth");
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
        for entry in &mut self.completions {
            complete(entry.user_data() as u32, entry.result());
        }
    }

    fn spun_ns(&self) -> u64 {
        self.nap.spun_ns()
    }

    fn in_effect(&self) -> BackendInEffect {
        self.in_effect.clone()
    }
}
