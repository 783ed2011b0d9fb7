//! What can go wrong with a store or its workload: one type, since both end in the same event.

use std::fmt::Display;
use std::io;
use std::path::Path;

use iosonde_harness::CannotStart;
use iosonde_protocol::Failure;
use iosonde_target::WrongTarget;

/// The protocol's codes that a key-value run may end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The spec contradicts itself, or names an option that the store does not have.
    InvalidSpec,
    /// The store cannot do it.
    Unsupported,
    /// The target cannot be opened or written.
    NotWritable,
    /// The file system is full.
    NoSpace,
    /// The target is not the one that was checked.
    WrongTarget,
    /// The target is gone.
    Vanished,
    /// Something else holds the target.
    Busy,
    /// The target holds what no engine put there.
    ForeignData,
    /// The store's library cannot be used.
    Library,
    /// LMDB's map is full.
    MapFull,
    /// The store's server does not accept the user or the password.
    Authentication,
    /// The store's server does not accept connections.
    ConnectionRefused,
    /// The store's server closed a connection.
    ServerVanished,
    /// The store failed.
    Store,
    /// A mistake of ours.
    Internal,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Code::InvalidSpec => "invalid_spec",
            Code::Unsupported => "unsupported",
            Code::NotWritable => "not_writable",
            Code::NoSpace => "no_space",
            Code::WrongTarget => WrongTarget::CODE,
            Code::Vanished => "vanished",
            Code::Busy => "busy",
            Code::ForeignData => "foreign_data",
            Code::Library => "library",
            Code::MapFull => "map_full",
            Code::Authentication => "authentication",
            Code::ConnectionRefused => "connection_refused",
            Code::ServerVanished => "server_vanished",
            Code::Store => "store_error",
            Code::Internal => "internal",
        }
    }
}

impl From<CannotStart> for KvError {
    fn from(error: CannotStart) -> KvError {
        KvError::unsupported(error.to_string(), CannotStart::HINT).at("starting the jobs")
    }
}

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KvError {
    /// The protocol's name for it.
    pub code: Code,
    /// What failed, on what.
    pub message: String,
    /// Where in the run or the spec.
    pub context: String,
    /// The likely cause and what to do next.
    pub hint: String,
}

impl KvError {
    /// An error without a place.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> KvError {
        KvError {
            code,
            message: message.into(),
            context: String::new(),
            hint: hint.into(),
        }
    }

    /// The spec is wrong at `context`.
    pub fn invalid(message: impl Into<String>, context: impl Into<String>, hint: impl Into<String>) -> KvError {
        KvError::new(Code::InvalidSpec, message, hint).at(context)
    }

    /// The store cannot do what is asked.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> KvError {
        KvError::new(Code::Unsupported, message, hint)
    }

    /// The store failed while it was to do something, in its own words; its words tell a full disk apart.
    pub fn store(store: &str, action: impl Display, words: impl Display) -> KvError {
        let words = words.to_string();
        let message = format!("{store} failed to {action}: {words}");
        if words.contains("No space left") || words.contains("os error 28") {
            return KvError::new(
                Code::NoSpace,
                message,
                "free some space, or use fewer or smaller records",
            );
        }
        KvError::new(
            Code::Store,
            message,
            "the message is the store's own; its documentation says more",
        )
    }

    /// The kernel refused something on a path.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> KvError {
        if let Some(wrong) = WrongTarget::from_error(error) {
            return KvError::new(Code::WrongTarget, wrong.to_string(), wrong.hint()).at(wrong.to_failure().context);
        }
        let (code, hint) = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => (Code::NoSpace, "free some space, or use fewer or smaller records"),
            Some(libc::EBUSY) => (
                Code::Busy,
                "something else holds the device exclusively: a mount, an array, another program",
            ),
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => (Code::Vanished, "it is gone, or was never there"),
            Some(libc::EROFS) => (Code::NotWritable, "the file system is mounted read-only"),
            _ => (
                Code::NotWritable,
                "choose a place you may write to, or run as a user who may",
            ),
        };
        KvError::new(code, format!("cannot {action} `{}`: {error}", path.display()), hint)
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub fn at(mut self, context: impl Into<String>) -> KvError {
        if self.context.is_empty() {
            self.context = context.into();
        }
        self
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        Failure {
            code: self.code.name().into(),
            message: self.message.clone(),
            context: self.context.clone(),
            hint: self.hint.clone(),
        }
    }
}
