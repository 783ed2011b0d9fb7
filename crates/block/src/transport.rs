//! I/O interface of a job: the requested backend, as far as kernel and target grant it.
//!
//! Every workload that reads and writes files by itself chooses a [`Transport`] once and runs its loop on it: the loop is
//! a [`Work`], generic over the [`Backend`].

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{JobDone, RunError};
use iosonde_protocol::{self as protocol, BackendInEffect, Fallback, UringNvmeOptions, UringOptions};

use crate::backend::{
    AioContext, Backend, BlockEntries, Calls, Entries, JobFiles, LibaioBackend, NullBackend, NvmeController, NvmeRing,
    SyncBackend, Unavailable, UringBackend, UringFeatures, libaio, probe,
};
use crate::buffer::Arena;

/// The backend of a stream, with what was found out about it.
pub struct Transport {
    kind: Kind,
}

enum Kind {
    Null,
    Uring(UringFeatures),
    /// One system call at a time, in each of this many threads of a job.
    Blocking {
        lanes: u32,
        calls: Calls,
    },
    Libaio,
    UringNvme(NvmeRing),
    /// One controller for all streams.
    NvmeUser(Arc<NvmeController>),
}

/// Requirements of a stream on its transport.
pub struct Wanted<'a> {
    /// The backend of the spec.
    pub backend: &'a protocol::Backend,
    /// A file of the target, as the load opens it: capabilities are tried on it. None where nothing is moved.
    pub file: Option<&'a File>,
    /// I/Os in flight.
    pub queue_depth: u32,
    /// True if completions may be polled: nothing but direct reads and writes.
    pub may_poll: bool,
    /// Bytes of the largest I/O.
    pub largest_bytes: u64,
    /// True if writes must be on the medium when they complete.
    pub durable_writes: bool,
}

/// Resources that a job provides to its transport.
pub struct JobResources<'a> {
    /// The run's clock.
    pub clock: Clock,
    /// I/Os in flight at most.
    pub queue_depth: u32,
    /// Time before an instant during which to watch the clock instead of sleeping, in nanoseconds.
    pub spin_ns: u64,
    /// File and buffers; none where nothing is moved.
    pub files: Option<JobFiles<'a>>,
}

/// The loop of a job, on whichever backend.
pub trait Work {
    /// Results of the job.
    type Found;

    /// Runs the loop.
    ///
    /// # Errors
    /// When the backend fails; operations may still be in flight.
    fn run<B: Backend>(self, backend: &mut B) -> Done<Self::Found>;
}

/// Result of a loop; nothing if the run was cancelled before it started.
pub type Done<T> = Result<Option<JobDone<T>>, RunError>;

/// True if I/Os are still in flight, so that the kernel may still write to the ring and its buffers.
pub fn has_abandoned<T>(done: &Done<T>) -> bool {
    match done {
        Ok(Some(done)) => done.abandoned > 0,
        Ok(None) => false,
        Err(_) => true,
    }
}

fn refused<T>(reason: String) -> Done<T> {
    Err(RunError::internal(reason))
}

impl Transport {
    /// Tries the backend by a real I/O on the file. With the transport comes the reason why `io_uring` was refused, if it
    /// was: then it is blocking system calls.
    ///
    /// # Errors
    /// When the backend is not available on this target.
    pub fn choose(wanted: &Wanted<'_>) -> Result<(Transport, Option<io::Error>), Unavailable> {
        let of = |kind| (Transport { kind }, None);
        if matches!(wanted.backend, protocol::Backend::Null) {
            return Ok(of(Kind::Null));
        }
        let Some(file) = wanted.file else {
            return Err(Unavailable::new("there is no file to try it on", ""));
        };
        match wanted.backend {
            protocol::Backend::Sync => Ok(of(Kind::Blocking {
                lanes: 1,
                calls: Calls::Plain(Vec::new()),
            })),
            protocol::Backend::Preadv2 => preadv2(file).map(of),
            protocol::Backend::Libaio => aio(file).map(of),
            protocol::Backend::Uring(options) => uring(file, options, wanted),
            protocol::Backend::UringNvme(options) => uring_nvme(file, options, wanted).map(of),
            protocol::Backend::NvmeUser(_) => Err(Unavailable::new(
                "no NVMe controller was handed over",
                "use it in a study on an NVMe namespace",
            )),
            protocol::Backend::Null | protocol::Backend::Simulated { .. } | protocol::Backend::Ssd { .. } => {
                Err(Unavailable::new("a simulated device has no threads", ""))
            }
        }
    }

