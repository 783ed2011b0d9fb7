//! A blocking connection to memcached, with the memory for what it sends and receives.
//!
//! The memory grows to the largest answers and is then used again: a connection allocates nothing after its first batches.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use iosonde_harness::{Code, RunError};

use crate::memcached::protocol::{Answer, Requests, answer, first_line};

/// The store's name in messages.
pub(crate) const NAME: &str = "memcached";
/// Memory for answers at first, and the least that is free for each read.
const BUFFER_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// The oldest version with the meta protocol.
const OLDEST: [u32; 2] = [1, 6];

pub(crate) struct Connection {
    stream: UnixStream,
    requests: Requests,
    /// Received bytes are before `filled`, and those of complete answers before `parsed`.
    buffer: Vec<u8>,
    filled: usize,
    parsed: usize,
    /// Ranges of the values in the buffer; `None` for misses.
    answers: Vec<Option<(usize, usize)>>,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> Result<Connection, RunError> {
        let stream = UnixStream::connect(socket).map_err(|error| {
            RunError::new(
                Code::ConnectionRefused,
                format!("cannot connect to {NAME} at `{}`: {error}", socket.display()),
                "see whether the server is running",
            )
        })?;
        Ok(Connection {
            stream,
            requests: Requests::default(),
            buffer: vec![0; BUFFER_BYTES],
            filled: 0,
            parsed: 0,
            answers: Vec::new(),
        })
    }

    /// Sends gets; forgets the answers to those before.
    #[inline]
    pub(crate) fn send_gets<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), RunError> {
        (self.filled, self.parsed) = (0, 0);
        self.answers.clear();
        self.requests.clear();
        keys.for_each(|key| self.requests.get(key));
        match self.requests.as_bytes() {
            [] => Ok(()),
            requests => self.stream.write_all(requests).map_err(|error| vanished(&error)),
        }
    }

    /// Waits until something arrives; returns the places of the answers that are complete now and were not before.
    #[inline]
    pub(crate) fn receive_answers(&mut self) -> Result<Range<usize>, RunError> {
        self.receive()?;
        let begin = self.answers.len();
        loop {
            match answer(&self.buffer[self.parsed..self.filled]) {
                Answer::Value { begin, end, answer_end } => {
                    self.answers.push(Some((self.parsed + begin, self.parsed + end)));
                    self.parsed += answer_end;
                }
                Answer::Miss { answer_end } => {
                    self.answers.push(None);
                    self.parsed += answer_end;
                }
                Answer::Incomplete(missing) => {
                    self.make_room(missing);
                    return Ok(begin..self.answers.len());
                }
                Answer::Unexpected => return Err(self.unexpected("get a record")),
            }
        }
    }

    /// The value of the get at a place, once its answer is complete.
    #[inline]
    pub(crate) fn answer(&self, place: usize) -> Option<&[u8]> {
        self.answers[place].map(|(begin, end)| &self.buffer[begin..end])
    }

    /// Sends writes and waits until the server has carried out all of them.
    pub(crate) fn write(&mut self, requests: &mut Requests) -> Result<(), RunError> {
        self.exchange(requests.with_end(), b"MN\r\n")?;
        // Quiet deletes of records that are not there are answered all the same.
        while self.buffer[self.parsed..self.filled].starts_with(b"NF\r\n") {
            self.parsed += b"NF\r\n".len();
        }
        match &self.buffer[self.parsed..self.filled] {
            b"MN\r\n" => Ok(()),
            _ => Err(self.unexpected("store a record")),
        }
    }

    /// The server's version; refuses servers that are too old.
    pub(crate) fn version(&mut self) -> Result<String, RunError> {
        self.exchange(b"version\r\n", b"\r\n")?;
        let line = first_line(&self.buffer[..self.filled]);
        let version = line.strip_prefix("VERSION ").unwrap_or(&line).to_owned();
        let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
        if numbers.as_slice() >= &OLDEST {
            return Ok(version);
        }
        Err(RunError::unsupported(
            format!("{NAME} reports the version `{version}`, and 1.6 or newer is required"),
            "install a newer server",
        ))
    }

    /// The numbers among the server's statistics.
    pub(crate) fn statistics(&mut self) -> Result<BTreeMap<String, u64>, RunError> {
        self.exchange(b"stats\r\n", b"END\r\n")?;
        let text = String::from_utf8_lossy(&self.buffer[..self.filled]);
        let number = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Ok(text.lines().filter_map(number).collect())
    }

    /// Sends something and receives until its last answer, or until an error has arrived.
    fn exchange(&mut self, request: &[u8], end: &[u8]) -> Result<(), RunError> {
        (self.filled, self.parsed) = (0, 0);
        self.stream.write_all(request).map_err(|error| vanished(&error))?;
        loop {
            self.receive()?;
            let received = &self.buffer[..self.filled];
            if received.ends_with(end) {
                return Ok(());
            }
            if received.ends_with(b"\r\n") && first_line(received).contains("ERROR") {
                return Err(self.unexpected("answer"));
            }
            self.make_room(READ_BYTES_MIN);
        }
    }

    #[inline]
    fn receive(&mut self) -> Result<(), RunError> {
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(vanished(&ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(vanished(&error)),
            }
        }
    }

    #[inline]
    fn make_room(&mut self, missing: usize) {
        let needed = self.filled + missing.max(READ_BYTES_MIN);
        if needed > self.buffer.len() {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
    }

    /// The server's own words where they are not the expected ones.
    #[cold]
    fn unexpected(&self, action: &str) -> RunError {
        let words = first_line(&self.buffer[self.parsed..self.filled]);
        let error = RunError::store(NAME, action, &words);
        let hint = if words.contains("too large") {
            "use smaller values, or raise the server's `max-item-size`"
        } else if words.contains("out of memory") {
            "give the server more memory for items, or write more slowly"
        } else if words.contains("Too many open connections") {
            "use fewer `jobs` or `connections`, or raise the server's `conn-limit`"
        } else {
            return error;
        };
        RunError {
            hint: hint.into(),
            ..error
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cold]
fn vanished(error: &io::Error) -> RunError {
    RunError::new(
        Code::ServerVanished,
        format!("{NAME} closed the connection: {error}"),
        "see why the server ended: its messages, and the kernel log if memory ran out",
    )
}
