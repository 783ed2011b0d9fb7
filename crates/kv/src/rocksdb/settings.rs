//! RocksDB's options by its own names, validated by RocksDB itself.
//!
//! Options of the database and of its column family are passed as text (`rocksdb_get_options_from_string`), so any option of
//! any version can be named. Options of the block-based table are nested in one of them; they are named like the others in a
//! study, and moved there by the list below. A few options of `ReadOptions` and `WriteOptions` have their own functions. The
//! lists are also used for suggestions; RocksDB decides whether an option exists.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::options::{self, Choice, Given};
use iosonde_harness::RunError;

use crate::rocksdb::library::{Handle, NAME, RocksDb};

/// Of `BlockBasedTableOptions`, RocksDB 7.8.
const TABLE: &str = include_str!("table_options.txt");

/// Of `DBOptions` and `ColumnFamilyOptions`, RocksDB 7.8; for suggestions only.
const DATABASE: &str = include_str!("database_options.txt");

/// Of `WriteOptions` and `ReadOptions`, and whether RocksDB keeps statistics.
const CALLS: [&str; 5] = [
    "disableWAL",
    "verify_checksums",
    "fill_cache",
    "readahead_size",
    "statistics",
];

/// Options that the engine sets, and the parameter of a spec to use instead. RocksDB writes only to the paths of the target.
const OURS: [(&str, &str); 9] = [
    ("wal_dir", "name the log's directory in `target.log_path`"),
    ("db_log_dir", "leave it out: messages of RocksDB are in the target"),
    ("db_paths", "leave it out: tables are in the target"),
    ("cf_paths", "leave it out: tables are in the target"),
    ("env", "leave it out: files are those of the operating system"),
    ("file_system", "leave it out: files are those of the operating system"),
    ("sync", "use `sync` of the stream"),
    ("create_if_missing", "use `database`"),
    ("error_if_exists", "use `database`"),
];

/// Options with which RocksDB is opened and called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Options of the database, the column family and the table, as RocksDB parses them.
    pub text: String,
    /// Options that RocksDB does not write to its own list, as they were given.
    pub beside: BTreeMap<String, String>,
    pub disable_wal: bool,
    pub verify_checksums: bool,
    pub fill_cache: bool,
    pub readahead_size: u64,
    pub statistics: bool,
    /// No automatic compactions.
    pub no_auto_compactions: bool,
    /// The log is buffered in the process.
    pub manual_wal_flush: bool,
}

impl Settings {
    /// Validates every option with RocksDB.
    pub(crate) fn read(library: &RocksDb, given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings {
            text: String::new(),
            beside: BTreeMap::new(),
            disable_wal: false,
            verify_checksums: true,
            fill_cache: true,
            readahead_size: 0,
            statistics: true,
            no_auto_compactions: false,
            manual_wal_flush: false,
        };
        let mut table = Vec::new();
        let mut parts = Vec::new();
        for option in options::each(NAME, given) {
            let name = option.name;
            if let Some((_, hint)) = OURS.iter().find(|(ours, _)| *ours == name) {
                return Err(option.reserved(hint));
            }
            if CALLS.contains(&name) {
                settings.set_call(option)?;
                continue;
            }
            let text = option.text()?;
            require_single(option, &text)?;
            let assignment = format!("{name}={text}");
            if TABLE.lines().any(|each| each == name) {
                judge(library, option, &nested(std::slice::from_ref(&assignment)))?;
                table.push(assignment);
            } else {
                judge(library, option, &assignment)?;
                settings.manual_wal_flush |= name == "manual_wal_flush" && text == "true";
                settings.no_auto_compactions |= name == "disable_auto_compactions" && text == "true";
                parts.push(assignment);
            }
        }
        if !table.is_empty() {
            parts.push(nested(&table));
        }
        settings.text = parts.join(";");
        Ok(settings)
    }

    fn set_call(&mut self, option: Choice<'_>) -> Result<(), RunError> {
        match option.name {
            "disableWAL" => self.disable_wal = option.flag()?,
            "verify_checksums" => self.verify_checksums = option.flag()?,
            "fill_cache" => self.fill_cache = option.flag()?,
            "readahead_size" => self.readahead_size = option.integer()?,
            _ => self.statistics = option.flag()?,
        }
        Ok(())
    }

    /// The options with their own functions, for the list of options in effect.
    pub(crate) fn calls(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("disableWAL".into(), self.disable_wal.to_string()),
            ("verify_checksums".into(), self.verify_checksums.to_string()),
            ("fill_cache".into(), self.fill_cache.to_string()),
            ("readahead_size".into(), self.readahead_size.to_string()),
            ("statistics".into(), self.statistics.to_string()),
            ("perf_level".into(), "kDisable".into()),
        ])
    }
}

/// Options of RocksDB, which free themselves.
pub(crate) struct Options<'a> {
    library: &'a RocksDb,
    pub(crate) handle: Handle,
}

impl<'a> Options<'a> {
    /// RocksDB's defaults, changed by a text.
    pub(crate) fn parse(library: &'a RocksDb, text: &str) -> Result<Options<'a>, String> {
        let text = CString::new(text).map_err(|_| "it has a zero byte".to_owned())?;
        // SAFETY: the objects were just made by this library; the text is a C string.
        unsafe {
            let defaults = Options {
                library,
                handle: (library.call.options_create)(),
            };
            let parsed = Options {
                library,
                handle: (library.call.options_create)(),
            };
            library.attempt(|error| {
                (library.call.get_options_from_string)(defaults.handle, text.as_ptr(), parsed.handle, error);
            })?;
            Ok(parsed)
        }
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: the object was made by this library and is not used again.
        unsafe { (self.library.call.options_destroy)(self.handle) };
    }
}

fn nested(table: &[String]) -> String {
    format!("block_based_table_factory={{{}}}", table.join(";"))
}

/// Requires that neither name nor value contains a further option: RocksDB splits its text at semicolons outside of braces.
fn require_single(option: Choice<'_>, text: &str) -> Result<(), RunError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    if option.name.is_empty() || !option.name.chars().all(plain) {
        return Err(option.unknown(names()));
    }
    let mut depth = 0_i64;
    for letter in text.chars() {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth < 0 || (depth == 0 && matches!(letter, ';' | '\n' | '\0')) {
            return Err(option.wrong("a single value"));
        }
    }
    match depth {
        0 => Ok(()),
        _ => Err(option.wrong("a value whose braces are closed")),
    }
}

/// Validates one option with RocksDB.
fn judge(library: &RocksDb, option: Choice<'_>, text: &str) -> Result<(), RunError> {
    let Err(words) = Options::parse(library, text) else {
        return Ok(());
    };
    match names().any(|known| known == option.name) {
        true => Err(option.wrong(&format!("another value; RocksDB reports: {words}"))),
        false => Err(option.unknown(names())),
    }
}

/// Names of the options of RocksDB 7.8.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.lines().chain(DATABASE.lines()).chain(CALLS)
}
