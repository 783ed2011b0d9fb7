//! Events on standard output, one line each.

use std::io::{BufWriter, Stdout, Write, stdout};

use iosonde_harness::Stopper;
use iosonde_protocol::Event;

/// Writes events. When nobody reads them any more, the run is stopped.
pub(crate) struct Output {
    stdout: BufWriter<Stdout>,
    stopper: Option<Stopper>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            stdout: BufWriter::new(stdout()),
            stopper: None,
        }
    }

    /// What to stop when the reader goes away.
    pub(crate) fn stop_when_closed(&mut self, stopper: Stopper) {
        self.stopper = Some(stopper);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        let written = serde_json::to_writer(&mut self.stdout, &event)
            .map_err(std::io::Error::from)
            .and_then(|()| self.stdout.write_all(b"\n"))
            .and_then(|()| self.stdout.flush());
        if let (Err(_), Some(stopper)) = (written, &self.stopper) {
            stopper.stop();
        }
    }
}
