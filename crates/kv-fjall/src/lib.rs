//! fjall as a store: a log-structured merge tree, written in Rust.
//!
//! Each write is one batch. With `sync` its journal is synced before it completes (`PersistMode::SyncData`); otherwise it is
//! handed to the kernel (`PersistMode::Buffer`), so that a crash of the process loses nothing.

use std::collections::BTreeMap;
use std::path::Path;

use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, UserKey, UserValue,
};
use iosonde_kv::{About, Demands, Lent, Opener, Place, RunError, Session, Store, options};
use iosonde_protocol::{Direction, StoreDurability};
use serde_json::Value;

const NAME: &str = "fjall";
/// The version that is compiled in; a test compares it with `Cargo.lock`.
const VERSION: &str = "3.1.13";
const KEYSPACE: &str = "records";
/// fjall's keys have 16-bit lengths.
const KEY_BYTES_MAX: u64 = 65_535;

/// fjall's options by the names of its setters; absent ones keep fjall's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Settings {
    cache_size: Option<u64>,
    worker_threads: Option<u64>,
    max_journaling_size: Option<u64>,
    max_memtable_size: Option<u64>,
    data_block_size: Option<u64>,
    data_block_compression: Option<String>,
    journal_compression: Option<String>,
}

impl Settings {
    const NAMES: [&str; 7] = [
        "cache_size",
        "worker_threads",
        "max_journaling_size",
        "max_memtable_size",
        "data_block_size_policy",
        "data_block_compression_policy",
        "journal_compression",
    ];

    fn read(given: &BTreeMap<String, Value>) -> Result<Settings, RunError> {
        let mut settings = Settings::default();
        for (name, value) in given {
            match name.as_str() {
                "cache_size" => settings.cache_size = Some(number(name, value, 0, u64::MAX)?),
                "worker_threads" => settings.worker_threads = Some(number(name, value, 1, 1024)?),
                "max_journaling_size" => settings.max_journaling_size = Some(number(name, value, 64 << 20, u64::MAX)?),
                "max_memtable_size" => settings.max_memtable_size = Some(number(name, value, 1 << 20, u64::MAX)?),
                "data_block_size_policy" => settings.data_block_size = Some(number(name, value, 1024, 1 << 20)?),
                "data_block_compression_policy" => settings.data_block_compression = Some(compression(name, value)?),
                "journal_compression" => settings.journal_compression = Some(compression(name, value)?),
                _ => return Err(options::unknown(NAME, name, Settings::NAMES.into_iter())),
            }
        }
        Ok(settings)
    }

    fn open(&self, path: &Path) -> fjall::Result<(Database, Keyspace)> {
        let mut builder = Database::builder(path);
        if let Some(bytes) = self.cache_size {
            builder = builder.cache_size(bytes);
        }
        if let Some(threads) = self.worker_threads {
            builder = builder.worker_threads(threads as usize);
        }
        if let Some(bytes) = self.max_journaling_size {
            builder = builder.max_journaling_size(bytes);
        }
        if let Some(name) = &self.journal_compression {
            builder = builder.journal_compression(compression_type(name));
        }
        let database = builder.open()?;
        let keyspace = database.keyspace(KEYSPACE, || self.keyspace_options())?;
        Ok((database, keyspace))
    }

    fn keyspace_options(&self) -> KeyspaceCreateOptions {
        let mut options = KeyspaceCreateOptions::default();
        if let Some(bytes) = self.max_memtable_size {
            options = options.max_memtable_size(bytes);
        }
        if let Some(bytes) = self.data_block_size {
            options = options.data_block_size_policy(BlockSizePolicy::all(bytes as u32));
        }
        if let Some(name) = &self.data_block_compression {
            options = options.data_block_compression_policy(CompressionPolicy::all(compression_type(name)));
        }
        options
    }

