//! A peer that answers every statement of the workloads at once with typed rows and keeps nothing: what the client itself
//! costs. For `bench/` and tests.

mod answers;
mod mariadb;
mod postgresql;

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use iosonde_protocol::SqlServerKind;

/// Accepts connections on a Unix socket until the process ends, one thread each.
///
/// # Errors
/// When the socket cannot be created.
pub fn serve(kind: SqlServerKind, socket: &Path, warehouses: u32) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    for stream in listener.incoming() {
        let mut peer = Peer::new(stream?);
        std::thread::spawn(move || {
            // A client that disconnects ends its thread.
            let _ = match kind {
                SqlServerKind::Postgresql => postgresql::answer(&mut peer, warehouses),
                SqlServerKind::Mariadb => mariadb::answer(&mut peer, warehouses),
            };
        });
    }
    Ok(())
}

/// One client's connection, with buffers in both directions.
struct Peer {
    stream: UnixStream,
    input: Vec<u8>,
    parsed: usize,
    output: Vec<u8>,
}

impl Peer {
    fn new(stream: UnixStream) -> Peer {
        Peer {
            stream,
            input: Vec::new(),
            parsed: 0,
            output: Vec::new(),
        }
    }

    /// So many bytes; what is to be sent is sent before anything is waited for.
    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.input.len() < self.parsed + bytes {
            self.flush()?;
            self.input.drain(..self.parsed);
            self.parsed = 0;
            let mut part = [0; 16 << 10];
            match self.stream.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&part[..count]),
            }
        }
        let taken = self.input[self.parsed..self.parsed + bytes].to_vec();
        self.parsed += bytes;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }
}
