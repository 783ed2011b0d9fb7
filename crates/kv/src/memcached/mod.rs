//! memcached as a store: a client of its meta protocol over a Unix socket.
//!
//! Somebody else starts the server. A session has one or more connections. Gets that are sent together are divided among
//! them, all requests are sent, and each connection is read as soon as it has answers, so every get has its own latency.
//! Writes are sent in quiet mode and end with `mn`, whose answer acknowledges them; errors arrive before it.
//!
//! A record is a miss when the server has evicted it, or its time to live is over. `connection` has the sockets, `protocol`
//! requests and answers.

mod connection;
mod protocol;

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::options::{self, Given};
use crate::{About, Demands, Keys, Opener, Place, Session, Store};
use iosonde_harness::RunError;
use iosonde_protocol::StoreDurability;
use rustix::event::epoll;

use crate::memcached::connection::{Connection, NAME};
use crate::memcached::protocol::{KEY_BYTES_MAX, Requests};

/// Connections of a session.
const CONNECTIONS_MAX: u64 = 1024;
/// Gets in flight on a connection: their requests fit into a socket's buffer, so that sending them never waits for a server
/// that waits for its answers to be read.
const GETS_MAX: usize = 256;
/// Writes in flight on a connection: if each fails, the answers fit into a socket's buffer, for the same reason.
const WRITES_MAX: usize = 128;
/// memcached takes larger numbers of seconds for points in time.
const TTL_MAX_S: u64 = 30 * 24 * 3600;

/// Options of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    /// Connections of each session.
    connections: usize,
    /// Seconds after which the server drops a record; 0: never.
    ttl_s: u64,
}

impl Settings {
    const NAMES: [&str; 2] = ["connections", "ttl_s"];

    fn read(given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings {
            connections: 1,
            ttl_s: 0,
        };
        for option in options::each(NAME, given) {
            match option.name {
                "connections" => settings.connections = option.within(1..=CONNECTIONS_MAX)? as usize,
                "ttl_s" => settings.ttl_s = option.within(0..=TTL_MAX_S)?,
                _ => return Err(option.unknown(Settings::NAMES)),
            }
        }
        Ok(settings)
    }
}

pub fn option_names() -> Vec<&'static str> {
    Settings::NAMES.to_vec()
}

/// Connects to memcached, with the client's options.
///
/// # Errors
/// When an option is unknown or its value invalid.
pub fn opener(options: &Given) -> Result<Box<dyn Opener>, RunError> {
    Ok(Box::new(Settings::read(options)?))
}

impl Opener for Settings {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        demands.check_keys(NAME, KEY_BYTES_MAX)?;
        match place {
            Place::Socket { .. } => Ok(()),
            _ => Err(place.unsupported(NAME)),
        }
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let Place::Socket { path } = place else {
            return Err(place.unsupported(NAME));
        };
        let store = MemcachedStore {
            socket: path.clone(),
            settings: *self,
        };
        store.version()?;
        Ok(Box::new(store))
    }
}

struct MemcachedStore {
    socket: PathBuf,
    settings: Settings,
}

impl MemcachedStore {
    fn version(&self) -> Result<String, RunError> {
        Connection::open(&self.socket)?.version()
    }
}

impl Store for MemcachedStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(MemcachedSession::open(self)?))
    }

    fn about(&self) -> Result<About, RunError> {
        Ok(About {
            version: self.version()?,
            build: BTreeMap::from([("library".into(), "own client, meta protocol".into())]),
            options: BTreeMap::from([
                ("connections".into(), self.settings.connections.to_string()),
                ("ttl_s".into(), self.settings.ttl_s.to_string()),
            ]),
        })
    }

    fn durability(&self, _sync: bool) -> StoreDurability {
        StoreDurability::Nothing
    }

    /// Bytes of items in memory and in external storage.
    fn used_bytes(&self) -> Option<u64> {
        let statistics = Connection::open(&self.socket).and_then(|mut connection| connection.statistics());
        let known = statistics.ok()?;
        let bytes = |name: &str| known.get(name).copied().unwrap_or_default();
        Some(bytes("bytes") + bytes("extstore_bytes_used"))
    }
}