    /// The given options; `default` means fjall's own, which it does not report.
    fn in_effect(&self, database: &Database) -> BTreeMap<String, String> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let given = [
            ("worker_threads", number(self.worker_threads)),
            ("max_journaling_size", number(self.max_journaling_size)),
            ("max_memtable_size", number(self.max_memtable_size)),
            ("data_block_size_policy", number(self.data_block_size)),
            ("data_block_compression_policy", self.data_block_compression.clone()),
            ("journal_compression", self.journal_compression.clone()),
            ("cache_size", Some(database.cache_capacity().to_string())),
        ];
        given
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.unwrap_or_else(|| "default".into())))
            .collect()
    }
}

fn number(name: &str, value: &Value, least: u64, most: u64) -> Result<u64, RunError> {
    let number = options::integer(NAME, name, value)?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(options::wrong(
            NAME,
            name,
            value,
            &format!("a number of at least {least}"),
        ))
    }
}

fn compression(name: &str, value: &Value) -> Result<String, RunError> {
    match value.as_str() {
        Some(text @ ("none" | "lz4")) => Ok(text.into()),
        _ => Err(options::wrong(NAME, name, value, "`none` or `lz4`")),
    }
}

fn compression_type(name: &str) -> CompressionType {
    if name == "lz4" {
        CompressionType::Lz4
    } else {
        CompressionType::None
    }
}

pub fn option_names() -> Vec<&'static str> {
    Settings::NAMES.to_vec()
}

/// Opens fjall.
pub struct FjallOpener {
    settings: Settings,
}

impl FjallOpener {
    /// With options by fjall's own names.
    ///
    /// # Errors
    /// When an option is unknown or its value invalid.
    pub fn new(options: &BTreeMap<String, Value>) -> Result<FjallOpener, RunError> {
        Ok(FjallOpener {
            settings: Settings::read(options)?,
        })
    }
}

impl Opener for FjallOpener {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        demands.check_keys(NAME, KEY_BYTES_MAX)?;
        place.single_directory(NAME)?;
        Ok(())
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let path = place.single_directory(NAME)?;
        let opened = self.settings.open(path);
        let (database, keyspace) =
            opened.map_err(|error| RunError::store(NAME, format!("open `{}`", path.display()), error))?;
        Ok(Box::new(FjallStore {
            database,
            keyspace,
            settings: self.settings.clone(),
        }))
    }

    /// Tables and blob files are written once; journals and the files that list them change.
    fn is_immutable(&self, file: &Path) -> bool {
        let parent = file.parent().and_then(Path::file_name);
        parent.is_some_and(|name| name == "tables" || name == "blobs")
    }
}

struct FjallStore {
    database: Database,
    keyspace: Keyspace,
    settings: Settings,
}

