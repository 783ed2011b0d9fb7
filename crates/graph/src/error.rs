//! What can go wrong with a graph.

use std::io;
use std::path::Path;

use iosonde_block::BlockError;
use iosonde_harness::CannotStart;
use iosonde_metrics::DeviceError;
use iosonde_protocol::Failure;
use iosonde_target::WrongTarget;

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GraphError {
    code: String,
    message: String,
    context: String,
    hint: String,
}

impl GraphError {
    pub(crate) fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> GraphError {
        GraphError {
            code: code.into(),
            message: message.into(),
            context: String::new(),
            hint: hint.into(),
        }
    }

    /// The spec is wrong at `context`.
    pub(crate) fn invalid(
        message: impl Into<String>,
        context: impl Into<String>,
        hint: impl Into<String>,
    ) -> GraphError {
        GraphError::new("invalid_spec", message, hint).at(context)
    }

    /// An edge list has something else than edges.
    pub(crate) fn input(path: &Path, place: &str, what: impl std::fmt::Display, hint: &str) -> GraphError {
        GraphError::new(
            "invalid_input",
            format!("cannot import `{}`: {what}", path.display()),
            hint,
        )
        .at(place)
    }

    /// The kernel refused something on a file.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> GraphError {
        if let Some(wrong) = WrongTarget::from_error(error) {
            let failure = wrong.to_failure();
            return GraphError::new(&failure.code, failure.message, failure.hint).at(failure.context);
        }
        let (code, hint) = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ("no_space", "free some space, or use a smaller graph"),
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => ("vanished", "check that the path exists"),
            Some(libc::EIO) => ("io_error", "see the kernel log (`dmesg`)"),
            Some(libc::EINVAL) => ("unsupported", "use a file system with direct I/O"),
            _ => ("not_writable", "choose a path that you may read and write"),
        };
        GraphError::new(code, format!("cannot {action} `{}`: {error}", path.display()), hint)
    }

    /// More memory is needed than there is.
    pub(crate) fn memory(what: &str, needed: u64, available: u64) -> GraphError {
        GraphError::new(
            "unsupported",
            format!("{what} needs {needed} bytes of memory and {available} are available"),
            "use a smaller graph, fewer jobs, a smaller page cache or smaller requests",
        )
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub(crate) fn at(mut self, context: impl Into<String>) -> GraphError {
        if self.context.is_empty() {
            self.context = context.into();
        }
        self
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        Failure {
            code: self.code.clone(),
            message: self.message.clone(),
            context: self.context.clone(),
            hint: self.hint.clone(),
        }
    }
}

impl From<BlockError> for GraphError {
    fn from(error: BlockError) -> GraphError {
        let failure = error.to_failure();
        GraphError::new(&failure.code, failure.message, failure.hint).at(failure.context)
    }
}

impl From<CannotStart> for GraphError {
    fn from(error: CannotStart) -> GraphError {
        GraphError::new("unsupported", error.to_string(), CannotStart::HINT).at("starting the jobs")
    }
}

impl From<DeviceError> for GraphError {
    fn from(error: DeviceError) -> GraphError {
        let hint = "name devices as `major:minor`, as in `lsblk`";
        GraphError::invalid(error.to_string(), "`observe.block_devices`", hint)
    }
}
