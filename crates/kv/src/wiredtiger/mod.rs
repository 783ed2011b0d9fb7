//! WiredTiger as a store: a B-tree or log-structured merge tree with a cache of its own, the storage engine of MongoDB.
//!
//! `library` finds the library, `shim` its methods, whose layout depends on the version, `settings` reads options by WiredTiger's
//! own names, `database` is an open database, `open_files` shows whether direct I/O is in effect, `statistics` selects
//! statistics. Each write is one transaction at WiredTiger's default isolation, repeated if it conflicts with another one.

mod database;
mod library;
mod open_files;
mod settings;
mod shim;
mod statistics;

use std::os::fd::RawFd;

use crate::options::Given;
use crate::{Demands, Opener, Place, Store};
use iosonde_harness::RunError;

use crate::wiredtiger::database::Database;
use crate::wiredtiger::library::{NAME, WiredTiger};
use crate::wiredtiger::settings::Settings;
use crate::wiredtiger::shim::Shim;

pub use crate::wiredtiger::shim::on_panic;

/// A session of the run has one of WiredTiger's, and collecting statistics and checkpoints take others.
const SESSIONS_BESIDE: u64 = 8;

pub fn option_names() -> Vec<&'static str> {
    settings::names().collect()
}

/// Opens WiredTiger.
pub struct WiredtigerOpener {
    library: WiredTiger,
    shim: Shim,
    settings: Settings,
}

impl WiredtigerOpener {
    /// Loads a library, or the newest installed one, and the shim from its descriptor, and validates the options with them.
    ///
    /// # Errors
    /// When there is no usable library, the shim was compiled for another version, or an option is rejected.
    pub fn new(library: Option<&str>, options: &Given, shim: Option<RawFd>) -> Result<WiredtigerOpener, RunError> {
        let library = WiredTiger::load(library)?;
        let shim = Shim::load(shim, &library)?;
        let settings = Settings::read(&library, &shim, options)?;
        Ok(WiredtigerOpener {
            library,
            shim,
            settings,
        })
    }
}

impl Opener for WiredtigerOpener {
    fn check(&self, place: &Place, _demands: &Demands) -> Result<(), RunError> {
        place.directory(NAME)?;
        Ok(())
    }

    fn open(&self, place: &Place, demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let (path, log) = place.directory(NAME)?;
        let sessions = demands.sessions + SESSIONS_BESIDE;
        let database = Database::open(&self.library, &self.shim, &self.settings, path, log, sessions)?;
        Ok(Box::new(database))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::fd::AsRawFd;
    use std::sync::OnceLock;

    use super::*;
    use crate::contract::{self, DEMANDS};
    use iosonde_harness::Code;
    use serde_json::Value;

    /// The shim, compiled once as `features/key_value_stores/shim.py` does, with other macros in front of it.
    fn compile(prologue: &str) -> std::fs::File {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../python/iosonde/data/shim/wiredtiger.c"
        );
        let directory = tempfile::tempdir().unwrap();
        let (input, compiled) = (directory.path().join("shim.c"), directory.path().join("shim.so"));
        let text = format!("#include <wiredtiger.h>\n{prologue}\n#include \"{source}\"\n");
        std::fs::write(&input, text).unwrap();
        let done = std::process::Command::new("cc")
            .args(["-O1", "-fPIC", "-shared", "-pthread", "-o"])
            .args([&compiled, &input])
            .status();
        assert!(done.unwrap().success());
        std::fs::File::open(compiled).unwrap()
    }

    fn shim() -> RawFd {
        static SHIM: OnceLock<std::fs::File> = OnceLock::new();
        SHIM.get_or_init(|| compile("")).as_raw_fd()
    }

