//! LMDB as a store: a memory-mapped B+ tree, in a directory or on a raw block device.
//!
//! Options have LMDB's own names: `mapsize`, `maxreaders`, `pagesize` (as in `mdb_env_set_mapsize`), and the flags of
//! `lmdb.h`. Each write and each read is one transaction; read transactions are renewed. LMDB has one durability for the
//! whole environment (`MDB_NOSYNC`), so all streams that write must have the same `sync`.
//!
//! `library` finds LMDB: the version compiled in, or the system's for databases in files. All calls into C are in
//! `environment`.

mod environment;
mod library;
mod settings;

use std::path::Path;

use crate::options::Given;
use crate::{Demands, Opener, Place, Store, free_bytes};
use iosonde_harness::{Code, RunError};

use crate::lmdb::environment::Environment;
use crate::lmdb::library::Lmdb;
use crate::lmdb::settings::{NAME, Settings};

/// LMDB's `MDB_MAXKEYSIZE`, compiled in and in distributions.
const KEY_BYTES_MAX: u64 = 511;
/// A device's map grows in these steps (`VM_ALIGN` in mdb.c); beyond the device's end is SIGBUS.
const DEVICE_STEP: u64 = 2 << 20;
/// First field of a meta page's content, and its possible offsets: page headers have 16 or 24 bytes.
const MAGIC: [u8; 4] = 0xBEEF_C0DE_u32.to_ne_bytes();
const MAGIC_PLACES: [usize; 2] = [16, 24];

pub fn option_names() -> Vec<&'static str> {
    Settings::names().collect()
}

/// Constants of the default map size, for programs that plan its room.
pub fn map_constants() -> [(&'static str, u64); 3] {
    [
        ("map_factor", settings::MAP_FACTOR),
        ("map_bytes_min", settings::MAP_BYTES_MIN),
        ("map_bytes_max", settings::MAP_BYTES_MAX),
    ]
}

/// Opens LMDB.
pub struct LmdbOpener {
    library: Lmdb,
    options: Given,
    /// Bytes of the records, from which the default map size is derived.
    record_bytes: u64,
}

impl LmdbOpener {
    /// With options by LMDB's own names, on the LMDB that is compiled in, or on another `library`.
    ///
    /// # Errors
    /// When the library cannot be used.
    pub fn new(library: Option<&str>, options: &Given, record_bytes: u64) -> Result<LmdbOpener, RunError> {
        Settings::read(options, record_bytes)?;
        Ok(LmdbOpener {
            library: Lmdb::load(library)?,
            options: options.clone(),
            record_bytes,
        })
    }

    /// Refuses what only the LMDB that is compiled in supports.
    fn check_library(&self, place: &Place, settings: &Settings) -> Result<(), RunError> {
        if self.library.file.is_none() {
            return Ok(());
        }
        let (what, context) = match place {
            Place::Device { .. } => ("a raw device", "`target`"),
            _ if settings.pagesize > 0 => ("`pagesize`", "`store.options.pagesize`"),
            _ if settings.remaps_chunks() => ("`MDB_REMAP_CHUNKS`", "`store.options.MDB_REMAP_CHUNKS`"),
            _ => return Ok(()),
        };
        let message = format!("{} does not support {what}", self.library.version());
        Err(RunError::unsupported(message, "omit `library` to use the LMDB in the engine").at(context))
    }

    fn settings(&self, place: &Place, demands: &Demands) -> Result<Settings, RunError> {
        let mut settings = Settings::read(&self.options, self.record_bytes)?;
        settings.maxreaders = settings.maxreaders.max(demands.sessions as u32 + 1);
        if let Place::Device { bytes, path } = place {
            let room = bytes / DEVICE_STEP * DEVICE_STEP;
            if settings.mapsize_given && settings.mapsize > room {
                return Err(RunError::invalid(
                    format!(
                        "a map of {} bytes on `{}`, which has {room} usable bytes",
                        settings.mapsize,
                        path.display()
                    ),
                    "`store.options.mapsize`",
                    "omit it to use the whole device, or reduce it",
                ));
            }
            settings.mapsize = if settings.mapsize_given {
                settings.mapsize / DEVICE_STEP * DEVICE_STEP
            } else {
                room
            };
        }
        Ok(settings)
    }
}

impl Opener for LmdbOpener {
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), RunError> {
        let settings = self.settings(place, demands)?;
        self.check_library(place, &settings)?;
        demands.check_keys(NAME, KEY_BYTES_MAX)?;
        match place {
            Place::Directory { path, .. } => {
                place.single_directory(NAME)?;
                if settings.writes_by_map() {
                    check_space(path, settings.mapsize)?;
                }
                Ok(())
            }
            Place::Device { bytes, path } if settings.mapsize < DEVICE_STEP => Err(RunError::invalid(
                format!("{bytes} bytes of `{}` are too few for {NAME}", path.display()),
                "`target.size_bytes`",
                "use at least 4 MiB",
            )),
            Place::Device { .. } => Ok(()),
            _ => Err(place.unsupported(NAME)),
        }
    }

    fn open(&self, place: &Place, demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        let settings = self.settings(place, demands)?;
        let environment = match place {
            Place::Directory { path, .. } => Environment::open(&self.library, path, &settings, None)?,
            Place::Device { path, .. } => open_device(&self.library, path, &settings)?,
            _ => return Err(place.unsupported(NAME)),
        };
        Ok(Box::new(environment))
    }

    fn recognises(&self, first_bytes: &[u8]) -> bool {
        MAGIC_PLACES
            .iter()
            .any(|place| first_bytes.get(*place..).is_some_and(|bytes| bytes.starts_with(&MAGIC)))
    }
}

