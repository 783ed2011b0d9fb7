//! S3: objects of a bucket, over HTTP/1.1 with path-style addresses, on a server that the user runs.
//!
//! Every operation in flight has a connection of its own, which is kept open. A thread sends and receives for all of its
//! connections without blocking; the latency ends when the last byte of the response has arrived. Nothing is repeated.

mod connection;
mod sign;

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Code, RunError};

use crate::s3::connection::{Connection, STATUS};
use crate::s3::sign::{Moment, Signer};
use crate::store::{Done, Session, Store};

/// The object of a bucket that shows that iosonde created it.
const OWNER: &str = "created-by-iosonde";
const OWNER_BYTES: usize = 4096;

/// Connection settings.
pub(crate) struct Endpoint<'a> {
    pub host: &'a str,
    pub port: u16,
    pub bucket: &'a str,
    pub region: &'a str,
    pub timeout_ns: u64,
}

/// A bucket.
pub(crate) struct S3 {
    address: SocketAddr,
    /// As the requests have it.
    host: String,
    bucket: String,
    signer: Signer,
    timeout_ns: u64,
    clock: Clock,
}

impl S3 {
    /// Connects to a server with a bucket that iosonde created.
    pub(crate) fn connect(endpoint: &Endpoint<'_>, clock: Clock) -> Result<S3, RunError> {
        let name = match endpoint.host.contains(':') {
            true => format!("[{}]:{}", endpoint.host, endpoint.port),
            false => format!("{}:{}", endpoint.host, endpoint.port),
        };
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(3..=63).contains(&endpoint.bucket.len()) || !endpoint.bucket.bytes().all(is_plain) {
            let message = format!("`{}` is not a valid bucket name", endpoint.bucket);
            return Err(RunError::invalid(
                message,
                "`store.bucket`",
                "use lower-case letters, digits and `-`",
            ));
        }
        let unknown = || {
            let hint = "correct the address, or start the server";
            RunError::new(Code::ConnectionRefused, format!("`{name}` cannot be resolved"), hint)
        };
        let address = (endpoint.host, endpoint.port).to_socket_addrs().ok();
        let store = S3 {
            address: address.and_then(|mut found| found.next()).ok_or_else(unknown)?,
            host: name,
            bucket: endpoint.bucket.into(),
            signer: Signer::from_environment(endpoint.region)?,
            timeout_ns: endpoint.timeout_ns,
            clock,
        };
        store.require_own_bucket()?;
        Ok(store)
    }

    fn require_own_bucket(&self) -> Result<(), RunError> {
        let mut session = self.open(1, OWNER_BYTES)?;
        let mut done = Vec::new();
        let head = session.head("GET", &format!("/{}/{OWNER}", self.bucket), 0);
        let started = session.begin(0, head, false);
        started.map_err(|result| self.failure(result))?;
        while done.is_empty() {
            session.wait(self.timeout_ns);
            session.reap(&mut done);
        }
        match done[0].result {
            result if result >= 0 => Ok(()),
            result if result == -libc::ENOENT => Err(RunError::new(
                Code::ForeignData,
                format!("the bucket `{}` was not created by iosonde", self.bucket),
                "it was not changed; create one through `iosonde run --server`",
            )),
            result => Err(self.failure(result)),
        }
    }

    fn failure(&self, result: i32) -> RunError {
        let reason = self.explain(result);
        RunError {
            message: format!("the S3 server at `{}`: {}", self.host, reason.message),
            ..reason
        }
    }

    fn open(&self, slots: u32, object_bytes: usize) -> Result<S3Session<'_>, RunError> {
        let slot = || {
            Ok(Slot {
                connection: Connection::open(self.address).map_err(|result| self.failure(result))?,
                buffer: vec![0; object_bytes],
                since_ns: None,
            })
        };
        Ok(S3Session {
            store: self,
            slots: (0..slots).map(|_| slot()).collect::<Result<_, RunError>>()?,
            polled: Vec::with_capacity(slots as usize),
        })
    }
}

impl Store for S3 {
    fn client(&self) -> (String, String) {
        ("S3 over HTTP/1.1, signature version 4".into(), String::new())
    }

