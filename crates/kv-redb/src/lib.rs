//! redb as a store: a copy-on-write B+ tree in one file, written in Rust.
//!
//! A read is one read transaction with its table, a write one write transaction, as redb's own documentation has it.

use std::collections::BTreeMap;

use iosonde_kv::{About, Code, Demands, KvError, Lent, Opener, Place, Session, Store, options};
use iosonde_protocol::Direction;
use redb::{AccessGuard, Database, Durability, Range, ReadableDatabase, TableDefinition, WriteTransaction};
use serde_json::Value;

const NAME: &str = "redb";
/// The version that is compiled in; a test holds it against `Cargo.lock`.
const VERSION: &str = "4.4.0";
const FILE: &str = "data.redb";
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// redb's own default (`Builder::new`).
const CACHE_BYTES: u64 = 1 << 30;

type Guard = AccessGuard<'static, &'static [u8]>;

/// redb's options by the names of its setters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    cache_size: u64,
    quick_repair: bool,
    two_phase_commit: bool,
}

impl Settings {
    const NAMES: [&str; 3] = ["cache_size", "quick_repair", "two_phase_commit"];

    fn read(given: &BTreeMap<String, Value>) -> Result<Settings, KvError> {
        let mut settings = Settings {
            cache_size: CACHE_BYTES,
            quick_repair: false,
            two_phase_commit: false,
        };
        for (name, value) in given {
            match name.as_str() {
                "cache_size" => settings.cache_size = options::integer(NAME, name, value)?,
                "quick_repair" => settings.quick_repair = options::flag(NAME, name, value)?,
                "two_phase_commit" => settings.two_phase_commit = options::flag(NAME, name, value)?,
                _ => return Err(options::unknown(NAME, name, Settings::NAMES.into_iter())),
            }
        }
        Ok(settings)
    }
}

/// Opens redb.
pub struct RedbOpener {
    settings: Settings,
}

impl RedbOpener {
    /// With options by redb's own names.
    ///
    /// # Errors
    /// When an option is unknown or its value of no use.
    pub fn new(options: &BTreeMap<String, Value>) -> Result<RedbOpener, KvError> {
        Ok(RedbOpener {
            settings: Settings::read(options)?,
        })
    }
}

impl Opener for RedbOpener {
    fn check(&self, place: &Place, _demands: &Demands) -> Result<(), KvError> {
        match place {
            Place::Directory { log: None, .. } => Ok(()),
            Place::Directory { .. } => Err(KvError::unsupported(
                format!("{NAME} has no log that could lie elsewhere"),
                "leave `log_path` out",
            )
            .at("`target.log_path`")),
            Place::Device { .. } | Place::Virtual => Err(KvError::unsupported(
                format!("{NAME} needs a directory"),
                "of the stores only `lmdb` takes a device, and only `null` a virtual target",
            )
            .at("`target`")),
        }
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, KvError> {
        let Place::Directory { path, .. } = place else {
            return Err(KvError::new(Code::Internal, "redb was opened without a directory", ""));
        };
        let file = path.join(FILE);
        let opened = Database::builder()
            .set_cache_size(self.settings.cache_size as usize)
            .create(&file);
        let database = opened.map_err(|error| KvError::store(NAME, format!("open `{}`", file.display()), error))?;
        let store = RedbStore {
            database,
            settings: self.settings,
        };
        // Readers need the table to be there.
        store.write(|_| Ok(()), Durability::Immediate)?;
        Ok(Box::new(store))
    }
}

struct RedbStore {
    database: Database,
    settings: Settings,
}

impl RedbStore {
    fn write(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<(), redb::StorageError>,
        durability: Durability,
    ) -> Result<(), KvError> {
        let writing = |error: redb::Error| KvError::store(NAME, "write", error);
        let transaction = self.begin_write(durability).map_err(writing)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(|error| writing(error.into()))?;
            change(&mut table).map_err(|error| writing(error.into()))?;
        }
        transaction.commit().map_err(|error| writing(error.into()))
    }

    fn begin_write(&self, durability: Durability) -> Result<WriteTransaction, redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        transaction.set_quick_repair(self.settings.quick_repair);
        transaction.set_two_phase_commit(self.settings.two_phase_commit);
        Ok(transaction)
    }
}

