//! Expected contents of a file: a journal next to it, mapped into memory, for later checks.
//!
//! `PATH.verify` starts with a page that identifies its file, then an [`Entry`] of 16 bytes for each unit. Jobs change it with
//! one atomic instruction for each unit of an I/O. The file is mapped and shared, so what was changed stays when the
//! process is killed, at any instant: a write is entered before it is submitted and acknowledged after it has completed.
//!
//! When the machine loses power, the journal on the medium is some seconds old: the kernel writes it back when it sees
//! fit, and once a second where the load itself requires durability. An old state is still sound if it is read right: of
//! each unit, what was durable then must still be there, or something newer. [`Origin`] distinguishes the cases.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, RunError};
use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::posix_fallocate;
use rustix::rand::{GetRandomFlags, getrandom};

use super::crc::Crc32c;
use super::entry::{ENTRY_BYTES, Entry, SETTLED_BYTES};
use super::sector::Identity;
use crate::error;

/// The header's page; entries follow.
const HEADER_BYTES: u64 = 4096;
const MAGIC: [u8; 16] = *b"iosonde verify 3";
/// First bytes of journals of every version.
const MAGIC_PREFIX: &[u8] = b"iosonde verify ";
/// Offsets of the header's fields.
const UNIT_AT: u64 = 16;
const UNITS_AT: u64 = 24;
const HISTORY_AT: u64 = 32;
const FILE_AT: u64 = 40;
const SETTLED_AT: u64 = 44;
const BOOT_AT: u64 = 48;
const BOOT_BYTES: usize = 36;
/// CRC-32C of all entries, each without its last four bytes; valid once the journal is settled.
const ENTRIES_CRC_AT: u64 = 84;
/// Offset of the flag that a write of every unit was acknowledged, so that an entry of zeros is damage.
const WRITTEN_AT: u64 = 88;
/// CRC-32C of the bytes before it. In the first sector, which reaches the medium whole or not at all.
const HEADER_CRC_AT: u64 = 508;

/// Errors of opening a journal.
#[derive(Debug)]
pub(crate) enum JournalError {
    /// The kernel's reason.
    Io(io::Error),
    /// It does not hold what was written to it.
    Damaged(String),
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> JournalError {
        JournalError::Io(error)
    }
}

impl JournalError {
    /// With what was done and on which journal.
    pub(crate) fn into_run(action: &'static str, path: &Path) -> impl FnOnce(JournalError) -> RunError {
        move |error| match error {
            JournalError::Io(error) => error::target(action, path)(error),
            JournalError::Damaged(reason) => RunError::new(
                Code::DamagedJournal,
                format!("the journal `{}` of verification is damaged: {reason}", path.display()),
                "what the file must hold is no longer known, so it cannot be checked: write it again with `layout = \
                 \"always\"`, and find out what changed the journal",
            )
            .at("`verify`"),
        }
    }
}

/// The journal of one file; see the module.
pub(crate) struct Journal {
    file: File,
    map: Map,
    header: Header,
}

impl Journal {
    /// Path of a file's journal.
    pub(crate) fn path_of(data: &Path, directory: Option<&str>) -> PathBuf {
        let mut name = data.file_name().unwrap_or_default().to_os_string();
        name.push(".verify");
        match directory {
            Some(directory) => Path::new(directory).join(name),
            None => data.with_file_name(name),
        }
    }

    /// Opens the journal of a run that is to come: as it is, or with smaller units or more of them, or a new one.
    ///
    /// The journal counts as unsettled from now on. A damaged one is an error, unless all of its file is to be written and
    /// `recreate` is set.
    pub(crate) fn for_run(
        targets: &Targets,
        path: &Path,
        unit_bytes: u64,
        size_bytes: u64,
        new: Identity,
        recreate: bool,
    ) -> Result<Journal, JournalError> {
        let file = targets.open(path, OFlags::RDWR | OFlags::CREATE)?;
        let found = match Journal::examine(&file) {
            Err(JournalError::Damaged(_)) if recreate && is_ours(&file)? => None,
            other => other?,
        };
        let before = found.as_ref().map(|found| &found.header);
        let (unit_bytes, identity) = match before {
            Some(header) => (common_unit(header.unit_bytes, unit_bytes), header.identity),
            None => (unit_bytes, new),
        };
        let units = (size_bytes / unit_bytes).max(before.map_or(0, Header::bytes) / unit_bytes);
        let header = Header {
            unit_bytes,
            units,
            identity,
            is_settled: false,
            boot: boot_id(),
            entries_crc: 0,
            is_written: before
                .is_some_and(|before| before.is_written && (before.unit_bytes, before.units) == (unit_bytes, units)),
        };
        match found {
            Some(found) if found.header.unit_bytes == unit_bytes => {
                allocate(&file, &header)?;
                header.write(&file)?;
            }
            Some(found) => divide(&file, &found, &header)?,
            None => {
                file.set_len(0)?;
                allocate(&file, &header)?;
                header.write(&file)?;
            }
        }
        file.sync_all()?;
        let journal = Journal::map(file, header)?;
        journal.settle_states();
        Ok(journal)
    }

