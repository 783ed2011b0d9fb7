//! A blocking connection: the driver's client on a runtime of its own, which runs only while an operation waits.
//!
//! Every thread has its own: an operation needs no other thread, and its latency no switch to one.

use std::time::Duration;

use iosonde_harness::{Code, RunError};
use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ClientOptions, Credential, SelectionCriteria, ServerAddress, ServerMonitoringMode};
use mongodb::{Client, Cursor, Database};
use tokio::runtime::{Builder, Runtime};

use crate::mongodb::settings::{NAME, Settings};
use crate::store::Server;

const CONNECT: Duration = Duration::from_secs(10);
/// The driver checks the server this often besides the operations; one server is measured, so it need not often.
const HEARTBEAT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "MONGODB_PASSWORD";
/// Codes of errors of the server (its `error_codes.yml`).
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const OUT_OF_DISK_SPACE: i32 = 14031;

/// One connection to a server.
pub(crate) struct Connection {
    server: String,
    client: Client,
    /// The database of the records.
    pub(crate) database: Database,
    runtime: Runtime,
}

impl Connection {
    /// Connects to exactly this server, also if it is a member of a replica set.
    pub(crate) fn open(server: &Server, settings: &Settings) -> Result<Connection, RunError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RunError::store(NAME, "start its client", error))?;
        let client = {
            let _context = runtime.enter();
            Client::with_options(client_options(server, settings)?)
        };
        let client = client.map_err(|error| explain("connect", &server.address(), &error))?;
        let connection = Connection {
            server: server.address(),
            database: client.database(&server.database),
            client,
            runtime,
        };
        connection.command("connect", mongodb::bson::rawdoc! { "ping": 1 })?;
        Ok(connection)
    }

    /// Waits for an operation of the driver.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        action: &str,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RunError> {
        let done = self.runtime.block_on(operation);
        done.map_err(|error| explain(action, &self.server, &error))
    }

    /// Runs a command on the database of the records.
    pub(crate) fn command(&self, action: &str, command: RawDocumentBuf) -> Result<Document, RunError> {
        self.wait(action, self.database.run_raw_command(command).into_future())
    }

    /// The documents that a command `find` of the database of the records returns.
    ///
    /// The driver's `Collection` would be compiled again here, for the type of its documents: more than a third of this crate.
    pub(crate) fn find(&self, action: &str, command: RawDocumentBuf) -> Result<Cursor<Document>, RunError> {
        self.wait(action, self.database.run_raw_cursor_command(command).into_future())
    }

    /// Runs a command on the database `admin`.
    pub(crate) fn admin_command(&self, command: RawDocumentBuf) -> Result<Document, RunError> {
        let admin = self.client.database("admin");
        self.wait("describe itself", admin.run_raw_command(command).into_future())
    }
}

fn client_options(server: &Server, settings: &Settings) -> Result<ClientOptions, RunError> {
    let host = ServerAddress::Tcp {
        host: server.host.clone(),
        port: Some(server.port),
    };
    let mut options = ClientOptions::builder().hosts(vec![host]).build();
    options.app_name = Some("iosonde".into());
    options.direct_connection = Some(true);
    options.connect_timeout = Some(CONNECT);
    options.server_selection_timeout = Some(CONNECT);
    options.heartbeat_freq = Some(HEARTBEAT);
    options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
    options.max_pool_size = Some(2);
    // A repeated operation would have one latency for two attempts.
    options.retry_reads = Some(false);
    options.retry_writes = Some(false);
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(
        mongodb::options::ReadPreference::Primary,
    ));
    if let Some(user) = &server.user {
        options.credential = Some(credential(user, settings)?);
    }
    Ok(options)
}

fn credential(user: &str, settings: &Settings) -> Result<Credential, RunError> {
    let password = std::env::var(PASSWORD).map_err(|_| {
        RunError::new(
            Code::Authentication,
            format!("the user `{user}` of {NAME} has no password"),
            format!("set the environment variable `{PASSWORD}`"),
        )
    })?;
    Ok(Credential::builder()
        .username(user.to_owned())
        .password(password)
        .source(settings.auth_source.clone())
        .build())
}

/// The driver's or the server's error, in their words.
#[cold]
fn explain(action: &str, server: &str, error: &Error) -> RunError {
    match &*error.kind {
        ErrorKind::Authentication { message, .. } => denied(message),
        ErrorKind::Command(refused) => refusal(action, refused.code, &refused.message),
        ErrorKind::ServerSelection { message, .. } if message.contains("Authentication") => denied(message),
        ErrorKind::ServerSelection { message, .. } => RunError::new(
            Code::ConnectionRefused,
            format!("cannot connect to {NAME} at `{server}`: {message}"),
            "see whether the server is running, and whether it requires encryption, which is not supported",
        ),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => RunError::new(
            Code::ServerVanished,
            format!("{NAME} at `{server}` closed the connection: {}", error.kind),
            "see the messages of the server",
        ),
        kind => RunError::store(NAME, action, kind),
    }
}

/// The error of a command that the server refused.
#[cold]
pub(crate) fn refusal(action: &str, code: i32, message: &str) -> RunError {
    match code {
        UNAUTHORIZED | AUTHENTICATION_FAILED => denied(message),
        OUT_OF_DISK_SPACE => RunError::store(NAME, action, format!("No space left on device: {message}")),
        _ => RunError::store(NAME, action, format!("{message} (code {code})")),
    }
}

#[cold]
fn denied(message: &str) -> RunError {
    RunError::new(
        Code::Authentication,
        format!("{NAME} denied access: {message}"),
        format!("name the user in the address, and set its password in `{PASSWORD}`; it needs the role `readWrite`"),
    )
}
