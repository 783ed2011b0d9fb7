//! Page cache residency of a file or device.
//!
//! `cachestat(2)` (Linux 6.5) counts pages without touching them. Older kernels answer `mincore(2)`, which needs a mapping and
//! a byte for every page, and does not report dirty ones.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The same number on every architecture but alpha.
const SYS_CACHESTAT: libc::c_long = 451;
/// A file is mapped in pieces, so that the answer of `mincore` stays small.
const PIECE_BYTES: u64 = 1 << 30;

/// Bytes of a range that are in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residency {
    pub cached_bytes: u64,
    /// Of which not yet written back; `None` where the kernel does not report it.
    pub dirty_bytes: Option<u64>,
}

/// Asks the kernel. The range lies within the file, or its end does not count.
///
/// # Errors
/// Those of the kernel.
pub fn query(file: &File, range: &Range<u64>) -> io::Result<Residency> {
    match by_cachestat(file, range) {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
            ) =>
        {
            by_mincore(file, range)
        }
        answer => answer,
    }
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same by `cachestat` alone, which touches and maps nothing.
///
/// # Errors
/// Those of the kernel.
pub fn by_cachestat(file: &File, range: &Range<u64>) -> io::Result<Residency> {
    let asked = CachestatRange {
        offset: range.start,
        length: range.end - range.start,
    };
    let mut answer = Cachestat::default();
    // SAFETY: both structures have the layout of `struct cachestat_range` and `struct cachestat`; flags must be 0.
    let status = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const asked,
            &raw mut answer,
            0_u32,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Residency {
        cached_bytes: answer.cached * page_bytes(),
        dirty_bytes: Some((answer.dirty + answer.writeback) * page_bytes()),
    })
}

fn by_mincore(file: &File, range: &Range<u64>) -> io::Result<Residency> {
    let size = file.metadata()?.len();
    let mut start = range.start / page_bytes() * page_bytes();
    let end = range.end.min(size);
    let mut cached_bytes = 0;
    while start < end {
        let piece = start..(start + PIECE_BYTES).min(end);
        cached_bytes += resident_pages(file, &piece)? * page_bytes();
        start = piece.end;
    }
    Ok(Residency {
        cached_bytes,
        dirty_bytes: None,
    })
}

fn resident_pages(file: &File, piece: &Range<u64>) -> io::Result<u64> {
    let bytes = (piece.end - piece.start) as usize;
    let mut pages = vec![0_u8; bytes.div_ceil(page_bytes() as usize)];
    // SAFETY: a private read-only mapping at an address of the kernel's choice aliases nothing, and is never read; the
    // answer has room for every page of it; it is unmapped here again.
    let status = unsafe {
        let mapping = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            piece.start as libc::off_t,
        );
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let status = libc::mincore(mapping, bytes, pages.as_mut_ptr().cast());
        libc::munmap(mapping, bytes);
        status
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64)
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Past the test harness, which captures `eprintln!`: `scripts/test` counts these lines.
    fn skipped(reason: &str) {
        writeln!(std::io::stderr(), "SKIPPED: {reason}").expect("stderr is open");
    }

    const MIB: u64 = 1 << 20;

    /// A file of 4 MiB of which the last MiB was read after everything was dropped.
    fn partly_cached(directory: &tempfile::TempDir) -> File {
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 4 * MIB as usize]).unwrap();
        let file = File::open(&path).unwrap();
        crate::page_cache::prepare_page_cache(&file, iosonde_protocol::PageCache::Drop, 0).unwrap();
        // Without this advice the kernel reads ahead and around.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut buffer = vec![0; MIB as usize];
        file.read_exact_at(&mut buffer, 3 * MIB).unwrap();
        file
    }

    #[test]
    fn pages_that_were_read_are_in_memory_and_others_are_not_in_both_ways_of_asking() {
        let directory = tempfile::tempdir().unwrap();
        let file = partly_cached(&directory);
        assert_eq!(query(&file, &(0..4 * MIB)).unwrap().cached_bytes, MIB);
        assert_eq!(query(&file, &(0..3 * MIB)).unwrap().cached_bytes, 0);
        let range = MIB..4 * MIB;
        let counted = by_mincore(&file, &range).unwrap();
        assert_eq!(counted.cached_bytes, MIB);
        match by_cachestat(&file, &range) {
            Ok(answer) => assert_eq!(answer.cached_bytes, counted.cached_bytes),
            Err(error) => skipped(&format!("no cachestat(2) here: {error}")),
        }
    }

    #[test]
    fn what_was_written_but_not_synced_is_dirty() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = File::options();
        let options = options.create_new(true).read(true).write(true);
        let file = options.open(directory.path().join("data")).unwrap();
        file.write_all_at(&vec![7; MIB as usize], 0).unwrap();
        let Ok(before) = by_cachestat(&file, &(0..MIB)) else {
            skipped("no cachestat(2) here");
            return;
        };
        assert_eq!(before.cached_bytes, MIB);
        file.sync_all().unwrap();
        let after = by_cachestat(&file, &(0..MIB)).unwrap();
        assert!(after.dirty_bytes < before.dirty_bytes || before.dirty_bytes == Some(0));
    }
}