    /// Opens a journal to check its file; nothing if the file was not written under verification.
    pub(crate) fn for_check(targets: &Targets, path: &Path) -> Result<Option<(Journal, Origin)>, JournalError> {
        let file = match targets.open(path, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let Some(journal) = Journal::examine(&file)? else {
            return Ok(None);
        };
        let origin = match (journal.header.is_settled, journal.header.is_of_this_boot()) {
            (true, _) => Origin::Settled,
            (false, true) => Origin::SameBoot,
            (false, false) => Origin::EarlierBoot,
        };
        Ok(Some((journal, origin)))
    }

    /// Clears a journal, because its file is about to be written without it. The file stays, empty: it
    /// may be known by its inode.
    pub(crate) fn void(targets: &Targets, path: &Path) -> io::Result<()> {
        match targets.open(path, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            // Anything else of that name is not ours to empty.
            Ok(file) if is_ours(&file)? => file.set_len(0),
            Ok(_) => Ok(()),
        }
    }

    /// A journal whose every checksum matches; nothing if it is empty.
    fn examine(file: &File) -> Result<Option<Journal>, JournalError> {
        let Some(header) = Header::read(file)? else {
            return Ok(None);
        };
        let (length, expected) = (file.metadata()?.len(), header.journal_bytes());
        if length < expected {
            return Err(damaged(format!("it is cut off after {length} of {expected} bytes")));
        }
        if length > expected {
            return Err(damaged(format!(
                "{} bytes were appended to its {expected}",
                length - expected
            )));
        }
        let journal = Journal::map(file.try_clone()?, header)?;
        let entries = journal.entries().iter().map(Entry::to_bytes);
        journal.header.check_crc(entries)?;
        journal.check_entries()?;
        Ok(Some(journal))
    }

    /// Every entry has its check, also after a kill or a power cut, and none is empty once all were written. After a power
    /// cut one part of an entry may be older than the other; otherwise they must fit each other.
    fn check_entries(&self) -> Result<(), JournalError> {
        let header = &self.header;
        let is_same_boot = header.is_of_this_boot();
        for (number, entry) in self.entries().iter().enumerate() {
            if !entry.is_sound(number) {
                return Err(damaged(format!("its entry {number} does not match its check")));
            }
            if header.is_written && entry.is_empty() {
                return Err(damaged(format!(
                    "its entry {number} is empty, but its unit was written"
                )));
            }
            if is_same_boot && !entry.is_possible() {
                return Err(impossible(number));
            }
        }
        Ok(())
    }

    fn map(file: File, header: Header) -> io::Result<Journal> {
        Ok(Journal {
            map: Map::of_file(&file, header.journal_bytes() as usize, header.units as usize)?,
            file,
            header,
        })
    }

    pub(crate) fn unit_bytes(&self) -> u64 {
        self.header.unit_bytes
    }

    pub(crate) fn identity(&self) -> Identity {
        self.header.identity
    }

    /// Entries of all units, by number.
    #[inline]
    pub(crate) fn entries(&self) -> &[Entry] {
        self.map.entries()
    }

    /// Acknowledges a write of whole units.
    pub(crate) fn end_writes(&self, offset_bytes: u64, bytes: u64) {
        let first = (offset_bytes / self.unit_bytes()) as usize;
        let units = (bytes / self.unit_bytes()) as usize;
        for (number, entry) in self.entries()[first..first + units].iter().enumerate() {
            entry.end(first + number);
        }
    }

    /// All acknowledged writes are durable, and there are no more writers.
    pub(crate) fn settle(&self) -> io::Result<()> {
        self.settle_states();
        self.set_durable();
        let crc = crc_of_entries(self.entries().iter().map(Entry::to_bytes));
        self.change_header(|header| (header.is_settled, header.entries_crc) = (true, crc))
    }

    /// Changes the header, once the entries as they are now are durable.
    fn change_header(&self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        // A unit of which a write was acknowledged stays checkable; one that was only submitted may become empty again.
        let is_written = self.entries().iter().all(|entry| entry.state().is_checkable());
        self.file.sync_data()?;
        let Some(mut header) = self.header()? else {
            return Err(io::Error::other("another program truncated it during the run"));
        };
        header.is_written = is_written;
        change(&mut header);
        header.write(&self.file)?;
        self.file.sync_data()
    }

    fn header(&self) -> io::Result<Option<Header>> {
        Header::read(&self.file).map_err(|error| match error {
            JournalError::Io(error) => error,
            JournalError::Damaged(reason) => io::Error::other(reason),
        })
    }

    /// All that was acknowledged has been made durable, and more writes will follow.
    pub(crate) fn note_durable(&self) -> io::Result<()> {
        self.set_durable();
        self.change_header(|_| ())
    }

    fn set_durable(&self) {
        for (unit, entry) in self.entries().iter().enumerate() {
            let state = entry.state();
            if state.is_checkable() {
                entry.set_durable(unit, state.allowed().oldest);
            }
        }
    }

    /// Another handle, to sync it from another thread.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn settle_states(&self) {
        for (unit, entry) in self.entries().iter().enumerate() {
            entry.settle(unit);
        }
    }
}

