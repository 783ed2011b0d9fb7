//! The access of one thread.

use crate::{Lent, Session};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::Direction;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use mongodb::{Collection, Cursor};

use crate::mongodb::connection::Connection;
use crate::mongodb::settings::{NAME, Settings};
use crate::mongodb::writes::{self, COLLECTION, VALUE_NAME, Writes};

/// A session: a connection, what it has read last, and what it will write.
pub(crate) struct MongodbSession<'a> {
    settings: &'a Settings,
    connection: Connection,
    records: Collection<RawDocumentBuf>,
    read: Option<RawDocumentBuf>,
    cursor: Option<Cursor<RawDocumentBuf>>,
    writes: Writes,
    /// Keys that are put do not exist.
    adds: bool,
}

impl<'a> MongodbSession<'a> {
    pub(crate) fn new(connection: Connection, settings: &'a Settings) -> MongodbSession<'a> {
        MongodbSession {
            settings,
            records: connection.database.collection(COLLECTION),
            connection,
            read: None,
            cursor: None,
            writes: Writes::default(),
            adds: false,
        }
    }
}

impl Session for MongodbSession<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let filter = doc! { "_id": binary(key) };
        self.read = self
            .connection
            .wait("read", self.records.find_one(filter).into_future())?;
        self.read
            .as_deref()
            .map(|document| bytes(document, VALUE_NAME))
            .transpose()
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        match self.adds {
            true => self.writes.insert(key, value),
            false => self.writes.replace(key, value),
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        self.writes.delete(key);
        Ok(())
    }

    fn commit(&mut self, sync: bool) -> Result<(), RunError> {
        let write_concern = self.settings.write_concern(sync);
        let connection = &self.connection;
        let mut commands = self.writes.commands(&write_concern);
        commands.try_for_each(|command| writes::check(&connection.command("write", command)?))
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        let (bound, order) = match direction {
            Direction::Forward => ("$gte", 1),
            Direction::Reverse => ("$lte", -1),
        };
        let filter = match key {
            Some(key) => doc! { "_id": { bound: binary(key) } },
            None => doc! {},
        };
        let options = FindOptions::builder().sort(doc! { "_id": order }).build();
        let find = self.records.find(filter).with_options(options);
        self.cursor = Some(self.connection.wait("scan", find.into_future())?);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(None);
        };
        if !self.connection.wait("scan", cursor.advance())? {
            self.cursor = None;
            return Ok(None);
        }
        let record = self.cursor.as_ref().expect("it has advanced").current();
        Ok(Some((bytes(record, "_id")?, bytes(record, VALUE_NAME)?)))
    }

    fn expect_ascending_keys(&mut self) {
        self.adds = true;
    }

    fn release(&mut self) {
        self.read = None;
        self.cursor = None;
    }
}

fn binary(key: &[u8]) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.into(),
    }
}

/// A binary field of a record.
fn bytes<'d>(record: &'d RawDocument, field: &str) -> Result<&'d [u8], RunError> {
    let found = record.get_binary(field);
    found.map(|binary| binary.bytes).map_err(|error| {
        RunError::new(
            Code::StoreError,
            format!("{NAME} returned a record without `{field}`: {error}"),
            "another client changed the collection",
        )
    })
}
