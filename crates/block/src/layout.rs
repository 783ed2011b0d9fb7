//! Writes the missing parts of a target, so that every read reaches the device.
//!
//! A file system serves reads of holes and unwritten (preallocated) extents without the device, so such reads measure
//! nothing. `extents` distinguishes these ranges from written ones. Under verification, data is written with seals, and
//! earlier data must have seals already.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

use iosonde_harness::target::{OFlags, Targets, WrongTarget};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Layout, LayoutResult, Payload, Target};

use crate::buffer::Buffer;
use crate::error;
use crate::extents;
use crate::payload::Filler;
use crate::target;
use crate::verify::{self, Journal, UNIT_BYTES_MAX};

/// One write of the layout: large enough for every device's full bandwidth at a small depth, and whole units.
const CHUNK_BYTES: u64 = UNIT_BYTES_MAX;
/// Threads that write: what hides the round trip of synchronous writes on fast devices.
const WRITERS: usize = 4;

/// Required contents of one file of the target.
pub(crate) struct Plan<'a> {
    pub targets: &'a Targets,
    pub target: &'a Target,
    pub path: &'a Path,
    pub layout: Layout,
    pub payload: Payload,
    pub seed: u64,
    /// Under verification: what is known of the file.
    pub journal: Option<&'a Journal>,
}

/// Lays out one file of the target. `progress` receives the bytes written so far and returns whether to continue.
pub(crate) fn lay_out(plan: &Plan<'_>, progress: &mut dyn FnMut(u64) -> bool) -> Result<LayoutResult, RunError> {
    let Plan {
        target, path, layout, ..
    } = *plan;
    let bytes = target::size_bytes(target);
    let file = target::open_for_layout(plan.targets, target, path)?;
    let mut missing = match layout {
        Layout::Never => {
            grow(&file, target, bytes).map_err(error::target("grow", path))?;
            return Ok(LayoutResult::default());
        }
        Layout::Missing => {
            missing_ranges(&file, target, bytes).map_err(error::target("look at the extents of", path))?
        }
        Layout::Always => whole(bytes),
    };
    if let Some(journal) = plan.journal {
        missing = with_unknown(plan, journal, missing, bytes)?;
    }
    let needed = total(&missing);
    check_space(&file, target, path, &missing)?;
    grow(&file, target, bytes).map_err(error::target("grow", path))?;
    if needed > 0 && plan.journal.is_none() {
        verify::forget_file(plan.targets, path)?;
    }
    if needed > 0 {
        write_ranges(plan, &file, &missing, progress).map_err(error::target("lay out", path))?;
    }
    Ok(LayoutResult {
        written_bytes: needed,
        kept_bytes: bytes - needed,
    })
}

/// Adds what the journal does not contain, such as the rest of a killed layout. If it contains nothing at all of what is
/// written, that was written without verification, and is not ours to overwrite.
fn with_unknown(
    plan: &Plan<'_>,
    journal: &Journal,
    mut missing: Vec<Range<u64>>,
    bytes: u64,
) -> Result<Vec<Range<u64>>, RunError> {
    let is_known = |entry: &verify::Entry| entry.state().is_checkable();
    if !journal.entries().iter().any(is_known) {
        return match complement(&missing, bytes).first() {
            Some(written) => Err(verify::unverifiable(plan.path, written.start)),
            None => Ok(missing),
        };
    }
    let unit_bytes = journal.unit_bytes();
    for (unit, entry) in (0..bytes / unit_bytes).zip(journal.entries()) {
        if !is_known(entry) {
            missing.push(unit * unit_bytes..(unit + 1) * unit_bytes);
        }
    }
    missing.sort_by_key(|range| range.start);
    Ok(in_chunks(&missing, bytes))
}

/// One range that is everything.
fn whole(bytes: u64) -> Vec<Range<u64>> {
    Vec::from_iter(std::iter::once(0..bytes))
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn grow(file: &File, target: &Target, bytes: u64) -> io::Result<()> {
    match target {
        Target::Device { .. } => Ok(()),
        _ if file.metadata()?.len() < bytes => file.set_len(bytes),
        _ => Ok(()),
    }
}

/// Refuses before the first byte if the file system cannot take what will be written.
fn check_space(file: &File, target: &Target, path: &Path, missing: &[Range<u64>]) -> Result<(), RunError> {
    if matches!(target, Target::Device { .. }) {
        return Ok(());
    }
    let needed = total(missing);
    let stat =
        rustix::fs::fstatvfs(file).map_err(|error| error::target("examine the free space of", path)(error.into()))?;
    let free = stat.f_bavail * stat.f_frsize;
    let allocated = allocated_bytes(file);
    if needed > free + allocated {
        let message = format!(
            "`{}` needs {needed} more bytes and its file system has {free} left",
            path.display()
        );
        let hint = "free some space, or choose a smaller span";
        return Err(RunError::new(Code::NoSpace, message, hint).at("phase `layout`"));
    }
    Ok(())
}

/// Bytes the file holds already: rewriting them takes no new space.
fn allocated_bytes(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map_or(0, |metadata| metadata.blocks() * 512)
}

/// The parts of `0..bytes` that hold no written extent, in whole chunks.
fn missing_ranges(file: &File, target: &Target, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    if matches!(target, Target::Device { .. }) {
        // A device has no extents; the spec decides with `always` or `never`.
        return Ok(whole(bytes));
    }
    let written = extents::written_ranges(file, bytes)?;
    Ok(in_chunks(&complement(&written, bytes), bytes))
}

fn complement(written: &[Range<u64>], bytes: u64) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut position = 0;
    for range in written {
        if range.start > position {
            missing.push(position..range.start.min(bytes));
        }
        position = position.max(range.end);
    }
    if position < bytes {
        missing.push(position..bytes);
    }
    missing
}

