//! Data pointers of commands: PRP entries and lists, or an SGL descriptor.
//!
//! Buffers are slots of one mapping that is contiguous for the device, so the PRP list of a slot never changes: the pages
//! of the slot in order, of which a transfer uses the first ones. Lists are written once. Only where a transfer fills a
//! page of its list exactly, the last entry of that page is data, and for longer transfers a pointer to the next page
//! (NVM Express Base Specification 2.0, section 4.1.1, "Physical Region Page Entry and List"): that entry is written for
//! each such transfer. An SGL needs one descriptor (section 4.1.2).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::DataPointer;
use crate::memory::{Memory, PAGE_BYTES};

/// Entries in a page of a PRP list.
const ENTRIES: usize = PAGE_BYTES / 8;

/// The data pointers of buffers of equal size.
#[derive(Debug)]
pub struct Pointers {
    /// Address of the first slot, for the device.
    buffers: u64,
    slot_bytes: usize,
    /// Pages of the lists, one slot after the other; none where PRP entries suffice or SGLs are used.
    lists: Option<Lists>,
    uses_sgl: bool,
}

#[derive(Debug)]
struct Lists {
    memory: Memory,
    address: u64,
    pages_per_slot: usize,
}

/// Pages that the PRP lists of a transfer of this size take at most.
pub fn list_pages(bytes: usize) -> usize {
    // A first byte inside a page makes one entry more.
    let entries = bytes.div_ceil(PAGE_BYTES);
    if entries <= 1 {
        0
    } else {
        (entries - 1).div_ceil(ENTRIES - 1)
    }
}

impl Pointers {
    /// PRP entries for slots of `slot_bytes` (whole pages) from `buffers`, a page-aligned address for the device.
    /// `allocate` returns memory and the address that the device has for it.
    ///
    /// # Errors
    /// Those of `allocate`.
    pub fn prp<E>(
        buffers: u64,
        slot_bytes: usize,
        slots: usize,
        allocate: impl FnOnce(usize) -> Result<(Memory, u64), E>,
    ) -> Result<Pointers, E> {
        let pages_per_slot = list_pages(slot_bytes);
        let lists = match pages_per_slot {
            0 => None,
            _ => {
                let (memory, address) = allocate(slots * pages_per_slot * PAGE_BYTES)?;
                let lists = Lists {
                    memory,
                    address,
                    pages_per_slot,
                };
                for slot in 0..slots {
                    lists.fill(slot, buffers + (slot * slot_bytes) as u64, slot_bytes);
                }
                Some(lists)
            }
        };
        Ok(Pointers {
            buffers,
            slot_bytes,
            lists,
            uses_sgl: false,
        })
    }

    /// SGL descriptors for such slots.
    pub fn sgl(buffers: u64, slot_bytes: usize) -> Pointers {
        Pointers {
            buffers,
            slot_bytes,
            lists: None,
            uses_sgl: true,
        }
    }

    /// Returns true if so many bytes from this offset lie in a slot, and the offset in its first page.
    #[inline]
    pub fn fits(&self, offset: usize, bytes: usize) -> bool {
        offset < PAGE_BYTES && offset + bytes <= self.slot_bytes
    }

    /// The pointer to `bytes` of a slot, from an offset within its first page (a multiple of 4).
    #[inline]
    pub fn pointer(&self, slot: u32, offset: usize, bytes: usize) -> DataPointer {
        debug_assert!(self.fits(offset, bytes), "within the slot");
        let first = self.buffers + (slot as usize * self.slot_bytes + offset) as u64;
        if self.uses_sgl {
            return DataPointer::Sgl(first, bytes as u32);
        }
        let pages = (offset + bytes).div_ceil(PAGE_BYTES);
        match (pages, &self.lists) {
            (0 | 1, _) => DataPointer::Prp(first, 0),
            (2, _) | (_, None) => DataPointer::Prp(first, first - offset as u64 + PAGE_BYTES as u64),
            (_, Some(lists)) => DataPointer::Prp(first, lists.address(slot as usize, pages - 1)),
        }
    }
}

impl Lists {
    fn quads(&self, slot: usize, page: usize) -> &[AtomicU64] {
        let first = (slot * self.pages_per_slot + page) * ENTRIES;
        &self.memory.quads()[first..first + ENTRIES]
    }

    fn page(&self, slot: usize, page: usize) -> u64 {
        self.address + ((slot * self.pages_per_slot + page) * PAGE_BYTES) as u64
    }

    /// Writes the list of a slot: every page but the last entry of it, which [`Lists::of`] writes where it is used.
    fn fill(&self, slot: usize, start: u64, slot_bytes: usize) {
        for entry in 0..slot_bytes.div_ceil(PAGE_BYTES) - 1 {
            let (page, place) = (entry / (ENTRIES - 1), entry % (ENTRIES - 1));
            let address = start + ((entry + 1) * PAGE_BYTES) as u64;
            self.quads(slot, page)[place].store(address, Ordering::Relaxed);
        }
    }