/// The connections of one thread.
struct MemcachedSession<'a> {
    store: &'a MemcachedStore,
    connections: Vec<Connection>,
    /// Reports which connections have answers; absent with one connection, which is then read without asking.
    epoll: Option<OwnedFd>,
    ready: Vec<epoll::Event>,
    /// The connection for the next single operation.
    next: usize,
    writes: Requests,
}

impl MemcachedSession<'_> {
    fn open(store: &MemcachedStore) -> Result<MemcachedSession<'_>, RunError> {
        let number = store.settings.connections;
        let connections: Vec<Connection> = (0..number)
            .map(|_| Connection::open(&store.socket))
            .collect::<Result<_, _>>()?;
        let epoll = match number {
            1 => None,
            _ => Some(watch(&connections)?),
        };
        Ok(MemcachedSession {
            store,
            connections,
            epoll,
            ready: Vec::with_capacity(number),
            next: 0,
            writes: Requests::default(),
        })
    }

    fn turn(&mut self) -> usize {
        let turn = self.next;
        self.next = (turn + 1) % self.connections.len();
        turn
    }

    /// Sends writes before the commit when there are too many of them.
    fn send_full_batch(&mut self) -> Result<(), RunError> {
        match self.writes.writes() {
            WRITES_MAX => self.commit(false),
            _ => Ok(()),
        }
    }
}

impl Session for MemcachedSession<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let turn = self.turn();
        let connection = &mut self.connections[turn];
        connection.send_gets(std::iter::once(key))?;
        while connection.receive_answers()?.end == 0 {}
        Ok(connection.answer(0))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        self.writes.set(key, value, self.store.settings.ttl_s);
        self.send_full_batch()
    }

    fn put_with_ttl(&mut self, key: &[u8], value: &[u8], ttl_s: u32) -> Result<(), RunError> {
        self.writes.set(key, value, u64::from(ttl_s));
        self.send_full_batch()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        self.writes.delete(key);
        self.send_full_batch()
    }

    fn commit(&mut self, _sync: bool) -> Result<(), RunError> {
        if self.writes.writes() == 0 {
            return Ok(());
        }
        let turn = self.turn();
        let written = self.connections[turn].write(&mut self.writes);
        self.writes.clear();
        written
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    #[inline]
    fn send_gets(&mut self, connection: usize, keys: &Keys) -> Result<(), RunError> {
        if keys.len() > GETS_MAX {
            return Err(too_many(keys.len()));
        }
        self.connections[connection].send_gets((0..keys.len()).map(|place| keys.get(place)))
    }

    #[inline]
    fn receive_answers(&mut self, arrived: &mut dyn FnMut(usize, Range<usize>)) -> Result<(), RunError> {
        let connections = &mut self.connections;
        let mut receive = |index: usize| {
            let places = connections[index].receive_answers()?;
            if !places.is_empty() {
                arrived(index, places);
            }
            Ok(())
        };
        let Some(epoll) = &self.epoll else {
            return receive(0);
        };
        self.ready.clear();
        wait(epoll, &mut self.ready)?;
        (self.ready.iter()).try_for_each(|event| receive(event.data.u64() as usize))
    }

    fn answer(&self, connection: usize, place: usize) -> Option<&[u8]> {
        self.connections[connection].answer(place)
    }
}

/// Watches connections for answers; an event has the place of its connection.
fn watch(connections: &[Connection]) -> Result<OwnedFd, RunError> {
    let watching = |error: rustix::io::Errno| RunError::store(NAME, "watch its connections", error);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watching)?;
    for (place, connection) in connections.iter().enumerate() {
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&epoll, connection, data, epoll::EventFlags::IN).map_err(watching)?;
    }
    Ok(epoll)
}

/// Waits until at least one connection has answers.
fn wait(epoll: &OwnedFd, ready: &mut Vec<epoll::Event>) -> Result<(), RunError> {
    loop {
        match epoll::wait(epoll, rustix::buffer::spare_capacity(ready), None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RunError::store(NAME, "wait for answers", error)),
            Ok(_) => return Ok(()),
        }
    }
}

#[cold]
fn too_many(gets: usize) -> RunError {
    RunError::unsupported(
        format!("{gets} gets in flight on a connection"),
        format!("use more `connections`, or a `batch` of at most {GETS_MAX} for each"),
    )
}

#[cfg(test)]
mod tests;