/// LMDB creates a lock file next to the device. A symbolic link to the device moves it from `/dev` to a temporary directory,
/// which is removed once the environment is open.
fn open_device(library: &Lmdb, device: &Path, settings: &Settings) -> Result<Environment, RunError> {
    let directory = tempfile::Builder::new()
        .prefix("iosonde-lmdb-")
        .tempdir()
        .map_err(|error| RunError::io("create a directory in", &std::env::temp_dir(), &error))?;
    let link = directory.path().join("device");
    std::os::unix::fs::symlink(device, &link).map_err(|error| RunError::io("create", &link, &error))?;
    Environment::open(library, &link, settings, Some(device))
}

/// A written map is as large as the file: if the file system has no space for a page of it, the kernel kills the process
/// (SIGBUS) instead of returning an error.
fn check_space(path: &Path, mapsize: u64) -> Result<(), RunError> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    let Some(free) = free_bytes(existing) else {
        return Ok(());
    };
    if mapsize <= free {
        return Ok(());
    }
    Err(RunError::new(
        Code::NoSpace,
        format!(
            "with `MDB_WRITEMAP` the whole map needs {mapsize} bytes, and the file system of `{}` has {free}",
            existing.display()
        ),
        "use a smaller `mapsize`, or omit `MDB_WRITEMAP`",
    )
    .at("`store.options.mapsize`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{self, DEMANDS, opened, refusal};
    use iosonde_protocol::StoreDurability::{PowerLoss, ProcessCrash};
    use serde_json::Value;

    fn opener_of(library: Option<&str>, options: &[(&str, Value)]) -> LmdbOpener {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        LmdbOpener::new(library, &options.collect(), 1 << 20).unwrap()
    }

    fn opener(options: &[(&str, Value)]) -> LmdbOpener {
        opener_of(None, options)
    }

    fn system(options: &[(&str, Value)]) -> LmdbOpener {
        opener_of(Some("system"), options)
    }

    fn contract_is_fulfilled(opener: fn(&[(&str, Value)]) -> LmdbOpener) {
        for flag in ["MDB_NOMETASYNC", "MDB_WRITEMAP", "MDB_NORDAHEAD"] {
            let directory = tempfile::tempdir().unwrap();
            let place = contract::directory(directory.path());
            contract::verify(&opener(&[(flag, true.into())]), &place);
        }
    }

    #[test]
    fn it_fulfils_the_contract_of_stores() {
        contract_is_fulfilled(opener);
    }

    #[test]
    #[cfg_attr(not(has_lmdb), ignore = "no liblmdb.so.0 is installed")]
    fn the_systems_library_fulfils_the_contract_of_stores() {
        contract_is_fulfilled(system);
    }

    #[test]
    #[cfg_attr(not(has_lmdb), ignore = "no liblmdb.so.0 is installed")]
    fn the_two_on_disk_formats_exclude_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&system(&[]), directory.path());
        assert_eq!(store.about().unwrap().build["data_version"], "1");
        drop(store);
        let error = opener(&[]).open(&contract::directory(directory.path()), &DEMANDS).err();
        let message = error.expect("it is refused").to_string();
        assert!(message.contains("MDB_INVALID"), "{message}");
    }

    #[test]
    #[cfg_attr(not(has_lmdb), ignore = "no liblmdb.so.0 is installed")]
    fn what_only_the_compiled_in_library_supports_is_refused() {
        let directory = contract::directory(Path::new("/tmp"));
        for (options, place) in [
            (vec![], &contract::device(100 << 20)),
            (vec![("pagesize", 8192.into())], &directory),
            (vec![("MDB_REMAP_CHUNKS", true.into())], &directory),
        ] {
            assert_eq!(refusal(&system(&options), place).code, Code::Unsupported);
        }
    }

    #[test]
    fn appending_is_for_ascending_keys_only() {
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&opener(&[("MDB_APPEND", true.into())]), directory.path());
        let mut session = store.session().unwrap();
        session.put(b"b", b"1").unwrap();
        session.put(b"a", b"1").unwrap();
        session.commit(false).unwrap();
        let mut ascending = store.session().unwrap();
        ascending.expect_ascending_keys();
        ascending.put(b"c", b"1").unwrap();
        assert!(ascending.put(b"a", b"1").is_err(), "LMDB refuses a smaller key");
    }

    #[test]
    fn durability_follows_the_flags_and_cannot_contradict_them() {
        for (flag, sync, expected) in [
            ("MDB_NORDAHEAD", true, PowerLoss),
            ("MDB_NORDAHEAD", false, ProcessCrash),
            ("MDB_NOMETASYNC", true, ProcessCrash),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = opened(&opener(&[(flag, true.into())]), directory.path());
            assert_eq!(store.durability(sync), expected, "{flag}, sync {sync}");
        }
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&opener(&[("MDB_NOSYNC", true.into())]), directory.path());
        assert!(store.set_sync(false).is_ok());
        assert_eq!(store.set_sync(true).unwrap_err().code, Code::InvalidSpec);
        assert!(!store.has_sync_of_session());
    }

    #[test]
    fn long_keys_separate_logs_and_maps_that_do_not_fit_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, place) = (directory.path(), contract::directory(directory.path()));
        let mut long = DEMANDS;
        long.key_bytes_max = 512;
        let refused = opener(&[]).check(&place, &long).unwrap_err();
        assert_eq!(refused.code, Code::Unsupported);
        assert_eq!(refused.context, "`records.key_bytes`");
        let log_apart = contract::log_apart(path, path);
        assert_eq!(refusal(&opener(&[]), &log_apart).code, Code::Unsupported);
        let device = contract::device(100 << 20);
        assert_eq!(opener(&[]).check(&device, &DEMANDS), Ok(()));
        let large = opener(&[("mapsize", (1_u64 << 40).into())]);
        assert_eq!(refusal(&large, &device).context, "`store.options.mapsize`");
        // Without space for a page of a written map, the process would be killed with SIGBUS.
        let written = opener(&[("MDB_WRITEMAP", true.into()), ("mapsize", (1_u64 << 46).into())]);
        assert_eq!(refusal(&written, &place).code, Code::NoSpace);
    }

    #[test]
    fn only_its_own_databases_are_recognised_and_a_full_map_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        drop(opened(&opener(&[]), directory.path()));
        let file = std::fs::read(directory.path().join("data.mdb")).unwrap();
        assert!(opener(&[]).recognises(&file));
        assert!(!opener(&[]).recognises(&[0; 4096]));
        assert!(!opener(&[]).recognises(b"XFSB"));
        let directory = tempfile::tempdir().unwrap();
        let store = opened(&opener(&[("mapsize", (1 << 20).into())]), directory.path());
        let mut session = store.session().unwrap();
        let value = vec![1; 100_000];
        let mut writes = (0..100_u32).map(|number| session.put(&number.to_be_bytes(), &value));
        let full = writes.find_map(Result::err).expect("the map is full before a hundred");
        assert_eq!(full.code, Code::MapFull);
        assert!(full.hint.contains("mapsize"));
        assert_eq!(session.get(b"anything").unwrap(), None, "nothing was committed");
    }
}