    fn session(&self, slots: u32, object_bytes: usize) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(self.open(slots, object_bytes)?))
    }

    fn explain(&self, result: i32) -> RunError {
        let status = -result - STATUS;
        let (code, message, hint) = match -result {
            libc::ENOENT => (
                Code::Vanished,
                String::from("no such object"),
                "another client may have deleted it",
            ),
            libc::EACCES => (
                Code::Authentication,
                "it denied access (403)".into(),
                "correct `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, the region, and the clock of this machine",
            ),
            libc::ENOSPC => (
                Code::NoSpace,
                "it has no space left (507)".into(),
                "use fewer or smaller objects",
            ),
            libc::ECONNREFUSED => (
                Code::ConnectionRefused,
                "it refuses connections".into(),
                "see whether the server is running",
            ),
            libc::ETIMEDOUT => (
                Code::Timeout,
                "it did not answer in time".into(),
                "see the server's messages, or raise `timeout`",
            ),
            libc::ECONNRESET | libc::EPIPE => (
                Code::ServerVanished,
                "it closed the connection".into(),
                "see the server's messages",
            ),
            libc::EPROTO => (
                Code::Unsupported,
                "its response is not HTTP/1.1 with a `Content-Length`".into(),
                "name an S3 server without encryption, not a web page or a port of HTTPS",
            ),
            _ if status > 0 => (
                Code::ServerError,
                format!("it answered with status {status}"),
                "see the server's messages",
            ),
            number => (
                Code::ServerError,
                std::io::Error::from_raw_os_error(number).to_string(),
                "see the server's messages",
            ),
        };
        RunError::new(code, message, hint)
    }
}

struct Slot {
    connection: Connection,
    buffer: Vec<u8>,
    /// Start of the operation in flight.
    since_ns: Option<u64>,
}

/// The connections of one thread.
struct S3Session<'a> {
    store: &'a S3,
    slots: Vec<Slot>,
    /// Descriptors to wait for; the memory is used again.
    polled: Vec<libc::pollfd>,
}

impl S3Session<'_> {
    fn head(&self, method: &str, path: &str, length: usize) -> String {
        let store = self.store;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n",
            store.host
        );
        store
            .signer
            .append(&mut head, method, path, &store.host, &Moment::now());
        head.push_str("\r\n");
        head
    }

    fn path(&self, object: u64) -> String {
        format!("/{}/iosonde-{object:012}", self.store.bucket)
    }

    fn begin(&mut self, slot: u32, head: String, sends_buffer: bool) -> Result<(), i32> {
        let now_ns = self.store.clock.now();
        let slot = &mut self.slots[slot as usize];
        slot.since_ns = Some(now_ns);
        let started = slot.connection.start(head, sends_buffer, &slot.buffer);
        if started.is_err() {
            slot.since_ns = None;
        }
        started
    }
}

impl Session for S3Session<'_> {
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }

    fn write(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        let head = self.head("PUT", &self.path(object), self.slots[slot as usize].buffer.len());
        self.begin(slot, head, true)
    }

    fn read(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        let head = self.head("GET", &self.path(object), 0);
        self.begin(slot, head, false)
    }

    fn delete(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        let head = self.head("DELETE", &self.path(object), 0);
        self.begin(slot, head, false)
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let (clock, timeout_ns) = (self.store.clock, self.store.timeout_ns);
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(since_ns) = slot.since_ns else { continue };
            let mut result = slot.connection.advance(&mut slot.buffer);
            let at_ns = clock.now();
            if result.is_none() && at_ns > since_ns + timeout_ns {
                slot.connection.abandon();
                result = Some(-libc::ETIMEDOUT);
            }
            if let Some(result) = result {
                slot.since_ns = None;
                done.push(Done {
                    slot: number as u32,
                    result,
                    at_ns,
                });
            }
        }
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.polled.clear();
        for slot in &self.slots {
            if let Some((fd, sends)) = slot.connection.waits(slot.buffer.len()) {
                let events = libc::POLLIN | if sends { libc::POLLOUT } else { 0 };
                self.polled.push(libc::pollfd { fd, events, revents: 0 });
            }
        }
        let timeout = Duration::from_nanos(timeout_ns);
        let time = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // SAFETY: the array lives until the call returns, and its length is passed; no signal mask is changed. An interrupted
        // or failed call only ends the wait early, and `reap` looks at every connection.
        unsafe {
            libc::ppoll(
                self.polled.as_mut_ptr(),
                self.polled.len() as libc::nfds_t,
                &time,
                std::ptr::null(),
            );
        }
    }
}

#[cfg(test)]
mod tests;
