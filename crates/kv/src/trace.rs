//! A trace to replay: rows of fixed size in a file, read in order with a small buffer whatever the length of the file.
//!
//! The program that starts the engine converts traces (`python/iosonde/features/key_value_stores/trace.py`). A row has
//! an instant, an operation, a number for the key, and sizes. Keys and values of the trace itself are not in the file:
//! contents follow from the number (`records`), so every value that is read can be verified.
//!
//! Each job has its own reader and takes the rows of its keys, so operations on one key stay in order.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iosonde_harness::load::Instants;
use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{KvTrace, KvWorkload};

use crate::records::HEADER_BYTES;

const MAGIC: [u8; 8] = *b"iostrace";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
const ROW_BYTES: usize = 32;
/// Rows that a reader has in memory: 512 KiB.
const BUFFER_ROWS: usize = 1 << 14;
/// Largest value.
const VALUE_BYTES_MAX: u32 = 64 << 20;

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Get,
    Set,
    Delete,
}

/// A row of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// Nanoseconds since the first row.
    pub at_ns: u64,
    /// Stands for the key.
    pub number: u64,
    pub request: Request,
    pub key_bytes: usize,
    /// 0: not known, of a get.
    pub value_bytes: usize,
    /// 0: never.
    pub ttl_s: u32,
}

impl Row {
    /// Reads a row; `None` if it is damaged.
    fn read(bytes: &[u8]) -> Option<Row> {
        let row: &[u8; ROW_BYTES] = bytes.try_into().ok()?;
        let long = |from: usize| u64::from_le_bytes(row[from..from + 8].try_into().expect("eight bytes"));
        let short = |from: usize| u32::from_le_bytes(row[from..from + 4].try_into().expect("four bytes"));
        let value_bytes = short(16);
        if value_bytes > VALUE_BYTES_MAX {
            return None;
        }
        Some(Row {
            at_ns: long(0),
            number: long(8),
            value_bytes: match value_bytes {
                0 => 0,
                bytes => (bytes as usize).max(HEADER_BYTES),
            },
            ttl_s: short(20),
            key_bytes: usize::from(u16::from_le_bytes([row[24], row[25]])),
            request: match row[26] {
                0 => Request::Get,
                1 => Request::Set,
                2 => Request::Delete,
                _ => return None,
            },
        })
    }
}

/// An open trace.
#[derive(Debug)]
pub(crate) struct Trace {
    file: Arc<File>,
    path: PathBuf,
    rows: u64,
    pub key_bytes_max: u64,
    pub value_bytes_max: u64,
}

impl Trace {
    /// The trace of a workload, if it has one.
    pub(crate) fn for_workload(workload: &KvWorkload, targets: &Targets) -> Result<Option<Trace>, RunError> {
        let mut traces = workload.streams.iter().filter_map(|stream| stream.trace.as_ref());
        traces.next().map(|trace| Trace::open(trace, targets)).transpose()
    }

    fn open(trace: &KvTrace, targets: &Targets) -> Result<Trace, RunError> {
        let path = Path::new(&trace.path);
        let file = targets
            .open(path, OFlags::RDONLY)
            .map_err(|error| RunError::io("open the trace", path, &error))?;
        let mut head = [0; HEAD_BYTES];
        let length = file
            .read_exact_at(&mut head, 0)
            .and_then(|()| file.metadata())
            .map_err(|_| damaged(path))?
            .len();
        let number = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("four bytes"));
        let rows = u64::from_le_bytes(head[24..32].try_into().expect("eight bytes"));
        let expected = rows
            .checked_mul(ROW_BYTES as u64)
            .and_then(|bytes| bytes.checked_add(HEAD_BYTES as u64));
        if head[..8] != MAGIC || number(8) != VERSION || expected != Some(length) || rows != trace.rows {
            return Err(damaged(path));
        }
        Ok(Trace {
            file: Arc::new(file),
            path: path.into(),
            rows,
            key_bytes_max: number(12).into(),
            value_bytes_max: u64::from(number(16)).max(HEADER_BYTES as u64),
        })
    }

    /// The rows of one of several jobs, from the first.
    pub(crate) fn rows(&self, jobs: u32, job: u32) -> Rows {
        Rows {
            file: self.file.clone(),
            path: self.path.clone(),
            rows: self.rows,
            read: 0,
            buffer: Vec::new(),
            place: 0,
            jobs: jobs.into(),
            job: job.into(),
        }
    }
}

/// Rows in order.
#[derive(Clone)]
pub(crate) struct Rows {
    file: Arc<File>,
    path: PathBuf,
    rows: u64,
    /// Rows that were read into the buffer so far.
    read: u64,
    buffer: Vec<u8>,
    /// Place in the buffer of the next row.
    place: usize,
    jobs: u64,
    job: u64,
}

impl fmt::Debug for Rows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rows({} of {})", self.read, self.rows)
    }
}

impl Rows {
    /// The next row of this job; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Row>, RunError> {
        loop {
            if self.place == self.buffer.len() && !self.fill()? {
                return Ok(None);
            }
            let bytes = &self.buffer[self.place..self.place + ROW_BYTES];
            self.place += ROW_BYTES;
            let row = Row::read(bytes).ok_or_else(|| damaged(&self.path))?;
            if self.jobs == 1 || row.number % self.jobs == self.job {
                return Ok(Some(row));
            }
        }
    }

    /// Reads the next rows; false after the last.
    #[cold]
    fn fill(&mut self) -> Result<bool, RunError> {
        let rows = (self.rows - self.read).min(BUFFER_ROWS as u64);
        self.buffer.resize(rows as usize * ROW_BYTES, 0);
        self.place = 0;
        let from = HEAD_BYTES as u64 + self.read * ROW_BYTES as u64;
        self.file
            .read_exact_at(&mut self.buffer, from)
            .map_err(|error| unreadable(&self.path, &error))?;
        self.read += rows;
        Ok(rows > 0)
    }
}

