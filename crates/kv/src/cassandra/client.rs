//! A client of one thread: the driver's session on a runtime that runs only while this thread waits for an answer.
//!
//! The driver neither retries nor repeats a request on another node, so an operation is one request, and an error ends the
//! run instead of becoming a long latency.

use std::env;
use std::num::NonZeroUsize;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use iosonde_harness::{Code, RunError};
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session as Driver;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError, MetadataError,
    NewSessionError, PrepareError, RequestAttemptError,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::statement::prepared::PreparedStatement;
use tokio::runtime::{Builder, Runtime};

use crate::cassandra::settings::{NAME, Product, Settings};
use crate::store::Server;

/// Version of the driver, which has no constant for it; a test compares it with `Cargo.lock`.
pub(crate) const DRIVER_VERSION: &str = "1.9.0";
/// The environment variable with the user's password, which no record contains.
const PASSWORD: &str = "CASSANDRA_PASSWORD";
const TABLE: &str = "records";
/// Longer than any stall that is still an answer.
const ANSWER: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(10);
/// Topology is read once: reading it again would share the thread with the load.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The table of the records of a keyspace.
pub(crate) fn table(keyspace: &str) -> String {
    format!("{keyspace}.{TABLE}")
}

/// A connected client.
pub(crate) struct Client {
    /// Dropped before the runtime, on which its tasks run.
    driver: Driver,
    runtime: Runtime,
    in_flight: usize,
}

impl Client {
    pub(crate) fn connect(server: &Server, settings: &Settings) -> Result<Client, RunError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| RunError::store(NAME, "start its client", error))?;
        let profile = ExecutionProfile::builder()
            .consistency(settings.consistency())
            .request_timeout(Some(ANSWER))
            .retry_policy(std::sync::Arc::new(FallthroughRetryPolicy::new()))
            .speculative_execution_policy(None)
            .build();
        let mut builder = SessionBuilder::new()
            .known_node(server.address())
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(CONNECT)
            .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
            .fetch_schema_metadata(false)
            .cluster_metadata_refresh_interval(NEVER);
        if let Some(user) = &server.user {
            builder = builder.user(user, env::var(PASSWORD).unwrap_or_default());
        }
        let driver = runtime.block_on(builder.build());
        let driver = driver.map_err(|error| cannot_connect(server, &error))?;
        Ok(Client {
            driver,
            runtime,
            in_flight: settings.in_flight,
        })
    }

    /// Executes a statement without parameters.
    pub(crate) fn query(&self, statement: &str) -> Result<(), RunError> {
        self.rows(statement).map(|_| ())
    }

    fn rows(&self, statement: &str) -> Result<QueryResult, RunError> {
        let done = self.runtime.block_on(self.driver.query_unpaged(statement, ()));
        done.map_err(|error| failed(&format!("execute `{statement}`"), &error))
    }

    /// Returns true if a keyspace has a table of this name.
    pub(crate) fn has_table(&self, keyspace: &str, table: &str) -> Result<bool, RunError> {
        let rows = self.rows(&format!(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
        ))?;
        let rows = rows.into_rows_result().map_err(|error| unreadable(&error))?;
        Ok(rows.rows_num() > 0)
    }

    /// The first column of the first row; `None` without rows or where the server has no such table.
    fn text(&self, statement: &str) -> Option<String> {
        let rows = self.rows(statement).ok()?.into_rows_result().ok()?;
        rows.maybe_first_row::<(String,)>().ok()?.map(|(text,)| text)
    }

    /// Product and version: ScyllaDB reports the version of Cassandra that it is compatible with, and its own elsewhere.
    pub(crate) fn version(&self) -> Result<(Product, String), RunError> {
        if let Some(version) = self.text("SELECT version FROM system.versions") {
            return Ok((Product::ScyllaDb, version));
        }
        match self.text("SELECT release_version FROM system.local") {
            Some(version) => Ok((Product::Cassandra, version)),
            None => Err(RunError::store(NAME, "report its version", "`system.local` is empty")),
        }
    }

    /// Commit log sync mode: `periodic`, `batch` or `group`; of a server that does not report it, `periodic`.
    pub(crate) fn commitlog_sync(&self) -> Result<String, RunError> {
        let own = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
        let of_scylla = "SELECT value FROM system.config WHERE name = 'commitlog_sync'";
        let found = self.text(own).or_else(|| self.text(of_scylla));
        Ok(found.map_or_else(|| "periodic".into(), |mode| mode.trim_matches('"').to_lowercase()))
    }

    /// Returns true if compactions or flushes are running; false where the server does not report them.
    pub(crate) fn is_compacting(&self) -> bool {
        let tasks = self.rows("SELECT keyspace_name FROM system_views.sstable_tasks");
        let rows = tasks.ok().and_then(|rows| rows.into_rows_result().ok());
        rows.is_some_and(|rows| rows.rows_num() > 0)
    }

    /// Bytes of the table's data files, which the server reports in MiB.
    pub(crate) fn table_bytes(&self, keyspace: &str) -> Option<u64> {
        let statement = format!(
            "SELECT mebibytes FROM system_views.disk_usage WHERE keyspace_name = '{keyspace}' AND table_name = '{TABLE}'"
        );
        let rows = self.rows(&statement).ok()?.into_rows_result().ok()?;
        let (mebibytes,) = rows.maybe_first_row::<(i64,)>().ok()??;
        u64::try_from(mebibytes).ok().map(|mebibytes| mebibytes << 20)
    }

    /// Prepares the statements of a load.
    pub(crate) fn prepare(self, keyspace: &str) -> Result<Prepared, RunError> {
        let table = table(keyspace);
        let prepare = |statement: String| {
            let done = self.runtime.block_on(self.driver.prepare(statement.as_str()));
            done.map_err(|error| unprepared(&statement, &error))
        };
        Ok(Prepared {
            select: prepare(format!("SELECT value FROM {table} WHERE key = ?"))?,
            insert: prepare(format!("INSERT INTO {table} (key, value) VALUES (?, ?)"))?,
            delete: prepare(format!("DELETE FROM {table} WHERE key = ?"))?,
            row: None,
            client: self,
        })
    }
}

