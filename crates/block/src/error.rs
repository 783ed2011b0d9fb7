//! What can go wrong with a block workload. The texts are for people; the codes are the protocol's.

use std::io;

use iosonde_harness::CannotStart;
use iosonde_protocol::{Failure, Operation};
use iosonde_target::WrongTarget;

use crate::job::IoFailure;
use crate::transport::Unavailable;

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The spec contradicts itself or the target.
    #[error("{message}")]
    InvalidSpec {
        /// What is wrong.
        message: String,
        /// Which part of the spec.
        context: String,
        /// What would be right.
        hint: String,
    },
    /// The target cannot be opened or written.
    #[error("cannot {action} `{path}`: {source}")]
    Target {
        /// Verb.
        action: &'static str,
        /// The file or device.
        path: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// What was opened is not what was checked.
    #[error(transparent)]
    WrongTarget(WrongTarget),
    /// There is less space than the layout needs.
    #[error("`{path}` needs {needed} more bytes and its file system has {free} left")]
    NoSpace {
        /// The file.
        path: String,
        /// Bytes to be written.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// An I/O of the load failed.
    #[error("{}", describe(.0))]
    Io(IoFailureText),
    /// A thread could not be created.
    #[error(transparent)]
    CannotStart(#[from] CannotStart),
    /// The journal of a file cannot be trusted.
    #[error("the journal `{path}` of verification is damaged: {reason}")]
    DamagedJournal {
        /// The journal.
        path: String,
        /// What shows it.
        reason: String,
    },
    /// The machine cannot do it at this size.
    #[error("{message}")]
    Unsupported {
        /// What cannot be done.
        message: String,
        /// What could be done instead.
        hint: String,
    },
    /// A backend cannot be used on this target or kernel.
    #[error("the backend `{backend}` is not available here: {}", .why.reason)]
    Unavailable {
        /// Its name.
        backend: String,
        /// The reason.
        why: Unavailable,
    },
    /// A thread of the engine died, or the kernel refused what it never refuses.
    #[error("{0}")]
    Internal(String),
}

/// A failed I/O and where it happened.
#[derive(Debug)]
pub struct IoFailureText {
    stream: String,
    path: String,
    failure: IoFailure,
}

impl IoFailureText {
    pub(crate) fn new(stream: &str, path: &str, failure: IoFailure) -> IoFailureText {
        IoFailureText {
            stream: stream.into(),
            path: path.into(),
            failure,
        }
    }
}

impl BlockError {
    pub(crate) fn invalid(
        message: impl Into<String>,
        context: impl Into<String>,
        hint: impl Into<String>,
    ) -> BlockError {
        BlockError::InvalidSpec {
            message: message.into(),
            context: context.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn target(action: &'static str, path: &str) -> impl FnOnce(io::Error) -> BlockError {
        move |source| match WrongTarget::from_error(&source) {
            Some(wrong) => BlockError::WrongTarget(wrong.clone()),
            None => BlockError::Target {
                action,
                path: path.into(),
                source,
            },
        }
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        let (code, context, hint) = match self {
            BlockError::WrongTarget(wrong) => return wrong.to_failure(),
            BlockError::InvalidSpec { context, hint, .. } => ("invalid_spec", context.clone(), hint.clone()),
            BlockError::Target { source, .. } => (
                target_code(source),
                "opening the target".into(),
                target_hint(source).into(),
            ),
            BlockError::NoSpace { .. } => (
                "no_space",
                "phase `layout`".into(),
                "free some space, or choose a smaller span".into(),
            ),
            BlockError::Io(io) => (
                io_code(&io.failure),
                format!("stream `{}`", io.stream),
                io_hint(&io.failure).into(),
            ),
            BlockError::CannotStart(_) => ("unsupported", "starting the jobs".into(), CannotStart::HINT.into()),
            BlockError::DamagedJournal { .. } => (
                "damaged_journal",
                "`verify`".into(),
                "what the file must hold is no longer known, so it cannot be checked: write it again with `layout = \
                 \"always\"`, and find out what changed the journal"
                    .into(),
            ),
            BlockError::Unsupported { hint, .. } => ("unsupported", String::new(), hint.clone()),
            BlockError::Unavailable { why, .. } => ("unsupported", "probing the backend".into(), why.hint.clone()),
            BlockError::Internal(_) => (
                "internal",
                String::new(),
                "please report this with the spec that caused it".into(),
            ),
        };
        Failure {
            code: code.into(),
            message: self.to_string(),
            context,
            hint,
        }
    }
}

fn describe(text: &IoFailureText) -> String {
    let IoFailure {
        operation,
        offset_bytes,
        bytes,
        result,
        ref cause,
    } = text.failure;
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
    format!("{what} `{}` {outcome}{cause}", text.path)
}

fn io_code(failure: &IoFailure) -> &'static str {
    match -failure.result {
        libc::ENOSPC | libc::EDQUOT => "no_space",
        libc::ENODEV | libc::ENXIO | libc::ESTALE => "vanished",
        libc::EOPNOTSUPP => "unsupported",
        _ => "io_error",
    }
}

fn io_hint(failure: &IoFailure) -> &'static str {
    match -failure.result {
        libc::ENOSPC | libc::EDQUOT => "the file system is full: free some space, or choose a smaller span",
        libc::ENODEV | libc::ENXIO | libc::ESTALE => "the device or its file system went away during the run",
        libc::EOPNOTSUPP => "the file system or device does not support this operation",
        libc::ETIMEDOUT => {
            "a command took longer than its time limit: `command_timeout` of `nvme_user`, `io_timeout` of the kernel's driver"
        }
        _ if failure.cause.is_some() => {
            "the user-level driver has reset the controller: see its error log (`nvme error-log`)"
        }
        libc::EINVAL => "direct I/O needs block sizes and offsets that the device accepts: try a multiple of 4096",
        _ if failure.result >= 0 => "the file became shorter during the run: does something else write to it?",
        _ => "the kernel log (`dmesg`) has more about errors of the device",
    }
}

fn target_code(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "busy",
        Some(libc::ENOSPC | libc::EDQUOT) => "no_space",
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "vanished",
        Some(libc::EINVAL | libc::EOPNOTSUPP) => "unsupported",
        _ => "not_writable",
    }
}

fn target_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "something else holds the device exclusively: a mount, an array, another program",
        Some(libc::EACCES | libc::EPERM) => "choose a place you may write to, or run as a user who may",
        Some(libc::EROFS) => "the file system is mounted read-only",
        Some(libc::ENOENT) => "the directory is gone, or was never there",
        Some(libc::EINVAL) => {
            "this file system may not support direct I/O: use `io_mode = \"buffered\"`, or another target"
        }
        _ => "",
    }
}
