//! The access of one thread.

use crate::{Lent, Session};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::Direction;
use mongodb::Cursor;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, cstr, rawdoc};

use crate::mongodb::connection::Connection;
use crate::mongodb::settings::{NAME, Settings};
use crate::mongodb::writes::{self, COLLECTION, VALUE_NAME, Writes, binary, identified};

/// A session: a connection, what it has read last, and what it will write.
pub(crate) struct MongodbSession<'a> {
    settings: &'a Settings,
    connection: Connection,
    read_concern: RawDocumentBuf,
    read: Option<Cursor<Document>>,
    cursor: Option<Cursor<Document>>,
    writes: Writes,
    /// Keys that are put do not exist.
    adds: bool,
}

impl<'a> MongodbSession<'a> {
    pub(crate) fn new(connection: Connection, settings: &'a Settings) -> MongodbSession<'a> {
        MongodbSession {
            settings,
            connection,
            read_concern: rawdoc! { "level": settings.read_concern.as_str() },
            read: None,
            cursor: None,
            writes: Writes::default(),
            adds: false,
        }
    }
}

impl Session for MongodbSession<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let find = rawdoc! {
            "find": COLLECTION,
            "filter": identified(key),
            "limit": 1,
            "singleBatch": true,
            "readConcern": self.read_concern.clone(),
        };
        let found = self.read.insert(self.connection.find("read", find)?);
        match self.connection.wait("read", found.advance())? {
            true => bytes(found.current(), VALUE_NAME).map(Some),
            false => Ok(None),
        }
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
            Direction::Forward => (cstr!("$gte"), 1),
            Direction::Reverse => (cstr!("$lte"), -1),
        };
        let mut filter = RawDocumentBuf::new();
        if let Some(key) = key {
            let mut range = RawDocumentBuf::new();
            range.append(bound, binary(key));
            filter.append(cstr!("_id"), range);
        }
        let find = rawdoc! {
            "find": COLLECTION,
            "filter": filter,
            "sort": { "_id": order },
            "readConcern": self.read_concern.clone(),
        };
        self.cursor = Some(self.connection.find("scan", find)?);
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
