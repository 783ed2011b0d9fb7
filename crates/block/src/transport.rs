//! How the I/O of a job is done: the backend that the spec asks for, as far as kernel and target grant it.
//!
//! Every workload that reads and writes files by itself chooses a [`Transport`] once and runs its loop on it: the loop is
//! a [`Work`], generic over the [`Backend`].

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use iosonde_metrics::clock::Clock;
use iosonde_protocol::{self as protocol, Fallback};

use crate::backend::{Backend, JobFiles, NullBackend, SyncBackend, UringBackend, UringFeatures, probe};
use crate::error::BlockError;

/// The backend of a stream, with what was found out about it.
pub struct Transport {
    kind: Kind,
}

enum Kind {
    Null,
    Uring(UringFeatures),
    Sync { lanes: u32, fallbacks: Vec<Fallback> },
}

/// What a transport needs to know of a stream.
pub struct Wanted<'a> {
    /// The backend of the spec.
    pub backend: &'a protocol::Backend,
    /// A file of the target, as the load opens it: capabilities are tried on it. None where nothing is moved.
    pub file: Option<&'a File>,
    /// I/Os in flight.
    pub queue_depth: u32,
    /// Whether completions may be polled: nothing but direct reads and writes.
    pub may_poll: bool,
}

/// What a job brings to its transport.
pub struct JobResources<'a> {
    /// The run's clock.
    pub clock: Clock,
    /// I/Os in flight at most.
    pub queue_depth: u32,
    /// How long before an instant to watch the clock instead of sleeping, in nanoseconds.
    pub spin_ns: u64,
    /// File and buffers; none where nothing is moved.
    pub files: Option<JobFiles<'a>>,
}

/// The loop of a job, on whichever backend.
pub trait Work {
    /// What it returns.
    type Done;

    /// Runs the loop.
    fn run<B: Backend>(self, backend: &mut B) -> Self::Done;

    /// The backend cannot be set up, for this reason.
    fn refused(self, reason: String) -> Self::Done;

    /// Whether I/Os are still in flight, so that the kernel may still write to the ring and its buffers.
    fn has_abandoned(done: &Self::Done) -> bool;
}

impl Transport {
    /// Asks kernel and target what they can do. With the transport comes the reason why `io_uring` was refused, if it was:
    /// then it is blocking system calls.
    ///
    /// # Errors
    /// When the backend is a simulated device.
    pub fn choose(wanted: &Wanted<'_>) -> Result<(Transport, Option<io::Error>), BlockError> {
        let options = match wanted.backend {
            protocol::Backend::Null => return Ok((Transport { kind: Kind::Null }, None)),
            protocol::Backend::Sync => {
                let (lanes, fallbacks) = (1, Vec::new());
                return Ok((
                    Transport {
                        kind: Kind::Sync { lanes, fallbacks },
                    },
                    None,
                ));
            }
            protocol::Backend::Uring(options) => options,
            protocol::Backend::Simulated { .. } | protocol::Backend::Ssd { .. } => {
                return Err(BlockError::Internal("a simulated device has no threads".into()));
            }
        };
        let Some(file) = wanted.file else {
            return Err(BlockError::Internal("there is no file to try io_uring on".into()));
        };
        match probe(file.as_raw_fd(), options, wanted.may_poll) {
            Ok(features) => Ok((
                Transport {
                    kind: Kind::Uring(features),
                },
                None,
            )),
            Err(error) => {
                let fallback = Fallback {
                    feature: "uring".into(),
                    reason: error.to_string(),
                };
                let kind = Kind::Sync {
                    lanes: wanted.queue_depth,
                    fallbacks: vec![fallback],
                };
                Ok((Transport { kind }, Some(error)))
            }
        }
    }

    /// Threads that a job of the block workload is divided into.
    pub(crate) fn lanes(&self) -> u32 {
        match &self.kind {
            Kind::Sync { lanes, .. } => *lanes,
            Kind::Null | Kind::Uring(_) => 1,
        }
    }

    /// Whether I/O is blocking system calls.
    pub fn is_blocking(&self) -> bool {
        matches!(self.kind, Kind::Sync { .. })
    }

    /// I/Os that one thread can have in flight.
    pub fn depth_of_thread(&self, queue_depth: u32) -> u32 {
        match &self.kind {
            Kind::Sync { .. } => 1,
            Kind::Null | Kind::Uring(_) => queue_depth,
        }
    }

    /// Runs a job's loop in this thread.
    pub fn drive<W: Work>(&self, work: W, resources: &JobResources<'_>) -> W::Done {
        let clock = resources.clock;
        match (&self.kind, &resources.files) {
            (Kind::Null, _) => work.run(&mut NullBackend::new(clock, resources.queue_depth, resources.spin_ns)),
            (_, None) => work.refused("a job on real files has no buffers".into()),
            (Kind::Sync { fallbacks, .. }, Some(files)) => {
                work.run(&mut SyncBackend::new(clock, files, fallbacks.clone()))
            }
            (Kind::Uring(features), Some(files)) => on_ring(features, work, resources, files),
        }
    }
}

fn on_ring<W: Work>(features: &UringFeatures, work: W, resources: &JobResources<'_>, files: &JobFiles<'_>) -> W::Done {
    let mut ring = match features.ring(resources.queue_depth) {
        Ok(ring) => ManuallyDrop::new(ring),
        Err(error) => return work.refused(format!("the ring that was probed cannot be set up: {error}")),
    };
    let done = match UringBackend::new(&mut ring, resources.clock, files, features) {
        Ok(mut backend) => work.run(&mut backend),
        Err(error) => work.refused(format!("the ring that was probed cannot be used: {error}")),
    };
    if !W::has_abandoned(&done) {
        drop(ManuallyDrop::into_inner(ring));
    }
    done
}
