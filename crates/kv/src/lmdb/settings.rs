//! LMDB's options by its own names.

use crate::options::{self, Choice, Given};
use iosonde_harness::RunError;
use lmdb_master3_sys as ffi;

/// The store's name in messages.
pub(crate) const NAME: &str = "LMDB";

/// Numbers, as in `mdb_env_set_mapsize` and its like.
const NUMBERS: [&str; 3] = ["mapsize", "maxreaders", "pagesize"];

/// Flags of the environment that a study may set. Others would break the run, or are set by the engine: `MDB_NOSUBDIR`, `MDB_RDONLY`, `MDB_NOTLS`, `MDB_NOLOCK`, `MDB_PREVSNAPSHOT`, `MDB_ENCRYPT`, `MDB_FIXEDMAP`.
const FLAGS: [(&str, u32); 7] = [
    ("MDB_NOSYNC", ffi::MDB_NOSYNC),
    ("MDB_NOMETASYNC", ffi::MDB_NOMETASYNC),
    ("MDB_WRITEMAP", ffi::MDB_WRITEMAP),
    ("MDB_MAPASYNC", ffi::MDB_MAPASYNC),
    ("MDB_NORDAHEAD", ffi::MDB_NORDAHEAD),
    ("MDB_NOMEMINIT", ffi::MDB_NOMEMINIT),
    ("MDB_REMAP_CHUNKS", ffi::MDB_REMAP_CHUNKS),
];

/// A flag of ordered loads: records are appended without searching for their place.
const APPEND: &str = "MDB_APPEND";

/// LMDB's own default (`DEFAULT_READERS` in mdb.c).
const MAXREADERS: u32 = 126;
/// Default map size over the size of the records: half-full pages, and old pages that readers use; and what is added to it.
pub(crate) const MAP_FACTOR: u64 = 4;
pub(crate) const MAP_BYTES_MIN: u64 = 64 << 20;
/// The largest map.
pub(crate) const MAP_BYTES_MAX: u64 = 1 << 46;

/// Options with which LMDB is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub mapsize: u64,
    pub mapsize_given: bool,
    pub maxreaders: u32,
    /// 0 for the system's page size.
    pub pagesize: u32,
    pub flags: u32,
    pub append: bool,
}

impl Settings {
    /// Names of all options.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FLAGS.iter().map(|(name, _)| *name).chain(NUMBERS).chain([APPEND])
    }

    /// Reads options; unknown names and values of the wrong kind are errors.
    pub(crate) fn read(given: &Given, record_bytes: u64) -> Result<Settings, RunError> {
        let mut settings = Settings {
            mapsize: record_bytes.saturating_mul(MAP_FACTOR) + MAP_BYTES_MIN,
            mapsize_given: false,
            maxreaders: MAXREADERS,
            pagesize: 0,
            flags: 0,
            append: false,
        };
        options::each(NAME, given).try_for_each(|option| settings.set(option))?;
        Ok(settings)
    }

    /// Returns true if the kernel carries changes to the file from the map, and not `write(2)`.
    pub(crate) fn writes_by_map(&self) -> bool {
        self.flags & ffi::MDB_WRITEMAP != 0
    }

    /// True if commits that request it are synced completely: `MDB_NOMETASYNC` may lose the last transaction, and
    /// `MDB_MAPASYNC` with a written map any.
    pub(crate) fn syncs_commits(&self) -> bool {
        let asynchronous = self.writes_by_map() && self.flags & ffi::MDB_MAPASYNC != 0;
        !self.never_syncs() && self.flags & ffi::MDB_NOMETASYNC == 0 && !asynchronous
    }

    pub(crate) fn remaps_chunks(&self) -> bool {
        self.flags & ffi::MDB_REMAP_CHUNKS != 0
    }

    /// Returns true if nothing is ever synced, regardless of `sync` of the streams.
    pub(crate) fn never_syncs(&self) -> bool {
        self.flags & ffi::MDB_NOSYNC != 0
    }

    /// Every flag and whether it is set in `flags`.
    pub(crate) fn flags_by_name(flags: u32) -> impl Iterator<Item = (&'static str, bool)> {
        FLAGS.iter().map(move |(name, flag)| (*name, flags & flag != 0))
    }

    fn set(&mut self, option: Choice<'_>) -> Result<(), RunError> {
        if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == option.name) {
            if option.flag()? {
                self.flags |= flag;
            }
            return Ok(());
        }
        match option.name {
            APPEND => self.append = option.flag()?,
            "mapsize" => {
                self.mapsize = option.within(1 << 20..=MAP_BYTES_MAX)?;
                self.mapsize_given = true;
            }
            "maxreaders" => self.maxreaders = option.within(1..=1 << 20)? as u32,
            "pagesize" => {
                self.pagesize = option.within(512..=65536)? as u32;
                if !self.pagesize.is_power_of_two() {
                    return Err(option.wrong("a power of two"));
                }
            }
            _ => return Err(option.unknown(Settings::names())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;

    fn read(name: &str, value: impl Into<Value>) -> Result<Settings, RunError> {
        Settings::read(&BTreeMap::from([(name.to_owned(), value.into())]), 1 << 30)
    }

    #[test]
    fn commits_are_synced_unless_a_flag_weakens_it() {
        assert!(read("MDB_NORDAHEAD", true).unwrap().syncs_commits());
        assert!(read("MDB_WRITEMAP", true).unwrap().syncs_commits());
        // Without a written map it has no effect.
        assert!(read("MDB_MAPASYNC", true).unwrap().syncs_commits());
        for flag in ["MDB_NOSYNC", "MDB_NOMETASYNC"] {
            assert!(!read(flag, true).unwrap().syncs_commits(), "{flag}");
        }
        let both = BTreeMap::from(["MDB_WRITEMAP", "MDB_MAPASYNC"].map(|flag| (flag.to_owned(), true.into())));
        assert!(!Settings::read(&both, 1 << 30).unwrap().syncs_commits());
    }

    #[test]
    fn options_have_lmdbs_own_names_and_values() {
        assert_eq!(read("mapsize", 1 << 30).unwrap().mapsize, 1 << 30);
        assert_eq!(read("maxreaders", 200).unwrap().maxreaders, 200);
        assert!(read("MDB_WRITEMAP", true).unwrap().writes_by_map());
        assert!(!read("MDB_WRITEMAP", false).unwrap().writes_by_map());
        assert!(read("MDB_APPEND", true).unwrap().append);
        let unknown = read("map_size", 1).unwrap_err();
        assert!(unknown.hint.starts_with("the nearest name is `mapsize`; all names: "));
        let default = Settings::read(&BTreeMap::new(), 1 << 30).unwrap();
        assert!(default.mapsize > 4 << 30, "room for the records several times");
        for (name, value) in [
            ("mapsize", Value::from("large")),
            ("mapsize", Value::from(5)),
            ("maxreaders", Value::from(0)),
            ("pagesize", Value::from(5000)),
            ("MDB_WRITEMAP", Value::from(1)),
        ] {
            let error = read(name, value).unwrap_err();
            assert_eq!(error.context, format!("`store.options.{name}`"));
        }
    }
}
