//! Mapping coarser than a page: what is not written of a unit has to move along with what is.
//!
//! A drive with little memory keeps one entry of its map for several pages that lie together. A unit of which a part is
//! written is kept page by page for a while, as many of them as the spare room would hold; then what was not written of
//! it is read from where it is and written once more (read-modify-write), so that it is whole again. Writes to a small
//! part of the drive therefore cost nothing more, and writes to all of it do. Pages that were never written are not.

use std::collections::VecDeque;

/// Units that are kept page by page, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Units {
    pages: u32,
    /// Units that may be divided at the same time.
    room: usize,
    /// In the order in which they were divided; those that became whole since are still there.
    order: VecDeque<u32>,
    /// Of each unit the pages that were written since it was divided; 0 where it is whole.
    written: Vec<u64>,
}

/// A unit, and which of its pages were written since it was divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    number: u32,
    written: u64,
}

impl Units {
    /// Units of this many pages, 64 at most, of a drive of `drive_pages`; nothing to do where a page is one.
    pub(crate) fn new(pages: u32, drive_pages: u32, room: u32) -> Units {
        let count = if pages == 1 { 0 } else { drive_pages.div_ceil(pages) };
        Units {
            pages,
            room: room.max(1) as usize,
            order: VecDeque::new(),
            written: vec![0; count as usize],
        }
    }

    /// Takes note of pages that are written; units that must be made whole because of these are appended to `closed`.
    pub(crate) fn write(&mut self, first: u32, count: u32, closed: &mut Vec<Unit>) {
        if self.pages == 1 {
            return;
        }
        let end = first + count;
        for number in first / self.pages..=(end - 1) / self.pages {
            let begin = number * self.pages;
            let from = first.max(begin) - begin;
            let to = end.min(begin + self.pages) - begin;
            self.write_one(number, ones(to) & !ones(from), closed);
        }
    }

    /// Makes all units whole.
    pub(crate) fn close(&mut self, closed: &mut Vec<Unit>) {
        while let Some(number) = self.order.pop_front() {
            self.close_one(number, closed);
        }
    }

    /// The pages of a unit that were not written.
    pub(crate) fn missing(&self, unit: Unit) -> impl Iterator<Item = u32> + use<> {
        let first = unit.number * self.pages;
        (0..self.pages)
            .filter(move |page| unit.written >> page & 1 == 0)
            .map(move |page| first + page)
    }

    fn write_one(&mut self, number: u32, written: u64, closed: &mut Vec<Unit>) {
        let before = self.written[number as usize];
        let now = before | written;
        if now == ones(self.pages) {
            self.written[number as usize] = 0;
            return;
        }
        self.written[number as usize] = now;
        if before == 0 {
            self.order.push_back(number);
            if self.order.len() > self.room {
                let oldest = self.order.pop_front();
                oldest.into_iter().for_each(|number| self.close_one(number, closed));
            }
        }
    }

    /// One that became whole by itself has nothing to carry.
    fn close_one(&mut self, number: u32, closed: &mut Vec<Unit>) {
        let written = std::mem::take(&mut self.written[number as usize]);
        if written != 0 {
            closed.push(Unit { number, written });
        }
    }
}

/// The lowest bits, this many of them.
fn ones(count: u32) -> u64 {
    u64::MAX.checked_shr(64 - count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of the pages that must be carried after these writes.
    fn carried(units: &mut Units, writes: &[(u32, u32)]) -> Vec<u32> {
        let mut closed = Vec::new();
        for &(first, count) in writes {
            units.write(first, count, &mut closed);
        }
        closed.iter().flat_map(|&unit| units.missing(unit)).collect()
    }

    #[test]
    fn writes_in_order_and_of_whole_units_carry_nothing_and_a_unit_waits_while_there_is_room() {
        let mut units = Units::new(8, 64, 2);
        let writes: Vec<_> = (0..64).map(|page| (page, 1)).collect();
        assert!(carried(&mut units, &writes).is_empty());
        assert!(units.written.iter().all(|&written| written == 0));
        let mut units = Units::new(8, 64, 1);
        assert!(carried(&mut units, &[(8, 24)]).is_empty());
        // Pages 6 to 17: the last two of unit 0, all of 1, the first two of 2; with room for one, 0 has to go.
        assert_eq!(carried(&mut units, &[(6, 12)]), [0, 1, 2, 3, 4, 5]);
        let mut units = Units::new(4, 64, 2);
        assert!(carried(&mut units, &[(0, 1), (4, 1), (1, 1)]).is_empty());
        // The oldest, without what came later.
        assert_eq!(carried(&mut units, &[(8, 1)]), [2, 3]);
        assert!(carried(&mut Units::new(1, 64, 1), &[(0, 1), (7, 1)]).is_empty());
        let mut units = Units::new(64, 128, 1);
        assert!(carried(&mut units, &[(0, 64)]).is_empty());
        assert_eq!(carried(&mut units, &[(0, 63), (64, 1)]), [63]);
    }
}
