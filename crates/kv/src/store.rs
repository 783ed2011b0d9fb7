//! The traits that a store implements.
//!
//! [`Opener`] is a kind of store with its options before a database is open: it checks options and target. [`Store`] is an
//! open database, shared by all threads. [`Session`] is the access of one thread: reads lend their value until
//! [`Session::release`], writes are collected until [`Session::commit`]. Load, time and records are not visible here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use iosonde_harness::RunError;
use iosonde_protocol::{Direction, StoreDurability};

/// Location of a database, already checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory of its own, and optionally another for the write-ahead log; both exist.
    Directory {
        /// For the database.
        path: PathBuf,
        log: Option<PathBuf>,
        /// For a persistent read cache.
        read_cache: Option<CachePlace>,
    },
    /// A block device, from its first byte.
    Device {
        /// The device node.
        path: PathBuf,
        /// Bytes that may be used.
        bytes: u64,
    },
    /// The directory of a user's database, which must not be written.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// A server's Unix socket.
    Socket {
        /// The socket.
        path: PathBuf,
    },
    /// A database of a server on TCP.
    Server(Server),
    /// No storage.
    Virtual,
}

impl Place {
    /// The directory of a store that supports nothing else, and that of its log.
    ///
    /// # Errors
    /// When it is no directory of the store's own.
    pub fn directory(&self, store: &str) -> Result<(&Path, Option<&PathBuf>), RunError> {
        match self {
            Place::Directory { path, log, .. } => Ok((path, log.as_ref())),
            _ => Err(self.unsupported(store)),
        }
    }

    /// The directory of a store that has its log there.
    ///
    /// # Errors
    /// When it is no directory of the store's own, or there is another one for the log.
    pub fn single_directory(&self, store: &str) -> Result<&Path, RunError> {
        match self.directory(store)? {
            (path, None) => Ok(path),
            (_, Some(_)) => Err(
                RunError::unsupported(format!("{store} has no separate log"), "omit `log_path`")
                    .at("`target.log_path`"),
            ),
        }
    }

    /// The database of a store that is a server.
    ///
    /// # Errors
    /// When it is no server.
    pub fn server(&self, store: &str) -> Result<&Server, RunError> {
        match self {
            Place::Server(server) => Ok(server),
            _ => Err(self.unsupported(store)),
        }
    }

    /// The error of a store that has no databases in such a place.
    pub fn unsupported(&self, store: &str) -> RunError {
        let (message, hint) = match self {
            Place::Device { path, .. } => (
                format!(
                    "{store} stores a database in files, so it cannot use `{}` without a file system",
                    path.display()
                ),
                "name a directory; only `lmdb` supports devices",
            ),
            _ => (
                format!("{store} does not support this kind of target"),
                "docs/protocol.md has the targets of each store",
            ),
        };
        RunError::unsupported(message, hint).at("`target`")
    }
}

/// A database of a server on TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// The database, which exists.
    pub database: String,
    /// User name, if the server requires one.
    pub user: Option<String>,
}

impl Server {
    /// Host and port.
    pub fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A persistent read cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePlace {
    /// A directory of its own, empty when the database is opened.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Bypass the page cache when writing.
    pub direct_writes: bool,
}

/// Requirements of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// The largest key.
    pub key_bytes_max: u64,
    /// The largest value.
    pub value_bytes_max: u64,
    /// Threads that use the store concurrently.
    pub sessions: u64,
}

impl Demands {
    /// Refuses keys that are larger than those of a store.
    ///
    /// # Errors
    /// `unsupported`, when there are such keys.
    pub fn check_keys(&self, store: &str, bytes_max: u64) -> Result<(), RunError> {
        let bytes = self.key_bytes_max;
        if bytes <= bytes_max {
            return Ok(());
        }
        let problem = format!("{store} supports keys of at most {bytes_max} bytes, not {bytes}");
        Err(RunError::unsupported(problem, "use shorter keys").at("`records.key_bytes`"))
    }
}

/// A kind of store with its options, before a database is open.
pub trait Opener: Sync {
    /// Refuses unsupported places and requirements, and unknown options. Writes nothing.
    ///
    /// # Errors
    /// `unsupported`, `invalid_spec` or `library`.
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError>;

    /// Opens the database at a place, or creates it.
    ///
    /// # Errors
    /// Those of the store.
    fn open(&self, place: &Place, demands: &Demands) -> Result<Box<dyn Store>, RunError>;

    /// Removes all records from a database of a server; files and devices are cleared by the caller.
    ///
    /// # Errors
    /// Those of the store.
    fn clear(&self, _place: &Place, _demands: &Demands) -> Result<(), RunError> {
        Ok(())
    }

    /// Returns true if the first bytes of a device are those of a database of this store.
    fn recognises(&self, _first_bytes: &[u8]) -> bool {
        false
    }

    /// True if the store never modifies a file of a database once it is complete, only deletes it, so that a checkpoint
    /// may share it by a hard link. The path is relative to the database's directory.
    fn is_immutable(&self, _file: &Path) -> bool {
        false
    }
}

/// The build fact of whether assertions are compiled in: `on` or `off`.
pub const ASSERTIONS: &str = "assertions";

/// Version, build and options of a store, as it reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    pub version: String,
    /// Build facts.
    pub build: BTreeMap<String, String>,
    /// Every option in effect.
    pub options: BTreeMap<String, String>,
}

