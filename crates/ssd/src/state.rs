//! A drive's state between two runs: which page is where, what is free, what is being collected.
//!
//! The format is little-endian words after a magic, a version and a fingerprint of the model, and a checksum at the end.
//! Of the map only valid pages are kept, in runs: a drive that was written in order takes a few bytes, one that was
//! written at random four for each page.

use std::io::{self, Read, Write};

use iosonde_protocol::{ArrayModel, DriveModel};

use crate::drive::Drive;
use crate::limits::{FirstTouch, Gate};
use crate::storage::Storage;
use crate::translation::{Erasures, Frontier, Gathered, PageMap, Victim};

const MAGIC: u64 = u64::from_le_bytes(*b"iosonSSD");
const LIMITS_MAGIC: u64 = u64::from_le_bytes(*b"iosonLIM");
const VERSION: u64 = 1;
/// Nothing valid here.
const HOLE: u32 = u32::MAX;

/// Errors of loading a state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Reading failed.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is not the state of a simulated drive")]
    Foreign,
    /// It was written by another version.
    #[error("it is of version {0}, this engine reads version {VERSION}")]
    Version(u64),
    /// It belongs to another model, or to an array of another shape.
    #[error("it is the state of another model or array")]
    OtherModel,
    /// Its content contradicts itself.
    #[error("it is damaged")]
    Damaged,
}

impl Storage {
    /// Writes the state of all drives. Call [`Storage::settle`] first: operations in progress are not part of it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save(&self, writer: &mut impl Write) -> io::Result<()> {
        let (model, array) = self.model();
        let mut words = Writer { writer, sum: 0 };
        words.long(MAGIC)?;
        words.long(VERSION)?;
        words.long(fingerprint(model, array))?;
        for drive in self.drives() {
            save_drive(drive, &mut words)?;
        }
        let sum = words.sum;
        words.long(sum)
    }

    /// Takes over a state that [`Storage::save`] wrote for the same model and array.
    ///
    /// # Errors
    /// When it is not that.
    pub fn load(&mut self, reader: &mut impl Read) -> Result<(), StateError> {
        let mut words = Reader { reader, sum: 0 };
        if words.long().map_err(|_| StateError::Foreign)? != MAGIC {
            return Err(StateError::Foreign);
        }
        let version = words.long()?;
        if version != VERSION {
            return Err(StateError::Version(version));
        }
        let (model, array) = self.model();
        if words.long()? != fingerprint(model, array) {
            return Err(StateError::OtherModel);
        }
        let mut states = Vec::new();
        for drive in self.drives() {
            states.push(load_drive(drive, &mut words)?);
        }
        let sum = words.sum;
        if words.long()? != sum {
            return Err(StateError::Damaged);
        }
        for (drive, (map, slc_room_bytes)) in self.drives_mut().iter_mut().zip(states) {
            drive.restore(map, slc_room_bytes);
        }
        Ok(())
    }

    /// True if the model has limits, whose state [`Storage::save_limits`] writes.
    pub fn has_limits(&self) -> bool {
        self.limits.exist()
    }

    /// Writes the state of the limits: credits, clock, touched regions. It is apart from that of the drives, since a
    /// purge gives a volume neither credits nor its snapshot back. Call [`Storage::settle`] first.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn save_limits(&self, writer: &mut impl Write) -> io::Result<()> {
        let mut words = Writer { writer, sum: 0 };
        words.long(LIMITS_MAGIC)?;
        words.long(VERSION)?;
        words.long(self.limits_fingerprint())?;
        words.longs(&self.limits.before.as_ref().map_or_else(Vec::new, Gate::state))?;
        words.longs(&self.limits.after.as_ref().map_or_else(Vec::new, Gate::state))?;
        words.longs(self.limits.first_touch.as_ref().map_or(&[], FirstTouch::state))?;
        let sum = words.sum;
        words.long(sum)
    }

    /// Takes over what [`Storage::save_limits`] wrote for the same limits.
    ///
    /// # Errors
    /// When it is not that.
    pub fn load_limits(&mut self, reader: &mut impl Read) -> Result<(), StateError> {
        let mut words = Reader { reader, sum: 0 };
        if words.long().map_err(|_| StateError::Foreign)? != LIMITS_MAGIC {
            return Err(StateError::Foreign);
        }
        let version = words.long()?;
        if version != VERSION {
            return Err(StateError::Version(version));
        }
        if words.long()? != self.limits_fingerprint() {
            return Err(StateError::OtherModel);
        }
        let (before, after, touched) = (words.longs()?, words.longs()?, words.longs()?);
        let sum = words.sum;
        if words.long()? != sum {
            return Err(StateError::Damaged);
        }
        let limits = &mut self.limits;
        let restored = [
            limits.before.as_mut().map(|gate| gate.restore(&before)),
            limits.after.as_mut().map(|gate| gate.restore(&after)),
            limits.first_touch.as_mut().map(|touch| touch.restore(&touched)),
        ];
        if restored.into_iter().flatten().any(|done| done.is_none()) {
            return Err(StateError::Damaged);
        }
        Ok(())
    }

    fn limits_fingerprint(&self) -> u64 {
        let (model, array) = self.model();
        hash(&format!(
            "{:?} {:?} {} {}",
            model.limits,
            model.first_touch,
            array.drives,
            self.capacity_bytes()
        ))
    }
}

