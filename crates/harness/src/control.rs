//! How the outside world and the jobs reach the controller.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Messages to the controller.
pub(crate) enum Signal {
    /// End the run now.
    Stop,
    /// This job's thread has returned.
    JobEnded,
}

/// The controller's end: what it waits on between two looks at the run.
pub struct Control {
    receiver: Receiver<Signal>,
    sender: Sender<Signal>,
    stopped: bool,
}

/// Asks a run to stop, from any thread.
#[derive(Clone)]
pub struct Stopper {
    sender: Sender<Signal>,
}

impl Stopper {
    /// Ends the run cleanly; more than once does no harm.
    pub fn stop(&self) {
        // A run that has ended already needs no stopping.
        let _ = self.sender.send(Signal::Stop);
    }
}

impl Control {
    /// A control, and what stops the run that uses it.
    pub fn new() -> (Control, Stopper) {
        let (sender, receiver) = channel();
        (
            Control {
                receiver,
                sender: sender.clone(),
                stopped: false,
            },
            Stopper { sender },
        )
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
            Ok(Signal::Stop) => self.stopped = true,
            Ok(Signal::JobEnded) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("this control holds a sender"),
        }
    }

    /// Whether a stop was requested.
    pub fn is_stopped(&mut self) -> bool {
        while let Ok(signal) = self.receiver.try_recv() {
            self.stopped |= matches!(signal, Signal::Stop);
        }
        self.stopped
    }
}
