//! The memory that I/O goes through: aligned, pre-faulted, one slot for each I/O in flight.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use iosonde_nvme::placement::map_in_huge_pages;
use memmap2::{Advice, MmapMut, MmapRaw};

/// Slots begin on page boundaries, which satisfies every direct-I/O alignment in use.
const SLOT_ALIGNMENT: usize = 4096;
/// From this size on huge pages are requested: fewer page-table walks in the kernel's copies.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping divided into slots of equal size.
pub struct Arena {
    mapping: Arc<MmapRaw>,
    slot_bytes: usize,
    slots: usize,
}

impl Arena {
    /// Maps and faults in `slots` slots that hold `slot_bytes` each.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        Arena::mapped(slots, slot_bytes, |bytes| Ok(Arc::new(faulted_in(bytes)?.into())))
    }

    /// Slots in reserved huge pages: each 2 MiB from the start is physically contiguous.
    ///
    /// # Errors
    /// When not as many huge pages are free.
    pub fn in_huge_pages(slots: u32, slot_bytes: u64) -> io::Result<Arena> {
        Arena::mapped(slots, slot_bytes, |bytes| {
            Ok(Arc::new(map_in_huge_pages(bytes)?.into()))
        })
    }

    /// Slots in memory that a device reads and writes itself: `map` makes a mapping of at least so many bytes.
    ///
    /// # Errors
    /// Those of `map`.
    pub fn mapped(
        slots: u32,
        slot_bytes: u64,
        map: impl FnOnce(usize) -> io::Result<Arc<MmapRaw>>,
    ) -> io::Result<Arena> {
        let slots = slots as usize;
        let slot_bytes = (slot_bytes as usize).next_multiple_of(SLOT_ALIGNMENT);
        Ok(Arena {
            mapping: map(slots * slot_bytes)?,
            slot_bytes,
            slots,
        })
    }

    /// Address of a slot.
    pub fn slot(&self, slot: u32) -> *mut u8 {
        debug_assert!((slot as usize) < self.slots, "slot within the arena");
        self.mapping.as_mut_ptr().wrapping_add(slot as usize * self.slot_bytes)
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.slots * self.slot_bytes
    }

    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The mapping, for a device that accesses it: slot 0 is at its start.
    pub fn mapping(&self) -> Arc<MmapRaw> {
        Arc::clone(&self.mapping)
    }

    /// Gives the memory up without unmapping it, because the kernel may still write to it.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}

/// Memory of one thread, aligned and faulted in like an arena.
pub struct Buffer(MmapMut);

impl Buffer {
    /// Maps and faults in this many bytes.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(bytes: u64) -> io::Result<Buffer> {
        faulted_in(bytes as usize).map(Buffer)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A private mapping of which every page is in memory.
fn faulted_in(bytes: usize) -> io::Result<MmapMut> {
    let mut mapping = MmapMut::map_anon(bytes)?;
    if bytes >= HUGE_PAGE {
        // Kernels without huge pages refuse; small ones do as well.
        let _ = mapping.advise(Advice::HugePage);
    }
    for page in mapping.chunks_mut(SLOT_ALIGNMENT) {
        page[0] = std::hint::black_box(0);
    }
    Ok(mapping)
}

/// Memory that new mappings may take, by the kernel's own estimate (`MemAvailable` in proc(5)).
pub fn available_memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes * 1024)
}
