//! Opens the target for each stream, and finds out what it supports.
//!
//! A device is claimed first, by an open with `O_EXCL` that the kernel refuses while the device is mounted or claimed
//! otherwise. The claim is held for the whole run; every further open goes without, since a claim excludes its own
//! process too.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use iosonde_harness::RunError;
use iosonde_harness::target::{OFlags, Targets};
use iosonde_protocol::{Backend, BlockWorkload, Durability, IoMode, Stream, Target};
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

/// Bytes of each file or device.
pub(crate) fn size_bytes(target: &Target) -> u64 {
    match target {
        Target::File { size_bytes, .. }
        | Target::FilePerJob { size_bytes, .. }
        | Target::Device { size_bytes, .. }
        | Target::Virtual { size_bytes } => *size_bytes,
    }
}

/// Bytes of the address space of the spans: that of one file, or of all devices one after the other.
pub(crate) fn addressed_bytes(target: &Target) -> u64 {
    let devices = match target {
        Target::Device { beside, .. } => 1 + beside.len() as u64,
        _ => 1,
    };
    size_bytes(target).saturating_mul(devices)
}

/// Offset of a stream's span in its file or on its device.
pub(crate) fn offset_in_file(target: &Target, stream: &Stream) -> u64 {
    match target {
        Target::Device { size_bytes, .. } => stream.span.offset_bytes.checked_rem(*size_bytes).unwrap_or(0),
        _ => stream.span.offset_bytes,
    }
}

/// True if the engine opens the target: the user-level driver reaches a namespace without a node during the run, or
/// whose node has become that of another.
pub(crate) fn is_opened(workload: &BlockWorkload) -> bool {
    !matches!(workload.backend, Backend::NvmeUser(_))
}

/// Paths of every file of the target, without repetition; of every device, whichever the streams address.
pub(crate) fn paths(workload: &BlockWorkload) -> Vec<PathBuf> {
    if let Target::Device { path, beside, .. } = &workload.target {
        return std::iter::once(path).chain(beside).map(PathBuf::from).collect();
    }
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
        Target::File { path, .. } => vec![PathBuf::from(path)],
        Target::Device {
            path,
            size_bytes,
            beside,
            ..
        } => {
            let number = stream.span.offset_bytes.checked_div(*size_bytes).unwrap_or(0) as usize;
            let later = number.checked_sub(1).and_then(|place| beside.get(place));
            vec![PathBuf::from(later.unwrap_or(path))]
        }
        Target::FilePerJob { directory, .. } => (0..stream.jobs)
            .map(|job| Path::new(directory).join(format!("{}.{job}", stream.name)))
            .collect(),
        Target::Virtual { .. } => Vec::new(),
    }
}

/// Claims devices for this run, unless the parent process holds the claims; files need none.
///
/// # Errors
/// When something else holds a device.
pub fn claim(targets: &Targets, target: &Target) -> Result<Vec<File>, RunError> {
    let Target::Device {
        path,
        beside,
        is_claimed: false,
        ..
    } = target
    else {
        return Ok(Vec::new());
    };
    std::iter::once(path)
        .chain(beside)
        .map(|path| {
            let claim = targets.open(Path::new(path), OFlags::RDWR | OFlags::EXCL);
            claim.map_err(error::target("claim", Path::new(path)))
        })
        .collect()
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
