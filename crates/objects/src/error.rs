//! What can go wrong with objects.

use iosonde_harness::CannotStart;
use iosonde_metrics::DeviceError;
use iosonde_protocol::Failure;

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ObjectsError {
    code: &'static str,
    message: String,
    context: String,
    hint: String,
}

impl ObjectsError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> ObjectsError {
        ObjectsError {
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
    ) -> ObjectsError {
        ObjectsError::new("invalid_spec", message, hint).at(context)
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub(crate) fn at(mut self, context: impl Into<String>) -> ObjectsError {
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

impl From<CannotStart> for ObjectsError {
    fn from(error: CannotStart) -> ObjectsError {
        ObjectsError::new("unsupported", error.to_string(), CannotStart::HINT).at("starting the jobs")
    }
}

impl From<DeviceError> for ObjectsError {
    fn from(error: DeviceError) -> ObjectsError {
        let hint = "name devices as `major:minor`, as in `lsblk`";
        ObjectsError::invalid(error.to_string(), "`observe.block_devices`", hint)
    }
}
