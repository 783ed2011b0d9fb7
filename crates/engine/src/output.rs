//! Events on standard output, one line each.

use std::io::{Stdout, Write, stdout};

use iosonde_harness::Remote;
use iosonde_protocol::Event;

/// Writes events. When the reader has gone, the run is stopped.
pub struct Output {
    stdout: Stdout,
    /// The event as text: composed in full before the first byte is written, so that no line is ever cut off.
    line: Vec<u8>,
    remote: Option<Remote>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            stdout: stdout(),
            line: Vec::new(),
            remote: None,
        }
    }

    /// Stops this run when the reader goes away.
    pub(crate) fn stop_when_closed(&mut self, remote: Remote) {
        self.remote = Some(remote);
    }

    /// Writes an event.
    pub fn emit(&mut self, event: Event) {
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, &event)
            .map_err(std::io::Error::from)
            .and_then(|()| {
                self.line.push(b'\n');
                self.stdout.write_all(&self.line)
            })
            .and_then(|()| self.stdout.flush());
        if let (Err(_), Some(remote)) = (written, &self.remote) {
            remote.stop();
        }
    }
}