/// Relation of a journal's last change to the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The run came to its end, and made durable what it wrote.
    Settled,
    /// The run's process was killed, or runs still; the kernel kept all that it was given.
    SameBoot,
    /// The machine was restarted, perhaps without warning: journal and data are as old as what had reached the medium.
    EarlierBoot,
}

struct Header {
    unit_bytes: u64,
    units: u64,
    identity: Identity,
    is_settled: bool,
    boot: [u8; BOOT_BYTES],
    entries_crc: u32,
    is_written: bool,
}

impl Header {
    /// Nothing if the file is empty, or if its creation was cut short (the header comes last).
    fn read(file: &File) -> Result<Option<Header>, JournalError> {
        let mut page = [0; HEADER_BYTES as usize];
        let length = file.metadata()?.len().min(HEADER_BYTES) as usize;
        file.read_exact_at(&mut page[..length], 0)?;
        if page.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !page.starts_with(&MAGIC) {
            return Err(damaged(match page.starts_with(MAGIC_PREFIX) {
                true => "it was written by another version of iosonde".into(),
                false => "its header is not that of a journal".into(),
            }));
        }
        let number = |at: u64| u64::from_le_bytes(*page[at as usize..].first_chunk().expect("it lies in the page"));
        let header = Header {
            unit_bytes: number(UNIT_AT),
            units: number(UNITS_AT),
            identity: Identity {
                history: number(HISTORY_AT),
                file: number(FILE_AT) as u32,
            },
            is_settled: number(SETTLED_AT) as u32 == 1,
            boot: *page[BOOT_AT as usize..].first_chunk().expect("it lies in the page"),
            entries_crc: number(ENTRIES_CRC_AT) as u32,
            is_written: number(WRITTEN_AT) as u32 == 1,
        };
        let stored = number(HEADER_CRC_AT) as u32;
        let found = crc_of(&page[..HEADER_CRC_AT as usize]);
        if found != stored {
            return Err(damaged(format!(
                "its header has the CRC-32C {found:08x}, which should be {stored:08x}"
            )));
        }
        Ok(Some(header))
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut page = [0; HEADER_BYTES as usize];
        let mut put = |at: u64, bytes: &[u8]| page[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(UNIT_AT, &self.unit_bytes.to_le_bytes());
        put(UNITS_AT, &self.units.to_le_bytes());
        put(HISTORY_AT, &self.identity.history.to_le_bytes());
        put(FILE_AT, &self.identity.file.to_le_bytes());
        put(SETTLED_AT, &u32::from(self.is_settled).to_le_bytes());
        put(BOOT_AT, &self.boot);
        put(ENTRIES_CRC_AT, &self.entries_crc.to_le_bytes());
        put(WRITTEN_AT, &u32::from(self.is_written).to_le_bytes());
        let crc = crc_of(&page[..HEADER_CRC_AT as usize]);
        page[HEADER_CRC_AT as usize..][..4].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&page, 0)
    }

