//! Pages of the graph in memory, of one job.
//!
//! Pages are admitted until the cache is full, and none is evicted: passes over a graph need the same pages in the same
//! order again and again, so the page that was used longest ago is the one that is needed next. Replacing it, as LRU does, would
//! leave no hits at all for a graph that is larger than the cache.

use std::ops::Range;

use crate::csr::PAGE_BYTES;

const ABSENT: u32 = u32::MAX;

/// A bounded cache of pages.
pub(crate) struct Cache {
    /// The page of the first entry.
    first_page: u64,
    /// Place of each page in memory.
    places: Vec<u32>,
    memory: Vec<u8>,
    used: u32,
    room: u32,
}

impl Cache {
    /// A cache for some pages of the graph, of at most `bytes`.
    pub(crate) fn new(pages: Range<u64>, bytes: u64) -> Cache {
        let count = pages.end - pages.start;
        let room = (bytes / PAGE_BYTES).min(count).min(u64::from(ABSENT)) as u32;
        let known = if room == 0 { 0 } else { count as usize };
        let mut memory = vec![0_u8; room as usize * PAGE_BYTES as usize];
        // Touched now, so that no page fault is measured later.
        memory
            .iter_mut()
            .step_by(PAGE_BYTES as usize)
            .for_each(|byte| *byte = std::hint::black_box(0));
        Cache {
            first_page: pages.start,
            places: vec![ABSENT; known],
            memory,
            used: 0,
            room,
        }
    }

    /// Place of a page in memory, if it is cached.
    #[inline]
    pub(crate) fn place(&self, page: u64) -> Option<u32> {
        let place = *self.places.get((page - self.first_page) as usize)?;
        (place != ABSENT).then_some(place)
    }

    /// Pages that are next to one another in memory.
    pub(crate) fn bytes(&self, place: u32, pages: u64) -> &[u8] {
        let start = place as usize * PAGE_BYTES as usize;
        &self.memory[start..start + (pages * PAGE_BYTES) as usize]
    }

    /// Keeps pages that were read, as far as there is room.
    pub(crate) fn admit(&mut self, first_page: u64, bytes: &[u8]) {
        let (pages, _) = bytes.as_chunks::<{ PAGE_BYTES as usize }>();
        for (page, content) in (first_page..).zip(pages) {
            if self.used == self.room {
                return;
            }
            let place = &mut self.places[(page - self.first_page) as usize];
            if *place == ABSENT {
                *place = self.used;
                let start = self.used as usize * PAGE_BYTES as usize;
                self.memory[start..start + PAGE_BYTES as usize].copy_from_slice(content);
                self.used += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_admitted_until_it_is_full_and_stay() {
        let mut cache = Cache::new(10..20, 2 * PAGE_BYTES + 1);
        let pages = [1, 2, 3].map(|value| [value; PAGE_BYTES as usize]).concat();
        cache.admit(15, &pages);
        cache.admit(11, &pages[..PAGE_BYTES as usize]);
        assert_eq!((cache.place(15), cache.place(16)), (Some(0), Some(1)));
        assert_eq!((cache.place(17), cache.place(11)), (None, None));
        assert_eq!(cache.bytes(0, 2), &pages[..2 * PAGE_BYTES as usize]);
        let mut without_room = Cache::new(10..20, 4095);
        without_room.admit(10, &[7; PAGE_BYTES as usize]);
        assert_eq!(without_room.place(10), None);
    }
}
