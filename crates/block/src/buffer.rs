//! The memory that I/O goes through: aligned, pre-faulted, one slot for each I/O in flight.

use std::io;
use std::ptr::NonNull;

/// Slots begin on page boundaries, which satisfies every direct-I/O alignment in use.
const SLOT_ALIGNMENT: usize = 4096;
/// From this size on huge pages are asked for: fewer page-table walks in the kernel's copies.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping divided into slots of equal size.
pub(crate) struct Arena {
    base: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: the arena is plain memory; every slot is used by the one job that owns the arena.
unsafe impl Send for Arena {}
// SAFETY: as above; sharing a reference only hands out slot addresses.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps and faults in `slots` slots that hold `slot_bytes` each.
    pub(crate) fn new(slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        let slots = slots as usize;
        let slot_bytes = (slot_bytes as usize).next_multiple_of(SLOT_ALIGNMENT);
        let bytes = slots * slot_bytes;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("mmap does not return null on success");
        let arena = Arena {
            base,
            slot_bytes,
            slots,
        };
        arena.fault_in();
        Ok(arena)
    }

    /// Address of a slot.
    pub(crate) fn slot(&self, slot: u32) -> *mut u8 {
        debug_assert!((slot as usize) < self.slots, "slot within the arena");
        // SAFETY: the offset lies within the mapping.
        unsafe { self.base.as_ptr().add(slot as usize * self.slot_bytes) }
    }

    /// Bytes mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Gives the memory up without unmapping it, because the kernel may still write to it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }

    fn fault_in(&self) {
        // SAFETY: the range is this mapping; advice cannot change its contents.
        unsafe {
            if self.bytes() >= HUGE_PAGE {
                libc::madvise(self.base.as_ptr().cast(), self.bytes(), libc::MADV_HUGEPAGE);
            }
            for page in (0..self.bytes()).step_by(SLOT_ALIGNMENT) {
                self.base.as_ptr().add(page).write_volatile(0);
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no I/O is in flight on it (the owner leaks it
        // otherwise).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes()) };
    }
}

/// Memory that new mappings may take, by the kernel's own estimate (`MemAvailable` in proc(5)).
pub(crate) fn available_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes * 1024)
}