/// A client with the statements of a load.
pub(crate) struct Prepared {
    client: Client,
    select: PreparedStatement,
    insert: PreparedStatement,
    delete: PreparedStatement,
    /// The answer whose value is lent.
    row: Option<QueryRowsResult>,
}

impl Prepared {
    /// The value of a key, lent until [`Prepared::release`].
    #[inline]
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let Client { driver, runtime, .. } = &self.client;
        let answer = runtime.block_on(driver.execute_unpaged(&self.select, (key,)));
        let answer = answer.map_err(|error| failed("read a record", &error))?;
        let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
        let row = self.row.insert(rows).maybe_first_row::<(Option<&[u8]>,)>();
        Ok(row.map_err(|error| unreadable(&error))?.and_then(|(value,)| value))
    }

    /// Forgets the value that is lent.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.row = None;
    }

    /// Carries out writes, each as one statement.
    pub(crate) fn write(&self, writes: &Writes) -> Result<(), RunError> {
        let Client { runtime, in_flight, .. } = &self.client;
        match writes.as_slice() {
            [] => Ok(()),
            [write] => runtime.block_on(self.execute(write)),
            several => runtime.block_on(
                stream::iter(several)
                    .map(|write| self.execute(write))
                    .buffer_unordered(*in_flight)
                    .try_collect(),
            ),
        }
    }

    async fn execute(&self, write: &Write) -> Result<(), RunError> {
        let Client { driver, .. } = &self.client;
        let done = match &write.deletes {
            false => {
                driver
                    .execute_unpaged(&self.insert, (&write.key[..], &write.value[..]))
                    .await
            }
            true => driver.execute_unpaged(&self.delete, (&write.key[..],)).await,
        };
        done.map(|_| ()).map_err(|error| failed("write a record", &error))
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    key: Vec<u8>,
    value: Vec<u8>,
    /// Deletes the record; the value is empty.
    deletes: bool,
}

/// Writes that wait for their commit; their memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    all: Vec<Write>,
    used: usize,
}

impl Writes {
    /// Adds a write, of a deletion without a value.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.used == self.all.len() {
            self.all.push(Write::default());
        }
        let write = &mut self.all[self.used];
        write.key.clear();
        write.key.extend_from_slice(key);
        write.value.clear();
        write.value.extend_from_slice(value.unwrap_or_default());
        write.deletes = value.is_none();
        self.used += 1;
    }

    /// Removes all writes.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    fn as_slice(&self) -> &[Write] {
        &self.all[..self.used]
    }
}

/// A connection that failed: the server denied access, or it cannot be reached.
#[cold]
fn cannot_connect(server: &Server, error: &NewSessionError) -> RunError {
    let place = format!("at `{}`", server.address());
    match setup_error(error) {
        Some(ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, message)) => {
            denied(message).at(place)
        }
        Some(ConnectionSetupRequestErrorKind::MissingAuthentication) => {
            denied("the server requires a user and a password, and the address names no user").at(place)
        }
        _ => RunError::new(
            Code::ConnectionRefused,
            format!("cannot connect to {NAME} at `{}`: {error}", server.address()),
            "see whether the server is running, and whether it requires encryption, which is not supported",
        )
        .at(place),
    }
}

/// The reason why the server or the driver ended the handshake of a connection; `None` if there was none.
fn setup_error(error: &NewSessionError) -> Option<&ConnectionSetupRequestErrorKind> {
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
        last_connection_error: ConnectionError::ConnectionSetupRequestError(request),
    })) = error
    else {
        return None;
    };
    Some(request.get_error())
}

