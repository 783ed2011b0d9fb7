//! Messages to the controller, from commands, signals and jobs.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use iosonde_protocol::Start;

/// Messages to the controller.
pub(crate) enum Signal {
    /// End the run now.
    Stop,
    /// Start the load at this Unix time.
    Start(u64),
    /// No more commands follow.
    InputEnded,
    /// This job's thread has returned.
    JobEnded,
}

/// The controller's end: what it waits on between two looks at the run.
pub struct Control {
    receiver: Receiver<Signal>,
    sender: Sender<Signal>,
    stopped: bool,
    /// When the load starts; none: as soon as it is prepared.
    start: Option<Start>,
}

/// Starts and stops a run, from any thread.
#[derive(Clone)]
pub struct Remote {
    sender: Sender<Signal>,
}

impl Remote {
    /// Ends the run cleanly; more than once does no harm.
    pub fn stop(&self) {
        self.send(Signal::Stop);
    }

    /// Starts the load of a run that waits for this, at a Unix time. Only the first start counts.
    pub fn start(&self, unix_ns: u64) {
        self.send(Signal::Start(unix_ns));
    }

    /// No more commands follow: a run that waits for its start is stopped.
    pub fn end_input(&self) {
        self.send(Signal::InputEnded);
    }

    fn send(&self, signal: Signal) {
        // A run that has ended already needs neither.
        let _ = self.sender.send(signal);
    }
}

impl Control {
    /// A control, and what starts and stops the run that uses it.
    pub fn new() -> (Control, Remote) {
        let (sender, receiver) = channel();
        (
            Control {
                receiver,
                sender: sender.clone(),
                stopped: false,
                start: None,
            },
            Remote { sender },
        )
    }

    /// Sets when the load starts, as in the spec.
    pub fn set_start(&mut self, start: Option<Start>) {
        self.start = start;
    }

    /// When the load starts.
    pub(crate) fn start(&self) -> Option<Start> {
        self.start
    }

    pub(crate) fn job_end_sender(&self) -> impl Fn() + Send + 'static {
        let sender = self.sender.clone();
        move || {
            let _ = sender.send(Signal::JobEnded);
        }
    }

    /// Waits until something happens or the time is up.
    pub fn wait(&mut self, timeout: Duration) {
        match self.receiver.recv_timeout(timeout) {
            Ok(signal) => self.note(&signal),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("this control holds a sender"),
        }
    }

    /// Returns true if a stop was requested.
    pub fn is_stopped(&mut self) -> bool {
        while let Ok(signal) = self.receiver.try_recv() {
            self.note(&signal);
        }
        self.stopped
    }

    fn note(&mut self, signal: &Signal) {
        let is_start_open = self.start == Some(Start::Command);
        match *signal {
            Signal::Stop => self.stopped = true,
            Signal::Start(unix_ns) if is_start_open => self.start = Some(Start::At { unix_ns }),
            Signal::InputEnded => self.stopped |= is_start_open,
            Signal::Start(_) | Signal::JobEnded => {}
        }
    }
}
