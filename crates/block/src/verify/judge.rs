//! Names what is wrong with a sector, and keeps count.
//!
//! | fault | what is found |
//! |---|---|
//! | lost | older data, or zeros, where a newer write was acknowledged: it never arrived |
//! | torn | of one unit some sectors hold the newest write, and this one an older |
//! | misdirected | sound data of another place or another file |
//! | stale | older data, where a read had found newer before; or data of an earlier file at the same place |
//! | flipped | the checksum does not match |
//! | foreign | data that no run under verification wrote, or none that is in the journal |

use iosonde_protocol::{Fault, FaultCounts, Finding};

use super::crc::Crc;
use super::crc::{SECTOR_BYTES, Sector};
use super::entry::Entry;
use super::journal::Journal;
use super::sector::{self, Identity, Seal};
use super::state::{Allowed, is_before};

/// Findings that are listed; beyond that they are counted.
pub(crate) const FINDINGS_MAX: usize = 64;

/// Bytes checked, and errors found.
pub(crate) struct Tally {
    pub checked_bytes: u64,
    /// Bytes of units of which nothing is known.
    pub unknown_bytes: u64,
    faults: [u64; Fault::ALL.len()],
    /// Allocated in full before the loop begins.
    suspects: Vec<Suspect>,
}

/// Neighbouring sectors of a unit with the same fault.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    fault: Fault,
    file: usize,
    offset_bytes: u64,
    sectors: u64,
    allowed: Allowed,
    found: Found,
}

/// Contents of a sector that is not as expected.
#[derive(Debug, Clone, Copy)]
enum Found {
    Zeros,
    Sealed { seal: Seal, own: Identity },
    Broken { stored: u32, computed: u32 },
    Unsealed,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            checked_bytes: 0,
            unknown_bytes: 0,
            faults: [0; Fault::ALL.len()],
            suspects: Vec::with_capacity(FINDINGS_MAX),
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.checked_bytes += other.checked_bytes;
        self.unknown_bytes += other.unknown_bytes;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        other.suspects.into_iter().for_each(|suspect| self.add_suspect(suspect));
    }

    pub(crate) fn faults(&self) -> FaultCounts {
        let of = |fault: Fault| self.faults[fault as usize];
        FaultCounts {
            lost: of(Fault::Lost),
            torn: of(Fault::Torn),
            misdirected: of(Fault::Misdirected),
            stale: of(Fault::Stale),
            flipped: of(Fault::Flipped),
            foreign: of(Fault::Foreign),
        }
    }

    /// In words; `name` is the file.
    pub(crate) fn findings(&self, name: &dyn Fn(usize) -> String) -> Vec<Finding> {
        let finding = |suspect: &Suspect| Finding {
            fault: suspect.fault,
            path: name(suspect.file),
            offset_bytes: suspect.offset_bytes,
            bytes: suspect.sectors * SECTOR_BYTES as u64,
            expected: expected(suspect.allowed),
            found: found(&suspect.found),
        };
        self.suspects.iter().map(finding).collect()
    }

    fn suspect(&mut self, suspect: Suspect) {
        self.faults[suspect.fault as usize] += 1;
        self.add_suspect(suspect);
    }

    /// Each place once, however often it is read; neighbours with the same fault together.
    fn add_suspect(&mut self, suspect: Suspect) {
        let goes_on = |last: &Suspect| {
            last.allowed == suspect.allowed && last.end_bytes() == suspect.offset_bytes && last.is_alike(&suspect)
        };
        if self
            .suspects
            .iter()
            .any(|known| known.is_alike(&suspect) && known.holds(suspect.offset_bytes))
        {
            return;
        }
        if let Some(last) = self.suspects.last_mut().filter(|last| goes_on(last)) {
            last.sectors += suspect.sectors;
        } else if self.suspects.len() < FINDINGS_MAX {
            self.suspects.push(suspect);
        }
    }
}

impl Suspect {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.sectors * SECTOR_BYTES as u64
    }

    fn holds(&self, offset_bytes: u64) -> bool {
        (self.offset_bytes..self.end_bytes()).contains(&offset_bytes)
    }

    fn is_alike(&self, other: &Suspect) -> bool {
        (self.fault, self.file) == (other.fault, other.file)
    }
}

/// Checks blocks of one file.
#[derive(Clone, Copy)]
pub(crate) struct Judge {
    pub crc: Crc,
    pub identity: Identity,
    pub sectors_per_unit: usize,
    /// Number of the file in the run's list, for findings.
    pub file: usize,
}

impl Judge {
    pub(crate) fn new(journal: &Journal, file: usize) -> Judge {
        Judge {
            crc: Crc::detect(),
            identity: journal.identity(),
            sectors_per_unit: journal.unit_bytes() as usize / SECTOR_BYTES,
            file,
        }
    }

    /// Checks whole units that begin at `offset_bytes`, against what each may hold; nothing is known where that is
    /// `None`.
    #[inline]
    pub(crate) fn check(
        &self,
        tally: &mut Tally,
        entries: &[Entry],
        offset_bytes: u64,
        sectors: &[Sector],
        allowed: impl Fn(usize) -> Option<Allowed>,
    ) {
        let units = sectors.chunks_exact(self.sectors_per_unit).zip(entries).enumerate();
        let first = offset_bytes as usize / SECTOR_BYTES / self.sectors_per_unit;
        let mut position = offset_bytes;
        for (number, (unit, entry)) in units {
            let bytes = (unit.len() * SECTOR_BYTES) as u64;
            match allowed(number) {
                Some(allowed) => {
                    tally.checked_bytes += bytes;
                    if self.is_sound(unit, position, allowed) {
                        entry.set_seen(first + number, sector::read(&unit[0]).generation);
                    } else {
                        self.explain(tally, entry, unit, position, allowed);
                    }
                }
                None => tally.unknown_bytes += bytes,
            }
            position += bytes;
        }
    }

