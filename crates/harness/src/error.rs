//! Errors of a run: one type for all workloads, since all end in the same event.

use std::fmt::Display;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::target::WrongTarget;
use iosonde_protocol::Failure;

/// The protocol's codes that a run may end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The spec contradicts itself, the target, or the options of a store.
    InvalidSpec,
    /// The target cannot be opened or written.
    NotWritable,
    /// A file system is full.
    NoSpace,
    /// A limit of the process or the system was reached.
    ResourceLimit,
    /// An I/O failed or was short.
    IoError,
    /// The target is not the one that was checked.
    WrongTarget,
    /// A journal of verification cannot be trusted.
    DamagedJournal,
    /// Memory cannot be allocated or mapped.
    OutOfMemory,
    /// The target is gone.
    Vanished,
    /// Something else holds the target.
    Busy,
    /// The machine, target, store or server cannot do it.
    Unsupported,
    /// The target holds what no engine put there.
    ForeignData,
    /// A store's library cannot be used.
    Library,
    /// LMDB's map is full.
    MapFull,
    /// The store failed.
    StoreError,
    /// No server accepts connections at the address.
    ConnectionRefused,
    /// The server does not accept the user or the password.
    Authentication,
    /// The server allows no more connections.
    ConnectionLimit,
    /// The server is too old, or another product.
    WrongVersion,
    /// The database has another encoding or collation.
    WrongEncoding,
    /// The server went away.
    ServerVanished,
    /// The server refused a statement.
    ServerError,
    /// A consistency condition does not hold.
    Inconsistent,
    /// An input file has other contents than required.
    InvalidInput,
    /// A server or cluster did not answer in time.
    Timeout,
    /// A defect of the engine.
    Internal,
}

impl Code {
    /// The protocol's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Code::InvalidSpec => "invalid_spec",
            Code::NotWritable => "not_writable",
            Code::NoSpace => "no_space",
            Code::ResourceLimit => "resource_limit",
            Code::IoError => "io_error",
            Code::WrongTarget => WrongTarget::CODE,
            Code::DamagedJournal => "damaged_journal",
            Code::OutOfMemory => "out_of_memory",
            Code::Vanished => "vanished",
            Code::Busy => "busy",
            Code::Unsupported => "unsupported",
            Code::ForeignData => "foreign_data",
            Code::Library => "library",
            Code::MapFull => "map_full",
            Code::StoreError => "store_error",
            Code::ConnectionRefused => "connection_refused",
            Code::Authentication => "authentication",
            Code::ConnectionLimit => "connection_limit",
            Code::WrongVersion => "wrong_version",
            Code::WrongEncoding => "wrong_encoding",
            Code::ServerVanished => "server_vanished",
            Code::ServerError => "server_error",
            Code::Inconsistent => "inconsistent",
            Code::InvalidInput => "invalid_input",
            Code::Timeout => "timeout",
            Code::Internal => "internal",
        }
    }
}

/// Reason for which a run was not carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// The protocol's name for it.
    pub code: Code,
    /// The failed action and its object.
    pub message: String,
    /// Where in the run or the spec.
    pub context: String,
    /// The likely cause and what to do next.
    pub hint: String,
}

impl RunError {
    /// An error without a place.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> RunError {
        RunError {
            code,
            message: message.into(),
            context: String::new(),
            hint: hint.into(),
        }
    }

    /// The spec is wrong at `context`.
    pub fn invalid(message: impl Into<String>, context: impl Into<String>, hint: impl Into<String>) -> RunError {
        RunError::new(Code::InvalidSpec, message, hint).at(context)
    }

    /// What is at `context` has no meaning, or none beside the rest of the spec.
    pub fn out_of_range(context: impl Into<String>) -> RunError {
        let context = context.into();
        let message = format!("{context} is out of range, or contradicts another parameter");
        RunError::invalid(message, context, "see docs/protocol.md for the rules of a spec")
    }

    /// The machine, target, store or server cannot do what is asked.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> RunError {
        RunError::new(Code::Unsupported, message, hint)
    }

    /// A defect of the engine.
    pub fn internal(message: impl Into<String>) -> RunError {
        RunError::new(
            Code::Internal,
            message,
            "please report this with the spec that caused it",
        )
    }

    /// A store failed while it was to do something, in its own words, which may name an error of the system.
    pub fn store(store: &str, action: impl Display, words: impl Display) -> RunError {
        let words = words.to_string();
        let message = format!("{store} failed to {action}: {words}");
        if let Some((code, hint)) = named_cause(&words) {
            return RunError::new(code, message, hint);
        }
        RunError::new(
            Code::StoreError,
            message,
            "the message is the store's own; its documentation says more",
        )
    }

    /// A thread could not be created.
    pub fn thread(error: &io::Error) -> RunError {
        let hint = "raise the limit on processes or memory (`ulimit -u`, `ulimit -v`, `pids.max`), or use fewer jobs";
        RunError::unsupported(format!("cannot create a thread: {error}"), hint)
    }

    /// An I/O of the load failed; code and hint.
    pub fn cause_of_io(error: &io::Error) -> (Code, String) {
        system_cause(error).unwrap_or_else(|| {
            let hint = "see the kernel log (`dmesg`) for errors of the device";
            (Code::IoError, hint.into())
        })
    }

    /// A call failed that has no path and worked when it was tried: a limit of the process, else a defect of the engine.
    pub fn refused(action: &str, error: &io::Error) -> RunError {
        let message = format!("{action}: {error}");
        match system_cause(error) {
            Some((code, hint)) => RunError::new(code, message, hint),
            None => RunError::internal(message),
        }
    }

    /// The kernel refused something on a path.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> RunError {
        if let Some(wrong) = WrongTarget::from_error(error) {
            return wrong.clone().into();
        }
        let (code, hint) = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => (Code::Vanished, "check that the path exists".into()),
            Some(libc::EOPNOTSUPP) => (
                Code::Unsupported,
                "the file system or device does not support this operation".into(),
            ),
            Some(libc::EINVAL) => (
                Code::Unsupported,
                "this file system may not support direct I/O: use `io_mode = \"buffered\"`, or another target".into(),
            ),
            _ => system_cause(error).unwrap_or_else(|| {
                let hint = "see the kernel log (`dmesg`) for errors of the device";
                (Code::NotWritable, hint.into())
            }),
        };
        RunError::new(code, format!("cannot {action} `{}`: {error}", path.display()), hint)
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub fn at(mut self, context: impl Into<String>) -> RunError {
        if self.context.is_empty() {
            self.context = context.into();
        }
        self
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        self.clone().into()
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure {
            code: error.code.name().into(),
            message: error.message,
            context: error.context,
            hint: error.hint,
        }
    }
}