    /// The address of the list of a slot, for a transfer with this many entries.
    #[inline]
    fn address(&self, slot: usize, entries: usize) -> u64 {
        if entries >= ENTRIES {
            self.close_pages(slot, entries);
        }
        self.page(slot, 0)
    }

    /// Writes the last entries of the pages of a list that is longer than one page less one entry.
    fn close_pages(&self, slot: usize, entries: usize) {
        let start = self.quads(slot, 0)[0].load(Ordering::Relaxed);
        for page in 0..self.pages_per_slot {
            let before = page * (ENTRIES - 1);
            let last = match entries.saturating_sub(before) {
                ENTRIES => start + ((before + ENTRIES - 1) * PAGE_BYTES) as u64,
                rest if rest > ENTRIES => self.page(slot, page + 1),
                _ => return,
            };
            self.quads(slot, page)[ENTRIES - 1].store(last, Ordering::Relaxed);
        }
    }
}

/// The pages that a pair of PRP entries describes, as a controller finds them; `read` reads a quadword of a list.
///
/// This is the controller's side of the format: for the mock controller and for tests.
pub fn pages_of(first: u64, second: u64, bytes: usize, mut read: impl FnMut(u64) -> u64) -> Vec<(u64, usize)> {
    let page = PAGE_BYTES as u64;
    let mut found = vec![(first, bytes.min((page - first % page) as usize))];
    let mut left = bytes - found[0].1;
    if left == 0 {
        return found;
    }
    if left <= PAGE_BYTES {
        found.push((second, left));
        return found;
    }
    let mut entry = second;
    while left > 0 {
        let mut value = read(entry);
        let is_last_of_page = (entry + 8).is_multiple_of(page);
        if is_last_of_page && left > PAGE_BYTES {
            entry = value;
            value = read(entry);
        }
        found.push((value, left.min(PAGE_BYTES)));
        left -= left.min(PAGE_BYTES);
        entry += 8;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUFFERS: u64 = 0x1000_0000;
    const LISTS: u64 = 0x8000_0000;

    /// Pointers with PRP lists that are read back from their memory.
    fn prp(slot_bytes: usize, slots: usize) -> (Pointers, Memory) {
        let memory = Memory::allocate(slots * list_pages(slot_bytes).max(1) * PAGE_BYTES).expect("memory");
        let pointers = Pointers::prp(BUFFERS, slot_bytes, slots, |_| Ok::<_, ()>((memory.clone(), LISTS)));
        (pointers.expect("no error"), memory)
    }

    fn pages(pointers: &Pointers, memory: &Memory, slot: u32, offset: usize, bytes: usize) -> Vec<(u64, usize)> {
        let DataPointer::Prp(first, second) = pointers.pointer(slot, offset, bytes) else {
            panic!("PRP entries");
        };
        let quads = memory.quads();
        pages_of(first, second, bytes, |address| {
            quads[((address - LISTS) / 8) as usize].load(Ordering::Relaxed)
        })
    }

    proptest! {
        #[test]
        fn a_controller_finds_every_byte_of_a_transfer_in_order(
            slot in 0u32..3, words in 1usize..600_000, offset in 0usize..1024
        ) {
            let slot_bytes = 3 << 20;
            let (offset, bytes) = (offset * 4, (words * 4).min(slot_bytes - 4096));
            let (pointers, memory) = prp(slot_bytes, 3);
            let mut expected = BUFFERS + u64::from(slot) * slot_bytes as u64 + offset as u64;
            let mut sum = 0;
            // The size used before must not matter.
            pages(&pointers, &memory, slot, 0, slot_bytes);
            for (address, part) in pages(&pointers, &memory, slot, offset, bytes) {
                prop_assert_eq!(address, expected);
                expected += part as u64;
                sum += part;
            }
            prop_assert_eq!(sum, bytes);
        }
    }

    #[test]
    fn short_transfers_need_no_list_and_full_lists_have_data_in_the_last_entry() {
        let (pointers, _) = prp(8192, 2);
        assert_eq!(pointers.pointer(1, 0, 4096), DataPointer::Prp(BUFFERS + 8192, 0));
        assert_eq!(pointers.pointer(0, 0, 4608), DataPointer::Prp(BUFFERS, BUFFERS + 4096));
        let unaligned = DataPointer::Prp(BUFFERS + 512, BUFFERS + 4096);
        assert_eq!(pointers.pointer(0, 512, 4096), unaligned);
        let sgl = Pointers::sgl(BUFFERS, 8192);
        assert_eq!(sgl.pointer(1, 4, 8), DataPointer::Sgl(BUFFERS + 8196, 8));
        let slot_bytes = 2 * ENTRIES * PAGE_BYTES;
        let (pointers, memory) = prp(slot_bytes, 1);
        for pages_wanted in [512, 513, 514, 1023, 1024] {
            let found = pages(&pointers, &memory, 0, 0, pages_wanted * PAGE_BYTES);
            let expected = (0..pages_wanted).map(|page| (BUFFERS + (page * PAGE_BYTES) as u64, PAGE_BYTES));
            assert!(found.into_iter().eq(expected), "{pages_wanted} pages");
        }
    }
}
