//! The mapping: pages of anonymous memory or of a file, as words that threads read and change.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use iosonde_harness::{Code, RunError};
use iosonde_protocol::Advice;
use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::content::{Contents, Judgement, WORD_BYTES};

/// Pages that are mapped, and what they contain.
pub(crate) struct Mapping {
    memory: Memory,
    contents: Contents,
    pages: u64,
    /// Writes to each page that were acknowledged; empty where nothing writes.
    acknowledged: Vec<AtomicU64>,
}

enum Memory {
    Anonymous(MmapMut),
    File(Mmap),
}

impl Mapping {
    /// Private anonymous memory, all zeros.
    pub(crate) fn anonymous(contents: Contents, pages: u64, huge_pages: bool) -> Result<Mapping, RunError> {
        let bytes = pages * contents.words() * WORD_BYTES;
        let refused = |error: io::Error| {
            RunError::new(
                Code::OutOfMemory,
                format!("cannot map {bytes} bytes of anonymous memory: {error}"),
                "map less with a smaller `size`, raise `ulimit -v`, or see `vm.overcommit_memory`",
            )
        };
        let memory = MmapMut::map_anon(bytes as usize).map_err(refused)?;
        let advice = match huge_pages {
            true => memmap2::Advice::HugePage,
            false => memmap2::Advice::NoHugePage,
        };
        // A kernel without transparent huge pages refuses either advice and maps small pages.
        let _ = memory.advise(advice);
        Ok(Mapping {
            memory: Memory::Anonymous(memory),
            contents,
            pages,
            acknowledged: (0..pages).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// The first pages of a file, shared and read-only.
    pub(crate) fn file(contents: Contents, pages: u64, file: &File, path: &Path) -> Result<Mapping, RunError> {
        let bytes = pages * contents.words() * WORD_BYTES;
        // SAFETY: the file is iosonde's own and its identity was checked; should it be truncated nevertheless, an access
        // ends the process by SIGBUS. Its words are only read through atomics, so changes of the file are no data race.
        let mapped = unsafe { MmapOptions::new().len(bytes as usize).map(file) };
        Ok(Mapping {
            memory: Memory::File(mapped.map_err(|error| RunError::io("map", path, &error))?),
            contents,
            pages,
            acknowledged: Vec::new(),
        })
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Advises the kernel of the access pattern of the mapping.
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::Normal => memmap2::Advice::Normal,
            Advice::Random => memmap2::Advice::Random,
            Advice::Sequential => memmap2::Advice::Sequential,
        };
        match &self.memory {
            Memory::Anonymous(memory) => memory.advise(advice),
            Memory::File(memory) => memory.advise(advice),
        }
    }

    /// Lets the kernel page the mapping out, where the process' memory is locked.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        let (start, bytes) = match &self.memory {
            Memory::Anonymous(memory) => (memory.as_ptr(), memory.len()),
            Memory::File(memory) => (memory.as_ptr(), memory.len()),
        };
        // SAFETY: the range is one mapping of ours; unlocking does not change its contents.
        match unsafe { libc::munlock(start.cast(), bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[inline]
    fn word(&self, page: u64, place: u64) -> &AtomicU64 {
        debug_assert!(page < self.pages && place < self.contents.words(), "the word is mapped");
        let start = match &self.memory {
            Memory::Anonymous(memory) => memory.as_ptr(),
            Memory::File(memory) => memory.as_ptr(),
        };
        let offset = (page * self.contents.words() + place) as usize;
        // SAFETY: page and place are below the numbers of which the mapping has room, it starts on a page and so is aligned,
        // it lives as long as `self`, and nothing refers to it except through atomics. Those of a file are only loaded.
        unsafe { &*start.cast::<AtomicU64>().add(offset) }
    }

    /// The word that an access to a page reads or changes.
    #[inline]
    pub(crate) fn seal(&self, page: u64) -> &AtomicU64 {
        self.word(page, self.contents.seal_place(page))
    }

    /// Writes to a page that were acknowledged so far.
    #[inline]
    pub(crate) fn acknowledged(&self, page: u64) -> u64 {
        match self.acknowledged.get(page as usize) {
            Some(writes) => writes.load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Notes that a write to a page has completed.
    #[inline]
    pub(crate) fn acknowledge(&self, page: u64) {
        if let Some(writes) = self.acknowledged.get(page as usize) {
            writes.fetch_add(1, Ordering::Release);
        }
    }

    /// Compares what an access found with what the page must contain.
    #[inline]
    pub(crate) fn judge(&self, page: u64, seal: u64, acknowledged: u64) -> Judgement {
        self.contents.judge(page, seal, acknowledged)
    }

    /// Writes the first contents of a page of anonymous memory.
    pub(crate) fn fill(&self, page: u64) {
        for place in 0..self.contents.words() {
            self.word(page, place)
                .store(self.contents.first(page, place), Ordering::Relaxed);
        }
    }

    /// Returns true if every word of a page is correct; no thread writes meanwhile.
    pub(crate) fn is_whole(&self, page: u64) -> bool {
        self.contents.is_whole(page, self.acknowledged(page), |place| {
            self.word(page, place).load(Ordering::Relaxed)
        })
    }
}

/// Locks the engine's own memory, and what it allocates later once it is touched. Whether the kernel permits it.
pub(crate) fn lock_own_memory() -> bool {
    // SAFETY: the call takes plain flags and changes no contents.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_mapping_is_whole_and_a_lost_write_is_found() {
        let mapping = Mapping::anonymous(Contents::new(3, 4096, 0.0), 8, false).unwrap();
        assert!(!mapping.is_whole(0), "memory is empty before it is filled");
        (0..8).for_each(|page| mapping.fill(page));
        assert!((0..8).all(|page| mapping.is_whole(page)));
        mapping.seal(2).fetch_add(1, Ordering::Relaxed);
        mapping.acknowledge(2);
        assert!(mapping.is_whole(2));
        mapping.fill(2);
        assert!(!mapping.is_whole(2), "the page is older than the acknowledged write");
    }
}