impl From<WrongTarget> for RunError {
    fn from(wrong: WrongTarget) -> RunError {
        let failure = wrong.to_failure();
        RunError::new(Code::WrongTarget, failure.message, failure.hint).at(failure.context)
    }
}

/// Refuses a spec unless a condition holds on what is at `context`. What makes specs explains the rules; here they only keep a
/// wrong one from being carried out.
///
/// # Errors
/// With code `invalid_spec`, if it does not.
pub fn require(holds: bool, context: impl Into<String>) -> Result<(), RunError> {
    match holds {
        true => Ok(()),
        false => Err(RunError::out_of_range(context)),
    }
}

/// Advice to use less space.
const SMALLER: &str = "reduce the size of the workload";

/// Code and hint of an error of a system call, with the limit in effect; `None` if they depend on what was being done.
fn system_cause(error: &io::Error) -> Option<(Code, String)> {
    let (code, hint) = match Errno::from_io_error(error)? {
        Errno::NOSPC => (Code::NoSpace, format!("free some space, or {SMALLER}")),
        Errno::DQUOT => (Code::NoSpace, format!("raise the disk quota, or {SMALLER}")),
        Errno::FBIG => (Code::ResourceLimit, file_size()),
        Errno::MFILE => (Code::ResourceLimit, open_files()),
        Errno::NFILE => (
            Code::ResourceLimit,
            "all open files of the system are in use: raise `fs.file-max` (sysctl), or use fewer jobs".into(),
        ),
        Errno::NOMEM => (Code::OutOfMemory, memory()),
        Errno::IO => (
            Code::IoError,
            "see the kernel log (`dmesg`) for errors of the device".into(),
        ),
        Errno::ROFS => (Code::NotWritable, "the file system is mounted read-only".into()),
        Errno::ACCESS | Errno::PERM => (
            Code::NotWritable,
            "choose a place you may write to, or run as a user who may".into(),
        ),
        Errno::BUSY => (
            Code::Busy,
            "something else holds the device exclusively: a mount, an array, another program".into(),
        ),
        _ => return None,
    };
    Some((code, hint))
}

/// Code and hint of the error of the system that a store's words name, as strerror(3) has it.
fn named_cause(words: &str) -> Option<(Code, String)> {
    let errors = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EMFILE, libc::EIO];
    let is_named = |error: &io::Error| {
        let text = error.to_string();
        text.split(" (os error").next().is_some_and(|text| words.contains(text))
    };
    let mut errors = errors.into_iter().map(io::Error::from_raw_os_error);
    system_cause(&errors.find(is_named)?)
}

fn file_size() -> String {
    match getrlimit(Resource::Fsize).current {
        Some(bytes) => format!(
            "the limit on file size (`ulimit -f`) is {} KiB: raise it, or {SMALLER}",
            bytes / 1024
        ),
        None => format!("the file system cannot store a file of this size: {SMALLER}"),
    }
}

fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    format!("the limit on open files (`ulimit -n`) is {limit}: raise it, or use fewer jobs")
}

fn memory() -> String {
    match getrlimit(Resource::As).current {
        Some(bytes) => format!(
            "the limit on address space (`ulimit -v`) is {} KiB: raise it, or use fewer jobs, a smaller queue depth or smaller blocks",
            bytes / 1024
        ),
        None => "use fewer jobs, a smaller queue depth or smaller blocks".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named_also_in_the_words_of_a_store() {
        for (words, code) in [
            ("No space left on device: While appending: 12.sst", Some(Code::NoSpace)),
            ("File too large: While appending: 12.sst", Some(Code::ResourceLimit)),
            ("Too many open files: While opening a file", Some(Code::ResourceLimit)),
            ("Corruption: block checksum mismatch", None),
        ] {
            assert_eq!(named_cause(words).map(|(code, _)| code), code, "{words}");
        }
        let limit = getrlimit(Resource::Nofile)
            .current
            .expect("the kernel limits open files");
        let (code, hint) = system_cause(&io::Error::from_raw_os_error(libc::EMFILE)).expect("it is known");
        assert_eq!(code, Code::ResourceLimit);
        assert!(hint.contains(&format!("(`ulimit -n`) is {limit}")), "{hint}");
        assert_eq!(system_cause(&io::Error::from_raw_os_error(libc::EINVAL)), None);
        assert_eq!(system_cause(&io::Error::other("a text")), None);
    }
}
