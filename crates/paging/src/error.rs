//! What can go wrong with a mapping.

use std::io;
use std::path::Path;

use iosonde_harness::CannotStart;
use iosonde_metrics::DeviceError;
use iosonde_protocol::Failure;
use iosonde_target::WrongTarget;

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PagingError {
    code: &'static str,
    message: String,
    context: String,
    hint: String,
}

impl PagingError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> PagingError {
        PagingError {
            code,
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
    ) -> PagingError {
        PagingError::new("invalid_spec", message, hint).at(context)
    }

    /// The kernel refused something on the file.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> PagingError {
        if let Some(wrong) = WrongTarget::from_error(error) {
            return PagingError::new(WrongTarget::CODE, wrong.to_string(), wrong.hint()).at(wrong.to_failure().context);
        }
        let (code, hint) = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ("no_space", "free some space, or map less with a smaller `size`"),
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => ("vanished", "it is gone, or was never there"),
            Some(libc::EIO) => ("io_error", "see the kernel log (`dmesg`)"),
            _ => ("not_writable", "name a place that you may write to"),
        };
        PagingError::new(code, format!("cannot {action} `{}`: {error}", path.display()), hint)
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub(crate) fn at(mut self, context: impl Into<String>) -> PagingError {
        if self.context.is_empty() {
            self.context = context.into();
        }
        self
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        Failure {
            code: self.code.into(),
            message: self.message.clone(),
            context: self.context.clone(),
            hint: self.hint.clone(),
        }
    }
}

impl From<CannotStart> for PagingError {
    fn from(error: CannotStart) -> PagingError {
        PagingError::new("unsupported", error.to_string(), CannotStart::HINT).at("starting the jobs")
    }
}

impl From<DeviceError> for PagingError {
    fn from(error: DeviceError) -> PagingError {
        let hint = "name devices as `major:minor`, as in `lsblk`";
        PagingError::invalid(error.to_string(), "`observe.block_devices`", hint)
    }
}
