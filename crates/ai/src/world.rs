//! Storage and time of a thread of a load.

use iosonde_harness::{JobPhases, Place, RunError, Stage};
use iosonde_protocol::{Operation, PageCache};

use crate::files::{Access, FileNeed, FileSet};

/// Unit of direct I/O, and of page faults without read-ahead.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of the file in its set.
    pub file: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl Extent {
    pub(crate) fn new(file: usize, offset: u64, bytes: u64) -> Extent {
        Extent { file, offset, bytes }
    }
}

/// How a file is mapped before its pages are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapped {
    Normal,
    Random,
    WillNeed,
    Populate,
}

/// Memory that a thread reads into, or writes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes of the largest read or write.
    pub bytes: u64,
    /// Reads in flight together.
    pub slots: u32,
    /// True if the kernel takes it back before each read (`MADV_DONTNEED`), so that the read faults it in.
    pub is_new_each_time: bool,
    /// True if it is locked.
    pub is_locked: bool,
    /// True if it is written from.
    pub is_written: bool,
}

impl Memory {
    /// Memory of one read at a time.
    pub(crate) fn of_one(bytes: u64) -> Memory {
        Memory {
            bytes,
            slots: 1,
            ..Memory::default()
        }
    }
}

/// One thread's storage and time. The defaults are those of a simulated device, which has neither files nor a page cache.
pub(crate) trait World<'a> {
    fn phases(&mut self) -> &mut JobPhases<'a>;

    /// The files of the load.
    fn files(&self) -> &FileSet;

    /// Now, in nanoseconds since the run's 0.
    fn now(&self) -> u64;

    /// Reads extents, all of them in flight together, and returns when the last is complete.
    ///
    /// # Errors
    /// The first read that failed or was short.
    fn read(&mut self, extents: &[Extent]) -> Result<(), RunError>;

    /// Opens a file for this thread, in addition to those that all threads have open.
    ///
    /// # Errors
    /// The kernel's.
    fn open(&mut self, _file: usize, _access: Access, _is_direct: bool) -> Result<(), RunError> {
        Ok(())
    }

    /// Closes a file that this thread opened.
    fn close(&mut self, _file: usize) {}

    /// Writes random data to a file that this thread opened.
    ///
    /// # Errors
    /// The kernel's, and those of a write that was short.
    fn write(&mut self, extent: Extent) -> Result<(), RunError>;

    /// Makes a file that this thread opened durable (`fsync(2)`).
    ///
    /// # Errors
    /// The kernel's.
    fn sync(&mut self, file: usize) -> Result<(), RunError>;

    /// Removes a file's pages from the page cache, as far as they are clean.
    ///
    /// # Errors
    /// The kernel's.
    fn drop_pages(&mut self, _file: usize) -> Result<(), RunError> {
        Ok(())
    }

    /// Bytes of a file that this thread opened in the page cache; None if the kernel does not report them.
    fn cached_bytes(&self, _file: usize) -> Option<u64> {
        Some(0)
    }

    /// Copies bytes from the first half of the thread's memory to the second.
    fn copy(&mut self, _bytes: u64) {}

    /// Sleeps until an instant, or until load is no longer to be applied.
    fn sleep_until(&mut self, at_ns: u64);

    /// Waits until `ready` is true, which another thread's [`World::notify_at`] announces; false if load is no longer to be
    /// applied. Threads at different meetings do not wake one another.
    fn wait_at(&mut self, meeting: usize, ready: impl FnMut() -> bool) -> bool;

    /// Has all threads that wait at a meeting ask again.
    fn notify_at(&mut self, meeting: usize);

    /// Waits at the first meeting.
    fn wait(&mut self, ready: impl FnMut() -> bool) -> bool {
        self.wait_at(0, ready)
    }

    /// Has all threads that wait at the first meeting ask again.
    fn notify(&mut self) {
        self.notify_at(0);
    }

    /// Maps a file; the one mapped before is unmapped.
    ///
    /// # Errors
    /// When the kernel refuses it.
    fn map(&mut self, file: usize, how: Mapped) -> Result<(), RunError>;

    /// Copies a part of the mapped file to memory.
    ///
    /// # Errors
    /// Of a simulated device. A failed read of a file ends the process (SIGBUS).
    fn copy_mapped(&mut self, extent: Extent) -> Result<(), RunError>;

    /// Returns true while load is to be applied.
    fn continues(&mut self) -> bool {
        let now_ns = self.now();
        let phases = self.phases();
        phases.advance(now_ns, 0);
        phases.notice_exhaustion(now_ns, 0);
        phases.stage() != Stage::Drain
    }

    /// Counts an operation that started at this time and is complete now.
    fn record(&mut self, operation: Operation, bytes: u64, start_ns: u64) {
        self.record_response(operation, bytes, start_ns, None);
    }

    /// The same, of an operation that was to start at `intended_ns`.
    fn record_response(&mut self, operation: Operation, bytes: u64, start_ns: u64, intended_ns: Option<u64>) {
        let now_ns = self.now();
        let phases = self.phases();
        phases.started(1, start_ns, start_ns);
        phases.advance_to_completion(now_ns);
        let response_ns = intended_ns.map(|intended_ns| now_ns - intended_ns);
        phases.record(operation, bytes, now_ns, now_ns - start_ns, response_ns);
    }
}

/// A load: what its threads share, and what each of them does.
pub(crate) trait Load: Sync {
    /// Results of a thread.
    type Found: Send;

    /// Files that it needs.
    fn needs(&self) -> Vec<FileNeed>;

    /// The page cache of these files before the load.
    fn page_cache(&self) -> PageCache {
        PageCache::Drop
    }

    fn memory(&self, place: Place) -> Memory;

    /// Threads of each job.
    fn lanes(&self) -> u32 {
        1
    }

    /// Number of meetings at which threads wait for one another.
    fn meetings(&self) -> usize {
        1
    }

    /// Applies the load until it, or the phases of the thread, have ended.
    ///
    /// # Errors
    /// When an operation fails.
    fn work<'a>(&self, world: &mut impl World<'a>, place: Place) -> Result<Self::Found, RunError>;

    /// The interface on files, for the record.
    fn interface(&self) -> &'static str {
        "sync"
    }
}