/// The row that a job replays next.
pub(crate) struct Replay {
    rows: Rows,
    next: Option<Row>,
}

impl Replay {
    pub(crate) fn new(mut rows: Rows) -> Result<Replay, RunError> {
        let next = rows.next()?;
        Ok(Replay { rows, next })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.next.is_none()
    }

    pub(crate) fn take(&mut self) -> Result<Option<Row>, RunError> {
        let row = self.next;
        self.next = self.rows.next()?;
        Ok(row)
    }
}

/// The instants of a job's rows, at a multiple of their own speed.
#[derive(Debug, Clone)]
pub(crate) struct OwnTiming {
    pub rows: Rows,
    pub speed: f64,
}

impl Instants for OwnTiming {
    /// A row that cannot be read ends the instants; the job that replays it reports why.
    fn next_ns(&mut self) -> u64 {
        match self.rows.next() {
            Ok(Some(row)) => (row.at_ns as f64 / self.speed) as u64,
            _ => u64::MAX,
        }
    }

    fn boxed_clone(&self) -> Box<dyn Instants> {
        Box::new(self.clone())
    }
}

fn damaged(path: &Path) -> RunError {
    RunError::new(
        Code::InvalidSpec,
        format!(
            "`{}` is no converted trace, or not the one of this plan",
            path.display()
        ),
        "plan the study again, which converts the trace again",
    )
}

fn unreadable(path: &Path, error: &io::Error) -> RunError {
    RunError::io("read the trace", path, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn row(at_ns: u64, number: u64, request: u8, value_bytes: u32) -> Vec<u8> {
        let mut bytes = [at_ns.to_le_bytes(), number.to_le_bytes()].concat();
        bytes.extend([value_bytes.to_le_bytes(), 7_u32.to_le_bytes()].concat());
        bytes.extend(20_u16.to_le_bytes());
        bytes.extend([request, 0, 0, 0, 0, 0]);
        bytes
    }

    fn written(rows: &[Vec<u8>]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&MAGIC).unwrap();
        for number in [VERSION, 20, 1000, 0] {
            file.write_all(&number.to_le_bytes()).unwrap();
        }
        file.write_all(&(rows.len() as u64).to_le_bytes()).unwrap();
        rows.iter().for_each(|row| file.write_all(row).unwrap());
        file.flush().unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile, rows: u64) -> Result<Trace, RunError> {
        let trace = KvTrace {
            path: file.path().to_str().unwrap().into(),
            rows,
            digest: String::new(),
        };
        Trace::open(&trace, &Targets::default())
    }

    fn all(mut rows: Rows) -> Vec<Row> {
        std::iter::from_fn(|| rows.next().unwrap()).collect()
    }

    #[test]
    fn rows_are_read_in_order_across_buffers_and_divided_by_their_keys() {
        let count = 2 * BUFFER_ROWS as u64 + 3;
        let file = written(&(0..count).map(|number| row(number, number, 0, 100)).collect::<Vec<_>>());
        let found = all(open(&file, count).unwrap().rows(1, 0));
        assert!(found.iter().map(|row| row.at_ns).eq(0..count));
        assert_eq!((found[0].key_bytes, found[0].value_bytes, found[0].ttl_s), (20, 100, 7));
        let file = written(&(0..30).map(|at| row(at, at % 6, 1, 100)).collect::<Vec<_>>());
        let trace = open(&file, 30).unwrap();
        let of_jobs: Vec<Vec<Row>> = (0..4).map(|job| all(trace.rows(4, job))).collect();
        assert_eq!(of_jobs.iter().map(Vec::len).sum::<usize>(), 30);
        for (job, rows) in of_jobs.iter().enumerate() {
            assert!(rows.iter().all(|row| row.number % 4 == job as u64));
            assert!(rows.is_sorted_by_key(|row| row.at_ns));
        }
    }

    #[test]
    fn damaged_files_are_refused_and_values_have_room_for_what_identifies_them() {
        let good = written(&[row(0, 1, 1, 3)]);
        let refusal = |file: &tempfile::NamedTempFile, rows| open(file, rows).unwrap_err().code;
        assert_eq!(refusal(&good, 2), Code::InvalidSpec, "another number of rows");
        good.as_file().set_len(40).unwrap();
        assert_eq!(refusal(&good, 1), Code::InvalidSpec, "cut off");
        let foreign = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(refusal(&foreign, 0), Code::InvalidSpec, "empty");
        for wrong in [row(0, 1, 3, 3), row(0, 1, 1, VALUE_BYTES_MAX + 1)] {
            let file = written(&[wrong]);
            assert!(open(&file, 1).unwrap().rows(1, 0).next().is_err());
        }
        let file = written(&[row(0, 1, 1, 3), row(1, 1, 0, 0)]);
        let found = all(open(&file, 2).unwrap().rows(1, 0));
        assert_eq!([found[0].value_bytes, found[1].value_bytes], [HEADER_BYTES, 0]);
        let file = written(&[row(0, 1, 0, 0), row(1_000, 1, 0, 0)]);
        let rows = open(&file, 2).unwrap().rows(1, 0);
        let mut timing = OwnTiming { rows, speed: 2.0 };
        let mut copy = timing.boxed_clone();
        assert_eq!([(); 3].map(|()| timing.next_ns()), [0, 500, u64::MAX]);
        assert_eq!([(); 2].map(|()| copy.next_ns()), [0, 500]);
    }
}
