//! Backends available on a target and this kernel, each tried by a real read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use iosonde_harness::target::held_path;
use iosonde_protocol::{Backend, BackendInEffect, UringNvmeOptions, UringOptions};
use tempfile::NamedTempFile;

use crate::backend::Unavailable;
use crate::buffer::Buffer;
use crate::transport::{Transport, Wanted, name_of};

/// Bytes of the file in which backends are tried where a directory is named.
const TRIED_BYTES: u64 = 64 << 10;

/// Bytes of the read by which a backend is tried.
const TRIED_BLOCK_BYTES: u64 = 4096;

/// A backend, and whether it can be used.
#[derive(Debug)]
pub struct ProbedBackend {
    /// As messages name it, such as `uring with completion polling`.
    pub name: String,
    /// Its features and missing features here, or the reason for its unavailability.
    pub result: Result<BackendInEffect, Unavailable>,
}

/// Tries every backend on a device, a file, or a new file in a directory, which is gone afterwards.
///
/// # Errors
/// When the path cannot be read, or the directory has no room for such a file.
pub fn probe_backends(path: &Path) -> io::Result<Vec<ProbedBackend>> {
    let (_named, file) = open(path)?;
    Ok(backends().iter().map(|backend| tried(backend, &file)).collect())
}

/// Every backend that moves data through the kernel, in the order from the simplest interface to the closest to the device.
fn backends() -> [Backend; 8] {
    let uring = |submission_polling, completion_polling| {
        Backend::Uring(UringOptions {
            registered_files: true,
            registered_buffers: true,
            submission_polling,
            completion_polling,
            required: true,
        })
    };
    let uring_nvme = |completion_polling| {
        Backend::UringNvme(UringNvmeOptions {
            registered_buffers: true,
            completion_polling,
        })
    };
    [
        Backend::Sync,
        Backend::Preadv2,
        Backend::Libaio,
        uring(false, false),
        uring(true, false),
        uring(false, true),
        uring_nvme(false),
        uring_nvme(true),
    ]
}

fn tried(backend: &Backend, file: &File) -> ProbedBackend {
    let wanted = Wanted {
        backend,
        file: Some(file),
        queue_depth: 1,
        may_poll: true,
        largest_bytes: TRIED_BLOCK_BYTES,
        durable_writes: false,
    };
    let result = Transport::choose(&wanted).map(|(transport, _)| transport.in_effect());
    let name = name_of(backend);
    ProbedBackend { name, result }
}

/// Opens what is tried; of a directory, a temporary file in it, without a name where that works, so that nothing is left of it.
///
/// FUSE daemons that address files by path know nothing of a file without a name: there it has one, removed after it is closed.
fn open(path: &Path) -> io::Result<(Option<NamedTempFile>, File)> {
    if !path.is_dir() {
        return Ok((None, direct_if_possible(OpenOptions::new().read(true), path)?));
    }
    if let Ok(file) = tempfile::tempfile_in(path).and_then(|unnamed| filled(&unnamed)) {
        return Ok((None, file));
    }
    let named = NamedTempFile::with_prefix_in(".iosonde-probe-", path)?;
    filled(named.as_file()).map(|file| (Some(named), file))
}

fn filled(temporary: &File) -> io::Result<File> {
    temporary.write_all_at(&Buffer::new(TRIED_BYTES)?, 0)?;
    temporary.sync_all()?;
    direct_if_possible(OpenOptions::new().read(true).write(true), &held_path(temporary))
}

fn direct_if_possible(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let with = |flags| options.clone().custom_flags(flags).open(path);
    with(libc::O_DIRECT).or_else(|_| with(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_calls_work_everywhere_and_polling_is_not_reported_where_it_cannot_be() {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let found = probe_backends(directory.path()).expect("the directory is writable");
        assert_eq!(found.len(), backends().len());
        assert!(found[0].name == "sync" && found[0].result.is_ok());
        let refusals = found.iter().filter_map(|backend| backend.result.as_ref().err());
        assert!(refusals.into_iter().all(|refusal| !refusal.reason.is_empty()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        // The kernel completes polled I/O by interrupts where the queue cannot poll, so a successful read proves nothing.
        let file = File::open("/proc/version").expect("procfs is mounted");
        let found = tried(&Backend::Preadv2, &file);
        if let Ok(effect) = &found.result {
            assert!(!effect.features.iter().any(|feature| feature == "completion_polling"));
            assert_eq!(effect.fallbacks.len(), 1);
        }
    }
}
