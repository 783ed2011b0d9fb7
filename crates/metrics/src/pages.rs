//! Memory for a histogram's counts, straight from the kernel: a page takes room once a latency is counted in it.
//!
//! An allocator promises zeros, but once it has memory to reuse (after a store has loaded a database, say) it writes them,
//! and then each of a job's histograms would take all of its 144 KiB, used or not.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::histogram::BUCKETS;
use crate::memory;

/// The counts of a histogram, zero at first.
pub(crate) struct Pages(NonNull<[u64; BUCKETS]>);

// SAFETY: the memory belongs to this value alone, like a box's.
unsafe impl Send for Pages {}
// SAFETY: shared references only read it.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps them.
    ///
    /// Without 144 KiB of address space the program ends, see [`memory::exhausted`].
    pub(crate) fn zeroed() -> Pages {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping, at an address that the kernel chooses, touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<[u64; BUCKETS]>(),
                protection,
                flags,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            memory::exhausted(size_of::<[u64; BUCKETS]>());
        }
        Pages(NonNull::new(address.cast()).expect("a mapping is nowhere near address 0"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `zeroed` with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<[u64; BUCKETS]>()) };
    }
}

impl Deref for Pages {
    type Target = [u64; BUCKETS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping is readable, page-aligned, zeroed by the kernel, and lives as long as this value.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above; and this value is borrowed mutably, so nobody else refers to the memory.
        unsafe { self.0.as_mut() }
    }
}
