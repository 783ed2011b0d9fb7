//! Placement of pages on flash: the page map, the frontiers that are written, and garbage collection.
//!
//! It decides and counts nothing itself: whatever happens to the media goes to a [`Media`], which may take time for it
//! (`drive`) or none at all (filling a drive before a run).
//!
//! Pages of the host gather in the buffer until they fill one program of a die; until then a page that is written again
//! is replaced there. Collection is paced: while free superblocks are short, each program of the host's brings as many
//! copies as the victim needs for the room that the program takes, so that collecting a superblock ends when writing one
//! does. Copies go to a frontier of their own, so that old data does not mix with new.

use std::collections::VecDeque;

use iosonde_protocol::Collection;

use crate::geometry::Geometry;

/// A page in the buffer; the rest of the entry is its slot.
const GATHERED: u32 = 1 << 31;
/// A superblock that is free, being written or being collected: no candidate for collection.
const NOT_CLOSED: u32 = 1 << 31;
/// Free superblocks below which collection works along with the host's writes.
const FREE_TARGET: usize = 3;
/// All eight sectors of a page.
pub(crate) const WHOLE_PAGE: u8 = 0xff;

/// Cause of a program operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The host wrote it. Of the program this many pages are padding.
    Host { padding: u32 },
    /// Collection copies it.
    Copy,
}

/// Receiver of the operations of the translation.
pub(crate) trait Media {
    /// Program one die with a full program.
    fn program(&mut self, program: u32, origin: Origin);
    /// Read this many pages of one program, to copy them or to complete them.
    fn read(&mut self, program: u32, pages: u32);
    /// Erase a block of a die.
    fn erase(&mut self, die: u32);
}

/// Does nothing and takes no time: the previous state of a drive.
pub(crate) struct Untimed;

impl Media for Untimed {
    fn program(&mut self, _program: u32, _origin: Origin) {}
    fn read(&mut self, _program: u32, _pages: u32) {}
    fn erase(&mut self, _die: u32) {}
}

/// Location of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Never written, or trimmed.
    Nowhere,
    /// Waiting in the buffer.
    Buffered,
    /// On the media.
    Physical(u32),
}

/// A page that waits in the buffer for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub page: u32,
    /// Bit mask of its sectors that are new.
    pub sectors: u8,
    /// Location of the other ones, as an entry of the map.
    pub before: u32,
}

/// The superblock that a kind of write goes to, and its next page; none is open when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frontier {
    pub superblock: u32,
    pub next: u32,
}

/// The superblock that is being collected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Victim {
    pub superblock: u32,
    /// Programs of it that were looked at.
    pub cursor: u32,
    /// Copies due for each page of the host's.
    pub copies_per_page: f64,
}

/// Erasures that are due, paid one at a time along with programs so that they do not stop all dies at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Erasures {
    pub due: u32,
    pub programs_since: u32,
    pub next_die: u32,
}

/// The map and everything that it takes to keep writing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageMap {
    pub(crate) geometry: Geometry,
    collection: Collection,
    /// Logical page -> 0 for nowhere, physical page + 1, or a slot of `gathered`.
    pub(crate) place: Vec<u32>,
    /// Physical page -> logical page; true only where `place` points back.
    pub(crate) owner: Vec<u32>,
    /// Valid pages of each superblock, with `NOT_CLOSED`.
    pub(crate) valid: Vec<u32>,
    /// Closed superblocks, oldest first; kept for least-recently-written collection alone.
    pub(crate) oldest: VecDeque<u32>,
    pub(crate) free: VecDeque<u32>,
    pub(crate) host: Frontier,
    pub(crate) copies: Frontier,
    pub(crate) gathered: Vec<Gathered>,
    pub(crate) victim: Option<Victim>,
    /// Copies due.
    pub(crate) credit: f64,
    pub(crate) erasures: Erasures,
}

fn sense(pages: Option<(u32, u32)>, media: &mut impl Media) {
    if let Some((program, count)) = pages {
        media.read(program, count);
    }
}

impl PageMap {
    /// A drive as it leaves the factory.
    pub(crate) fn new(geometry: Geometry, collection: Collection) -> PageMap {
        let full = Frontier {
            superblock: u32::MAX,
            next: geometry.superblock_pages,
        };
        PageMap {
            geometry,
            collection,
            // Zeroed memory takes no room before it is written.
            place: vec![0; geometry.pages as usize],
            owner: vec![0; geometry.superblocks as usize * geometry.superblock_pages as usize],
            valid: vec![NOT_CLOSED; geometry.superblocks as usize],
            oldest: VecDeque::new(),
            free: (0..geometry.superblocks).collect(),
            host: full,
            copies: full,
            gathered: Vec::with_capacity(geometry.program_pages as usize),
            victim: None,
            credit: 0.0,
            erasures: Erasures::default(),
        }
    }

