//! Reads whole files and checks them against their journals: at the end of a run, or any time later.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use iosonde_harness::RunError;
use iosonde_harness::target::{OFlags, Targets, WrongTarget};
use iosonde_protocol::VerificationResult;

use super::entry::Entry;
use super::journal::{Journal, JournalError, Origin};
use super::judge::{Judge, Tally};
use super::state::Allowed;
use super::{UNIT_BYTES_MAX, job, result};
use crate::buffer::Buffer;
use crate::error;

/// One read: whole units, and large enough for the full bandwidth at a small depth.
const CHUNK_BYTES: u64 = UNIT_BYTES_MAX;
const READERS: usize = 4;
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Checks a target that was written under verification, any time later: a file, or a directory of such files (as
/// `iosonde` leaves it) with their journals. `progress` receives the bytes read so far of a file and returns whether to continue.
///
/// # Errors
/// When there is no journal, or a file cannot be read.
pub fn check_target(
    targets: &Targets,
    target: &Path,
    journal_directory: Option<&str>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<VerificationResult, RunError> {
    let paths = files(targets, target, journal_directory)?;
    let (mut tally, mut complete, mut checked) = (Tally::new(), true, 0);
    for (number, path) in paths.iter().enumerate() {
        let journal = Journal::path_of(path, journal_directory);
        let opened = Journal::for_check(targets, &journal);
        let opened = opened.map_err(JournalError::into_run("read the journal", &journal))?;
        let Some((journal, origin)) = opened else {
            continue;
        };
        complete &= check_file(targets, path, &journal, origin, number, &mut tally, progress)?;
        checked += 1;
    }
    if checked == 0 || (tally.checked_bytes == 0 && tally.unknown_bytes > 0) {
        return Err(without_verification(target));
    }
    Ok(result(complete, &tally, &|number| paths[number].display().to_string()))
}

fn without_verification(target: &Path) -> RunError {
    RunError::invalid(
        format!(
            "`{}` was written without verification: there is no journal of what it holds",
            target.display()
        ),
        "`verify`",
        "write it with `verify = \"after\"` or `\"during\"`, and keep its files with `--keep`",
    )
}

/// The files to check: those with a journal, where a directory is named.
fn files(targets: &Targets, target: &Path, journal_directory: Option<&str>) -> Result<Vec<PathBuf>, RunError> {
    let kind = std::fs::metadata(target).map_err(error::target("examine", target))?;
    if !kind.is_dir() {
        return Ok(vec![target.to_path_buf()]);
    }
    let list = || -> io::Result<Vec<PathBuf>> {
        let directory = targets.open_directory(target)?;
        let entries = std::fs::read_dir(directory.held_path())?.map(|entry| Ok(target.join(entry?.file_name())));
        entries.collect()
    };
    let mut found = list().map_err(error::target("list", target))?;
    found.retain(|path| path.is_file() && Journal::path_of(path, journal_directory).is_file());
    found.sort();
    Ok(found)
}

/// Checks one file. False if it was stopped before the end.
pub(super) fn check_file(
    targets: &Targets,
    path: &Path,
    journal: &Journal,
    origin: Origin,
    number: usize,
    tally: &mut Tally,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, RunError> {
    let files = Files::open(targets, path).map_err(error::target("open", path))?;
    let pass = Pass {
        files,
        journal,
        judge: Judge::new(journal, number),
        origin,
        next: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        cancelled: AtomicBool::new(false),
        tally: Mutex::new(Tally::new()),
    };
    pass.run(progress).map_err(error::target("read back", path))?;
    tally.add(
        pass.tally
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
    );
    Ok(!pass.cancelled.load(Ordering::Relaxed))
}

/// Past the page cache where that works, so that it is the medium that answers.
struct Files {
    direct: Option<File>,
    buffered: File,
}

impl Files {
    fn open(targets: &Targets, path: &Path) -> io::Result<Files> {
        let direct = match targets.open(path, OFlags::RDONLY | OFlags::DIRECT) {
            Err(error) if WrongTarget::from_error(&error).is_some() => return Err(error),
            // Some file systems have no direct I/O.
            other => other.ok(),
        };
        Ok(Files {
            direct,
            buffered: targets.open(path, OFlags::RDONLY)?,
        })
    }

    /// Fills the buffer; what lies beyond the end of the file is zeros.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match read_full(direct, buffer, offset) {
                // A file that ends within a block of the device, or a file system without direct I/O.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                other => return other,
            }
        }
        read_full(&self.buffered, buffer, offset)
    }
}

fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

struct Pass<'a> {
    files: Files,
    journal: &'a Journal,
    judge: Judge,
    origin: Origin,
    /// Number of the next free chunk.
    next: AtomicU64,
    read_bytes: AtomicU64,
    cancelled: AtomicBool,
    tally: Mutex<Tally>,
}

impl Pass<'_> {
    fn run(&self, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        std::thread::scope(|scope| {
            // With fewer threads it takes longer; none at all is an error.
            let mut threads = vec![Builder::new().spawn_scoped(scope, || self.read())?];
            threads.extend((1..READERS).filter_map(|_| Builder::new().spawn_scoped(scope, || self.read()).ok()));
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(POLL_EVERY);
                if !progress(self.read_bytes.load(Ordering::Relaxed)) {
                    self.cancelled.store(true, Ordering::Relaxed);
                }
            }
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a reader panicked"))?)
        })
    }

    /// One of the readers.
    fn read(&self) -> io::Result<()> {
        let mut buffer = Buffer::new(CHUNK_BYTES)?;
        let mut tally = Tally::new();
        let unit_bytes = self.journal.unit_bytes();
        let units_per_chunk = (CHUNK_BYTES / unit_bytes) as usize;
        while !self.cancelled.load(Ordering::Relaxed) {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            let entries = self.journal.entries().chunks(units_per_chunk).nth(chunk as usize);
            let Some(entries) = entries else { break };
            let bytes = entries.len() * unit_bytes as usize;
            let offset = chunk * CHUNK_BYTES;
            self.files.read(&mut buffer[..bytes], offset)?;
            let allowed = |unit: usize| self.allowed(&entries[unit]);
            let sectors = job::sectors(&buffer[..bytes]);
            self.judge.check(&mut tally, entries, offset, sectors, allowed);
            self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.tally
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .add(tally);
        Ok(())
    }

    /// Allowed contents of a unit, from its journal entry and the end of the run.
    fn allowed(&self, entry: &Entry) -> Option<Allowed> {
        match self.origin {
            Origin::Settled | Origin::SameBoot => entry.state().is_checkable().then(|| entry.state().allowed()),
            // The journal is older than the data may be: what was durable is the least, and anything newer is right.
            Origin::EarlierBoot => match entry.durable() {
                0 => None,
                durable => Some(Allowed::from(durable)),
            },
        }
    }
}