    fn opener(options: &[(&str, Value)]) -> Result<WiredtigerOpener, RunError> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        WiredtigerOpener::new(None, &options.collect(), Some(shim()))
    }

    /// The hint of the error.
    fn refused(name: &str, value: Value) -> String {
        let error = opener(&[(name, value)]).err().expect("it is refused");
        assert_eq!(error.code, Code::InvalidSpec);
        assert_eq!(error.context, format!("`store.options.{name}`"));
        error.hint
    }

    fn opened(directory: &tempfile::TempDir, options: &[(&str, Value)]) -> Box<dyn Store> {
        contract::opened(&opener(options).unwrap(), directory.path())
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn it_fulfils_the_contract_of_stores() {
        for options in [
            vec![],
            vec![("type", "lsm".into()), ("lsm.chunk_size", "1MB".into())],
            vec![("log.enabled", false.into())],
            vec![("block_compressor", "snappy".into()), ("log.compressor", "zlib".into())],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let place = contract::directory(directory.path());
            contract::verify(&opener(&options).unwrap(), &place);
        }
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn options_of_every_kind_take_effect() {
        let directory = tempfile::tempdir().unwrap();
        let options = [
            ("cache_size", (50_u64 << 20).into()),
            ("checkpoint.wait", 60.into()),
            ("block_compressor", "snappy".into()),
            ("leaf_page_max", "16KB".into()),
            ("log_flush", false.into()),
        ];
        let store = opened(&directory, &options);
        let about = store.about().unwrap();
        for (name, value) in [
            ("cache_size", "52428800"),
            ("checkpoint.wait", "60"),
            ("block_compressor", "snappy"),
            ("leaf_page_max", "16KB"),
            ("log_flush", "false"),
            ("log.enabled", "true"),
            ("type", "file"),
            ("checksum", "uncompressed"),
        ] {
            assert_eq!(about.options[name], value, "{name}");
        }
        assert_eq!(store.statistics()[statistics::CACHE_SIZE], 50 << 20);
        assert!(about.build["interface"].ends_with(&about.version));
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn the_log_is_in_the_directory_named_for_it_and_direct_io_shown_by_open_files() {
        let directory = tempfile::tempdir().unwrap();
        let (path, log) = (directory.path().join("database"), directory.path().join("log"));
        std::fs::create_dir(&path).unwrap();
        std::fs::create_dir(&log).unwrap();
        let opener = opener(&[]).unwrap();
        let store = opener.open(&contract::log_apart(&path, &log), &DEMANDS).unwrap();
        let logs = [&path, &log].map(|path| contract::files_named(path, "WiredTigerLog"));
        assert_eq!(logs, [0, 1]);
        assert_eq!(store.about().unwrap().build["log_files"], "buffered");
        for (options, data) in [(vec![], "buffered"), (vec![("direct_io", "[data]".into())], "direct")] {
            let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let build = opened(&directory, &options).about().unwrap().build;
            assert_eq!([&build["data_files"], &build["log_files"]], [data, "buffered"]);
        }
    }

    /// Two transactions that change one record conflict, and WiredTiger expects the application to repeat one of them.
    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn conflicting_writes_are_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&directory, &[]);
        std::thread::scope(|scope| {
            for job in 0..4_u8 {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    for _ in 0..200 {
                        session.put(b"one", &[job; 100]).unwrap();
                        session.put(b"two", &[job; 100]).unwrap();
                        session.commit(false).unwrap();
                    }
                });
            }
        });
        let mut session = store.session().unwrap();
        let first = session.get(b"one").unwrap().unwrap().to_vec();
        session.release();
        let second = session.get(b"two").unwrap().unwrap();
        assert_eq!(second, first, "each transaction wrote both");
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn options_are_validated_before_anything_is_written() {
        for (name, value, hint) in [
            ("cachesize", 1.into(), "the nearest name is `cache_size`"),
            ("log.path", "/tmp".into(), "directory in `target.log_path`"),
            ("transaction_sync.enabled", true.into(), "use `sync` of the stream"),
            ("cache_size", "lots".into(), "reports: "),
            ("leaf_page_max", (-1).into(), "reports: "),
            ("direct_io", "[everything]".into(), "reports: "),
            ("transaction_sync.method", "hope".into(), "reports: "),
            ("block_compressor", "brotli".into(), "libwiredtiger_NAME.so"),
            ("cache_size", "1GB,extensions=[/tmp/x.so]".into(), "it takes one value"),
        ] {
            let found = refused(name, value);
            assert!(found.contains(hint), "{name}: {found}");
        }
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn durability_follows_the_options() {
        use iosonde_protocol::StoreDurability::{Nothing, PowerLoss, ProcessCrash};
        let sync = |method: &str| vec![("transaction_sync.method", method.into())];
        for (options, expected) in [
            (vec![], [PowerLoss, ProcessCrash]),
            (vec![("log_flush", false.into())], [PowerLoss, Nothing]),
            (vec![("log.enabled", false.into())], [Nothing, Nothing]),
            (sync("dsync"), [PowerLoss, ProcessCrash]),
            (sync("none"), [ProcessCrash, ProcessCrash]),
            (vec![("checkpoint_sync", false.into())], [ProcessCrash, ProcessCrash]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = opened(&directory, &options);
            assert_eq!(contract::durability(&*store), expected, "{options:?}");
        }
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn without_a_shim_of_its_version_it_is_refused() {
        let other = compile("#undef WIREDTIGER_VERSION_PATCH\n#define WIREDTIGER_VERSION_PATCH 99");
        let nothing = std::fs::File::open("/etc/passwd").unwrap();
        for (descriptor, reason) in [
            (None, "it was not handed over"),
            (Some(nothing.as_raw_fd()), "cannot be loaded"),
            (Some(other.as_raw_fd()), ".99, and the library `"),
        ] {
            let refused = WiredtigerOpener::new(None, &BTreeMap::new(), descriptor).err();
            let error = refused.expect("it is refused");
            assert_eq!((error.code, &error.context[..]), (Code::Library, "`store`"));
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    #[cfg_attr(not(has_wiredtiger), ignore = "no WiredTiger with its header is installed")]
    fn raw_devices_are_unsupported_and_errors_of_wiredtiger_quoted() {
        let opener = opener(&[]).unwrap();
        let error = contract::refusal(&opener, &contract::device(1 << 30));
        assert_eq!((error.code, &error.context[..]), (Code::Unsupported, "`target`"));
        let directory = tempfile::tempdir().unwrap();
        drop(opened(&directory, &[]));
        std::fs::write(directory.path().join("WiredTiger.turtle"), "nonsense").unwrap();
        let refused = opener.open(&contract::directory(directory.path()), &DEMANDS).err();
        let error = refused.expect("it cannot be opened");
        assert_eq!(error.code, Code::StoreError);
        assert!(error.to_string().starts_with("WiredTiger failed to open"), "{error}");
    }
}
