//! Identifiers of acknowledged commits, on the client's side: what the server promised.
//!
//! One append-only file for each terminal, one `write(2)` of 16 bytes for each commit, so that nothing acknowledged is
//! forgotten when the server or the engine is killed, and terminals do not wait for each other.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use iosonde_harness::{Code, RunError};
use iosonde_protocol::DurabilityResult;

const MAGIC: &[u8; 16] = b"iosonde-acked-1\n";
const SUFFIX: &str = "acked";

/// An acknowledged commit: warehouse, district and order, or client and sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Acknowledged {
    pub group: u32,
    pub part: u32,
    pub number: u64,
}

/// The file of one terminal.
pub(crate) struct Log {
    file: File,
    path: PathBuf,
    written: u64,
}

/// Lost commits that are named.
pub(crate) const NAMED_MAX: usize = 16;

/// Counts a lost commit, and names it if it is among the first.
pub(crate) fn note_lost(result: &mut DurabilityResult, name: impl FnOnce() -> String) {
    result.lost += 1;
    if result.first_lost.len() < NAMED_MAX {
        result.first_lost.push(name());
    }
}

/// Removes the files of an earlier run.
pub(crate) fn prepare(directory: &Path) -> Result<(), RunError> {
    for path in files(directory)? {
        fs::remove_file(&path).map_err(|error| RunError::io("remove", &path, &error))?;
    }
    Ok(())
}

impl Log {
    /// A new file in the directory.
    pub(crate) fn create(directory: &Path, terminal: u32) -> Result<Log, RunError> {
        let path = directory.join(format!("{terminal:06}.{SUFFIX}"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let mut file = file.map_err(|error| RunError::io("create", &path, &error))?;
        file.write_all(MAGIC)
            .map_err(|error| RunError::io("write", &path, &error))?;
        Ok(Log { file, path, written: 0 })
    }

    /// Appends an identifier.
    #[inline]
    pub(crate) fn append(&mut self, id: Acknowledged) -> Result<(), RunError> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&id.group.to_le_bytes());
        bytes[4..8].copy_from_slice(&id.part.to_le_bytes());
        bytes[8..].copy_from_slice(&id.number.to_le_bytes());
        self.written += 1;
        let written = self.file.write_all(&bytes);
        written.map_err(|error| RunError::io("write", &self.path, &error).at("noting an acknowledged commit"))
    }

    /// Identifiers written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }
}

/// Every identifier in the files of a directory, sorted. Bytes of a record that was cut off are ignored.
pub(crate) fn read(directory: &Path) -> Result<Vec<Acknowledged>, RunError> {
    let mut all = Vec::new();
    let paths = files(directory)?;
    if paths.is_empty() {
        let message = format!("`{}` has no file of acknowledged commits", directory.display());
        let hint = "name the directory that the earlier run had in `acknowledged`";
        return Err(RunError::invalid(message, "`verify_acknowledged`", hint));
    }
    for path in paths {
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| RunError::io("read", &path, &error))?;
        let Some(records) = bytes.strip_prefix(MAGIC) else {
            let message = format!("`{}` is no file of acknowledged commits", path.display());
            return Err(RunError::new(
                Code::ForeignData,
                message,
                "remove it from the directory",
            ));
        };
        all.extend(records.chunks_exact(16).map(|record| {
            let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
            Acknowledged {
                group: word(0),
                part: word(4),
                number: u64::from_le_bytes(record[8..].try_into().expect("8 bytes")),
            }
        }));
    }
    all.sort_unstable();
    Ok(all)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, RunError> {
    let entries = fs::read_dir(directory).map_err(|error| RunError::io("read", directory, &error))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|extension| extension == SUFFIX))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_come_back_sorted_a_cut_record_is_ignored_and_a_foreign_file_refused() {
        let directory = tempfile::tempdir().unwrap();
        let id = |group, part, number| Acknowledged { group, part, number };
        let mut first = Log::create(directory.path(), 0).unwrap();
        first.append(id(2, 1, 3001)).unwrap();
        first.file.write_all(&[1, 2, 3]).unwrap();
        let mut second = Log::create(directory.path(), 1).unwrap();
        second.append(id(1, 9, u64::MAX)).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [id(1, 9, u64::MAX), id(2, 1, 3001)]);
        assert_eq!(second.written(), 1);
        prepare(directory.path()).unwrap();
        assert_eq!(read(directory.path()).unwrap_err().code, Code::InvalidSpec);
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x.acked"), "something else").unwrap();
        assert_eq!(read(directory.path()).unwrap_err().code, Code::ForeignData);
    }
}
