//! redb as a store: a copy-on-write B+ tree in one file, written in Rust.
//!
//! Each read is one read transaction and each write one write transaction, as in redb's documentation.
//!
//! redb's `Durability::None` keeps commits in the process, so a crash loses all of them. Other stores write without syncing,
//! and lose nothing when the process crashes. To compare them under one setting, writes without `sync` commit with
//! `Durability::Immediate` on a file whose `fsync` is skipped ([`backend`]); the option `durability = "none"` selects redb's
//! own mode.

mod backend;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iosonde_kv::{About, Demands, Lent, Opener, Place, RunError, Session, Store, options};
use iosonde_protocol::{Direction, StoreDurability};
use redb::{AccessGuard, Database, Durability, Range, ReadableDatabase, TableDefinition, WriteTransaction};
use serde_json::Value;

use crate::backend::Backend;

const NAME: &str = "redb";
/// The version that is compiled in; a test compares it with `Cargo.lock`.
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
    /// Writes without `sync` stay in the process until the next synced write.
    in_memory: bool,
}

impl Settings {
    const NAMES: [&str; 4] = ["cache_size", "durability", "quick_repair", "two_phase_commit"];

    fn read(given: &BTreeMap<String, Value>) -> Result<Settings, RunError> {
        let mut settings = Settings {
            cache_size: CACHE_BYTES,
            quick_repair: false,
            two_phase_commit: false,
            in_memory: false,
        };
        for (name, value) in given {
            match name.as_str() {
                "cache_size" => settings.cache_size = options::integer(NAME, name, value)?,
                "durability" => settings.in_memory = is_none(name, value)?,
                "quick_repair" => settings.quick_repair = options::flag(NAME, name, value)?,
                "two_phase_commit" => settings.two_phase_commit = options::flag(NAME, name, value)?,
                _ => return Err(options::unknown(NAME, name, Settings::NAMES.into_iter())),
            }
        }
        Ok(settings)
    }
}

pub fn option_names() -> Vec<&'static str> {
    Settings::NAMES.to_vec()
}