impl Store for RedbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, KvError> {
        Ok(Box::new(RedbSession {
            store: self,
            lent: None,
            range: None,
            record: None,
            direction: Direction::Forward,
            changes: Vec::new(),
        }))
    }

    fn about(&self) -> Result<About, KvError> {
        Ok(About {
            version: VERSION.into(),
            build: BTreeMap::from([("library".into(), "compiled in".into())]),
            options: BTreeMap::from([
                ("cache_size".into(), self.settings.cache_size.to_string()),
                ("quick_repair".into(), self.settings.quick_repair.to_string()),
                ("two_phase_commit".into(), self.settings.two_phase_commit.to_string()),
            ]),
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        let cache = self.database.cache_stats();
        BTreeMap::from([
            ("evictions".into(), cache.evictions()),
            ("read_hits".into(), cache.read_hits()),
            ("read_misses".into(), cache.read_misses()),
            ("write_hits".into(), cache.write_hits()),
            ("write_misses".into(), cache.write_misses()),
            ("used_bytes".into(), cache.used_bytes() as u64),
        ])
    }

    fn flush(&self) -> Result<(), KvError> {
        self.write(|_| Ok(()), Durability::Immediate)
    }
}

/// One thread's access: what is lent by the last read, an iterator, and the changes of the next write.
struct RedbSession<'a> {
    store: &'a RedbStore,
    lent: Option<Guard>,
    range: Option<Range<'static, &'static [u8], &'static [u8]>>,
    record: Option<(Guard, Guard)>,
    direction: Direction,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl RedbSession<'_> {
    fn table(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        let transaction = self.store.database.begin_read()?;
        Ok(transaction.open_table(TABLE)?)
    }
}

impl Session for RedbSession<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        let reading = |error: redb::Error| KvError::store(NAME, "get a record", error);
        let table = self.table().map_err(reading)?;
        self.lent = table.get(key).map_err(|error| reading(error.into()))?;
        Ok(self.lent.as_ref().map(AccessGuard::value))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.changes.push((key.to_vec(), Some(value.to_vec())));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), KvError> {
        self.changes.push((key.to_vec(), None));
        Ok(())
    }

    fn commit(&mut self, sync: bool) -> Result<(), KvError> {
        let durability = if sync { Durability::Immediate } else { Durability::None };
        let changes = &mut self.changes;
        self.store.write(
            |table| {
                for (key, value) in changes.drain(..) {
                    match value {
                        Some(value) => drop(table.insert(&key[..], &value[..])?),
                        None => drop(table.remove(&key[..])?),
                    }
                }
                Ok(())
            },
            durability,
        )
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), KvError> {
        self.release();
        let seeking = |error: redb::Error| KvError::store(NAME, "seek", error);
        let table = self.table().map_err(seeking)?;
        let range = match (key, direction) {
            (None, _) => table.range::<&[u8]>(..),
            (Some(key), Direction::Forward) => table.range(key..),
            (Some(key), Direction::Reverse) => table.range(..=key),
        };
        self.range = Some(range.map_err(|error| seeking(error.into()))?);
        self.direction = direction;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Lent<'_>>, KvError> {
        let Some(range) = &mut self.range else { return Ok(None) };
        let next = match self.direction {
            Direction::Forward => range.next(),
            Direction::Reverse => range.next_back(),
        };
        self.record = next
            .transpose()
            .map_err(|error| KvError::store(NAME, "iterate", error))?;
        Ok(self.record.as_ref().map(|(key, value)| (key.value(), value.value())))
    }

    fn release(&mut self) {
        self.lent = None;
        self.record = None;
        self.range = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &tempfile::TempDir) -> Place {
        Place::Directory {
            path: directory.path().into(),
            log: None,
        }
    }

    /// The number in `Cargo.lock` is the one that is compiled in.
    #[test]
    fn the_version_told_is_the_one_that_is_compiled_in() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"redb\"\nversion = \"{VERSION}\"")));
    }

    #[test]
    fn it_holds_the_contract_of_stores() {
        let directory = tempfile::tempdir().unwrap();
        iosonde_kv::contract::holds(&RedbOpener::new(&BTreeMap::new()).unwrap(), &place(&directory));
    }

    #[test]
    fn it_refuses_a_device_and_a_log_apart() {
        let opener = RedbOpener::new(&BTreeMap::new()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let device = Place::Device {
            path: "/dev/null".into(),
            bytes: 1 << 30,
        };
        let log_apart = Place::Directory {
            path: directory.path().into(),
            log: Some(directory.path().into()),
        };
        for refused in [device, log_apart] {
            let error = opener.check(&refused, &iosonde_kv::contract::DEMANDS).unwrap_err();
            assert_eq!(error.code, Code::Unsupported);
        }
    }

    #[test]
    fn options_are_read_by_their_own_names() {
        let read = |name: &str, value: Value| Settings::read(&BTreeMap::from([(name.to_owned(), value)]));
        assert_eq!(read("cache_size", 1024.into()).unwrap().cache_size, 1024);
        assert!(read("two_phase_commit", true.into()).unwrap().two_phase_commit);
        assert!(read("quick_repair", 1.into()).is_err());
        assert_eq!(
            read("cachesize", 1.into()).unwrap_err().hint,
            "the nearest name is `cache_size`"
        );
    }
}
