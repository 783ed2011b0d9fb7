//! Verification: whether what was written comes back.
//!
//! Every sector written carries a seal (`sector`): where it belongs, which write of its unit it comes from, which file it belongs to,
//! and a CRC-32C (`crc`). Beside each file lies a journal (`journal`) of what each unit may hold (`state`). `job` does both in
//! the measuring loop, `judge` names what is wrong, `pass` reads whole files: at the end of a run, or any time later.
//!
//! A *unit* is the greatest common divisor of the sizes of a run's writes, at most 1 MiB: mostly the block size. Whole units are
//! judged: a write of several units (where sizes are mixed) of which one never arrived has lost that one.
//!
//! Limits: it trusts the CPU and the memory between sealing and submitting, and it cannot see a fault that
//! the page cache hides, so it is to be used with direct I/O where the device is in question.

pub mod crc;
mod entry;
mod job;
mod journal;
mod judge;
mod pass;
mod rehearsal;
pub mod sector;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use iosonde_harness::RunError;
use iosonde_harness::target::{OFlags, Targets};
use iosonde_protocol::{BlockWorkload, Durability, Layout, Stream, VerificationResult, VerifyWhen, Warning};

use crate::error;
use crate::target;

pub(crate) use entry::Entry;
pub(crate) use job::{JobVerifier, seal_write, sectors_mut};
pub(crate) use journal::{Journal, common_unit};
pub(crate) use judge::Tally;
pub use pass::check_target;
pub use rehearsal::{Rehearsal, RehearsingJob};
pub(crate) use state::IN_FLIGHT_MAX;

use crc::SECTOR_BYTES;
use journal::{JournalError, Origin, new_history};
use sector::Identity;

/// No unit is larger: layout writes that much at a time.
pub(crate) const UNIT_BYTES_MAX: u64 = 1 << 20;
/// Period of syncing the journals during a load that requires durability.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The verification of one run.
pub(crate) struct Session {
    when: VerifyWhen,
    /// True if the engine opens the files.
    is_opened: bool,
    files: Vec<(PathBuf, Journal)>,
    /// Filled by the jobs when they have ended.
    tally: Mutex<Tally>,
}

impl Session {
    /// Opens or creates the journals of all files of a workload; nothing without verification.
    pub(crate) fn open(targets: &Targets, workload: &BlockWorkload) -> Result<Option<Session>, RunError> {
        let Some(verify) = &workload.verify else {
            return Ok(None);
        };
        let (unit_bytes, history) = (unit_bytes(workload), new_history());
        let open = |(number, path): (usize, PathBuf)| {
            let journal = journal_path(&path, verify.journal_directory.as_deref());
            let new = Identity {
                history,
                file: number as u32,
            };
            let opened = Journal::for_run(
                targets,
                &journal,
                unit_bytes,
                target::size_bytes(&workload.target),
                new,
                workload.layout == Layout::Always,
            );
            let opened = opened.map_err(JournalError::into_run("keep a journal in", &journal))?;
            Ok((path, opened))
        };
        Ok(Some(Session {
            when: verify.when,
            is_opened: target::is_opened(workload),
            files: target::paths(workload)
                .into_iter()
                .enumerate()
                .map(open)
                .collect::<Result<_, RunError>>()?,
            tally: Mutex::new(Tally::new()),
        }))
    }

    /// The journal of a file.
    pub(crate) fn journal(&self, path: &Path) -> &Journal {
        &self.files[self.number(path)].1
    }

