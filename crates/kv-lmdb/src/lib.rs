//! LMDB as a store: a memory-mapped B+ tree, in a directory or on a raw block device.
//!
//! Options are LMDB's own names: `mapsize`, `maxreaders`, `pagesize` (as in `mdb_env_set_mapsize`), and the flags of
//! `lmdb.h`. A write is one transaction, a read is one too, by a transaction handle that is kept and renewed. LMDB has one
//! durability for the whole environment (`MDB_NOSYNC`), so streams cannot differ in theirs.
//!
//! All calls into C are in `environment`; each is argued there.

mod environment;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;

use iosonde_kv::{Code, Demands, KvError, Opener, Place, Store, free_bytes};
use serde_json::Value;

use crate::environment::Environment;
use crate::settings::Settings;

/// The store's name in messages.
pub(crate) const NAME: &str = "LMDB";
/// LMDB's `MDB_MAXKEYSIZE`, as it is built here.
const KEY_BYTES_MAX: u64 = 511;
/// A device's map grows in these steps (`VM_ALIGN` in mdb.c); beyond the device's end is SIGBUS.
const DEVICE_STEP: u64 = 2 << 20;
/// First field of a meta page's content, and where it may lie: page headers were 16 bytes long and are now 24.
const MAGIC: [u8; 4] = 0xBEEF_C0DE_u32.to_ne_bytes();
const MAGIC_PLACES: [usize; 2] = [16, 24];

/// Opens LMDB.
pub struct LmdbOpener {
    options: BTreeMap<String, Value>,
    /// Bytes that the records will take, from which the default map size follows.
    record_bytes: u64,
}

impl LmdbOpener {
    /// With options by LMDB's own names.
    pub fn new(options: &BTreeMap<String, Value>, record_bytes: u64) -> LmdbOpener {
        LmdbOpener {
            options: options.clone(),
            record_bytes,
        }
    }