/// An open database. Dropping it closes it.
pub trait Store: Send + Sync {
    /// The access of one thread, created and used in that thread.
    ///
    /// # Errors
    /// Those of the store.
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError>;

    /// Version, build and options.
    ///
    /// # Errors
    /// Those of the store.
    fn about(&self) -> Result<About, RunError>;

    /// The store's own statistics: counters since it was opened, and levels. Those of a server are read by the program that started
    /// it, together with its control group.
    fn statistics(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Sets whether writes of all sessions survive a power failure once they complete, for stores with one setting per
    /// database. Other stores use the argument of [`Session::commit`].
    ///
    /// # Errors
    /// Those of the store.
    fn set_sync(&self, _sync: bool) -> Result<(), RunError> {
        Ok(())
    }

    /// Returns true if durability can differ between sessions.
    fn has_sync_of_session(&self) -> bool {
        true
    }

    /// The failures that an acknowledged write survives with or without `sync`, under the options in effect.
    fn durability(&self, sync: bool) -> StoreDurability;

    /// Writes data that is only in memory to the files.
    ///
    /// # Errors
    /// Those of the store.
    fn flush(&self) -> Result<(), RunError> {
        Ok(())
    }

    /// Returns true if background work is running or pending.
    fn is_busy(&self) -> bool {
        false
    }

    /// On a device: bytes in use.
    fn used_bytes(&self) -> Option<u64> {
        None
    }

    /// Closes the database and reports errors of closing.
    ///
    /// # Errors
    /// Those of the store.
    fn close(self: Box<Self>) -> Result<(), RunError> {
        Ok(())
    }
}

/// Keys one after the other in one memory, which is used again.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    memory: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// Removes all keys.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.ends.clear();
    }

    /// Adds a key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.memory.extend_from_slice(key);
        self.ends.push(self.memory.len());
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A key by its place.
    #[inline]
    pub fn get(&self, place: usize) -> &[u8] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.memory[begin..self.ends[place]]
    }
}

/// A record that a store lends: key and value.
pub type Lent<'a> = (&'a [u8], &'a [u8]);

/// Access of one thread to a database.
pub trait Session {
    /// The value of a key, lent until the session is used again.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError>;

    /// True if [`Session::get`] reads the byte before each value that it lends, as stores do that keep a record's key
    /// or size there: then that page is in memory, also of a mapped file.
    fn reads_byte_before_value(&self) -> bool {
        false
    }

    /// Adds a record to the next write.
    ///
    /// # Errors
    /// Those of the store.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError>;

    /// The same of a record that a cache drops after this many seconds; 0: never. Other stores keep it.
    ///
    /// # Errors
    /// Those of the store.
    fn put_with_ttl(&mut self, key: &[u8], value: &[u8], _ttl_s: u32) -> Result<(), RunError> {
        self.put(key, value)
    }

    /// Adds the deletion of a record to the next write; a missing record is no error.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&mut self, key: &[u8]) -> Result<(), RunError>;

    /// Writes everything added since the last commit, atomically.
    ///
    /// # Errors
    /// Those of the store.
    fn commit(&mut self, sync: bool) -> Result<(), RunError>;

    /// Positions an iterator so that [`Session::next`] returns the first record at or after `key` in that direction, or the
    /// first of all without a key.
    ///
    /// # Errors
    /// Those of the store.
    fn seek(&mut self, _key: Option<&[u8]>, _direction: Direction) -> Result<(), RunError> {
        Err(unordered())
    }

    /// The iterator's next record, lent until the session is used again; `None` at the end.
    ///
    /// # Errors
    /// Those of the store.
    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        Err(unordered())
    }

    /// Declares that every key put from now on is larger than all keys in the database.
    fn expect_ascending_keys(&mut self) {}

    /// Connections that can have gets in flight at the same time; 0 for stores that get one record at a time.
    fn connections(&self) -> usize {
        0
    }

    /// Sends gets on a connection, and forgets the answers to those before.
    ///
    /// # Errors
    /// Those of the store.
    fn send_gets(&mut self, _connection: usize, _keys: &Keys) -> Result<(), RunError> {
        Err(one_at_a_time())
    }

    /// Waits until answers arrive on a connection with gets in flight. `arrived` is called with the connection and the places
    /// of the keys whose answers are complete now; not at all if none is.
    ///
    /// # Errors
    /// Those of the store.
    fn receive_answers(&mut self, _arrived: &mut dyn FnMut(usize, Range<usize>)) -> Result<(), RunError> {
        Err(one_at_a_time())
    }

    /// The value of the key at a place of the last gets of a connection, whose answer has arrived; `None` if the store does
    /// not have it.
    fn answer(&self, _connection: usize, _place: usize) -> Option<&[u8]> {
        None
    }

    /// Returns lent values and closes the iterator.
    fn release(&mut self) {}
}

#[cold]
fn unordered() -> RunError {
    RunError::unsupported(
        "this store does not order records by key, so it cannot be scanned",
        "use `read`, `update`, `insert` and `delete`",
    )
}

#[cold]
fn one_at_a_time() -> RunError {
    RunError::unsupported(
        "this store gets one record at a time",
        "leave out `batch` and `read_through`",
    )
}