    /// Location of a page.
    #[inline]
    pub(crate) fn locate(&self, page: u32) -> Place {
        match self.place[page as usize] {
            0 => Place::Nowhere,
            entry if entry & GATHERED != 0 => Place::Buffered,
            entry => Place::Physical(entry - 1),
        }
    }

    /// Writes sectors of a page; true if that replaced what waited in the buffer.
    pub(crate) fn write(&mut self, page: u32, sectors: u8, media: &mut impl Media) -> bool {
        let before = self.place[page as usize];
        if before & GATHERED != 0 {
            let slot = &mut self.gathered[(before & !GATHERED) as usize];
            slot.sectors |= sectors;
            self.program_if_full(sectors, media);
            return true;
        }
        if self.gathered.len() == self.geometry.program_pages as usize {
            self.program_gathered(media);
        }
        let before = self.place[page as usize];
        self.invalidate(before);
        self.place[page as usize] = GATHERED | self.gathered.len() as u32;
        self.gathered.push(Gathered { page, sectors, before });
        self.program_if_full(sectors, media);
        false
    }

    /// Writes whole pages in order. Where they fill programs by themselves, they need not gather.
    pub(crate) fn write_run(&mut self, first: u32, count: u32, media: &mut impl Media) -> u32 {
        let (end, step) = (first + count, self.geometry.program_pages);
        let (mut page, mut hits) = (first, 0);
        while page < end {
            if self.gathered.is_empty() && end - page >= step {
                self.program_run(page, media);
                page += step;
            } else {
                hits += u32::from(self.write(page, WHOLE_PAGE, media));
                page += 1;
            }
        }
        hits
    }

    /// Reads and writes once more those pages that lie on the media; how many that were.
    pub(crate) fn carry(&mut self, pages: impl Iterator<Item = u32>, media: &mut impl Media) -> u32 {
        let mut carried = 0;
        let mut sensed: Option<(u32, u32)> = None;
        for page in pages {
            let Place::Physical(physical) = self.locate(page) else {
                continue;
            };
            let program = self.geometry.program_of(physical);
            sensed = match sensed {
                Some((open, count)) if open == program => Some((open, count + 1)),
                other => {
                    sense(other, media);
                    Some((program, 1))
                }
            };
            self.write(page, WHOLE_PAGE, media);
            carried += 1;
        }
        sense(sensed, media);
        carried
    }

    /// Forgets a page.
    pub(crate) fn trim(&mut self, page: u32) {
        let entry = std::mem::take(&mut self.place[page as usize]);
        if entry & GATHERED == 0 {
            self.invalidate(entry);
            return;
        }
        let slot = (entry & !GATHERED) as usize;
        self.gathered.swap_remove(slot);
        if let Some(moved) = self.gathered.get(slot) {
            self.place[moved.page as usize] = GATHERED | slot as u32;
        }
    }

    /// Programs what has gathered, padded, because it must not wait any longer; pages so programmed.
    pub(crate) fn flush(&mut self, media: &mut impl Media) -> u32 {
        let waiting = self.gathered.len() as u32;
        if waiting > 0 {
            self.program_gathered(media);
        }
        waiting
    }

    /// Collects a little ahead of need, up to this many free superblocks; false when there is nothing to gain.
    pub(crate) fn collect_ahead(&mut self, free_target: usize, media: &mut impl Media) -> bool {
        if self.free.len() >= free_target || !self.have_victim() {
            return false;
        }
        self.copy_some(media);
        true
    }

    /// A drive like this one that holds nothing, to be restored.
    pub(crate) fn emptied(&self) -> PageMap {
        let mut empty = PageMap::new(self.geometry, self.collection);
        empty.free.clear();
        empty
    }

    /// The logical page that a physical one holds, if it is the valid copy.
    pub(crate) fn valid_owner(&self, physical: u32) -> Option<u32> {
        let page = self.owner[physical as usize];
        (self.place[page as usize] == physical + 1).then_some(page)
    }

    /// How many pages of a superblock are valid.
    pub(crate) fn valid_pages(&self, superblock: u32) -> u32 {
        self.valid[superblock as usize] & !NOT_CLOSED
    }

    /// Puts a page back where it lay; none if that cannot be.
    pub(crate) fn restore_page(&mut self, page: u32, physical: u32) -> Option<()> {
        let entry = self.place.get_mut(page as usize).filter(|entry| **entry == 0)?;
        *entry = physical + 1;
        self.owner[physical as usize] = page;
        self.valid[(physical / self.geometry.superblock_pages) as usize] += 1;
        Some(())
    }