#[cold]
fn denied(message: &str) -> RunError {
    RunError::new(
        Code::Authentication,
        format!("{NAME} denied access: {message}"),
        format!(
            "name the user in the address, and set its password in `{PASSWORD}`; grant it `CREATE` on all keyspaces"
        ),
    )
}

#[cold]
fn failed(action: &str, error: &ExecutionError) -> RunError {
    if let ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, message)) = error {
        return denied(message);
    }
    let is_gone = matches!(
        error,
        ExecutionError::ConnectionPoolError(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_))
    );
    match is_gone {
        true => vanished(action, error),
        false => RunError::store(NAME, action, error),
    }
}

#[cold]
fn vanished(action: &str, error: &dyn std::error::Error) -> RunError {
    RunError::new(
        Code::ServerVanished,
        format!("{NAME} closed the connection, so it could not {action}: {error}"),
        "see its messages",
    )
}

#[cold]
fn unprepared(statement: &str, error: &PrepareError) -> RunError {
    let action = format!("prepare `{statement}`");
    match error {
        PrepareError::ConnectionPoolError(_) => vanished(&action, error),
        PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(DbError::Unauthorized, message),
        } => denied(message),
        _ => RunError::store(NAME, action, error),
    }
}

#[cold]
fn unreadable(error: &dyn std::error::Error) -> RunError {
    RunError::store(NAME, "return a record", error)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_version_of_the_driver_is_the_one_that_is_compiled() {
        let lock = include_str!("../../../../Cargo.lock");
        let wanted = format!("name = \"scylla\"\nversion = \"{DRIVER_VERSION}\"\n");
        assert!(lock.contains(&wanted), "DRIVER_VERSION is not that of Cargo.lock");
    }

    #[test]
    fn memory_of_writes_is_used_again_without_their_contents() {
        let mut writes = Writes::default();
        writes.add(b"first", Some(b"a long value"));
        writes.add(b"second", Some(b"x"));
        writes.clear();
        assert!(writes.as_slice().is_empty());
        writes.add(b"third", None);
        let third = Write {
            key: b"third".to_vec(),
            value: Vec::new(),
            deletes: true,
        };
        assert_eq!(writes.as_slice(), [third]);
    }

    fn server(host: &str, port: u16, user: Option<&str>) -> Server {
        Server {
            host: host.into(),
            port,
            database: "k".into(),
            user: user.map(Into::into),
        }
    }

    /// The client is refused with this code, and a message with this part.
    fn refused(server: &Server, code: Code, message: &str) -> RunError {
        let error = Client::connect(server, &Settings::default()).err().expect("refused");
        assert!(error.code == code && error.message.contains(message), "{error:?}");
        error
    }

    #[test]
    fn an_address_of_version_6_is_in_brackets_and_without_a_server_connections_are_refused() {
        assert_eq!(server("::1", 9042, None).address(), "[::1]:9042");
        assert_eq!(server("127.0.0.1", 9042, None).address(), "127.0.0.1:9042");
        // Port 1 of loopback is reserved, and nothing listens there.
        refused(&server("127.0.0.1", 1, None), Code::ConnectionRefused, "127.0.0.1:1");
    }

    /// Reads a frame of CQL: its kind, and the number of the request.
    fn receive(stream: &mut TcpStream) -> std::io::Result<(u8, [u8; 2])> {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        stream.read_exact(&mut vec![0; length as usize])?;
        Ok((header[4], [header[2], header[3]]))
    }

    /// A server that requires a password and accepts none: it answers each connection until the test ends.
    fn server_that_denies_access() -> Server {
        const OPTIONS: u8 = 0x05;
        const STARTUP: u8 = 0x01;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                while let Ok((kind, id)) = receive(&mut stream) {
                    let (answer, body) = match kind {
                        OPTIONS => (0x06, vec![0, 0]),
                        STARTUP => (0x03, text("org.apache.cassandra.auth.PasswordAuthenticator")),
                        _ => (0x00, [&[0, 0, 1, 0][..], &text("wrong password")].concat()),
                    };
                    let header = [&[0x84, 0, id[0], id[1], answer][..], &(body.len() as u32).to_be_bytes()].concat();
                    stream.write_all(&[header, body].concat()).unwrap();
                }
            }
        });
        server("127.0.0.1", port, Some("bench"))
    }

    #[test]
    fn a_denied_login_is_an_authentication_error() {
        let server = server_that_denies_access();
        let error = refused(&server, Code::Authentication, "denied access: wrong password");
        assert_eq!(error.context, format!("at `{}`", server.address()));
        assert!(error.hint.contains(PASSWORD), "{}", error.hint);
        let nobody = Server { user: None, ..server };
        refused(&nobody, Code::Authentication, "the address names no user");
    }
}