/// FNV-1a over the model's and the array's own description: any other parameter makes another drive.
fn fingerprint(model: &DriveModel, array: &ArrayModel) -> u64 {
    hash(&format!("{model:?} {array:?}"))
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn save_drive(drive: &Drive, words: &mut Writer<'_, impl Write>) -> io::Result<()> {
    words.long(drive.slc_room_bytes())?;
    let Some(map) = drive.map() else { return Ok(()) };
    save_pages(map, words)?;
    words.list(map.oldest.iter().copied())?;
    words.list(map.free.iter().copied())?;
    for frontier in [map.host, map.copies] {
        words.word(frontier.superblock)?;
        words.word(frontier.next)?;
    }
    let (superblock, cursor, pace) = map.victim.map_or((HOLE, 0, 0.0), |victim| {
        (victim.superblock, victim.cursor, victim.copies_per_page)
    });
    words.word(superblock)?;
    words.word(cursor)?;
    words.long(pace.to_bits())?;
    words.long(map.credit.to_bits())?;
    for word in [map.erasures.due, map.erasures.programs_since, map.erasures.next_die] {
        words.word(word)?;
    }
    words.word(map.gathered.len() as u32)?;
    for slot in &map.gathered {
        for word in [slot.page, u32::from(slot.sectors), slot.before] {
            words.word(word)?;
        }
    }
    Ok(())
}

fn load_drive(drive: &Drive, words: &mut Reader<'_, impl Read>) -> Result<(Option<PageMap>, u64), StateError> {
    let slc_room_bytes = words.long()?;
    let Some(fresh) = drive.map() else {
        return Ok((None, slc_room_bytes));
    };
    let mut map = fresh.emptied();
    load_pages(&mut map, words)?;
    let superblocks = map.geometry.superblocks;
    map.oldest = words.list(superblocks)?.into();
    map.free = words.list(superblocks)?.into();
    for frontier in [&mut map.host, &mut map.copies] {
        *frontier = Frontier {
            superblock: words.word()?,
            next: words.word()?,
        };
    }
    let (superblock, cursor) = (words.word()?, words.word()?);
    let copies_per_page = f64::from_bits(words.long()?);
    map.victim = (superblock != HOLE).then_some(Victim {
        superblock,
        cursor,
        copies_per_page,
    });
    map.credit = f64::from_bits(words.long()?);
    map.erasures = Erasures {
        due: words.word()?,
        programs_since: words.word()?,
        next_die: words.word()?,
    };
    let waiting = words.word()?;
    if waiting > map.geometry.program_pages {
        return Err(StateError::Damaged);
    }
    for _ in 0..waiting {
        let (page, sectors, before) = (words.word()?, words.word()? as u8, words.word()?);
        map.restore_gathered(Gathered { page, sectors, before })
            .ok_or(StateError::Damaged)?;
    }
    map.restore_closed().ok_or(StateError::Damaged)?;
    Ok((Some(map), slc_room_bytes))
}

/// The physical pages in order, as runs of consecutive logical pages and of holes. Of a superblock nothing is looked at
/// beyond its last valid page: the tables of a large drive have gigabytes, and what was never written of them takes no
/// memory before it is read.
fn save_pages(map: &PageMap, words: &mut Writer<'_, impl Write>) -> io::Result<()> {
    let whole = map.geometry.superblock_pages;
    let mut run = (HOLE, 0);
    for superblock in 0..map.geometry.superblocks {
        let (mut physical, end) = (superblock * whole, (superblock + 1) * whole);
        let mut valid = map.valid_pages(superblock);
        while valid > 0 {
            let page = map.valid_owner(physical).unwrap_or(HOLE);
            valid -= u32::from(page != HOLE);
            physical += 1;
            run = words.extended(run, page, 1)?;
        }
        run = words.extended(run, HOLE, end - physical)?;
    }
    words.run(run)
}

fn continues(first: u32, length: u32, page: u32) -> bool {
    match (first, page) {
        (HOLE, page) => page == HOLE,
        (_, HOLE) => false,
        (first, page) => first + length == page,
    }
}

fn load_pages(map: &mut PageMap, words: &mut Reader<'_, impl Read>) -> Result<(), StateError> {
    let (mut physical, end) = (0, map.owner.len() as u32);
    while physical < end {
        let (first, length) = words.run()?;
        if length == 0 || length > end - physical {
            return Err(StateError::Damaged);
        }
        if first != HOLE {
            for offset in 0..length {
                map.restore_page(first + offset, physical + offset)
                    .ok_or(StateError::Damaged)?;
            }
        }
        physical += length;
    }
    Ok(())
}

/// A run of one page is a word; of a longer one the first word has its top bit set, and the length follows.
const LONG_RUN: u32 = 1 << 31;

struct Writer<'a, W: Write> {
    writer: &'a mut W,
    sum: u64,
}

