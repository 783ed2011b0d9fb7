//! RocksDB as a store: a log-structured merge tree, through the stable C interface of a shared library.
//!
//! `library` finds the library and its functions, `settings` reads options by RocksDB's own names, `database` is an open
//! database, `statistics` its statistics, `shim` what the C interface lacks. Each write is one `WriteBatch`, each read a pinned `Get`. A user's database is
//! opened read-only (`DB::OpenForReadOnly`), which neither locks it nor writes to its directory.

mod database;
mod library;
mod settings;
mod shim;
mod statistics;

use std::os::fd::RawFd;
use std::path::Path;

use crate::options::Given;
use crate::{Demands, Opener, Place, Store};
use iosonde_harness::{Code, RunError};

use crate::rocksdb::database::Database;
use crate::rocksdb::library::{NAME, RocksDb};
use crate::rocksdb::settings::Settings;
use crate::rocksdb::shim::Shim;

/// Keys and values have 32-bit lengths.
const KEY_BYTES_MAX: u64 = 8 << 20;

/// Names of the options of RocksDB 7.8; other versions have others.
pub fn option_names() -> Vec<&'static str> {
    settings::names().collect()
}

/// Opens RocksDB.
pub struct RocksdbOpener {
    library: RocksDb,
    settings: Settings,
    /// Absent where none was given.
    shim: Option<Result<Shim, RunError>>,
}

impl RocksdbOpener {
    /// Loads a library, or the newest installed one, and validates the options with it. The shim is loaded from its
    /// descriptor, if there is one; what needs it fails where it cannot be used.
    ///
    /// # Errors
    /// When there is no usable library, or it rejects an option.
    pub fn new(library: Option<&str>, options: &Given, shim: Option<RawFd>) -> Result<RocksdbOpener, RunError> {
        let library = RocksDb::load(library)?;
        let settings = Settings::read(&library, options)?;
        let shim = shim.map(|descriptor| Shim::load(descriptor, &library));
        Ok(RocksdbOpener {
            library,
            settings,
            shim,
        })
    }

    /// A read cache needs the shim.
    fn check_read_cache(&self) -> Result<(), RunError> {
        let missing = || {
            let message =
                format!("the C interface of {NAME} has no persistent read cache, and the C++ shim is missing");
            let hint = "install `g++` and `librocksdb-dev`, or run `db_bench --read_cache_path` as an external command";
            RunError::new(Code::Library, message, hint)
        };
        match &self.shim {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error.clone()),
            None => Err(missing()),
        }
        .map_err(|error| error.at("`target.read_cache`"))
    }
}

