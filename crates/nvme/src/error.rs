//! Errors of the driver.

use std::io;

use crate::completion::Status;
use crate::queue::Fault;

/// Errors that prevent the use of a controller.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// A clause: `open `/dev/vfio/vfio``.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The driver does not support what the controller or namespace is.
    #[error("{0}")]
    Unsupported(String),
    /// A command ended with an error.
    #[error("the controller ended {command} with status: {status}")]
    Command { command: &'static str, status: Status },
    /// The controller did not react in time.
    #[error("the controller did not {0} in time")]
    Timeout(&'static str),
    /// The controller reports that it cannot continue (CSTS.CFS).
    #[error("the controller reports a fatal error")]
    Fatal,
    /// All bits of the registers are 1: the device was removed.
    #[error("the controller was removed")]
    Removed,
    /// The controller broke the rules of its queues.
    #[error("the controller broke the queue protocol: {0}")]
    Protocol(#[from] Fault),
}

impl NvmeError {
    /// Wraps an error of the kernel.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> NvmeError {
        let what = what.into();
        move |source| NvmeError::System { what, source }
    }
}
