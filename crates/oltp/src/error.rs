//! What can go wrong with a transactional run: one type, which ends in one event.

use std::io;
use std::path::Path;

use iosonde_harness::CannotStart;
use iosonde_protocol::Failure;
use iosonde_sql::{ErrorKind, SqlError};

/// The protocol's codes that a transactional run may end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The spec contradicts itself.
    InvalidSpec,
    /// The server or machine cannot do it.
    Unsupported,
    /// A file cannot be written.
    NotWritable,
    /// A file system is full.
    NoSpace,
    /// The server has no memory left.
    OutOfMemory,
    /// Nothing listens at the address.
    ConnectionRefused,
    /// User or password is wrong.
    Authentication,
    /// No more connections are allowed.
    ConnectionLimit,
    /// The server is too old, or another product.
    WrongVersion,
    /// The database has another encoding or collation.
    WrongEncoding,
    /// The database holds what no engine put there.
    ForeignData,
    /// The server went away.
    ServerVanished,
    /// The server refused a statement.
    ServerError,
    /// A consistency condition does not hold.
    Inconsistent,
    /// A defect of the engine.
    Internal,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Code::InvalidSpec => "invalid_spec",
            Code::Unsupported => "unsupported",
            Code::NotWritable => "not_writable",
            Code::NoSpace => "no_space",
            Code::OutOfMemory => "out_of_memory",
            Code::ConnectionRefused => "connection_refused",
            Code::Authentication => "authentication",
            Code::ConnectionLimit => "connection_limit",
            Code::WrongVersion => "wrong_version",
            Code::WrongEncoding => "wrong_encoding",
            Code::ForeignData => "foreign_data",
            Code::ServerVanished => "server_vanished",
            Code::ServerError => "server_error",
            Code::Inconsistent => "inconsistent",
            Code::Internal => "internal",
        }
    }
}

/// Why a run could not be carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OltpError {
    /// The protocol's name for it.
    pub code: Code,
    /// What failed, on what.
    pub message: String,
    /// Where in the run or the spec.
    pub context: String,
    /// The likely cause and what to do next.
    pub hint: String,
}

impl OltpError {
    /// An error without a place.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> OltpError {
        OltpError {
            code,
            message: message.into(),
            context: String::new(),
            hint: hint.into(),
        }
    }

    /// The spec is wrong at `context`.
    pub fn invalid(message: impl Into<String>, context: impl Into<String>, hint: impl Into<String>) -> OltpError {
        OltpError::new(Code::InvalidSpec, message, hint).at(context)
    }

    /// The kernel refused something on a path.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> OltpError {
        let (code, hint) = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => (Code::NoSpace, "free some space, or choose another directory"),
            _ => (
                Code::NotWritable,
                "choose a directory that exists and that you may write to",
            ),
        };
        OltpError::new(code, format!("cannot {action} `{}`: {error}", path.display()), hint)
    }

    /// The same, with the place where it happened, unless it has one.
    #[must_use]
    pub fn at(mut self, context: impl Into<String>) -> OltpError {
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

impl From<CannotStart> for OltpError {
    fn from(error: CannotStart) -> OltpError {
        OltpError::new(Code::Unsupported, error.to_string(), CannotStart::HINT).at("starting the terminals")
    }
}

impl From<SqlError> for OltpError {
    fn from(error: SqlError) -> OltpError {
        let (code, hint) = match error.kind {
            ErrorKind::Refused => (Code::ConnectionRefused, "start the server, or check the address"),
            ErrorKind::Starting => (
                Code::ConnectionRefused,
                "wait until the server has started or recovered",
            ),
            ErrorKind::Vanished => (
                Code::ServerVanished,
                "the server was stopped or crashed: look at its log and at the kernel log (out of memory)",
            ),
            ErrorKind::Authentication => (
                Code::Authentication,
                "set `PGPASSWORD` or `MYSQL_PWD`, or write the password to `~/.pgpass` or `~/.my.cnf`",
            ),
            ErrorKind::TooManyConnections => (
                Code::ConnectionLimit,
                "raise `max_connections` of the server, or use fewer terminals",
            ),
            ErrorKind::NoDatabase => (
                Code::ServerError,
                "create the database, or allow creating it (`missing_database`)",
            ),
            ErrorKind::DiskFull => (
                Code::NoSpace,
                "free space on the server's file systems, or use fewer warehouses",
            ),
            ErrorKind::OutOfMemory => (
                Code::OutOfMemory,
                "raise the server's memory limit, or lower its buffer settings",
            ),
            ErrorKind::Protocol => (Code::Unsupported, "check the address and `server.kind`"),
            ErrorKind::Serialization | ErrorKind::Deadlock | ErrorKind::LockTimeout => (
                Code::ServerError,
                "other clients use the database: stop them and repeat the run",
            ),
            ErrorKind::LoadRefused | ErrorKind::Other => (
                Code::ServerError,
                "the message is the server's own; its log may have more",
            ),
        };
        OltpError::new(code, error.message, hint)
    }
}