/// Rounds ranges out to chunks, because direct I/O needs alignment.
fn in_chunks(ranges: &[Range<u64>], bytes: u64) -> Vec<Range<u64>> {
    let mut rounded: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = range.start / CHUNK_BYTES * CHUNK_BYTES;
        let end = range.end.next_multiple_of(CHUNK_BYTES).min(bytes);
        match rounded.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => rounded.push(start..end),
        }
    }
    rounded
}

/// Writes the ranges with several threads, past the page cache where that works.
fn write_ranges(
    plan: &Plan<'_>,
    buffered: &File,
    ranges: &[Range<u64>],
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let direct = match plan.targets.open(plan.path, OFlags::WRONLY | OFlags::DIRECT) {
        Err(error) if WrongTarget::from_error(&error).is_some() => return Err(error),
        // Some file systems have no direct I/O.
        other => other.ok(),
    };
    let chunks: Vec<Range<u64>> = ranges.iter().flat_map(|range| chunks_of(range.clone())).collect();
    let crc = verify::crc::Crc::detect();
    let (next, written, cancelled) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let writer = |number: usize| -> io::Result<()> {
        let sealed = plan.journal.is_some();
        let mut filler = Filler::new(plan.payload, sealed, plan.seed, &[0x1a70, number as u64]);
        let mut buffer = Buffer::new(CHUNK_BYTES)?;
        while !cancelled.load(Ordering::Relaxed) {
            let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed) as usize) else {
                break;
            };
            let length = (chunk.end - chunk.start) as usize;
            filler.fill(&mut buffer[..length]);
            if let Some(journal) = plan.journal {
                verify::seal_write(journal, crc, chunk.start, verify::sectors_mut(&mut buffer[..length]));
            }
            write_chunk(direct.as_ref(), buffered, &buffer[..length], chunk.start)?;
            if let Some(journal) = plan.journal {
                journal.end_writes(chunk.start, length as u64);
            }
            written.fetch_add(length as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        // With fewer threads it takes longer; none at all is an error.
        let mut threads = vec![Builder::new().spawn_scoped(scope, move_ref(&writer, 0))?];
        threads.extend(
            (1..WRITERS).filter_map(|number| Builder::new().spawn_scoped(scope, move_ref(&writer, number)).ok()),
        );
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            if !progress(written.load(Ordering::Relaxed)) {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a writer panicked"))?)
    })?;
    buffered.sync_data()?;
    plan.journal.map_or(Ok(()), Journal::note_durable)
}

fn move_ref<'a>(
    writer: &'a (impl Fn(usize) -> io::Result<()> + Sync),
    number: usize,
) -> impl FnOnce() -> io::Result<()> + 'a {
    move || writer(number)
}

fn chunks_of(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range
        .step_by(CHUNK_BYTES as usize)
        .map(move |start| start..(start + CHUNK_BYTES).min(end))
}

/// Direct if possible; the file's tail may not be aligned, and some file systems refuse direct I/O altogether.
fn write_chunk(direct: Option<&File>, buffered: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    if let Some(direct) = direct {
        match direct.write_all_at(bytes, offset) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => return other,
        }
    }
    buffered.write_all_at(bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(path: &Path, bytes: u64) -> Result<(u64, u64), RunError> {
        let target = Target::File {
            path: path.display().to_string(),
            size_bytes: bytes,
        };
        let plan = Plan {
            targets: &Targets::default(),
            target: &target,
            path,
            layout: Layout::Missing,
            payload: Payload::Random,
            seed: 1,
            journal: None,
        };
        let found = lay_out(&plan, &mut |_| true)?;
        Ok((found.written_bytes, found.kept_bytes))
    }

    #[test]
    fn only_what_is_missing_is_written_and_a_file_too_large_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let bytes = 5 * CHUNK_BYTES + 12_288;
        assert_eq!(lay(&path, bytes), Ok((bytes, 0)));
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len() as u64, bytes);
        let zero_words = content.chunks_exact(8).filter(|word| word == &[0; 8]).count();
        assert_eq!(zero_words, 0, "random data everywhere");
        assert_eq!(lay(&path, bytes), Ok((0, bytes)));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let error = lay(&path, 1 << 50).unwrap_err();
        assert_eq!(error.to_failure().code, "no_space");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let file = File::create(&path).unwrap();
        file.write_all_at(&vec![1; CHUNK_BYTES as usize], 2 * CHUNK_BYTES)
            .unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4 * CHUNK_BYTES)
            .expect("this file system preallocates");
        file.set_len(8 * CHUNK_BYTES).unwrap();
        assert_eq!(lay(&path, 8 * CHUNK_BYTES), Ok((7 * CHUNK_BYTES, CHUNK_BYTES)));
    }
}
