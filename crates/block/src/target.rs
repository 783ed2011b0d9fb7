//! Opens the target for each stream, and finds out what it supports.
//!
//! A device is claimed first, by an open with `O_EXCL` that the kernel refuses while the device is mounted or claimed
//! otherwise. The claim is held for the whole run; every further open goes without, since a claim excludes its own
//! process too.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use iosonde_harness::RunError;
use iosonde_protocol::{Backend, BlockWorkload, Durability, IoMode, Stream, Target};
use iosonde_target::{OFlags, Targets};
use rustix::fs::{Advice, fadvise};

use crate::error;

/// The files of one stream: one that all jobs share, or one for each job.
pub(crate) struct StreamFiles {
    pub paths: Vec<PathBuf>,
    pub files: Vec<File>,
}

impl StreamFiles {
    /// The file of a job, if the engine opens it, and its path.
    pub(crate) fn of_job(&self, job: u32) -> (Option<&File>, &Path) {
        let number = if self.paths.len() == 1 { 0 } else { job as usize };
        (self.files.get(number), &self.paths[number])
    }
}

/// Bytes that each job may address at most.
pub(crate) fn size_bytes(target: &Target) -> u64 {
    match target {
        Target::File { size_bytes, .. }
        | Target::FilePerJob { size_bytes, .. }
        | Target::Device { size_bytes, .. }
        | Target::Virtual { size_bytes } => *size_bytes,
    }
}

/// True if the engine opens the target: the user-level driver reaches a namespace without a node during the run, or
/// whose node has become that of another.
pub(crate) fn is_opened(workload: &BlockWorkload) -> bool {
    !matches!(workload.backend, Backend::NvmeUser(_))
}

/// Paths of every file of the target, without repetition.
pub(crate) fn paths(workload: &BlockWorkload) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = workload
        .streams
        .iter()
        .flat_map(|stream| stream_paths(&workload.target, stream))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Paths of the files that a stream's jobs use.
pub(crate) fn stream_paths(target: &Target, stream: &Stream) -> Vec<PathBuf> {
    match target {
        Target::File { path, .. } | Target::Device { path, .. } => vec![PathBuf::from(path)],
        Target::FilePerJob { directory, .. } => (0..stream.jobs)
            .map(|job| Path::new(directory).join(format!("{}.{job}", stream.name)))
            .collect(),
        Target::Virtual { .. } => Vec::new(),
    }
}

/// Claims a device for this run, unless the parent process holds the claim; files need none.
///
/// # Errors
/// When something else holds the device.
pub fn claim(targets: &Targets, target: &Target) -> Result<Option<File>, RunError> {
    let Target::Device {
        path,
        is_claimed: false,
        ..
    } = target
    else {
        return Ok(None);
    };
    let claim = targets.open(Path::new(path), OFlags::RDWR | OFlags::EXCL);
    claim.map(Some).map_err(error::target("claim", Path::new(path)))
}

/// Creates missing files and opens each for layout.
pub(crate) fn open_for_layout(targets: &Targets, target: &Target, path: &Path) -> Result<File, RunError> {
    let is_device = matches!(target, Target::Device { .. });
    let create = if is_device { OFlags::empty() } else { OFlags::CREATE };
    let file = targets
        .open(path, OFlags::RDWR | create)
        .map_err(error::target("open", path))?;
    let kind = file.metadata().map_err(error::target("examine", path))?.file_type();
    if kind.is_block_device() != is_device || !(kind.is_file() || is_device) {
        let wanted = if is_device { "a block device" } else { "a regular file" };
        return Err(RunError::invalid(
            format!("`{}` is not {wanted}", path.display()),
            "`target`",
            "check the target's kind and path",
        ));
    }
    Ok(file)
}

/// Opens the files of a stream for its load, unless the user-level driver reaches them.
pub(crate) fn open_stream(
    targets: &Targets,
    workload: &BlockWorkload,
    stream: &Stream,
) -> Result<StreamFiles, RunError> {
    let paths = stream_paths(&workload.target, stream);
    if !is_opened(workload) {
        return Ok(StreamFiles {
            paths,
            files: Vec::new(),
        });
    }
    let files = paths
        .iter()
        .map(|path| open_for_load(targets, stream, path))
        .collect::<Result<_, _>>()?;
    Ok(StreamFiles { paths, files })
}

/// `OFlags::DSYNC` of rustix 1.1 is `O_SYNC`, which syncs time stamps as well: a commit of the file system's journal for each
/// write.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

fn open_for_load(targets: &Targets, stream: &Stream, path: &Path) -> Result<File, RunError> {
    let mut flags = match stream.mix.read_fraction < 1.0 {
        true => OFlags::RDWR,
        false => OFlags::RDONLY,
    };
    if stream.io_mode == IoMode::Direct {
        flags |= OFlags::DIRECT;
    }
    if stream.durability == Durability::Dsync {
        flags |= DSYNC;
    }
    // As fio opens files: each read would update the access time otherwise. Only a file's owner may ask for it.
    let file = targets
        .open(path, flags | OFlags::NOATIME)
        .or_else(|_| targets.open(path, flags))
        .map_err(error::target("open", path))?;
    if stream.io_mode == IoMode::Direct {
        check_alignment(&file, path, stream)?;
    }
    advise(&file, stream);
    Ok(file)
}

/// Random access through the page cache must not read ahead, as fio's `fadvise_hint` does it too.
fn advise(file: &File, stream: &Stream) {
    let random = matches!(
        stream.access,
        iosonde_protocol::Access::Random { .. } | iosonde_protocol::Access::Aging { .. }
    );
    let advice = if random { Advice::Random } else { Advice::Sequential };
    if stream.io_mode == IoMode::Buffered {
        // Advice that is refused changes how fast reads are, and only that.
        let _ = fadvise(file, 0, None, advice);
    }
}

/// Direct I/O must fit the device's blocks. The smallest block size of the stream is tried with a real read.
fn check_alignment(file: &File, path: &Path, stream: &Stream) -> Result<(), RunError> {
    let smallest = stream.block_sizes.iter().map(|size| size.bytes).min().unwrap_or(4096);
    let mut aligned = AlignedPage([0; 4096]);
    let probe = smallest.min(4096) as usize;
    // At an odd multiple of the size, so that the offset's alignment is tried too.
    match file.read_at(&mut aligned.0[..probe], probe as u64) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(RunError::invalid(
            format!(
                "`{}` cannot do direct I/O in blocks of {smallest} bytes",
                path.display()
            ),
            format!("stream `{}`, `block_sizes`", stream.name),
            "use multiples of the device's logical block size (4096 always works), or buffered I/O",
        )),
        _ => Ok(()),
    }
}

#[repr(align(4096))]
struct AlignedPage([u8; 4096]);