    /// Takes over the controller that the run was given: the transports of all streams; none with another backend.
    ///
    /// # Errors
    /// When the controller cannot be used.
    pub(crate) fn take_over(workload: &protocol::BlockWorkload) -> Result<Option<Vec<Transport>>, RunError> {
        let protocol::Backend::NvmeUser(options) = &workload.backend else {
            return Ok(None);
        };
        let controller = NvmeController::open(options, workload).map_err(|error| {
            let hint = "see `docs/nvme-driver.md`; every other backend uses the kernel's driver";
            Unavailable::new(error, hint).into_error(&workload.backend)
        })?;
        let controller = Arc::new(controller);
        let transport = |_| Transport {
            kind: Kind::NvmeUser(Arc::clone(&controller)),
        };
        Ok(Some(workload.streams.iter().map(transport).collect()))
    }

    /// Buffers of a job, placed as the backend needs them.
    ///
    /// # Errors
    /// When there is no such memory.
    pub fn arena(&self, slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        match &self.kind {
            Kind::NvmeUser(controller) => controller.arena(slots, slot_bytes),
            Kind::UringNvme(ring) => ring.arena(slots, slot_bytes),
            _ => Arena::new(slots, slot_bytes),
        }
    }

    /// Backend and features in effect.
    pub(crate) fn in_effect(&self) -> BackendInEffect {
        match &self.kind {
            Kind::Null => BackendInEffect {
                kind: "null".into(),
                ..BackendInEffect::default()
            },
            Kind::Uring(features) => features.in_effect(),
            Kind::Blocking { calls, .. } => calls.in_effect(),
            Kind::Libaio => libaio::in_effect(),
            Kind::UringNvme(ring) => ring.features.in_effect(),
            Kind::NvmeUser(controller) => controller.in_effect(),
        }
    }

    /// Threads that a job of the block workload is divided into.
    pub(crate) fn lanes(&self) -> u32 {
        match &self.kind {
            Kind::Blocking { lanes, .. } => *lanes,
            Kind::Null | Kind::Uring(_) | Kind::Libaio | Kind::UringNvme(_) | Kind::NvmeUser(_) => 1,
        }
    }

    /// Returns true if I/O is done by blocking system calls.
    pub fn is_blocking(&self) -> bool {
        matches!(self.kind, Kind::Blocking { .. })
    }

    /// I/Os that one thread can have in flight.
    pub fn depth_of_thread(&self, queue_depth: u32) -> u32 {
        match &self.kind {
            Kind::Blocking { .. } => 1,
            Kind::Null | Kind::Uring(_) | Kind::Libaio | Kind::UringNvme(_) | Kind::NvmeUser(_) => queue_depth,
        }
    }

    /// Runs a job's loop in this thread.
    pub fn drive<W: Work>(&self, work: W, resources: &JobResources<'_>) -> Done<W::Found> {
        let clock = resources.clock;
        match (&self.kind, &resources.files) {
            (Kind::Null, _) => work.run(&mut NullBackend::new(clock, resources.queue_depth, resources.spin_ns)),
            (_, None) => refused("a job on real files has no buffers".into()),
            (Kind::Blocking { calls, .. }, Some(files)) => work.run(&mut SyncBackend::new(clock, files, calls)),
            (Kind::Libaio, Some(files)) => on_context(work, resources, files),
            (Kind::Uring(features), Some(files)) => on_ring(features, BlockEntries, work, resources, files),
            (Kind::UringNvme(ring), Some(files)) => {
                let commands = JobFiles {
                    fd: ring.fd(),
                    ..*files
                };
                on_ring(
                    &ring.features,
                    ring.entries(resources.queue_depth),
                    work,
                    resources,
                    &commands,
                )
            }
            (Kind::NvmeUser(controller), Some(files)) => {
                match controller.backend(clock, files.arena, resources.queue_depth) {
                    Ok(mut backend) => work.run(&mut backend),
                    Err(error) => refused(format!("no queue pair for a job: {error}")),
                }
            }
        }
    }
}

