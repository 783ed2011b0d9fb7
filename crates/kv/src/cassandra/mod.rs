//! Cassandra as a store: one table of keys and values, over CQL with ScyllaDB's driver, which supports both servers.
//!
//! Somebody else starts the server and creates the keyspace. Each thread has a client of its own, whose runtime runs in that
//! thread (`client`), so an operation starts and ends without handing over to another thread.
//!
//! A commit of several writes sends them as single statements, several in flight: batches of many partitions only load the
//! coordinator. Such a commit is not atomic. Partitions are ordered by the hash of their keys, so there are no scans.

mod client;
mod settings;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::options::Given;
use crate::{About, Demands, Opener, Place, Server, Session, Store};
use iosonde_harness::{Code, RunError, require};
use iosonde_protocol::StoreDurability;

use crate::cassandra::client::{Client, Writes};
use crate::cassandra::settings::{NAME, Settings};

/// Largest key: its length is 16 bits on the wire of partition keys.
const KEY_BYTES_MAX: u64 = 65_535;
/// Largest value: Cassandra refuses mutations above half a segment of its commit log, 32 MiB by default.
const VALUE_BYTES_MAX: u64 = 15 << 20;

/// The table of a keyspace that shows that iosonde created it.
const OWNER: &str = "created_by_iosonde";

pub fn option_names() -> Vec<&'static str> {
    Settings::NAMES.to_vec()
}

/// Connects to Cassandra, with the options of the client and of the table.
///
/// # Errors
/// When an option is unknown or its value invalid.
pub fn opener(options: &Given) -> Result<Box<dyn Opener>, RunError> {
    Ok(Box::new(Settings::read(options)?))
}

impl Opener for Settings {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        require(is_name(&place.server(NAME)?.database), "`target.database`")?;
        let limits = [
            (demands.key_bytes_max, KEY_BYTES_MAX, "`records.key_bytes`", "keys"),
            (
                demands.value_bytes_max,
                VALUE_BYTES_MAX,
                "`records.value_bytes`",
                "values",
            ),
        ];
        match limits.into_iter().find(|(bytes, most, ..)| bytes > most) {
            Some((bytes, most, place, what)) => Err(RunError::unsupported(
                format!("{what} of {bytes} bytes: those of {NAME} have {most} at most"),
                format!("use smaller {what}"),
            )
            .at(place)),
            None => Ok(()),
        }
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let server = place.server(NAME)?.clone();
        Ok(Box::new(CassandraStore::open(server, self.clone())?))
    }

    /// Drops the table and creates it again: a truncated one keeps its settings, which may be those of another run.
    ///
    /// Only in a keyspace that iosonde created.
    fn clear(&self, place: &Place, _demands: &Demands) -> Result<(), RunError> {
        let server = place.server(NAME)?;
        let keyspace = &server.database;
        let table = client::table(keyspace);
        let client = Client::connect(server, self)?;
        if !client.has_table(keyspace, OWNER)? {
            return Err(RunError::new(
                Code::ForeignData,
                format!("the keyspace `{keyspace}` was not created by iosonde"),
                "it was not changed; create one through `iosonde run --server`",
            )
            .at("`target.database`"));
        }
        client.query(&format!("DROP TABLE IF EXISTS {table}"))?;
        let (product, _) = client.version()?;
        client.query(&format!(
            "CREATE TABLE {table} (key blob PRIMARY KEY, value blob){}",
            self.table_options(product)
        ))
    }
}

/// Names that need no quotes; they become part of statements.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=48).contains(&text.len()) && text.bytes().all(is_letter) && text.as_bytes()[0].is_ascii_lowercase()
}

struct CassandraStore {
    server: Server,
    settings: Settings,
    /// For what is asked besides the load.
    client: Mutex<Client>,
    commitlog_sync: String,
}

impl CassandraStore {
    fn open(server: Server, settings: Settings) -> Result<CassandraStore, RunError> {
        let client = Client::connect(&server, &settings)?;
        let commitlog_sync = client.commitlog_sync()?;
        Ok(CassandraStore {
            server,
            settings,
            client: Mutex::new(client),
            commitlog_sync,
        })
    }

    fn ask<T>(&self, question: impl FnOnce(&Client) -> T) -> T {
        question(&self.client.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if the server acknowledges writes once its commit log is synced.
    fn waits_for_sync(&self) -> bool {
        matches!(self.commitlog_sync.as_str(), "batch" | "group")
    }
}

impl Store for CassandraStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(CassandraSession {
            client: Client::connect(&self.server, &self.settings)?.prepare(&self.server.database)?,
            writes: Writes::default(),
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        let (product, version) = self.ask(Client::version)?;
        let mut options = self.settings.in_effect();
        options.insert("commitlog_sync".into(), self.commitlog_sync.clone());
        Ok(About {
            version,
            build: BTreeMap::from([
                ("server".into(), product.name().into()),
                ("library".into(), format!("scylla {}", client::DRIVER_VERSION)),
            ]),
            options,
        })
    }

    /// The server decides when it syncs its commit log, for all writes alike.
    fn set_sync(&self, sync: bool) -> Result<(), RunError> {
        if !sync || self.waits_for_sync() {
            return Ok(());
        }
        Err(RunError::unsupported(
            format!(
                "the server acknowledges writes before its commit log is synced (`commitlog_sync: {}`)",
                self.commitlog_sync
            ),
            "set `commitlog_sync` to `batch` or `group` on the server, or leave out `sync`",
        ))
    }

    fn has_sync_of_session(&self) -> bool {
        false
    }

    /// With `periodic`, replay of the commit log ends at the last marker, which is up to 100 ms old.
    fn durability(&self, _sync: bool) -> StoreDurability {
        match self.waits_for_sync() {
            true => StoreDurability::PowerLoss,
            false => StoreDurability::Nothing,
        }
    }

    fn is_busy(&self) -> bool {
        self.ask(Client::is_compacting)
    }

    fn used_bytes(&self) -> Option<u64> {
        self.ask(|client| client.table_bytes(&self.server.database))
    }
}

/// The client of one thread.
struct CassandraSession {
    client: client::Prepared,
    writes: Writes,
}

impl Session for CassandraSession {
    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        self.client.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        self.writes.add(key, Some(value));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        self.writes.add(key, None);
        Ok(())
    }

    fn commit(&mut self, _sync: bool) -> Result<(), RunError> {
        let written = self.client.write(&self.writes);
        self.writes.clear();
        written
    }

    fn release(&mut self) {
        self.client.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_are_no_servers_and_names_of_keyspaces_that_are_not_plain_are_refused() {
        let opener = Settings::default();
        let demands = Demands {
            key_bytes_max: 24,
            value_bytes_max: 1000,
            sessions: 2,
        };
        let error = opener.check(&Place::Virtual, &demands).unwrap_err();
        assert_eq!(error.code, Code::Unsupported);
        let place = Place::Server(Server {
            host: "127.0.0.1".into(),
            port: 9042,
            database: "iosonde".into(),
            user: None,
        });
        assert_eq!(opener.check(&place, &demands), Ok(()));
        let mut large = demands;
        large.key_bytes_max = 70_000;
        assert_eq!(opener.check(&place, &large).unwrap_err().context, "`records.key_bytes`");
        assert!(is_name("iosonde_12ab34cd"));
        for wrong in ["", "Iosonde", "1a", "a;DROP", "a b", &"a".repeat(49)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