    /// Puts a page back into the buffer.
    pub(crate) fn restore_gathered(&mut self, slot: Gathered) -> Option<()> {
        let entry = self.place.get_mut(slot.page as usize).filter(|entry| **entry == 0)?;
        *entry = GATHERED | self.gathered.len() as u32;
        self.gathered.push(slot);
        Some(())
    }

    /// Closes every superblock that is neither free, nor written, nor collected, after all else was restored.
    pub(crate) fn restore_closed(&mut self) -> Option<()> {
        let mut open = vec![false; self.geometry.superblocks as usize];
        let written = [self.host, self.copies];
        let written = written
            .iter()
            .filter(|frontier| frontier.next < self.geometry.superblock_pages);
        let victim = self.victim.map(|victim| victim.superblock);
        let all = self
            .free
            .iter()
            .copied()
            .chain(written.map(|frontier| frontier.superblock))
            .chain(victim);
        for superblock in all {
            *open.get_mut(superblock as usize)? = true;
        }
        for (valid, _) in self.valid.iter_mut().zip(&open).filter(|(_, open)| !**open) {
            *valid &= !NOT_CLOSED;
        }
        let in_order = self
            .oldest
            .iter()
            .all(|&superblock| open.get(superblock as usize) == Some(&false));
        in_order.then_some(())
    }

    #[inline]
    fn invalidate(&mut self, entry: u32) {
        if entry != 0 {
            self.valid[((entry - 1) / self.geometry.superblock_pages) as usize] -= 1;
        }
    }

    #[inline]
    fn settle(&mut self, page: u32, physical: u32) {
        self.place[page as usize] = physical + 1;
        self.owner[physical as usize] = page;
    }

    /// Small writes in order complete a page with several: the last one may wait for that, until another page comes.
    fn program_if_full(&mut self, sectors: u8, media: &mut impl Media) {
        let is_full = self.gathered.len() == self.geometry.program_pages as usize;
        if is_full && (sectors == WHOLE_PAGE || self.gathered.iter().all(|slot| slot.sectors == WHOLE_PAGE)) {
            self.program_gathered(media);
        }
    }

    fn program_gathered(&mut self, media: &mut impl Media) {
        let first = self.next_program(media);
        let gathered = std::mem::take(&mut self.gathered);
        for (physical, slot) in (first..).zip(&gathered) {
            if slot.sectors != WHOLE_PAGE && slot.before != 0 {
                media.read(self.geometry.program_of(slot.before - 1), 1);
            }
            self.settle(slot.page, physical);
        }
        let pages = gathered.len() as u32;
        self.gathered = gathered;
        self.gathered.clear();
        self.programmed(first, pages, media);
    }

    fn program_run(&mut self, page: u32, media: &mut impl Media) {
        let first = self.next_program(media);
        let pages = self.geometry.program_pages;
        for (page, physical) in (page..page + pages).zip(first..) {
            self.invalidate(self.place[page as usize]);
            self.settle(page, physical);
        }
        self.programmed(first, pages, media);
    }

    /// The first physical page of the host's next program.
    fn next_program(&mut self, media: &mut impl Media) -> u32 {
        if self.host.next == self.geometry.superblock_pages {
            // One must remain for copies, or collection could not go on.
            while self.free.len() < 2 {
                assert!(self.have_victim(), "a drive with spare room has something to collect");
                self.copy_some(media);
            }
            self.host = self.open();
        }
        self.host.superblock * self.geometry.superblock_pages + self.host.next
    }

    /// Takes note of a program of the host's, with this many pages of data.
    fn programmed(&mut self, first: u32, pages: u32, media: &mut impl Media) {
        let whole = self.geometry.program_pages;
        self.valid[self.host.superblock as usize] += pages;
        self.host.next += whole;
        if self.host.next == self.geometry.superblock_pages {
            self.close(self.host.superblock);
        }
        let padding = whole - pages;
        media.program(self.geometry.program_of(first), Origin::Host { padding });
        self.pay_erasure(media);
        self.keep_pace(whole, media);
    }

    /// Copies what is due for this many pages of the host's.
    fn keep_pace(&mut self, pages: u32, media: &mut impl Media) {
        if self.free.len() >= FREE_TARGET || !self.have_victim() {
            return;
        }
        self.credit += self.victim.map_or(0.0, |victim| victim.copies_per_page) * f64::from(pages);
        while self
            .victim
            .is_some_and(|victim| self.credit > 0.0 || self.is_empty(victim.superblock))
        {
            self.credit -= f64::from(self.copy_some(media));
        }
        if self.victim.is_none() {
            self.credit = 0.0;
        }
    }

