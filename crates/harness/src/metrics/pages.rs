//! Memory for a histogram's counts, straight from the kernel: a page takes room once a latency is counted in it.
//!
//! An allocator promises zeros, but once it has memory to reuse (after a store has loaded a database, say) it writes them,
//! and then each of a job's histograms would take all of its 144 KiB, used or not.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::metrics::histogram::BUCKETS;
use crate::metrics::memory;

/// The counts of a histogram, zero at first.
pub(crate) struct Pages(MmapMut);

impl Pages {
    /// Maps them.
    ///
    /// Without 144 KiB of address space the program ends, see [`memory::exhausted`].
    pub(crate) fn zeroed() -> Pages {
        let bytes = size_of::<[u64; BUCKETS]>();
        match MmapMut::map_anon(bytes) {
            Ok(mapping) => Pages(mapping),
            Err(_) => memory::exhausted(bytes),
        }
    }
}

impl Deref for Pages {
    type Target = [u64; BUCKETS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping has this size, starts on a page, is zeroed by the kernel, and lives as long as this value.
        unsafe { &*self.0.as_ptr().cast() }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above; this value is borrowed mutably, so there is no other reference to the memory.
        unsafe { &mut *self.0.as_mut_ptr().cast() }
    }
}