    /// Bytes of the file that is journalled.
    fn bytes(&self) -> u64 {
        self.unit_bytes * self.units
    }

    fn journal_bytes(&self) -> u64 {
        HEADER_BYTES + self.units * ENTRY_BYTES as u64
    }

    fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id()
    }

    /// Compares the checksum of all entries, which only a settled journal has.
    fn check_crc(&self, entries: impl Iterator<Item = [u8; ENTRY_BYTES]>) -> Result<(), JournalError> {
        if !self.is_settled {
            return Ok(());
        }
        let (found, expected) = (crc_of_entries(entries), self.entries_crc);
        match found == expected {
            true => Ok(()),
            false => Err(damaged(format!(
                "its entries have the CRC-32C {found:08x}, which should be {expected:08x}"
            ))),
        }
    }
}

/// Of what is known of each unit; what reads have seen changes later and is left out.
fn crc_of_entries(entries: impl Iterator<Item = [u8; ENTRY_BYTES]>) -> u32 {
    let mut crc = Crc32c::default();
    entries.for_each(|entry| crc.add(&entry[..SETTLED_BYTES]));
    crc.value()
}

fn impossible(entry: usize) -> JournalError {
    damaged(format!("its entry {entry} is of more writes than were submitted"))
}

fn damaged(reason: String) -> JournalError {
    JournalError::Damaged(reason)
}

/// Returns true if a file is a journal of any version, and not a foreign file of that name.
fn is_ours(file: &File) -> io::Result<bool> {
    let mut start = [0; MAGIC_PREFIX.len()];
    match file.read_exact_at(&mut start, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| start == MAGIC_PREFIX),
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::default();
    crc.add(bytes);
    crc.value()
}

/// Units that serve both: the greatest common divisor.
pub(crate) fn common_unit(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        common_unit(other, one % other)
    }
}

/// Room on the medium for every entry: a page of a mapping that finds none kills the process.
fn allocate(file: &File, header: &Header) -> io::Result<()> {
    let bytes = header.journal_bytes();
    Ok(posix_fallocate(file, 0, bytes as i64)?)
}

/// Rewrites a journal with smaller units: each has the state of the larger one that it was a part of.
fn divide(file: &File, from: &Journal, to: &Header) -> io::Result<()> {
    let parts = (from.unit_bytes() / to.unit_bytes) as usize;
    let repeated = from
        .entries()
        .iter()
        .flat_map(|entry| std::iter::repeat_n(entry, parts));
    let entries: Vec<_> = repeated
        .enumerate()
        .map(|(unit, entry)| entry.copy_for(unit).to_bytes())
        .collect();
    // Killed in here, the journal holds nothing: its file then has to be laid out again.
    file.set_len(0)?;
    allocate(file, to)?;
    file.write_all_at(entries.as_flattened(), HEADER_BYTES)?;
    to.write(file)
}

/// Identifies this boot of the machine.
fn boot_id() -> [u8; BOOT_BYTES] {
    let mut boot = [0; BOOT_BYTES];
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let length = text.len().min(BOOT_BYTES);
    boot[..length].copy_from_slice(&text[..length]);
    boot
}

/// The whole journal: a shared mapping.
struct Map {
    mapping: MmapRaw,
    units: usize,
}

impl Map {
    fn of_file(file: &File, bytes: usize, units: usize) -> io::Result<Map> {
        // Populated, so that the measuring loop causes no first fault.
        let mapping = MmapOptions::new().len(bytes).populate().map_raw(file)?;
        Ok(Map { mapping, units })
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        let first = self
            .mapping
            .as_ptr()
            .wrapping_add(HEADER_BYTES as usize)
            .cast::<Entry>();
        // SAFETY: the entries follow the header's page in the mapping, which has room for `units` of them and starts on
        // a page, so they are aligned. They are atomics: others may change them meanwhile. The file is as long as the
        // mapping, and only this program shortens it.
        unsafe { std::slice::from_raw_parts(first, self.units) }
    }
}

/// Bits for a new history, different at any other time and on any other machine.
pub(crate) fn new_history() -> u64 {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).expect("so few bytes are always there");
    u64::from_le_bytes(bytes)
}
