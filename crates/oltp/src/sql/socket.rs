//! A blocking socket that counts what passes through it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::sql::error::{ErrorKind, SqlError};

/// Address on which a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// Traffic over a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Statements executed.
    pub statements: u64,
    /// Times that something was sent and an answer awaited.
    pub round_trips: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

pub(crate) struct Socket {
    stream: Stream,
    pub traffic: Traffic,
}

impl Socket {
    pub(crate) fn connect(address: &Address) -> Result<Socket, SqlError> {
        let connected = match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }),
        };
        let stream = connected.map_err(|error| {
            let place = match address {
                Address::Unix(path) => path.display().to_string(),
                Address::Tcp(host, port) => format!("{host}:{port}"),
            };
            SqlError::new(ErrorKind::Refused, format!("cannot connect to `{place}`: {error}"))
        })?;
        Ok(Socket {
            stream,
            traffic: Traffic::default(),
        })
    }

    /// Sets the read timeout; `None` waits indefinitely.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), SqlError> {
        let set = match &self.stream {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
        };
        set.map_err(|error| SqlError::vanished(&error))
    }

    /// Sends everything and empties the buffer.
    pub(crate) fn send(&mut self, bytes: &mut Vec<u8>) -> Result<(), SqlError> {
        let sent = match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        };
        self.traffic.sent_bytes += bytes.len() as u64;
        bytes.clear();
        sent.map_err(|error| SqlError::vanished(&error))
    }

    /// Receives some bytes, at least one. A signal does not end it: a transaction in flight is awaited.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<usize, SqlError> {
        loop {
            let received = match &mut self.stream {
                Stream::Unix(stream) => stream.read(into),
                Stream::Tcp(stream) => stream.read(into),
            };
            match received {
                Ok(0) => return Err(SqlError::vanished(&io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    self.traffic.received_bytes += bytes as u64;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SqlError::protocol("the server does not answer the login"));
                }
                Err(error) => return Err(SqlError::vanished(&error)),
            }
        }
    }
}
