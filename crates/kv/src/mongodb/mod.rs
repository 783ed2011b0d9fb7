//! MongoDB as a store: a client of its wire protocol, with the driver that MongoDB maintains.
//!
//! Somebody else runs the server, and has created the database. A record is a document with a binary `_id`, the key, and one
//! binary field, the value. Each session has a connection of its own. A batch is one command for consecutive writes of one
//! kind; it is not atomic, since MongoDB's commands are atomic for one document only.
//!
//! `settings` has the client's options, `connection` the driver, `session` reads and scans, `writes` commands that write,
//! `facts` what the server reports about itself.

mod connection;
mod facts;
mod session;
mod settings;
mod writes;

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::options::Given;
use crate::{About, Demands, Opener, Place, Server, Session, Store};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::StoreDurability;
use mongodb::bson::rawdoc;

use crate::mongodb::connection::Connection;
use crate::mongodb::facts::Reported;
use crate::mongodb::session::MongodbSession;
use crate::mongodb::settings::{NAME, Settings};
use crate::mongodb::writes::COLLECTION;

/// The collection that shows that iosonde created the database (`features/key_value_stores/mongodb.py`).
const OWNER: &str = "iosonde";
/// Bytes of a document at most, less those of its field names.
const RECORD_BYTES_MAX: u64 = (16 << 20) - 64;
/// The code of an error of the server: the collection to drop does not exist.
const NAMESPACE_NOT_FOUND: &str = "code 26";

pub fn option_names() -> Vec<&'static str> {
    settings::names()
}

/// Connects to MongoDB, with the client's options.
///
/// # Errors
/// When an option is unknown or its value invalid.
pub fn opener(options: &Given) -> Result<Box<dyn Opener>, RunError> {
    Ok(Box::new(Settings::read(options)?))
}

impl Settings {
    /// Connects to a database that iosonde created, and to no other.
    fn connect(&self, server: &Server) -> Result<Connection, RunError> {
        let connection = Connection::open(server, self)?;
        let owner = rawdoc! { "find": OWNER, "filter": { "_id": "created_by" }, "limit": 1, "singleBatch": true };
        let mut owner = connection.find("read", owner)?;
        if !connection.wait("read", owner.advance())? {
            return Err(RunError::new(
                Code::ForeignData,
                format!("the database `{}` was not created by iosonde", server.database),
                "it was not changed; create one through `iosonde run --server`",
            )
            .at("`target.database`"));
        }
        Ok(connection)
    }
}

impl Opener for Settings {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        let bytes = demands.key_bytes_max + demands.value_bytes_max;
        if bytes > RECORD_BYTES_MAX {
            return Err(RunError::unsupported(
                format!("records of {bytes} bytes: documents of {NAME} have 16 MiB at most"),
                "use smaller values",
            )
            .at("`records.value_bytes`"));
        }
        place.server(NAME).map(drop)
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let address = place.server(NAME)?;
        let connection = self.connect(address)?;
        Ok(Box::new(MongodbStore {
            address: address.clone(),
            settings: self.clone(),
            server: facts::ask(&connection)?,
            connection: Mutex::new(connection),
        }))
    }

    fn clear(&self, place: &Place, _demands: &Demands) -> Result<(), RunError> {
        let connection = self.connect(place.server(NAME)?)?;
        match connection.command("drop the collection", rawdoc! { "drop": COLLECTION }) {
            Err(error) if !error.message.contains(NAMESPACE_NOT_FOUND) => Err(error),
            _ => Ok(()),
        }
    }
}

struct MongodbStore {
    address: Server,
    settings: Settings,
    server: Reported,
    /// For everything but the measured operations.
    connection: Mutex<Connection>,
}

impl MongodbStore {
    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Store for MongodbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        let connection = Connection::open(&self.address, &self.settings)?;
        Ok(Box::new(MongodbSession::new(connection, &self.settings)))
    }

    fn about(&self) -> Result<About, RunError> {
        let mut options = self.settings.shown();
        options.extend(self.server.settings.clone());
        Ok(About {
            version: self.server.version.clone(),
            build: self.server.build.clone(),
            options,
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        facts::statistics(&self.connection())
    }

    /// A write that waits for the journal survives a power failure of the members that acknowledge it. MongoDB writes its
    /// journal every 100 ms, so any other write may be lost when the process ends.
    fn durability(&self, sync: bool) -> StoreDurability {
        match self.settings.waits_for_journal(sync) && self.server.is_persistent {
            true => StoreDurability::PowerLoss,
            false => StoreDurability::Nothing,
        }
    }

    /// Bytes that the database's files and indexes occupy, as the server reports them.
    fn used_bytes(&self) -> Option<u64> {
        let answer = self
            .connection()
            .command("report its size", rawdoc! { "dbStats": 1 })
            .ok()?;
        let bytes = |name| facts::number(&answer, &[name]).unwrap_or_default();
        Some(bytes("storageSize") + bytes("indexSize"))
    }
}