/// redb's durability of writes without `sync`: `immediate` without fsync, or `none`.
fn is_none(name: &str, value: &Value) -> Result<bool, RunError> {
    match value.as_str() {
        Some("immediate") => Ok(false),
        Some("none") => Ok(true),
        _ => Err(options::wrong(NAME, name, value, "`immediate` or `none`")),
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
    /// When an option is unknown or its value invalid.
    pub fn new(options: &BTreeMap<String, Value>) -> Result<RedbOpener, RunError> {
        Ok(RedbOpener {
            settings: Settings::read(options)?,
        })
    }
}

impl Opener for RedbOpener {
    fn check(&self, place: &Place, _demands: &Demands) -> Result<(), RunError> {
        place.single_directory(NAME)?;
        Ok(())
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let file = place.single_directory(NAME)?.join(FILE);
        let opening =
            |error: &dyn std::fmt::Display| RunError::store(NAME, format!("open `{}`", file.display()), error);
        let skips_sync = Arc::new(AtomicBool::new(false));
        let backend = Backend::open(&file, skips_sync.clone()).map_err(|error| opening(&error))?;
        let opened = Database::builder()
            .set_cache_size(self.settings.cache_size as usize)
            .create_with_backend(backend);
        let store = RedbStore {
            database: opened.map_err(|error| opening(&error))?,
            settings: self.settings,
            skips_sync,
        };
        // Readers need the table.
        store.write(|_| Ok(()), Durability::Immediate)?;
        Ok(Box::new(store))
    }
}

struct RedbStore {
    database: Database,
    settings: Settings,
    /// True while the file ignores requests to sync, for writes without `sync`.
    skips_sync: Arc<AtomicBool>,
}

impl RedbStore {
    fn write(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<(), redb::StorageError>,
        durability: Durability,
    ) -> Result<(), RunError> {
        let writing = |error: redb::Error| RunError::store(NAME, "write", error);
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
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(RedbSession {
            store: self,
            lent: None,
            range: None,
            record: None,
            direction: Direction::Forward,
            changes: Vec::new(),
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        Ok(About {
            version: VERSION.into(),
            build: BTreeMap::from([("library".into(), "compiled in".into())]),
            options: BTreeMap::from([
                ("cache_size".into(), self.settings.cache_size.to_string()),
                (
                    "durability".into(),
                    if self.settings.in_memory { "none" } else { "immediate" }.into(),
                ),
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
            ("read_misses".into(), not_below_zero(cache.read_misses())),
            ("write_hits".into(), cache.write_hits()),
            ("write_misses".into(), not_below_zero(cache.write_misses())),
            ("used_bytes".into(), cache.used_bytes() as u64),
        ])
    }

    fn set_sync(&self, sync: bool) -> Result<(), RunError> {
        self.skips_sync
            .store(!sync && !self.settings.in_memory, Ordering::Release);
        Ok(())
    }

    /// The file syncs or does not, for all sessions.
    fn has_sync_of_session(&self) -> bool {
        self.settings.in_memory
    }

    fn durability(&self, sync: bool) -> StoreDurability {
        match (sync, self.settings.in_memory) {
            (true, _) => StoreDurability::PowerLoss,
            (false, true) => StoreDurability::Nothing,
            (false, false) => StoreDurability::ProcessCrash,
        }
    }

    fn flush(&self) -> Result<(), RunError> {
        let skipped = self.skips_sync.swap(false, Ordering::AcqRel);
        let flushed = self.write(|_| Ok(()), Durability::Immediate);
        self.skips_sync.store(skipped, Ordering::Release);
        flushed
    }
}

/// Access of one thread: the value lent by the last read, an iterator, and the changes of the next write.
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
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let reading = |error: redb::Error| RunError::store(NAME, "get a record", error);
        let table = self.table().map_err(reading)?;
        self.lent = table.get(key).map_err(|error| reading(error.into()))?;
        Ok(self.lent.as_ref().map(AccessGuard::value))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        self.changes.push((key.to_vec(), Some(value.to_vec())));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        self.changes.push((key.to_vec(), None));
        Ok(())
    }

    fn commit(&mut self, sync: bool) -> Result<(), RunError> {
        let durability = match sync || !self.store.settings.in_memory {
            true => Durability::Immediate,
            false => Durability::None,
        };
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

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        self.release();
        let seeking = |error: redb::Error| RunError::store(NAME, "seek", error);
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

    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let Some(range) = &mut self.range else { return Ok(None) };
        let next = match self.direction {
            Direction::Forward => range.next(),
            Direction::Reverse => range.next_back(),
        };
        self.record = next
            .transpose()
            .map_err(|error| RunError::store(NAME, "iterate", error))?;
        Ok(self.record.as_ref().map(|(key, value)| (key.value(), value.value())))
    }

    fn release(&mut self) {
        self.lent = None;
        self.record = None;
        self.range = None;
    }
}

/// A difference of two counters of redb's cache, which wraps around where the second was counted before the first.
///
/// redb 4.4 counts a hit before the access (`PagedCachedFile::write`), and `cache_stats` may read both in between.
fn not_below_zero(difference: u64) -> u64 {
    difference.cast_signed().max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_kv::{Code, contract};

    #[test]
    fn the_reported_version_is_the_one_in_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"redb\"\nversion = \"{VERSION}\"")));
    }

    #[test]
    fn it_fulfils_the_contract_of_stores() {
        for durability in ["immediate", "none"] {
            let directory = tempfile::tempdir().unwrap();
            let options = BTreeMap::from([("durability".to_owned(), durability.into())]);
            contract::verify(
                &RedbOpener::new(&options).unwrap(),
                &contract::directory(directory.path()),
            );
        }
    }

    #[test]
    fn options_are_read_by_their_own_names_and_misses_are_never_below_zero() {
        let read = |name: &str, value: Value| Settings::read(&BTreeMap::from([(name.to_owned(), value)]));
        assert_eq!(read("cache_size", 1024.into()).unwrap().cache_size, 1024);
        assert!(read("two_phase_commit", true.into()).unwrap().two_phase_commit);
        assert!(read("durability", "none".into()).unwrap().in_memory);
        assert!(read("durability", "paranoid".into()).is_err());
        assert!(read("quick_repair", 1.into()).is_err());
        let hint = read("cachesize", 1.into()).unwrap_err().hint;
        assert!(hint.starts_with("the nearest name is `cache_size`"), "{hint}");
        let opener = RedbOpener::new(&BTreeMap::new()).unwrap();
        let path = std::path::Path::new("/tmp");
        for refused in [contract::device(1 << 30), contract::log_apart(path, path)] {
            assert_eq!(contract::refusal(&opener, &refused).code, Code::Unsupported);
        }
        assert_eq!(not_below_zero(3u64.wrapping_sub(5)), 0);
        assert_eq!(not_below_zero(7), 7);
    }
}
