//! Connecting to the server of a spec, and what is required of it: product, version, encoding, collation.

use std::time::Duration;

use crate::sql::{Address, Connection, ErrorKind, Login, Protocol, SqlError, connect};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Isolation, MissingDatabase, SqlAddress, SqlServer, SqlServerAbout, SqlServerKind};

/// Oldest supported versions.
const OLDEST: [(&str, [u32; 2]); 3] = [("PostgreSQL", [11, 0]), ("MariaDB", [10, 4]), ("MySQL", [8, 0])];
/// Collations that compare bytes, so that names sort alike on every server.
const BINARY_COLLATIONS: [&str; 5] = ["C", "POSIX", "C.UTF-8", "C.utf8", "ucs_basic"];

/// A connection for the measured path.
///
/// # Errors
/// When the server cannot be reached or refuses the login.
pub(crate) fn open(server: &SqlServer) -> Result<Box<dyn Connection>, SqlError> {
    connect(&login(server, &server.database))
}

/// The first connection: creates the database if it is missing and may be created, and checks the version.
pub(crate) fn open_first(server: &SqlServer) -> Result<Box<dyn Connection>, RunError> {
    let connection = match open(server) {
        Err(error) if error.kind == ErrorKind::NoDatabase && server.missing_database == MissingDatabase::Create => {
            create_database(server)?;
            open(server)
        }
        other => other,
    };
    let connection = connection
        .map_err(RunError::from)
        .map_err(|error| error.at("connecting to the server"))?;
    check_version(server, &*connection)?;
    Ok(connection)
}

fn login(server: &SqlServer, database: &str) -> Login {
    Login {
        protocol: match server.kind {
            SqlServerKind::Postgresql => Protocol::Postgresql,
            SqlServerKind::Mariadb => Protocol::Mariadb,
        },
        address: match &server.address {
            SqlAddress::Unix { path } => Address::Unix(path.into()),
            SqlAddress::Tcp { host, port } => Address::Tcp(host.clone(), *port),
        },
        user: server.user.clone(),
        database: database.to_owned(),
        timeout: Duration::from_nanos(server.connect_timeout_ns),
    }
}

fn create_database(server: &SqlServer) -> Result<(), RunError> {
    let name = &server.database;
    let (maintenance, sql) = match server.kind {
        SqlServerKind::Postgresql => (
            "postgres",
            format!("CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"),
        ),
        SqlServerKind::Mariadb => (
            "",
            format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
        ),
    };
    let created = connect(&login(server, maintenance)).and_then(|mut connection| connection.query(&sql));
    created
        .map(drop)
        .map_err(|error| RunError::from(error).at(format!("creating the database `{name}`")))
}

fn check_version(server: &SqlServer, connection: &dyn Connection) -> Result<(), RunError> {
    let version = connection.version();
    let supported = OLDEST.iter().find(|(product, _)| *product == version.product);
    let oldest: Vec<u32> = match &server.version_min {
        Some(text) => text.split('.').map_while(|number| number.parse().ok()).collect(),
        None => supported.map_or(Vec::new(), |(_, numbers)| numbers.to_vec()),
    };
    if version.is_at_least(&oldest) {
        return Ok(());
    }
    let wanted: Vec<String> = oldest.iter().map(u32::to_string).collect();
    let (product, text) = (version.product, &version.text);
    Err(RunError::new(
        Code::WrongVersion,
        format!(
            "the server is {product} {text}, and {} or newer is required",
            wanted.join(".")
        ),
        "start a newer server, or lower `server.version_min`",
    )
    .at("connecting to the server"))
}

/// The server's description of the database.
pub(crate) fn about(server: &SqlServer, connection: &mut dyn Connection) -> Result<SqlServerAbout, RunError> {
    let sql = match server.kind {
        SqlServerKind::Postgresql => {
            "SELECT pg_encoding_to_char(encoding), datcollate FROM pg_database WHERE datname = current_database()"
        }
        SqlServerKind::Mariadb => "SELECT @@character_set_database, @@collation_database",
    };
    let rows = connection.query(sql).map_err(RunError::from)?;
    let mut values = rows.into_iter().flatten().map(Option::unwrap_or_default);
    let version = connection.version();
    Ok(SqlServerAbout {
        product: version.product.into(),
        version: version.text.clone(),
        encoding: values.next().unwrap_or_default(),
        collation: values.next().unwrap_or_default(),
        isolation: String::new(),
    })
}

/// Requires UTF-8 and a binary collation: customers are sorted by name, and the order must not depend on the server.
pub(crate) fn check_encoding(server: &SqlServer, about: &SqlServerAbout) -> Result<(), RunError> {
    let is_right = match server.kind {
        SqlServerKind::Postgresql => about.encoding == "UTF8" && BINARY_COLLATIONS.contains(&about.collation.as_str()),
        SqlServerKind::Mariadb => about.encoding.starts_with("utf8") && about.collation.ends_with("_bin"),
    };
    if is_right {
        return Ok(());
    }
    let (name, encoding, collation) = (&server.database, &about.encoding, &about.collation);
    Err(RunError::new(
        Code::WrongEncoding,
        format!("the database `{name}` has encoding `{encoding}` and collation `{collation}`"),
        match server.kind {
            SqlServerKind::Postgresql => "create it with `TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'`",
            SqlServerKind::Mariadb => "create it with `CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`",
        },
    )
    .at("checking the database"))
}

/// The isolation level in SQL.
pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "READ COMMITTED",
        Isolation::RepeatableRead => "REPEATABLE READ",
        Isolation::Serializable => "SERIALIZABLE",
    }
}