impl<W: Write> Writer<'_, W> {
    fn word(&mut self, word: u32) -> io::Result<()> {
        self.sum = added(self.sum, word.into());
        self.writer.write_all(&word.to_le_bytes())
    }

    fn long(&mut self, long: u64) -> io::Result<()> {
        self.word(long as u32)?;
        self.word((long >> 32) as u32)
    }

    fn longs(&mut self, list: &[u64]) -> io::Result<()> {
        self.long(list.len() as u64)?;
        list.iter().try_for_each(|&long| self.long(long))
    }

    fn list(&mut self, list: impl ExactSizeIterator<Item = u32>) -> io::Result<()> {
        self.word(list.len() as u32)?;
        list.into_iter().try_for_each(|word| self.word(word))
    }

    /// A run with the pages that come next, or these alone once the run is written.
    fn extended(&mut self, run: (u32, u32), page: u32, count: u32) -> io::Result<(u32, u32)> {
        let (first, length) = run;
        if count == 0 {
            return Ok(run);
        }
        if continues(first, length, page) {
            return Ok((first, length + count));
        }
        self.run(run)?;
        Ok((page, count))
    }

    fn run(&mut self, (first, length): (u32, u32)) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        if length == 1 && first != HOLE {
            return self.word(first);
        }
        self.word(first | LONG_RUN)?;
        self.word(length)
    }
}

struct Reader<'a, R: Read> {
    reader: &'a mut R,
    sum: u64,
}

impl<R: Read> Reader<'_, R> {
    fn word(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.reader.read_exact(&mut bytes)?;
        let word = u32::from_le_bytes(bytes);
        self.sum = added(self.sum, word.into());
        Ok(word)
    }

    fn long(&mut self) -> io::Result<u64> {
        Ok(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    fn longs(&mut self) -> Result<Vec<u64>, StateError> {
        let length = self.long()?;
        // Read one by one: a damaged length ends with the file, not with memory.
        (0..length).map(|_| Ok(self.long()?)).collect()
    }

    fn list(&mut self, longest: u32) -> Result<Vec<u32>, StateError> {
        let length = self.word()?;
        if length > longest {
            return Err(StateError::Damaged);
        }
        (0..length).map(|_| Ok(self.word()?)).collect()
    }

    fn run(&mut self) -> io::Result<(u32, u32)> {
        let first = self.word()?;
        if first & LONG_RUN == 0 {
            return Ok((first, 1));
        }
        let first = if first == HOLE { HOLE } else { first & !LONG_RUN };
        Ok((first, self.word()?))
    }
}

fn added(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}