impl Store for FjallStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        Ok(Box::new(FjallSession {
            store: self,
            lent: None,
            iterator: None,
            record: None,
            direction: Direction::Forward,
            batch: None,
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        Ok(About {
            version: VERSION.into(),
            build: BTreeMap::from([("library".into(), "compiled in".into())]),
            options: self.settings.in_effect(&self.database),
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        let metrics = self.keyspace.metrics();
        let mut found = BTreeMap::from([
            (
                "outstanding_flushes".to_owned(),
                self.database.outstanding_flushes() as u64,
            ),
            (
                "active_compactions".to_owned(),
                self.database.active_compactions() as u64,
            ),
            (
                "compactions_completed".to_owned(),
                self.database.compactions_completed() as u64,
            ),
            (
                "time_compacting_ns".to_owned(),
                self.database.time_compacting().as_nanos() as u64,
            ),
            ("write_buffer_size".to_owned(), self.database.write_buffer_size()),
            ("journal_count".to_owned(), self.database.journal_count() as u64),
            ("cache_size".to_owned(), self.database.cache_size()),
            ("table_count".to_owned(), self.keyspace.table_count() as u64),
            ("l0_table_count".to_owned(), self.keyspace.l0_table_count() as u64),
            ("disk_space".to_owned(), self.keyspace.disk_space()),
            ("block_io".to_owned(), metrics.block_io()),
            ("block_load_io_count".to_owned(), metrics.block_load_io_count() as u64),
            (
                "block_load_cached_count".to_owned(),
                metrics.block_load_cached_count() as u64,
            ),
            ("filter_queries".to_owned(), metrics.filter_queries() as u64),
            ("io_skipped_by_filter".to_owned(), metrics.io_skipped_by_filter() as u64),
        ]);
        if let Ok(bytes) = self.database.journal_disk_space() {
            found.insert("journal_disk_space".to_owned(), bytes);
        }
        found
    }

    fn durability(&self, sync: bool) -> StoreDurability {
        match sync {
            true => StoreDurability::PowerLoss,
            false => StoreDurability::ProcessCrash,
        }
    }

    fn flush(&self) -> Result<(), RunError> {
        let flushed = self
            .keyspace
            .rotate_memtable_and_wait()
            .and_then(|()| self.database.persist(PersistMode::SyncAll));
        flushed.map_err(|error| RunError::store(NAME, "flush its memory table", error))
    }

    fn is_busy(&self) -> bool {
        self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0
    }
}

/// Access of one thread: the value lent by the last read, an iterator, and the batch of the next write.
struct FjallSession<'a> {
    store: &'a FjallStore,
    lent: Option<UserValue>,
    iterator: Option<Iter>,
    record: Option<(UserKey, UserValue)>,
    direction: Direction,
    batch: Option<OwnedWriteBatch>,
}

impl Session for FjallSession<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let got = self.store.keyspace.get(key);
        self.lent = got.map_err(|error| RunError::store(NAME, "get a record", error))?;
        Ok(self.lent.as_deref())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        let batch = self.batch.get_or_insert_with(|| self.store.database.batch());
        batch.insert(&self.store.keyspace, key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        let batch = self.batch.get_or_insert_with(|| self.store.database.batch());
        batch.remove(&self.store.keyspace, key);
        Ok(())
    }

    fn commit(&mut self, sync: bool) -> Result<(), RunError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let mode = if sync {
            PersistMode::SyncData
        } else {
            PersistMode::Buffer
        };
        let committed = batch.durability(Some(mode)).commit();
        committed.map_err(|error| RunError::store(NAME, "write", error))
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        self.release();
        let keyspace = &self.store.keyspace;
        self.iterator = Some(match (key, direction) {
            (None, _) => keyspace.iter(),
            (Some(key), Direction::Forward) => keyspace.range(key..),
            (Some(key), Direction::Reverse) => keyspace.range(..=key),
        });
        self.direction = direction;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let Some(iterator) = &mut self.iterator else {
            return Ok(None);
        };
        let next = match self.direction {
            Direction::Forward => iterator.next(),
            Direction::Reverse => iterator.next_back(),
        };
        let record = next.map(fjall::Guard::into_inner).transpose();
        self.record = record.map_err(|error| RunError::store(NAME, "iterate", error))?;
        Ok(self.record.as_ref().map(|(key, value)| (&key[..], &value[..])))
    }

    fn release(&mut self) {
        self.lent = None;
        self.record = None;
        self.iterator = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_kv::{Code, contract};

    #[test]
    fn the_reported_version_is_the_one_in_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"fjall\"\nversion = \"{VERSION}\"")));
    }

    #[test]
    fn it_fulfils_the_contract_of_stores() {
        let directory = tempfile::tempdir().unwrap();
        contract::verify(
            &FjallOpener::new(&BTreeMap::new()).unwrap(),
            &contract::directory(directory.path()),
        );
    }

    #[test]
    fn options_are_read_by_their_own_names_and_other_places_refused() {
        let read = |name: &str, value: Value| Settings::read(&BTreeMap::from([(name.to_owned(), value)]));
        assert_eq!(read("cache_size", 1024.into()).unwrap().cache_size, Some(1024));
        assert!(read("journal_compression", "lz4".into()).is_ok());
        assert!(read("journal_compression", "zip".into()).is_err());
        assert!(read("worker_threads", 0.into()).is_err());
        let hint = read("block_size", 1.into()).unwrap_err().hint;
        assert!(hint.contains("is `data_block_size_policy`"), "{hint}");
        let opener = FjallOpener::new(&BTreeMap::new()).unwrap();
        let path = std::path::Path::new("/tmp");
        for refused in [contract::device(1 << 30), contract::log_apart(path, path)] {
            assert_eq!(contract::refusal(&opener, &refused).code, Code::Unsupported);
        }
    }
}
