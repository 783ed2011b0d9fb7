//! Extents of a file: written ones, and those that the file system serves without I/O.
//!
//! FIEMAP (kernel `Documentation/filesystems/fiemap.rst`) distinguishes written extents from unwritten ones, and reports what else is
//! special about them; where a file system has no FIEMAP, holes are what `lseek(2)` finds.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use iosonde_protocol::ExtentEvidence;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Ranges of a file's first `bytes` that lie in written extents, in ascending order. What waits in memory is written
/// back first, so that it counts.
pub(crate) fn written_ranges(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut written = Vec::new();
    let mapped = each_extent(file, 0..bytes, FIEMAP_FLAG_SYNC, &mut |extent| {
        if extent.is_written() {
            written.push(extent.within(bytes));
        }
    });
    match mapped {
        Err(error) if is_unknown_request(&error) => seek_data(file, bytes),
        other => other.map(|()| written),
    }
}

/// Extents below the ranges of a file; `None` where the file system does not report them. Nothing is written back.
pub(crate) fn examine(file: &File, ranges: &[Range<u64>]) -> io::Result<Option<ExtentEvidence>> {
    let mut found = ExtentEvidence::default();
    for range in ranges {
        let mut written_bytes = 0;
        let mapped = each_extent(file, range.clone(), 0, &mut |extent| {
            let bytes = extent.overlap(range);
            found.extents += 1;
            written_bytes += if extent.is_written() { bytes } else { 0 };
            found.shared_bytes += if extent.has(FIEMAP_EXTENT_SHARED) { bytes } else { 0 };
            found.encoded_bytes += if extent.has(FIEMAP_EXTENT_ENCODED) { bytes } else { 0 };
        });
        match mapped {
            Err(error) if is_unknown_request(&error) => return Ok(None),
            other => other?,
        }
        let addressed_bytes = range.end - range.start;
        found.addressed_bytes += addressed_bytes;
        found.missing_bytes += addressed_bytes.saturating_sub(written_bytes);
    }
    Ok(Some(found))
}

fn is_unknown_request(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY))
}

/// Holes as `lseek` finds them. Few such file systems distinguish preallocated extents from data, but iosonde never
/// preallocates.
fn seek_data(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut written = Vec::new();
    let mut position = 0;
    while position < bytes {
        let data = match seek(file, SeekFrom::Data(position)) {
            Err(Errno::NXIO) => break,
            other => other?,
        };
        let hole = seek(file, SeekFrom::Hole(data))?;
        written.push(data..hole.min(bytes));
        position = hole;
    }
    Ok(written)
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;
const EXTENTS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

impl FiemapExtent {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn is_written(&self) -> bool {
        !self.has(FIEMAP_EXTENT_UNWRITTEN)
    }

    fn end(&self) -> u64 {
        self.logical + self.length
    }

    fn within(&self, bytes: u64) -> Range<u64> {
        self.logical..self.end().min(bytes)
    }

    fn overlap(&self, range: &Range<u64>) -> u64 {
        self.end().min(range.end).saturating_sub(self.logical.max(range.start))
    }
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS],
}

/// Hands over every extent that touches a range, in ascending order.
fn each_extent(file: &File, range: Range<u64>, flags: u32, take: &mut dyn FnMut(&FiemapExtent)) -> io::Result<()> {
    let mut start = range.start;
    while start < range.end {
        let mut map = Box::new(Fiemap {
            start,
            length: range.end - start,
            flags,
            mapped_extents: 0,
            extent_count: EXTENTS as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); EXTENTS],
        });
        // SAFETY: the structure has the layout of `struct fiemap` with room for `extent_count` extents.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut *map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let found = &map.extents[..(map.mapped_extents as usize).min(EXTENTS)];
        found.iter().for_each(&mut *take);
        let Some(last) = found.last() else { break };
        if last.has(FIEMAP_EXTENT_LAST) {
            break;
        }
        start = last.end();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    /// Past the test harness, which captures `eprintln!`: `scripts/test` counts these lines.
    fn skipped(reason: &str) {
        writeln!(std::io::stderr(), "SKIPPED: {reason}").expect("stderr is open");
    }

    const MIB: u64 = 1 << 20;

    fn file_in(directory: &tempfile::TempDir) -> File {
        let mut options = File::options();
        let options = options.create_new(true).read(true).write(true);
        options.open(directory.path().join("data")).unwrap()
    }

    #[test]
    fn holes_preallocated_and_punched_extents_are_missing_and_found_by_seeking_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = file_in(&directory);
        file.write_all_at(&vec![1; MIB as usize], 2 * MIB).unwrap();
        file.set_len(4 * MIB).unwrap();
        assert_eq!(seek_data(&file, 4 * MIB).unwrap(), vec![2 * MIB..3 * MIB]);
        let directory = tempfile::tempdir().unwrap();
        let file = file_in(&directory);
        file.write_all_at(&vec![1; 4 * MIB as usize], 0).unwrap();
        file.sync_all().unwrap();
        fallocate(&file, FallocateFlags::empty(), 4 * MIB, 2 * MIB).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, MIB, MIB).unwrap();
        file.set_len(8 * MIB).unwrap();
        let Some(found) = examine(&file, std::slice::from_ref(&(0..8 * MIB))).unwrap() else {
            skipped("this file system has no FIEMAP");
            return;
        };
        // Written: 0..1 and 2..4; punched 1..2, preallocated 4..6, never written 6..8.
        assert_eq!((found.addressed_bytes, found.missing_bytes), (8 * MIB, 5 * MIB));
        let parts = [MIB / 2..3 * MIB / 2, 3 * MIB..4 * MIB];
        let part = examine(&file, &parts).unwrap().unwrap();
        assert_eq!((part.addressed_bytes, part.missing_bytes), (2 * MIB, MIB / 2));
        let written = written_ranges(&file, 8 * MIB).unwrap();
        let written: u64 = written.iter().map(|range| range.end - range.start).sum();
        assert_eq!(written, 3 * MIB);
    }
}