    /// Verification for a job on that file.
    pub(crate) fn of_job(&self, path: &Path, stream: &Stream, queue_depth: u32) -> JobVerifier<'_> {
        let number = self.number(path);
        let checks_reads = self.when == VerifyWhen::During;
        JobVerifier::new(&self.files[number].1, number, stream, queue_depth, checks_reads)
    }

    /// Adds the results of a job.
    pub(crate) fn add(&self, tally: Tally) {
        self.tally
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .add(tally);
    }

    /// Refuses files that hold what was written without verification.
    pub(crate) fn check_laid_out(&self) -> Result<(), RunError> {
        for (path, journal) in &self.files {
            let unknown = journal.entries().iter().position(|entry| !entry.state().is_checkable());
            if let Some(unit) = unknown {
                return Err(unverifiable(path, unit as u64 * journal.unit_bytes()));
            }
        }
        Ok(())
    }

    /// Brings the journals to the medium every second, as long as the answer lives: what was reported as durable to a load
    /// should be known after a power cut. Nothing where the load requires no durability: each such sync flushes the
    /// device, which the measurement would feel.
    pub(crate) fn keep_synced(&self, workload: &BlockWorkload) -> Option<Syncer> {
        let is_durable = |stream: &Stream| stream.durability != Durability::None;
        if !workload.streams.iter().any(is_durable) {
            return None;
        }
        let files: Vec<_> = self
            .files
            .iter()
            .filter_map(|(_, journal)| journal.handle().ok())
            .collect();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(SYNC_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                // A journal that cannot be synced is found out at the end, where it matters.
                files.iter().for_each(|file| drop(file.sync_data()));
            }
        });
        Some(Syncer {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends the run: written data is made durable, and read back if requested.
    pub(crate) fn finish(
        self,
        targets: &Targets,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<VerificationResult, RunError> {
        let mut tally = self
            .tally
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut complete = true;
        for (path, journal) in &self.files {
            if self.is_opened {
                let data = targets
                    .open(path, OFlags::RDONLY)
                    .map_err(error::target("open", path))?;
                data.sync_data().map_err(error::target("bring to the medium", path))?;
            }
            journal.settle().map_err(error::target("close the journal of", path))?;
        }
        if self.when == VerifyWhen::After {
            for (number, (path, journal)) in self.files.iter().enumerate() {
                complete &= pass::check_file(targets, path, journal, Origin::Settled, number, &mut tally, progress)?;
            }
        }
        Ok(result(complete, &tally, &|number| {
            self.files[number].0.display().to_string()
        }))
    }

    fn number(&self, path: &Path) -> usize {
        let found = self.files.iter().position(|(known, _)| known == path);
        found.expect("every file of the workload has a journal")
    }
}

/// Ends its thread when it is dropped.
pub(crate) struct Syncer {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

/// A run without verification is about to write: from then on the journals would say what is not so.
pub(crate) fn forget(targets: &Targets, workload: &BlockWorkload) -> Result<(), RunError> {
    target::paths(workload)
        .iter()
        .try_for_each(|path| forget_file(targets, path))
}

/// As [`forget`], of one file.
pub(crate) fn forget_file(targets: &Targets, path: &Path) -> Result<(), RunError> {
    let journal = Journal::path_of(path, None);
    Journal::void(targets, &journal).map_err(error::target("empty", &journal))
}

/// The warning that data was lost or corrupted.
pub(crate) fn warning(result: &VerificationResult) -> Option<Warning> {
    let first = result.findings.first()?;
    let faults = &result.faults;
    let counts = [
        (faults.lost, "lost"),
        (faults.torn, "torn"),
        (faults.misdirected, "misdirected"),
        (faults.stale, "stale"),
        (faults.flipped, "flipped"),
        (faults.foreign, "foreign"),
    ];
    let listed: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    Some(Warning {
        code: "wrong_data".into(),
        message: format!(
            "data read differs from data written (sectors: {}): offset {} of `{}` contains {}, expected {}",
            listed.join(", "),
            first.offset_bytes,
            first.path,
            first.found,
            first.expected
        ),
        hint: "do not trust this storage with data: the record's `result.verification` lists what was found, and `iosonde \
               verify` reads everything again"
            .into(),
    })
}

fn result(complete: bool, tally: &Tally, name: &dyn Fn(usize) -> String) -> VerificationResult {
    VerificationResult {
        complete,
        checked_bytes: tally.checked_bytes,
        unknown_bytes: tally.unknown_bytes,
        faults: tally.faults(),
        findings: tally.findings(name),
    }
}

pub(crate) fn unverifiable(path: &Path, offset_bytes: u64) -> RunError {
    RunError::invalid(
        format!(
            "`{}` cannot be verified: what it holds at offset {offset_bytes} was written without verification",
            path.display()
        ),
        "`verify`",
        "write it again with `layout = \"always\"`, or measure without verification",
    )
}

/// Path of a file's journal: beside it, or in a directory of journals.
pub(crate) fn journal_path(data: &Path, directory: Option<&str>) -> PathBuf {
    Journal::path_of(data, directory)
}

/// Unit of verification: the largest size in bytes of which all writes are multiples.
fn unit_bytes(workload: &BlockWorkload) -> u64 {
    let sizes = |stream: &Stream| {
        let blocks = stream.block_sizes.iter().map(|size| size.bytes);
        blocks.chain([stream.span.offset_bytes]).collect::<Vec<_>>()
    };
    let unit = workload
        .streams
        .iter()
        .flat_map(sizes)
        .fold(UNIT_BYTES_MAX, common_unit);
    debug_assert!(
        unit.is_multiple_of(SECTOR_BYTES as u64),
        "the spec's check demands whole sectors"
    );
    unit
}