    fn settings(&self, place: &Place, demands: &Demands) -> Result<Settings, KvError> {
        let mut settings = Settings::read(&self.options, self.record_bytes)?;
        settings.maxreaders = settings.maxreaders.max(demands.sessions as u32 + 1);
        if let Place::Device { bytes, path } = place {
            let room = bytes / DEVICE_STEP * DEVICE_STEP;
            if settings.mapsize_given && settings.mapsize > room {
                return Err(KvError::invalid(
                    format!(
                        "a map of {} bytes on `{}`, which has room for {room}",
                        settings.mapsize,
                        path.display()
                    ),
                    "`store.options.mapsize`",
                    "leave it out to use the whole device, or use less",
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
    fn check(&self, place: &Place, demands: &Demands) -> Result<(), KvError> {
        let settings = self.settings(place, demands)?;
        if demands.key_bytes_max > KEY_BYTES_MAX {
            return Err(KvError::unsupported(
                format!(
                    "{NAME} has keys of at most {KEY_BYTES_MAX} bytes, and {} are asked for",
                    demands.key_bytes_max
                ),
                "use shorter keys",
            )
            .at("`records.key_bytes`"));
        }
        match place {
            Place::Directory { log: Some(_), .. } => Err(KvError::unsupported(
                format!("{NAME} has no log that could lie elsewhere"),
                "leave `log_path` out",
            )
            .at("`target.log_path`")),
            Place::Directory { path, log: None } if settings.writes_by_map() => check_space(path, settings.mapsize),
            Place::Directory { .. } => Ok(()),
            Place::Device { bytes, path } if settings.mapsize < DEVICE_STEP => Err(KvError::invalid(
                format!("{bytes} bytes of `{}` are too few for {NAME}", path.display()),
                "`target.size_bytes`",
                "use at least 4 MiB",
            )),
            Place::Device { .. } => Ok(()),
            Place::Virtual => Err(KvError::unsupported(
                format!("{NAME} needs a directory or a device"),
                "only the store `null` has a virtual target",
            )
            .at("`target`")),
        }
    }

    fn open(&self, place: &Place, demands: &Demands) -> Result<Box<dyn Store>, KvError> {
        let settings = self.settings(place, demands)?;
        let environment = match place {
            Place::Directory { path, .. } => Environment::open(path, &settings, None)?,
            Place::Device { path, .. } => open_device(path, &settings)?,
            Place::Virtual => return Err(KvError::new(Code::Internal, "LMDB was opened without a target", "")),
        };
        Ok(Box::new(environment))
    }

    fn recognises(&self, first_bytes: &[u8]) -> bool {
        MAGIC_PLACES
            .iter()
            .any(|place| first_bytes.get(*place..).is_some_and(|bytes| bytes.starts_with(&MAGIC)))
    }
}

/// LMDB puts a lock file beside what it opens. Through a symbolic link that lands in a directory of ours, and not in `/dev`;
/// once the environment is open it needs no name any more.
fn open_device(device: &Path, settings: &Settings) -> Result<Environment, KvError> {
    let directory = tempfile::Builder::new()
        .prefix("iosonde-lmdb-")
        .tempdir()
        .map_err(|error| KvError::io("make a directory in", &std::env::temp_dir(), &error))?;
    let link = directory.path().join("device");
    std::os::unix::fs::symlink(device, &link).map_err(|error| KvError::io("make", &link, &error))?;
    Environment::open(&link, settings, Some(device))
}

/// A map that is written to is as large as the file: where the file system has no room for a page of it, the kernel kills
/// the process (SIGBUS) instead of returning an error.
fn check_space(path: &Path, mapsize: u64) -> Result<(), KvError> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    let Some(free) = free_bytes(existing) else {
        return Ok(());
    };
    if mapsize <= free {
        return Ok(());
    }
    Err(KvError::new(
        Code::NoSpace,
        format!(
            "with `MDB_WRITEMAP` the whole map of {mapsize} bytes needs room, and the file system of `{}` has {free}",
            existing.display()
        ),
        "use a smaller `mapsize`, or leave `MDB_WRITEMAP` out",
    )
    .at("`store.options.mapsize`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_kv::contract;

    fn opener(options: &[(&str, Value)]) -> LmdbOpener {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        LmdbOpener::new(&options.collect(), 1 << 20)
    }

    fn place(directory: &tempfile::TempDir) -> Place {
        Place::Directory {
            path: directory.path().into(),
            log: None,
        }
    }

    #[test]
    fn it_holds_the_contract_of_stores() {
        for flag in ["MDB_NOMETASYNC", "MDB_WRITEMAP", "MDB_NORDAHEAD"] {
            let directory = tempfile::tempdir().unwrap();
            contract::holds(&opener(&[(flag, true.into())]), &place(&directory));
        }
    }

    #[test]
    fn a_full_map_is_told_apart_and_leaves_the_session_usable() {
        let directory = tempfile::tempdir().unwrap();
        let opener = opener(&[("mapsize", (1 << 20).into())]);
        let store = opener.open(&place(&directory), &contract::DEMANDS).unwrap();
        let mut session = store.session().unwrap();
        let value = vec![1; 100_000];
        let full = (0..100_u32)
            .find_map(|number| session.put(&number.to_be_bytes(), &value).err())
            .expect("the map is full before a hundred");
        assert_eq!(full.code, Code::MapFull);
        assert!(full.hint.contains("mapsize"));
        assert_eq!(session.get(b"anything").unwrap(), None, "nothing was committed");
    }

    #[test]
    fn durability_cannot_contradict_the_flag() {
        let directory = tempfile::tempdir().unwrap();
        let opener = opener(&[("MDB_NOSYNC", true.into())]);
        let store = opener.open(&place(&directory), &contract::DEMANDS).unwrap();
        assert!(store.set_sync(false).is_ok());
        assert_eq!(store.set_sync(true).unwrap_err().code, Code::InvalidSpec);
        assert!(!store.has_sync_of_session());
    }

    #[test]
    fn keys_that_are_too_long_and_logs_apart_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let long = Demands {
            key_bytes_max: 512,
            ..contract::DEMANDS
        };
        let refused = opener(&[]).check(&place(&directory), &long).unwrap_err();
        assert_eq!(
            (refused.code, refused.context.as_str()),
            (Code::Unsupported, "`records.key_bytes`")
        );
        let log_apart = Place::Directory {
            path: directory.path().into(),
            log: Some(directory.path().into()),
        };
        let refused = opener(&[]).check(&log_apart, &contract::DEMANDS).unwrap_err();
        assert_eq!(refused.code, Code::Unsupported);
    }

    #[test]
    fn a_map_larger_than_the_device_is_refused() {
        let device = Place::Device {
            path: "/dev/null".into(),
            bytes: 100 << 20,
        };
        let refused = opener(&[("mapsize", (1_u64 << 40).into())])
            .check(&device, &contract::DEMANDS)
            .unwrap_err();
        assert_eq!(refused.context, "`store.options.mapsize`");
        assert!(opener(&[]).check(&device, &contract::DEMANDS).is_ok());
    }

    /// A page that the file system has no room for would end the process with SIGBUS.
    #[test]
    fn a_written_map_must_fit_on_the_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let options = [("MDB_WRITEMAP", true.into()), ("mapsize", (1_u64 << 46).into())];
        let refused = opener(&options)
            .check(&place(&directory), &contract::DEMANDS)
            .unwrap_err();
        assert_eq!(refused.code, Code::NoSpace);
    }

    #[test]
    fn its_own_databases_are_recognised_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        drop(opener(&[]).open(&place(&directory), &contract::DEMANDS).unwrap());
        let file = std::fs::read(directory.path().join("data.mdb")).unwrap();
        assert!(opener(&[]).recognises(&file));
        assert!(!opener(&[]).recognises(&[0; 4096]));
        assert!(!opener(&[]).recognises(b"XFSB"));
    }
}
