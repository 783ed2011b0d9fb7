//! One connection: one request of HTTP/1.1 at a time, sent and received without blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(10);
/// Longest head of a response.
const HEAD: usize = 64 << 10;
const HEADERS: usize = 64;
/// Error numbers from here on are statuses of HTTP.
pub(crate) const STATUS: i32 = 100_000;

/// A request that is in flight, and what has come of it.
#[derive(Debug, Default)]
struct Exchange {
    head: Vec<u8>,
    /// True if the buffer is sent after the head.
    sends_buffer: bool,
    sent: usize,
    received: Vec<u8>,
    answer: Option<Answer>,
    body: usize,
}

/// The head of a response.
#[derive(Debug, Clone, Copy)]
struct Answer {
    status: u16,
    length: usize,
    closes: bool,
}

/// A connection, opened again where the server has closed it.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    exchange: Option<Exchange>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Connection, i32> {
        let mut connection = Connection {
            address,
            stream: None,
            exchange: None,
        };
        connection.reopen()?;
        Ok(connection)
    }

    /// The descriptor to poll, and whether the request waits until it can be sent.
    pub(crate) fn waits(&self, buffer: usize) -> Option<(RawFd, bool)> {
        let (stream, exchange) = (self.stream.as_ref()?, self.exchange.as_ref()?);
        Some((stream.as_raw_fd(), exchange.sent < exchange.total(buffer)))
    }

    /// Starts a request with this head, and with the buffer as its body.
    pub(crate) fn start(&mut self, head: String, sends_buffer: bool, buffer: &[u8]) -> Result<(), i32> {
        if self.is_closed() {
            self.reopen()?;
        }
        self.exchange = Some(Exchange {
            head: head.into_bytes(),
            sends_buffer,
            ..Exchange::default()
        });
        // Only sends: the answer may be there already, and belongs to `advance`.
        let (Some(stream), Some(exchange)) = (&mut self.stream, &mut self.exchange) else {
            return Err(-libc::ENOTCONN);
        };
        let sent = exchange.send(stream, buffer);
        if sent.is_err() {
            self.abandon();
        }
        sent
    }

    /// True if no request can be sent, because the server has closed the connection since the last response. Data that
    /// no request asked for counts too: some servers send an error before they close an idle connection.
    pub(crate) fn is_closed(&self) -> bool {
        let Some(stream) = &self.stream else { return true };
        !matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends and receives what is possible now; the result once the response is complete.
    pub(crate) fn advance(&mut self, buffer: &mut [u8]) -> Option<i32> {
        let found = self.try_advance(buffer);
        let result = match found {
            Ok(None) => return None,
            Ok(Some(result)) => result,
            Err(error) => {
                self.stream = None;
                error
            }
        };
        self.exchange = None;
        Some(result)
    }

    /// Ends the request that is in flight.
    pub(crate) fn abandon(&mut self) {
        self.exchange = None;
        self.stream = None;
    }

    fn try_advance(&mut self, buffer: &mut [u8]) -> Result<Option<i32>, i32> {
        let (Some(stream), Some(exchange)) = (&mut self.stream, &mut self.exchange) else {
            return Ok(None);
        };
        exchange.send(stream, buffer)?;
        if !exchange.receive(stream, buffer)? {
            return Ok(None);
        }
        let answer = exchange.answer.unwrap_or(Answer {
            status: 0,
            length: 0,
            closes: true,
        });
        let expected_read = !exchange.sends_buffer;
        if answer.closes {
            self.stream = None;
        }
        Ok(Some(result_of(answer, expected_read, buffer.len())))
    }

    fn reopen(&mut self) -> Result<(), i32> {
        let number = |error: std::io::Error| match error.kind() {
            ErrorKind::TimedOut => -libc::ETIMEDOUT,
            _ => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        let stream = TcpStream::connect_timeout(&self.address, CONNECT).map_err(number)?;
        stream.set_nodelay(true).map_err(number)?;
        stream.set_nonblocking(true).map_err(number)?;
        self.stream = Some(stream);
        Ok(())
    }
}

impl Exchange {
    fn total(&self, buffer: usize) -> usize {
        self.head.len() + if self.sends_buffer { buffer } else { 0 }
    }

    fn send(&mut self, stream: &mut TcpStream, buffer: &[u8]) -> Result<(), i32> {
        while self.sent < self.total(buffer.len()) {
            let rest = match self.sent.checked_sub(self.head.len()) {
                None => &self.head[self.sent..],
                Some(of_body) => &buffer[of_body..],
            };
            match stream.write(rest) {
                Ok(0) => return Err(-libc::ECONNRESET),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(-error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        Ok(())
    }

    /// Returns true if the response is complete. The body of a read goes into the buffer as far as it has room.
    fn receive(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> Result<bool, i32> {
        let mut chunk = [0; 16 << 10];
        loop {
            if self.answer.is_some_and(|answer| self.body >= answer.length) {
                return Ok(true);
            }
            let reads = !self.sends_buffer && self.answer.is_some_and(|answer| (200..300).contains(&answer.status));
            let into = match reads && self.body < buffer.len() {
                true => &mut buffer[self.body..],
                false => &mut chunk[..],
            };
            match stream.read(into) {
                Ok(0) => return Err(-libc::ECONNRESET),
                Ok(count) if self.answer.is_some() => self.body += count,
                Ok(count) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    self.read_head(buffer)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(-error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }

    fn read_head(&mut self, buffer: &mut [u8]) -> Result<(), i32> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let end = match response.parse(&self.received) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) if self.received.len() < HEAD => return Ok(()),
            _ => return Err(-libc::EPROTO),
        };
        let status = response.code.unwrap_or(0);
        if status == 100 {
            self.received.drain(..end);
            return Ok(());
        }
        let value = |name: &str| {
            let found = response
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name));
            found.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        let length = value("content-length").and_then(|text| text.trim().parse().ok());
        let is_empty = status == 204 || status == 304;
        let is_error = !(200..300).contains(&status);
        let (Some(length), closes) = (
            length.or((is_empty || is_error).then_some(0)),
            length.is_none() && is_error,
        ) else {
            return Err(-libc::EPROTO); // A success of unknown length, such as a chunked one.
        };
        let says_close = value("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
        let is_old = response.version == Some(0)
            && !value("connection").is_some_and(|text| text.eq_ignore_ascii_case("keep-alive"));
        self.answer = Some(Answer {
            status,
            length: if is_empty { 0 } else { length },
            closes: closes || says_close || is_old,
        });
        let rest = &self.received[end..];
        self.body = rest.len();
        if !self.sends_buffer && !is_error {
            let fits = rest.len().min(buffer.len());
            buffer[..fits].copy_from_slice(&rest[..fits]);
        }
        Ok(())
    }
}

/// Bytes read, or 0; a negative error number. An object that is longer than the buffer is one of 0 bytes: a wrong one.
fn result_of(answer: Answer, reads: bool, buffer: usize) -> i32 {
    match answer.status {
        200..300 if reads && answer.length <= buffer => answer.length as i32,
        200..300 => 0,
        404 => -libc::ENOENT,
        401 | 403 => -libc::EACCES,
        507 => -libc::ENOSPC,
        status => -(STATUS + i32::from(status)),
    }
}