/// The backend of a spec as messages name it, with its polling.
pub(crate) fn name_of(backend: &protocol::Backend) -> String {
    match backend {
        protocol::Backend::Sync => "sync".into(),
        protocol::Backend::Preadv2 => "preadv2".into(),
        protocol::Backend::Libaio => "libaio".into(),
        protocol::Backend::Uring(options) => {
            let polling = [
                (options.submission_polling, " with submission polling"),
                (options.completion_polling, " with completion polling"),
            ];
            let asked = polling.iter().filter(|(on, _)| *on).map(|(_, text)| *text);
            std::iter::once("uring").chain(asked).collect()
        }
        protocol::Backend::UringNvme(options) => match options.completion_polling {
            true => "uring_nvme with completion polling".into(),
            false => "uring_nvme".into(),
        },
        protocol::Backend::NvmeUser(_) => "nvme_user".into(),
        protocol::Backend::Null => "null".into(),
        protocol::Backend::Simulated { .. } => "simulated".into(),
        protocol::Backend::Ssd { .. } => "ssd".into(),
    }
}

fn preadv2(file: &File) -> Result<Kind, Unavailable> {
    let hint = "use the backend `sync`, which makes the same system calls without the flag";
    let calls = Calls::high_priority(file).map_err(|error| Unavailable::new(error, hint))?;
    Ok(Kind::Blocking { lanes: 1, calls })
}

fn aio(file: &File) -> Result<Kind, Unavailable> {
    libaio::probe(file).map_err(|error| match error.raw_os_error() {
        Some(libc::EAGAIN) => Unavailable::new(
            "all contexts that the kernel allows are in use",
            "raise `/proc/sys/fs/aio-max-nr`",
        ),
        _ => Unavailable::new(error, "use the backend `uring` or `sync`"),
    })?;
    Ok(Kind::Libaio)
}

/// Probes `io_uring`; falls back to blocking system calls where the kernel refuses it and the options allow that.
fn uring(
    file: &File,
    options: &UringOptions,
    wanted: &Wanted<'_>,
) -> Result<(Transport, Option<io::Error>), Unavailable> {
    let features = match probe(file, options, wanted.may_poll) {
        Ok(features) => features,
        Err(error) if options.required => {
            let hint = allow_uring(&error);
            return Err(Unavailable::new(error, hint));
        }
        Err(error) => return Ok((instead_of_uring(wanted.queue_depth, &error), Some(error))),
    };
    match features.refused_polling() {
        Some(refused) if options.required => Err(Unavailable::new(&refused.reason, polling_hint(&refused.feature))),
        _ => Ok((
            Transport {
                kind: Kind::Uring(features),
            },
            None,
        )),
    }
}

/// How to make `io_uring` available, by the error with which a ring was refused and by what refuses it.
pub fn allow_uring(error: &io::Error) -> &'static str {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let disabled = read("/proc/sys/kernel/io_uring_disabled");
    way_to_uring(error.raw_os_error(), &disabled, &read("/proc/thread-self/status"))
}

/// Both the setting and a filter answer with EPERM; some filters, and kernels without `io_uring`, with ENOSYS.
fn way_to_uring(error: Option<i32>, disabled: &str, status: &str) -> &'static str {
    let is_filtered = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2");
    match error {
        Some(libc::EPERM | libc::ENOSYS) if matches!(disabled.trim(), "1" | "2") => {
            "allow io_uring with `sysctl kernel.io_uring_disabled=0`"
        }
        Some(libc::EPERM | libc::ENOSYS) if is_filtered => {
            "allow io_uring in the seccomp profile of this container or service"
        }
        Some(libc::EPERM) => "allow io_uring in the access control of this host, such as AppArmor or SELinux",
        Some(libc::ENOSYS) => "use a kernel with io_uring",
        _ => "remove the cause that the kernel states",
    }
}