    #[inline]
    fn is_sound(&self, unit: &[Sector], position: u64, allowed: Allowed) -> bool {
        let (fours, rest) = unit.as_chunks::<4>();
        let mut wrong = false;
        let mut at = position;
        for four in fours {
            let sums = self.crc.four(four);
            for (sector, sum) in four.iter().zip(sums) {
                wrong |= !self.is_right(sector, sum, at, allowed);
                at += SECTOR_BYTES as u64;
            }
        }
        for sector in rest {
            wrong |= !self.is_right(sector, self.crc.one(sector), at, allowed);
            at += SECTOR_BYTES as u64;
        }
        !wrong
    }

    #[inline]
    fn is_right(&self, sector: &Sector, sum: u32, position: u64, allowed: Allowed) -> bool {
        let seal = sector::read(sector);
        // Without short cuts: all of it is nearly always right, and a branch for each would cost more than it saves.
        (sum == sector::stored_crc(sector))
            & sector::is_marked(sector)
            & (seal.position == position)
            & (seal.identity == self.identity)
            & allowed.contains(seal.generation)
    }

    /// Names what is wrong with each sector of a unit that is not sound.
    #[cold]
    fn explain(&self, tally: &mut Tally, entry: &Entry, unit: &[Sector], position: u64, allowed: Allowed) {
        let position_of = |number: usize| position + (number * SECTOR_BYTES) as u64;
        let is_right = |(number, sector): (usize, &Sector)| {
            self.is_right(sector, self.crc.one(sector), position_of(number), allowed)
        };
        let some_arrived = unit.iter().enumerate().any(is_right);
        let seen = entry.seen();
        let was_seen = seen != 0 && !is_before(seen, allowed.oldest);
        for (number, sector) in unit.iter().enumerate() {
            if is_right((number, sector)) {
                continue;
            }
            let (fault, found) = self.name(sector, position_of(number), allowed, some_arrived, was_seen);
            if allowed.may_mix && matches!(found, Found::Broken { .. }) {
                continue;
            }
            tally.suspect(Suspect {
                fault,
                file: self.file,
                offset_bytes: position_of(number),
                sectors: 1,
                allowed,
                found,
            });
        }
    }

    fn name(
        &self,
        sector: &Sector,
        position: u64,
        allowed: Allowed,
        some_arrived: bool,
        was_seen: bool,
    ) -> (Fault, Found) {
        let older = match (some_arrived, was_seen) {
            (true, _) => Fault::Torn,
            (false, true) => Fault::Stale,
            (false, false) => Fault::Lost,
        };
        if sector.iter().all(|byte| *byte == 0) {
            return (if some_arrived { Fault::Torn } else { Fault::Lost }, Found::Zeros);
        }
        let seal = sector::read(sector);
        let (stored, computed) = (sector::stored_crc(sector), self.crc.one(sector));
        if stored != computed {
            return self.name_broken(sector, &seal, position, stored, computed);
        }
        let fault = if !sector::is_marked(sector) {
            return (Fault::Foreign, Found::Unsealed);
        } else if seal.position != position {
            Fault::Misdirected
        } else if seal.identity.history != self.identity.history {
            Fault::Stale
        } else if seal.identity.file != self.identity.file {
            Fault::Misdirected
        } else if allowed.is_older(seal.generation) {
            older
        } else {
            Fault::Foreign
        };
        let own = self.identity;
        (fault, Found::Sealed { seal, own })
    }

    /// A seal that is mostly intact was ours; a sector without one never was.
    fn name_broken(&self, sector: &Sector, seal: &Seal, position: u64, stored: u32, computed: u32) -> (Fault, Found) {
        let signs = [
            sector::is_marked(sector),
            seal.position == position,
            seal.identity.history == self.identity.history,
            seal.identity.file == self.identity.file,
        ];
        if signs.into_iter().filter(|sign| *sign).count() >= 2 {
            (Fault::Flipped, Found::Broken { stored, computed })
        } else {
            (Fault::Foreign, Found::Unsealed)
        }
    }
}

fn expected(allowed: Allowed) -> String {
    let Allowed { oldest, newest, .. } = allowed;
    if oldest == newest {
        format!("write {newest} of this place")
    } else if allowed.is_open() {
        format!("write {oldest} of this place or a later one")
    } else {
        format!("one of writes {oldest} to {newest} of this place")
    }
}

fn found(found: &Found) -> String {
    match found {
        Found::Zeros => "zeros".into(),
        Found::Unsealed => "data without a seal".into(),
        Found::Broken { stored, computed } => {
            format!("data with the CRC-32C {computed:08x}, which should be {stored:08x}")
        }
        Found::Sealed { seal, own } => {
            let whose = match (seal.identity.history == own.history, seal.identity.file == own.file) {
                (true, true) => "",
                (true, false) => " in another file of the target",
                (false, _) => " in a file that was laid out at another time",
            };
            format!("write {} of offset {}{whose}", seal.generation, seal.position)
        }
    }
}
