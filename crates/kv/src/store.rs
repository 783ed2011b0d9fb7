//! What a store must be able to do to be measured: the one trait at the edge to databases.
//!
//! [`Opener`] knows a kind of store before any database is open: it checks options and target. [`Store`] is an open database,
//! shared by all threads. [`Session`] is one thread's access to it: reads lend their value until [`Session::release`],
//! writes gather until [`Session::commit`]. Nothing here knows of load, time or records.

use std::collections::BTreeMap;
use std::path::PathBuf;

use iosonde_protocol::Direction;

use crate::error::KvError;

/// Where a database is to lie; whether it may lie there was found out before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory of its own, and perhaps another for the write-ahead log; both exist.
    Directory {
        /// For the database.
        path: PathBuf,
        /// For the log.
        log: Option<PathBuf>,
    },
    /// A block device, from its first byte.
    Device {
        /// The device node.
        path: PathBuf,
        /// Bytes that may be used.
        bytes: u64,
    },
    /// Nowhere.
    Virtual,
}

/// What a run needs of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// The largest key.
    pub key_bytes_max: u64,
    /// The largest value.
    pub value_bytes_max: u64,
    /// Threads that use the store at the same time.
    pub sessions: u64,
}

/// A kind of store with its options, before a database is open.
pub trait Opener: Sync {
    /// Refuses what this store cannot do, and options that it does not have. Writes nothing.
    ///
    /// # Errors
    /// `unsupported`, `invalid_spec` or `library`.
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), KvError>;

    /// Opens the database at a place, or makes it where none is.
    ///
    /// # Errors
    /// Whatever the store says.
    fn open(&self, place: &Place, demands: &Demands) -> Result<Box<dyn Store>, KvError>;

    /// Whether these first bytes of a device are those of a database of this store.
    fn recognises(&self, _first_bytes: &[u8]) -> bool {
        false
    }
}

/// What a store says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its version.
    pub version: String,
    /// How it was built.
    pub build: BTreeMap<String, String>,
    /// Every option in effect.
    pub options: BTreeMap<String, String>,
}

/// An open database. Dropping it closes it.
pub trait Store: Send + Sync {
    /// One thread's access; made and used in that thread.
    ///
    /// # Errors
    /// Whatever the store says.
    fn session(&self) -> Result<Box<dyn Session + '_>, KvError>;

    /// What the store says of itself.
    ///
    /// # Errors
    /// Whatever the store says.
    fn about(&self) -> Result<About, KvError>;

    /// The store's own statistics: counters since it was opened, and levels.
    fn statistics(&self) -> BTreeMap<String, u64>;

    /// Whether writes of every session are to be durable when they complete, for stores that know this only of all together.
    /// The others look at what [`Session::commit`] says.
    ///
    /// # Errors
    /// Whatever the store says.
    fn set_sync(&self, _sync: bool) -> Result<(), KvError> {
        Ok(())
    }

    /// Whether durability can differ from session to session.
    fn has_sync_of_session(&self) -> bool {
        true
    }

    /// Writes out what is only in memory.
    ///
    /// # Errors
    /// Whatever the store says.
    fn flush(&self) -> Result<(), KvError>;

    /// Whether background work is going on or waiting.
    fn is_busy(&self) -> bool {
        false
    }

    /// On a device: bytes in use.
    fn used_bytes(&self) -> Option<u64> {
        None
    }

    /// Closes the database and says whether that went well.
    ///
    /// # Errors
    /// Whatever the store says.
    fn close(self: Box<Self>) -> Result<(), KvError> {
        Ok(())
    }
}

/// A record that a store lends: key and value.
pub type Lent<'a> = (&'a [u8], &'a [u8]);

/// One thread's access to a database.
pub trait Session {
    /// The value of a key, lent until the session is used again.
    ///
    /// # Errors
    /// Whatever the store says.
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError>;

    /// Adds a record to what is written next.
    ///
    /// # Errors
    /// Whatever the store says.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError>;

    /// Adds the deletion of a record; one that is not there is not deleted, and that is no error.
    ///
    /// # Errors
    /// Whatever the store says.
    fn delete(&mut self, key: &[u8]) -> Result<(), KvError>;

    /// Writes everything added since the last time, all or nothing.
    ///
    /// # Errors
    /// Whatever the store says.
    fn commit(&mut self, sync: bool) -> Result<(), KvError>;

    /// Places an iterator so that [`Session::next`] gives the first record at or beyond `key` in that direction; without a
    /// key the very first.
    ///
    /// # Errors
    /// Whatever the store says.
    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), KvError>;

    /// The iterator's next record, lent until the session is used again; `None` at the end.
    ///
    /// # Errors
    /// Whatever the store says.
    fn next(&mut self) -> Result<Option<Lent<'_>>, KvError>;

    /// Gives back what was lent, and ends the iterator.
    fn release(&mut self);
}