fn uring_nvme(file: &File, options: &UringNvmeOptions, wanted: &Wanted<'_>) -> Result<Kind, Unavailable> {
    let largest = u32::try_from(wanted.largest_bytes).unwrap_or(u32::MAX);
    let ring = NvmeRing::probe(file, options, largest, wanted.durable_writes)?;
    match ring.features.refused_polling() {
        Some(refused) => Err(Unavailable::new(&refused.reason, polling_hint(&refused.feature))),
        None => Ok(Kind::UringNvme(ring)),
    }
}

fn polling_hint(feature: &str) -> &'static str {
    match feature {
        "completion_polling" => "load the driver with poll queues, such as `nvme.poll_queues=2`, and use direct I/O",
        _ => "Linux 5.12 or newer permits submission polling to every user",
    }
}

fn instead_of_uring(queue_depth: u32, refused: &io::Error) -> Transport {
    let fallback = Fallback {
        feature: "uring".into(),
        reason: refused.to_string(),
    };
    Transport {
        kind: Kind::Blocking {
            lanes: queue_depth,
            calls: Calls::Plain(vec![fallback]),
        },
    }
}

fn on_context<W: Work>(work: W, resources: &JobResources<'_>, files: &JobFiles<'_>) -> Done<W::Found> {
    let depth = resources.queue_depth;
    let context = match AioContext::new(depth) {
        Ok(context) => ManuallyDrop::new(context),
        Err(error) => {
            return Err(RunError::refused(
                &format!("no context for {depth} I/Os in flight"),
                &error,
            ));
        }
    };
    let done = work.run(&mut LibaioBackend::new(&context, resources.clock, files, depth));
    if !has_abandoned(&done) {
        drop(ManuallyDrop::into_inner(context));
    }
    done
}

fn on_ring<W: Work, E: Entries>(
    features: &UringFeatures,
    entries: E,
    work: W,
    resources: &JobResources<'_>,
    files: &JobFiles<'_>,
) -> Done<W::Found> {
    let mut ring = match features.ring::<E::Submission, E::Completion>(resources.queue_depth) {
        Ok(ring) => ManuallyDrop::new(ring),
        Err(error) => {
            return Err(RunError::refused(
                "cannot set up a ring of `io_uring` for a job",
                &error,
            ));
        }
    };
    let done = match UringBackend::new(&mut ring, entries, resources.clock, files, features) {
        Ok(mut backend) => work.run(&mut backend),
        Err(error) => refused(format!("the ring that was probed cannot be used: {error}")),
    };
    if !has_abandoned(&done) {
        drop(ManuallyDrop::into_inner(ring));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_what_refuses_io_uring() {
        const FILTER: &str = "Name:\tengine\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        const NO_FILTER: &str = "Name:\tengine\nSeccomp:\t0\nSeccomp_filters:\t0\n";
        for (error, disabled, status, expected) in [
            (libc::EPERM, "2\n", FILTER, "sysctl kernel.io_uring_disabled=0"),
            (libc::EPERM, "1\n", NO_FILTER, "sysctl kernel.io_uring_disabled=0"),
            (libc::EPERM, "0\n", FILTER, "seccomp profile"),
            (libc::ENOSYS, "", FILTER, "seccomp profile"),
            (libc::EPERM, "0\n", NO_FILTER, "access control"),
            (libc::ENOSYS, "", NO_FILTER, "use a kernel with io_uring"),
            (libc::ENOMEM, "2\n", FILTER, "the cause that the kernel states"),
        ] {
            let hint = way_to_uring(Some(error), disabled, status);
            assert!(hint.contains(expected), "{error} {disabled:?} {status:?}: {hint}");
        }
    }
}
