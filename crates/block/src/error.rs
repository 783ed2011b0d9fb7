//! Errors of the block workload that say more than [`RunError::io`].

use std::io;
use std::path::Path;

use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Backend, Operation};

use crate::backend::Unavailable;
use crate::transport::name_of;

/// The kernel refused something on a file of the target.
pub(crate) fn target(action: &str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::io(action, path, &error).at("opening the target")
}

/// An I/O that failed, which ends the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IoFailure {
    pub operation: Operation,
    pub offset_bytes: u64,
    pub bytes: u32,
    /// Bytes moved, or a negative error number.
    pub result: i32,
    /// Cause for which the device can no longer be used, if the backend knows it.
    pub cause: Option<String>,
}

/// An I/O of the load failed.
pub(crate) fn io_failed(path: &Path, failure: &IoFailure) -> RunError {
    let (code, hint) = io_cause(failure);
    RunError::new(code, describe(path, failure), hint)
}

impl Unavailable {
    /// The error of a run that needs this backend.
    pub fn into_error(self, backend: &Backend) -> RunError {
        let name = name_of(backend);
        let message = format!("the backend `{name}` is not available here: {}", self.reason);
        RunError::unsupported(message, self.hint).at("probing the backend")
    }
}

fn describe(path: &Path, failure: &IoFailure) -> String {
    let IoFailure {
        operation,
        offset_bytes,
        bytes,
        result,
        ref cause,
    } = *failure;
    let what = match operation {
        Operation::Read => format!("reading {bytes} bytes at offset {offset_bytes} of"),
        Operation::Write => format!("writing {bytes} bytes at offset {offset_bytes} of"),
        Operation::Trim => format!("trimming {bytes} bytes at offset {offset_bytes} of"),
        Operation::Flush => "flushing".into(),
        _ => unreachable!("no block I/O"),
    };
    let outcome = if result < 0 {
        format!("failed: {}", io::Error::from_raw_os_error(-result))
    } else {
        format!("came back short, with {result} bytes")
    };
    let cause = cause.as_ref().map(|cause| format!("; {cause}")).unwrap_or_default();
    format!("{what} `{}` {outcome}{cause}", path.display())
}

fn io_cause(failure: &IoFailure) -> (Code, String) {
    let (code, hint) = match -failure.result {
        libc::ENODEV | libc::ENXIO | libc::ESTALE => {
            (Code::Vanished, "the device or its file system went away during the run")
        }
        libc::EOPNOTSUPP => (
            Code::Unsupported,
            "the file system or device does not support this operation",
        ),
        libc::ETIMEDOUT => (
            Code::IoError,
            "a command took longer than its time limit: `command_timeout` of `nvme_user`, `io_timeout` of the kernel's driver",
        ),
        _ if failure.cause.is_some() => (
            Code::IoError,
            "the user-level driver has reset the controller: see its error log (`nvme error-log`)",
        ),
        libc::EINVAL => (
            Code::IoError,
            "direct I/O needs block sizes and offsets that the device accepts: try a multiple of 4096",
        ),
        _ if failure.result >= 0 => (
            Code::IoError,
            "the file became shorter during the run: does something else write to it?",
        ),
        number => return RunError::cause_of_io(&io::Error::from_raw_os_error(number)),
    };
    (code, hint.into())
}