impl Opener for RocksdbOpener {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        demands.check_keys(NAME, KEY_BYTES_MAX)?;
        match place {
            Place::Directory {
                read_cache: Some(_), ..
            } => self.check_read_cache(),
            Place::Directory { .. } | Place::ReadOnly { .. } => Ok(()),
            _ => Err(place.unsupported(NAME)),
        }
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let shim = self.shim.as_ref().map(Result::as_ref);
        Ok(Box::new(Database::open(&self.library, &self.settings, shim, place)?))
    }

    /// Tables and blob files are written once; logs and the files that list them change.
    fn is_immutable(&self, file: &Path) -> bool {
        file.extension().is_some_and(|end| end == "sst" || end == "blob")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::fd::AsRawFd;

    use serde_json::Value;

    use super::*;
    use crate::CachePlace;
    use crate::contract::{self, DEMANDS, opened};
    use iosonde_protocol::StoreDurability::{Nothing, PowerLoss, ProcessCrash};

    fn opener(options: &[(&str, Value)]) -> Result<RocksdbOpener, RunError> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        RocksdbOpener::new(None, &options.collect(), None)
    }

    fn plain() -> RocksdbOpener {
        opener(&[]).unwrap()
    }

    fn refused(name: &str, value: Value) -> RunError {
        let error = opener(&[(name, value)]).err().expect("it is refused");
        assert_eq!(error.code, Code::InvalidSpec, "{name}");
        error
    }

    /// A directory with a read cache of that many bytes in another.
    fn cached(path: &Path, cache: &Path, bytes: u64) -> Place {
        Place::Directory {
            path: path.into(),
            log: None,
            read_cache: Some(CachePlace {
                path: cache.into(),
                bytes,
                direct_writes: false,
            }),
        }
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn it_fulfils_the_contract_of_stores_with_the_log_in_the_directory_named_for_it() {
        let directory = tempfile::tempdir().unwrap();
        contract::verify(&plain(), &contract::directory(directory.path()));
        let directory = tempfile::tempdir().unwrap();
        let (path, log) = (directory.path().join("database"), directory.path().join("log"));
        std::fs::create_dir(&log).unwrap();
        let _store = plain().open(&contract::log_apart(&path, &log), &DEMANDS).unwrap();
        assert_eq!([&path, &log].map(|path| contract::files_named(path, ".log")), [0, 1]);
    }

    /// The shim, compiled as `features/key_value_stores/shim.py` does.
    fn shim(directory: &tempfile::TempDir) -> std::fs::File {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/iosonde/data/shim/rocksdb.cc");
        let compiled = directory.path().join("shim.so");
        let library = RocksDb::load(None).unwrap().file;
        let done = std::process::Command::new("g++")
            .args(["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-o"])
            .args([compiled.as_path(), Path::new(source), &library])
            .status();
        assert!(done.unwrap().success());
        std::fs::File::open(compiled).unwrap()
    }

    #[test]
    #[cfg_attr(not(has_rocksdb_headers), ignore = "no headers of RocksDB are installed")]
    fn it_fulfils_the_contract_through_the_shim_and_with_a_read_cache() {
        let directory = tempfile::tempdir().unwrap();
        let shim = shim(&directory);
        let (path, cache) = (directory.path().join("database"), directory.path().join("cache"));
        std::fs::create_dir(&cache).unwrap();
        let opener = RocksdbOpener::new(None, &BTreeMap::new(), Some(shim.as_raw_fd())).unwrap();
        contract::verify(&opener, &cached(&path, &cache, 100 << 20));
        assert!(cache.join("cache").is_dir(), "RocksDB has created its files");
        // Too small, and without a directory.
        for (cache, bytes) in [(path.join("small"), 1 << 20), ("/proc/nowhere".into(), 100 << 20)] {
            let refused = opener.open(&cached(&path, &cache, bytes), &DEMANDS).err().unwrap();
            assert_eq!(refused.code, Code::StoreError);
            assert_eq!(refused.context, "`target.read_cache`");
        }
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn a_file_that_is_no_shim_is_not_used_and_a_read_cache_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = std::fs::File::open("/etc/passwd").unwrap();
        let opener = RocksdbOpener::new(None, &BTreeMap::new(), Some(nothing.as_raw_fd())).unwrap();
        let about = opened(&opener, directory.path()).about().unwrap();
        assert!(about.build["interface"].starts_with("C; the C++ shim of RocksDB cannot be used"));
        let place = cached(directory.path(), Path::new("/tmp"), 100 << 20);
        let error = contract::refusal(&opener, &place);
        assert_eq!((error.code, &error.context[..]), (Code::Library, "`target.read_cache`"));
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn options_of_every_kind_take_effect() {
        let directory = tempfile::tempdir().unwrap();
        let opener = opener(&[
            ("write_buffer_size", 1_048_576.into()),
            ("compression", "kNoCompression".into()),
            ("use_direct_reads", true.into()),
            ("block_size", 8192.into()),
            ("block_cache", 4_194_304.into()),
            ("disableWAL", true.into()),
        ]);
        let options = opened(&opener.unwrap(), directory.path()).about().unwrap().options;
        for (name, value) in [
            ("write_buffer_size", "1048576"),
            ("compression", "kNoCompression"),
            ("use_direct_reads", "true"),
            ("block_size", "8192"),
            ("block_cache", "4194304"),
            ("disableWAL", "true"),
            ("max_open_files", "-1"),
        ] {
            assert_eq!(options[name], value, "{name}");
        }
        assert!(options.len() > 150, "every option is listed, found {}", options.len());
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn options_are_validated_by_rocksdb() {
        for (name, hint) in [
            ("write_bufer_size", "the nearest name is `write_buffer_size`"),
            ("wal_dir", "name the log's directory in `target.log_path`"),
            ("sync", "use `sync` of the stream"),
            ("db_log_dir", "leave it out: messages of RocksDB are in the target"),
            ("db_paths", "leave it out: tables are in the target"),
        ] {
            let error = refused(name, "1".into());
            assert_eq!(error.hint, hint);
            assert_eq!(error.context, format!("`store.options.{name}`"));
        }
        assert!(refused("compression", "zip".into()).hint.contains("RocksDB reports"));
        // An option cannot contain another.
        for (name, value) in [
            ("ttl", "0;db_log_dir=/tmp"),
            ("ttl", "0}; db_log_dir={/tmp"),
            ("ttl", "{0"),
            ("ttl", "0\ndb_log_dir=/tmp"),
            (
                "block_size",
                "4096};db_log_dir=/tmp;block_based_table_factory={block_size=4096",
            ),
            ("compaction_options_universal", "{size_ratio=2};db_log_dir=/tmp"),
            ("db_log_dir=/tmp;ttl", "0"),
            (" db_log_dir", "/tmp"),
        ] {
            refused(name, value.into());
        }
        let several = "{size_ratio=2;min_merge_width=2}";
        opener(&[("compaction_options_universal", several.into())]).unwrap();
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn durability_follows_the_options() {
        for (options, expected) in [
            (vec![], [PowerLoss, ProcessCrash]),
            (vec![("disableWAL", true.into())], [Nothing, Nothing]),
            (vec![("manual_wal_flush", true.into())], [PowerLoss, Nothing]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = opened(&opener(&options).unwrap(), directory.path());
            assert_eq!(contract::durability(&*store), expected, "{options:?}");
        }
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn a_database_can_be_read_while_its_owner_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let owner = opened(&plain(), directory.path());
        let mut session = owner.session().unwrap();
        session.put(b"key", b"value").unwrap();
        session.commit(true).unwrap();
        let path = directory.path().into();
        let reader = plain().open(&Place::ReadOnly { path }, &DEMANDS).unwrap();
        let mut reading = reader.session().unwrap();
        assert_eq!(reading.get(b"key").unwrap(), Some(&b"value"[..]));
        reading.put(b"key", b"other").unwrap();
        assert!(reading.commit(false).is_err(), "it is read-only");
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn raw_devices_are_unsupported_and_errors_of_rocksdb_quoted() {
        let error = contract::refusal(&plain(), &contract::device(1 << 30));
        assert_eq!(error.code, Code::Unsupported);
        let directory = tempfile::tempdir().unwrap();
        drop(opened(&plain(), directory.path()));
        std::fs::write(directory.path().join("CURRENT"), "nonsense").unwrap();
        let place = contract::directory(directory.path());
        let error = plain().open(&place, &DEMANDS).err().unwrap();
        assert_eq!(error.code, Code::StoreError);
        assert!(error.to_string().starts_with("RocksDB failed to open"), "{error}");
    }
}
