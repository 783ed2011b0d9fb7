//! Share of a database in the page cache.
//!
//! Both numbers are of the same bytes at the same time: holes are not counted as data, and their cached pages are not
//! counted as cached. Allocated bytes are another matter: a file system that compresses allocates less than it caches.

use std::fs::File;
use std::ops::Range;

use iosonde_harness::residency::by_cachestat;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Bytes of data, and how many of these are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Residency {
    pub data_bytes: u64,
    /// `None` where the kernel does not report it.
    pub cached_bytes: Option<u64>,
}

impl Residency {
    /// No files.
    pub const EMPTY: Residency = Residency {
        data_bytes: 0,
        cached_bytes: Some(0),
    };

    /// Data of a server, whose files are not visible.
    pub const fn unseen(data_bytes: u64) -> Residency {
        Residency {
            data_bytes,
            cached_bytes: None,
        }
    }

    pub fn and(self, other: Residency) -> Residency {
        Residency {
            data_bytes: self.data_bytes + other.data_bytes,
            cached_bytes: self
                .cached_bytes
                .zip(other.cached_bytes)
                .map(|(one, other)| one + other),
        }
    }
}

/// Data below an offset of a file or device, in whole pages.
pub(crate) fn of(file: &File, end: u64) -> Residency {
    let end = seek(file, SeekFrom::End(0)).map_or(0, |size| size.min(end));
    let mut sum = Residency::EMPTY;
    let mut position = 0;
    while let Some(data) = next_data(file, position, end) {
        let (first, pages) = (data.start / page_bytes(), data.end.div_ceil(page_bytes()));
        let first = first.max(position / page_bytes());
        let range = first * page_bytes()..pages.max(first) * page_bytes();
        sum = sum.and(Residency {
            data_bytes: range.end - range.start,
            cached_bytes: cached_bytes(file, &range),
        });
        position = data.end.max(range.end);
    }
    sum
}

/// The next range of data; all of a device or of a file system that knows no holes.
fn next_data(file: &File, position: u64, end: u64) -> Option<Range<u64>> {
    if position >= end {
        return None;
    }
    let start = match seek(file, SeekFrom::Data(position)) {
        Err(Errno::NXIO) => return None,
        other => other.unwrap_or(position),
    };
    let hole = seek(file, SeekFrom::Hole(start)).unwrap_or(end);
    (start < end).then(|| start..hole.min(end))
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn cached_bytes(file: &File, range: &Range<u64>) -> Option<u64> {
    match range.is_empty() {
        true => Some(0),
        false => by_cachestat(file, range).ok().map(|found| found.cached_bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Reading a hole fills the page cache, but caches nothing of the data.
    #[test]
    fn holes_are_neither_data_nor_cached() {
        let file = tempfile::tempfile().unwrap();
        let page = page_bytes();
        file.write_all_at(&vec![1; 2 * page as usize], 0).unwrap();
        file.write_all_at(b"end", 512 * page).unwrap();
        let mut hole = vec![0; 64 * page as usize];
        file.read_exact_at(&mut hole, 128 * page).unwrap();
        let found = of(&file, u64::MAX);
        assert_eq!(found.data_bytes, 3 * page);
        let is_less = found.cached_bytes.is_none_or(|cached| cached <= found.data_bytes);
        assert!(is_less, "{found:?}");
        assert_eq!(of(&file, page).data_bytes, page, "only the first part is asked about");
        assert_eq!(of(&tempfile::tempfile().unwrap(), u64::MAX), Residency::EMPTY);
    }
}
