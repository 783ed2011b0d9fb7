//! RocksDB as a store: a log-structured merge tree, through the stable C interface of a shared library.
//!
//! `library` finds it and its functions, `settings` takes options by RocksDB's own names, `database` is an open one,
//! `statistics` what it tells of itself. A write is one `WriteBatch`, a read a pinned `Get`.

mod database;
mod library;
mod settings;
mod statistics;

use std::collections::BTreeMap;

use iosonde_kv::{Demands, KvError, Opener, Place, Store};
use serde_json::Value;

use crate::database::Database;
use crate::library::RocksDb;
use crate::settings::Settings;

/// The store's name in messages.
pub(crate) const NAME: &str = "RocksDB";
/// Keys and values have 32-bit lengths.
const KEY_BYTES_MAX: u64 = 8 << 20;

/// Opens RocksDB.
pub struct RocksdbOpener {
    library: RocksDb,
    settings: Settings,
}

impl RocksdbOpener {
    /// Loads a library, or the newest that the system has, and has it look at the options.
    ///
    /// # Errors
    /// When there is no usable library, or it does not take an option.
    pub fn new(library: Option<&str>, options: &BTreeMap<String, Value>) -> Result<RocksdbOpener, KvError> {
        let library = RocksDb::load(library)?;
        let settings = Settings::read(&library, options)?;
        Ok(RocksdbOpener { library, settings })
    }
}

impl Opener for RocksdbOpener {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), KvError> {
        if demands.key_bytes_max > KEY_BYTES_MAX {
            return Err(KvError::unsupported(
                format!(
                    "{NAME} has keys of at most 8 MiB, and {} bytes are asked for",
                    demands.key_bytes_max
                ),
                "use shorter keys",
            )
            .at("`records.key_bytes`"));
        }
        match place {
            Place::Directory { .. } => Ok(()),
            Place::Device { path, .. } => Err(KvError::unsupported(
                format!(
                    "{NAME} keeps a database in files, so it cannot use `{}` without a file system",
                    path.display()
                ),
                "name a directory; of the stores only `lmdb` takes a device",
            )
            .at("`target`")),
            Place::Virtual => Err(KvError::unsupported(
                format!("{NAME} needs a directory"),
                "only the store `null` has a virtual target",
            )
            .at("`target`")),
        }
    }

    fn open(&self, place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, KvError> {
        Ok(Box::new(Database::open(&self.library, &self.settings, place)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_kv::{Code, contract};

    fn opener(options: &[(&str, Value)]) -> Result<RocksdbOpener, KvError> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        RocksdbOpener::new(None, &options.collect())
    }

    fn place(directory: &tempfile::TempDir) -> Place {
        Place::Directory {
            path: directory.path().join("database"),
            log: None,
        }
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn it_holds_the_contract_of_stores() {
        let directory = tempfile::tempdir().unwrap();
        contract::holds(&opener(&[]).unwrap(), &place(&directory));
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
        ])
        .unwrap();
        let store = opener.open(&place(&directory), &contract::DEMANDS).unwrap();
        let options = store.about().unwrap().options;
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
    fn the_log_lies_where_it_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let (path, log) = (directory.path().join("database"), directory.path().join("log"));
        std::fs::create_dir(&log).unwrap();
        let place = Place::Directory {
            path: path.clone(),
            log: Some(log.clone()),
        };
        let store = opener(&[]).unwrap().open(&place, &contract::DEMANDS).unwrap();
        let logs_in = |path: &std::path::Path| {
            let entries = std::fs::read_dir(path).unwrap().flatten();
            entries
                .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
                .count()
        };
        assert_eq!((logs_in(&path), logs_in(&log)), (0, 1));
        drop(store);
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn rocksdb_judges_its_options() {
        for (name, value, hint) in [
            ("write_bufer_size", 1.into(), "the nearest name is `write_buffer_size`"),
            (
                "wal_dir",
                "/tmp".into(),
                "name the log's directory in `target.log_path`",
            ),
            ("sync", true.into(), "say it in the stream's `sync`"),
        ] {
            let error = opener(&[(name, value)]).err().expect("it is refused");
            assert_eq!((error.code, error.hint.as_str()), (Code::InvalidSpec, hint));
            assert_eq!(error.context, format!("`store.options.{name}`"));
        }
        let error = opener(&[("compression", "zip".into())]).err().expect("it is refused");
        assert!(error.hint.contains("RocksDB says"), "{}", error.hint);
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn a_raw_device_is_unsupported() {
        let device = Place::Device {
            path: "/dev/null".into(),
            bytes: 1 << 30,
        };
        let error = opener(&[]).unwrap().check(&device, &contract::DEMANDS).unwrap_err();
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.to_string().contains("without a file system"));
    }

    #[test]
    #[cfg_attr(not(has_rocksdb), ignore = "no librocksdb.so is installed")]
    fn an_error_of_its_own_comes_in_its_own_words() {
        let directory = tempfile::tempdir().unwrap();
        drop(
            opener(&[])
                .unwrap()
                .open(&place(&directory), &contract::DEMANDS)
                .unwrap(),
        );
        std::fs::write(directory.path().join("database/CURRENT"), "nonsense").unwrap();
        let error = opener(&[]).unwrap().open(&place(&directory), &contract::DEMANDS).err();
        let error = error.expect("it cannot be opened");
        assert_eq!(error.code, Code::Store);
        assert!(error.to_string().starts_with("RocksDB failed to open"), "{error}");
    }
}
