//! Backends available on a target and this kernel, each tried by a real read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use iosonde_protocol::{Backend, BackendInEffect, Fallback, UringNvmeOptions, UringOptions};

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
    let opened = open(path)?;
    Ok(backends().iter().map(|backend| tried(backend, &opened.file)).collect())
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

/// An open file, and its name if that is to be removed at the end.
struct Opened {
    file: File,
    temporary: Option<PathBuf>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opened past the page cache where the file system can do that.
fn open(path: &Path) -> io::Result<Opened> {
    if path.is_dir() {
        return unnamed(path).or_else(|_| named(path));
    }
    let file = direct_if_possible(OpenOptions::new().read(true), 0, path)?;
    Ok(Opened { file, temporary: None })
}

fn direct_if_possible(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let with = |more| options.clone().custom_flags(flags | more).open(path);
    with(libc::O_DIRECT).or_else(|_| with(0))
}

/// A file without a name in a directory.
fn unnamed(directory: &Path) -> io::Result<Opened> {
    let file = direct_if_possible(OpenOptions::new().read(true).write(true), libc::O_TMPFILE, directory)?;
    write(&file)?;
    Ok(Opened { file, temporary: None })
}

/// A file with a name: most FUSE daemons have no others.
fn named(directory: &Path) -> io::Result<Opened> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = directory.join(format!(".iosonde-probe-{}-{}", std::process::id(), since.as_nanos()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let mut opened = Opened {
        file,
        temporary: Some(path.clone()),
    };
    write(&opened.file)?;
    opened.file = direct_if_possible(OpenOptions::new().read(true).write(true), libc::O_NOFOLLOW, &path)?;
    Ok(opened)
}

fn write(file: &File) -> io::Result<()> {
    file.write_all_at(&Buffer::new(TRIED_BYTES)?, 0)?;
    file.sync_all()
}

impl ProbedBackend {
    /// Features that it lacks, with the reasons; none where it is not available.
    pub fn fallbacks(&self) -> &[Fallback] {
        self.result.as_ref().map_or(&[], |found| &found.fallbacks)
    }
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
            assert_eq!(found.fallbacks().len(), 1);
        }
    }
}
