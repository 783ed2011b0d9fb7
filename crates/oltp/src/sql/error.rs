//! Errors of a server or a connection.

use std::io;

use iosonde_harness::{Code, RunError};

/// The classes of errors that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Nothing listens there.
    Refused,
    /// The server is starting or recovering.
    Starting,
    /// The connection was lost, or the server is shutting down.
    Vanished,
    /// User or password is wrong, or the method of authentication is not supported.
    Authentication,
    /// No more connections are allowed.
    TooManyConnections,
    /// The database does not exist.
    NoDatabase,
    /// The transaction must be repeated: it could not be serialized.
    Serialization,
    /// The transaction must be repeated: it was chosen to end a deadlock.
    Deadlock,
    /// The transaction must be repeated: it waited too long for a lock.
    LockTimeout,
    /// The server's file system is full.
    DiskFull,
    /// The server has no memory left.
    OutOfMemory,
    /// Loading from the client is switched off.
    LoadRefused,
    /// The peer does not use this protocol.
    Protocol,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Returns true if repeating the transaction may help.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorKind::Serialization | ErrorKind::Deadlock | ErrorKind::LockTimeout
        )
    }

    /// Returns true if a server that is about to start may answer like this.
    pub(crate) fn is_starting(self) -> bool {
        matches!(self, ErrorKind::Refused | ErrorKind::Starting)
    }
}

/// An error of a server or a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// Its class.
    pub kind: ErrorKind,
    /// The server's message with its code, or the kernel's.
    pub message: String,
}

impl SqlError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> SqlError {
        SqlError {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> SqlError {
        SqlError::new(ErrorKind::Protocol, message)
    }

    pub(crate) fn vanished(error: &io::Error) -> SqlError {
        SqlError::new(ErrorKind::Vanished, format!("the connection was lost: {error}"))
    }

    /// An error of PostgreSQL (Appendix A of its manual).
    pub(crate) fn postgresql(code: &str, message: &str) -> SqlError {
        let kind = match code {
            "40001" => ErrorKind::Serialization,
            "40P01" => ErrorKind::Deadlock,
            "55P03" => ErrorKind::LockTimeout,
            "57P03" => ErrorKind::Starting,
            "57P01" | "57P02" | "57P05" => ErrorKind::Vanished,
            "53100" => ErrorKind::DiskFull,
            "53200" => ErrorKind::OutOfMemory,
            "53300" => ErrorKind::TooManyConnections,
            "3D000" => ErrorKind::NoDatabase,
            code if code.starts_with("28") => ErrorKind::Authentication,
            _ if message.contains("No space left on device") => ErrorKind::DiskFull,
            _ => ErrorKind::Other,
        };
        SqlError::new(kind, format!("{message} (SQLSTATE {code})"))
    }

    /// An error of MariaDB or MySQL.
    pub(crate) fn mariadb(code: u16, message: &str) -> SqlError {
        let kind = match code {
            1020 => ErrorKind::Serialization,
            1213 => ErrorKind::Deadlock,
            1205 => ErrorKind::LockTimeout,
            1053 | 1077 | 1079 | 1927 => ErrorKind::Vanished,
            1021 | 1114 => ErrorKind::DiskFull,
            1037 | 1038 => ErrorKind::OutOfMemory,
            1040 | 1203 | 1226 => ErrorKind::TooManyConnections,
            1049 => ErrorKind::NoDatabase,
            1044 | 1045 | 1251 | 1698 => ErrorKind::Authentication,
            1148 | 3948 | 4166 => ErrorKind::LoadRefused,
            _ if message.contains("No space left on device") => ErrorKind::DiskFull,
            _ => ErrorKind::Other,
        };
        SqlError::new(kind, format!("{message} (error {code})"))
    }
}

impl From<SqlError> for RunError {
    fn from(error: SqlError) -> RunError {
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
        RunError::new(code, error.message, hint)
    }
}
