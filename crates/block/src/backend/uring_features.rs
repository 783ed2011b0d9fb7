//! Features of `io_uring` that kernel and target grant.

use std::io;

use io_uring::{IoUring, cqueue, squeue};
use iosonde_protocol::{BackendInEffect, Fallback, UringOptions};

/// Idle time after which the kernel's submission thread sleeps, in milliseconds.
const SUBMISSION_THREAD_IDLE_MS: u32 = 2_000;

/// The requested features that the kernel and the target grant.
#[derive(Debug, Clone)]
pub(crate) struct UringFeatures {
    /// `uring` or `uring_nvme`.
    kind: &'static str,
    pub(super) options: UringOptions,
    /// A single issuer and deferred task work (Linux 6.1).
    single_issuer: bool,
    /// Entries are taken in the order of the ring, without an array of their numbers (Linux 6.6).
    bare_submissions: bool,
    /// Buffers in reserved huge pages.
    pub(super) huge_pages: bool,
    fallbacks: Vec<Fallback>,
}

impl UringFeatures {
    /// The first requested kind of polling that was refused, with the reason.
    pub(crate) fn refused_polling(&self) -> Option<&Fallback> {
        let is_polling = |fallback: &&Fallback| fallback.feature.ends_with("_polling");
        self.fallbacks.iter().find(is_polling)
    }

    /// The same, with the placement of the buffers.
    pub(super) fn in_huge_pages(mut self, huge_pages: bool) -> UringFeatures {
        self.huge_pages = huge_pages;
        self
    }

    /// Result of the probe.
    pub(crate) fn in_effect(&self) -> BackendInEffect {
        BackendInEffect {
            kind: self.kind.into(),
            features: self.names(),
            fallbacks: self.fallbacks.clone(),
        }
    }

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
            (self.huge_pages, "huge_pages"),
        ]
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| (*name).to_string())
        .collect()
    }

    /// Entries of the submission ring for a queue depth. With submission polling twice as many: the kernel's thread frees
    /// entries only after it has submitted all that it took, and by then some of these I/Os may have completed and been
    /// replaced by new ones.
    fn ring_entries(&self, queue_depth: u32) -> u32 {
        let entries = queue_depth.next_power_of_two();
        if self.options.submission_polling {
            2 * entries
        } else {
            entries
        }
    }

    /// A ring of this kind. Must be called in the thread that will use it.
    pub(crate) fn ring<S, C>(&self, queue_depth: u32) -> io::Result<IoUring<S, C>>
    where
        S: squeue::EntryMarker,
        C: cqueue::EntryMarker,
    {
        let mut builder = IoUring::<S, C>::builder();
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
        builder.build(self.ring_entries(queue_depth))
    }
}

/// Requested settings of a ring.
pub(super) struct Asked<'a> {
    /// `uring` or `uring_nvme`.
    pub kind: &'static str,
    pub options: &'a UringOptions,
    /// Reason why completions cannot be polled, as far as it is known without trying.
    pub no_polling: Option<String>,
}

/// Finds out which of the options can be had, each by a real I/O: `attempt` reads through a ring of the given features. An
/// error means that there is no `io_uring` here.
pub(super) fn grant(asked: Asked<'_>, attempt: &dyn Fn(&UringFeatures) -> io::Result<()>) -> io::Result<UringFeatures> {
    let mut granted = barest(asked.kind, attempt)?;
    type Switch = fn(&mut UringOptions) -> &mut bool;
    let wishes: [(&str, bool, Switch); 4] = [
        ("registered_files", asked.options.registered_files, |o| {
            &mut o.registered_files
        }),
        ("registered_buffers", asked.options.registered_buffers, |o| {
            &mut o.registered_buffers
        }),
        ("submission_polling", asked.options.submission_polling, |o| {
            &mut o.submission_polling
        }),
        ("completion_polling", asked.options.completion_polling, |o| {
            &mut o.completion_polling
        }),
    ];
    for (name, _, switch) in wishes.iter().filter(|(_, wanted, _)| *wanted) {
        *switch(&mut granted.options) = true;
        // Some kernels accept polled I/O without poll queues, and complete it by interrupts.
        let known = asked.no_polling.clone().filter(|_| *name == "completion_polling");
        let refused = known.or_else(|| attempt(&granted).err().map(|error| error.to_string()));
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

/// A ring without options, with what this kernel has.
fn barest(kind: &'static str, attempt: &dyn Fn(&UringFeatures) -> io::Result<()>) -> io::Result<UringFeatures> {
    let mut granted = UringFeatures {
        kind,
        options: UringOptions {
            registered_files: false,
            registered_buffers: false,
            submission_polling: false,
            completion_polling: false,
            required: false,
        },
        single_issuer: true,
        bare_submissions: true,
        huge_pages: false,
        fallbacks: Vec::new(),
    };
    if attempt(&granted).is_err() {
        granted.bare_submissions = false;
        if attempt(&granted).is_err() {
            granted.single_issuer = false;
            attempt(&granted)?;
        }
    }
    Ok(granted)
}
