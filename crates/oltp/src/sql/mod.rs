//! Blocking clients for PostgreSQL and MariaDB, for measuring: one socket, prepared statements in the binary format,
//! pipelining, bulk loading, and counts of everything that is exchanged.
//!
//! A client that measures must cost little and hide nothing. So statements are encoded straight into a send buffer, results
//! stay in the receive buffer and are read in place, and nothing is allocated once the buffers have grown to the largest
//! transaction. TLS and compression are not supported. The modules: [`Connection`] is the interface, `postgresql` and
//! `mariadb` implement the protocols, `credentials` finds passwords, `numeric` converts decimal numbers.

mod credentials;
mod error;
mod mariadb;
pub mod numeric;
mod postgresql;
mod result;
mod socket;

pub use error::{ErrorKind, SqlError};
pub use result::{Results, Row};
pub use socket::{Address, Traffic};

use std::time::{Duration, Instant};

/// Pause between two attempts to connect to a server that is starting.
const RETRY: Duration = Duration::from_millis(20);
/// Shortest time after which a login counts as unanswered.
const LOGIN: Duration = Duration::from_secs(2);

/// A prepared statement of the connection that prepared it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement(pub(crate) usize);

/// A value bound to a placeholder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Param<'a> {
    /// An integer.
    Int(i64),
    /// A decimal number: `units` divided by 10 to the power of `scale`.
    Decimal {
        /// The number without its decimal point.
        units: i64,
        /// Digits after the decimal point.
        scale: u8,
    },
    Text(&'a [u8]),
    /// A time without time zone, in microseconds since 1970.
    Timestamp(i64),
}

/// The protocol to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL 3.0.
    Postgresql,
    /// MariaDB and MySQL.
    Mariadb,
}

/// Address and credentials of a database.
#[derive(Debug, Clone)]
pub struct Login {
    /// The protocol to use.
    pub protocol: Protocol,
    /// Address on which the server listens.
    pub address: Address,
    pub user: String,
    /// Name of the database; MariaDB connects without one if this is empty.
    pub database: String,
    /// Timeout of connection attempts while the server is starting.
    pub timeout: Duration,
}

impl Login {
    /// Timeout of the response to a login: a server with another protocol waits for the client.
    fn login_timeout(&self) -> Duration {
        self.timeout.max(LOGIN)
    }
}

/// Description of a server after connecting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerVersion {
    /// `PostgreSQL`, `MariaDB` or `MySQL`.
    pub product: &'static str,
    /// Version as the server writes it.
    pub text: String,
    /// Its leading numbers.
    pub numbers: Vec<u32>,
}

/// A connection to a database server.
///
/// Statements are queued, then exchanged in one round trip. Results of all statements since [`Connection::clear`] can be read
/// by their number.
pub trait Connection: Send {
    /// The server's version.
    fn version(&self) -> &ServerVersion;

    /// Prepares a statement; placeholders are `?`.
    ///
    /// # Errors
    /// When the server refuses it or cannot be reached.
    fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError>;

    /// Runs one statement outside of the measured path and returns its rows as text.
    ///
    /// # Errors
    /// When the server refuses it or cannot be reached.
    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError>;

    /// Forgets all results.
    fn clear(&mut self);

    /// Queues the execution of a statement.
    fn queue(&mut self, statement: Statement, params: &[Param<'_>]);

    /// Sends what is queued and waits for all results.
    ///
    /// # Errors
    /// The first error among the statements. PostgreSQL skips the statements after a failed one, MariaDB executes them.
    fn exchange(&mut self) -> Result<(), SqlError>;

    /// The results since [`Connection::clear`].
    fn results(&self) -> Results<'_>;

    /// Returns true if a failed statement keeps those after it in the same round trip from being executed.
    fn skips_after_errors(&self) -> bool;

    /// Traffic since the connection was made.
    fn traffic(&self) -> Traffic;

    /// Begins to send rows of a table: lines of tab-separated values, `\N` for null.
    ///
    /// # Errors
    /// When the server refuses it or cannot be reached.
    fn load_begin(&mut self, table: &str, columns: &str) -> Result<(), SqlError>;

    /// Sends whole lines.
    ///
    /// # Errors
    /// When the server refuses them or cannot be reached.
    fn load_rows(&mut self, lines: &[u8]) -> Result<(), SqlError>;

    /// Ends sending rows.
    ///
    /// # Errors
    /// When the server refuses the rows or cannot be reached.
    fn load_end(&mut self) -> Result<(), SqlError>;

    /// Method of sending rows: `copy`, `load_data` or `multi_row_insert`.
    fn load_method(&self) -> &'static str;
}

/// Connects; retries until the login's timeout while the server is starting.
///
/// # Errors
/// When the server cannot be reached, refuses the login, or uses another protocol.
pub fn connect(login: &Login) -> Result<Box<dyn Connection>, SqlError> {
    let begin = Instant::now();
    loop {
        let attempt: Result<Box<dyn Connection>, SqlError> = match login.protocol {
            Protocol::Postgresql => postgresql::Postgresql::connect(login).map(|connection| Box::new(connection) as _),
            Protocol::Mariadb => mariadb::Mariadb::connect(login).map(|connection| Box::new(connection) as _),
        };
        match attempt {
            Err(error) if error.kind.is_starting() && begin.elapsed() < login.timeout => std::thread::sleep(RETRY),
            other => return other,
        }
    }
}

impl ServerVersion {
    fn new(product: &'static str, text: &str) -> ServerVersion {
        let number = |part: &str| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let first = text.split(' ').next().unwrap_or_default();
        ServerVersion {
            product,
            text: text.to_owned(),
            numbers: first.split('.').map_while(number).collect(),
        }
    }

    /// Returns true if this is the given version or a newer one.
    pub fn is_at_least(&self, oldest: &[u32]) -> bool {
        self.numbers.as_slice() >= oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = ServerVersion::new("MariaDB", "10.11.19-MariaDB-0+deb12u1");
        assert_eq!(version.numbers, [10, 11, 19]);
        assert!(version.is_at_least(&[10, 4]) && version.is_at_least(&[10, 11, 19]) && !version.is_at_least(&[11]));
        let debian = ServerVersion::new("PostgreSQL", "15.18 (Debian 15.18-0+deb12u1)");
        assert_eq!(debian.numbers, [15, 18]);
        assert!(!ServerVersion::new("PostgreSQL", "16beta1").is_at_least(&[17]));
    }
}