    fn is_empty(&self, superblock: u32) -> bool {
        self.valid[superblock as usize] == NOT_CLOSED
    }

    /// Chooses a victim if there is none; false if nothing would be gained.
    fn have_victim(&mut self) -> bool {
        if self.victim.is_some() {
            return true;
        }
        let Some(superblock) = self.choose() else {
            return false;
        };
        let valid = self.valid[superblock as usize];
        self.valid[superblock as usize] |= NOT_CLOSED;
        let invalid = self.geometry.superblock_pages - valid;
        self.victim = Some(Victim {
            superblock,
            cursor: 0,
            // One that holds no garbage, as the oldest may, gives no room: it is copied at once.
            copies_per_page: f64::from(valid) / f64::from(invalid.max(1)),
        });
        true
    }

    fn choose(&mut self) -> Option<u32> {
        let whole = self.geometry.superblock_pages;
        match self.collection {
            Collection::LeastRecentlyWritten => {
                let gain = self
                    .oldest
                    .iter()
                    .any(|&superblock| self.valid[superblock as usize] < whole);
                gain.then(|| self.oldest.pop_front()).flatten()
            }
            Collection::Greedy => {
                let least = self.valid.iter().copied().min().filter(|&valid| valid < whole)?;
                self.valid
                    .iter()
                    .position(|&valid| valid == least)
                    .map(|found| found as u32)
            }
        }
    }

    /// Copies the valid pages of the victim's next program that has any, and frees the victim after its last; pages
    /// copied.
    fn copy_some(&mut self, media: &mut impl Media) -> u32 {
        let Some(mut victim) = self.victim else { return 0 };
        let pages = self.geometry.program_pages;
        let programs = self.geometry.superblock_pages / pages;
        let mut copied = 0;
        while victim.cursor < programs && copied == 0 && !self.is_empty(victim.superblock) {
            let first = victim.superblock * self.geometry.superblock_pages + victim.cursor * pages;
            victim.cursor += 1;
            copied = self.copy_program(first, victim.superblock, media);
        }
        if self.is_empty(victim.superblock) {
            self.victim = None;
            self.free.push_back(victim.superblock);
            self.erasures.due += self.geometry.dies;
        } else {
            self.victim = Some(victim);
        }
        copied
    }

    fn copy_program(&mut self, first: u32, superblock: u32, media: &mut impl Media) -> u32 {
        let mut copied = 0;
        for physical in first..first + self.geometry.program_pages {
            let page = self.owner[physical as usize];
            if self.place[page as usize] == physical + 1 {
                copied += 1;
                // Before the copy is placed: it may open a superblock.
                self.valid[superblock as usize] -= 1;
                self.copy(page, media);
            }
        }
        if copied > 0 {
            media.read(self.geometry.program_of(first), copied);
        }
        copied
    }

    fn copy(&mut self, page: u32, media: &mut impl Media) {
        if self.copies.next == self.geometry.superblock_pages {
            self.copies = self.open();
        }
        let physical = self.copies.superblock * self.geometry.superblock_pages + self.copies.next;
        self.settle(page, physical);
        self.valid[self.copies.superblock as usize] += 1;
        self.copies.next += 1;
        if self.copies.next == self.geometry.superblock_pages {
            self.close(self.copies.superblock);
        }
        if self.copies.next.is_multiple_of(self.geometry.program_pages) {
            media.program(self.geometry.program_of(physical), Origin::Copy);
            self.pay_erasure(media);
        }
    }

    fn open(&mut self) -> Frontier {
        let superblock = self
            .free
            .pop_front()
            .expect("the reserve leaves one free superblock for copies");
        Frontier { superblock, next: 0 }
    }

    fn close(&mut self, superblock: u32) {
        self.valid[superblock as usize] &= !NOT_CLOSED;
        if self.collection == Collection::LeastRecentlyWritten {
            self.oldest.push_back(superblock);
        }
    }

    /// A superblock's erasures are spread over the programs of another one; arrears are paid at once.
    fn pay_erasure(&mut self, media: &mut impl Media) {
        let Erasures {
            due,
            programs_since,
            next_die,
        } = &mut self.erasures;
        if *due == 0 {
            return;
        }
        *programs_since += 1;
        if *programs_since >= self.geometry.block_programs || *due > 2 * self.geometry.dies {
            media.erase(*next_die);
            (*due, *programs_since, *next_die) = (*due - 1, 0, (*next_die + 1) % self.geometry.dies);
        }
    }
}
