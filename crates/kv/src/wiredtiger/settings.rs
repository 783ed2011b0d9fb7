//! WiredTiger's options by its own names, validated by WiredTiger itself.
//!
//! Options of the connection (`wiredtiger_open`) and of the table (`WT_SESSION.create`) are given side by side; nested ones are
//! written with a dot, such as `log.file_max`. Only options in the lists below are accepted: others name files or libraries, or
//! would change what a run means.

use std::collections::BTreeMap;
use std::path::Path;

use crate::options::{self, Choice, Given};
use iosonde_harness::{Code, RunError};

use crate::wiredtiger::library::{NAME, WiredTiger};
use crate::wiredtiger::shim::Shim;

/// Of `wiredtiger_open`, WiredTiger 3.2 and newer; a version that lacks one refuses it.
const CONNECTION: &str = include_str!("connection_options.txt");

/// Of `WT_SESSION.create`.
const TABLE: &str = include_str!("table_options.txt");

/// Option for commits without `sync`: write the log to its file (`WT_SESSION::log_flush`), or leave it in memory.
const LOG_FLUSH: &str = "log_flush";

/// Options that the engine sets, and the parameter of a spec to use instead.
const OURS: [(&str, &str); 4] = [
    ("log.path", "name the log's directory in `target.log_path`"),
    ("transaction_sync.enabled", "use `sync` of the stream"),
    ("create", "use `database`"),
    ("exclusive", "use `database`"),
];

/// Options with the name of a compressor, which may be a library of its own.
const COMPRESSORS: [&str; 2] = ["block_compressor", "log.compressor"];
/// Sessions that WiredTiger takes for its own threads, and those that collect statistics.
const SESSIONS: u64 = 100;

/// Options with which WiredTiger is opened and the table is created.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Of the connection, by name.
    connection: BTreeMap<String, String>,
    /// Of the table, by name.
    table: BTreeMap<String, String>,
    /// Libraries of compressors.
    extensions: Vec<String>,
    pub(crate) log_enabled: bool,
    pub(crate) log_flush: bool,
    /// Method by which synced commits reach the device: `fsync`, `dsync`, or `none`.
    sync_method: String,
}

impl Settings {
    /// Validates every option with WiredTiger. Writes nothing.
    pub(crate) fn read(library: &WiredTiger, shim: &Shim, given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings {
            connection: BTreeMap::from([
                ("log.enabled".to_owned(), "true".to_owned()),
                ("statistics".to_owned(), "(fast)".to_owned()),
                ("transaction_sync.method".to_owned(), "fsync".to_owned()),
            ]),
            table: BTreeMap::from([("type".to_owned(), "file".to_owned())]),
            extensions: Vec::new(),
            log_enabled: true,
            log_flush: true,
            sync_method: String::new(),
        };
        options::each(NAME, given).try_for_each(|option| settings.set(library, shim, option))?;
        settings.log_enabled = settings.connection["log.enabled"] == "true";
        settings.sync_method = settings.connection["transaction_sync.method"].clone();
        Ok(settings)
    }

    fn set(&mut self, library: &WiredTiger, shim: &Shim, option: Choice<'_>) -> Result<(), RunError> {
        let name = option.name;
        if let Some((_, hint)) = OURS.iter().find(|(ours, _)| *ours == name) {
            return Err(option.reserved(hint));
        }
        if name == LOG_FLUSH {
            self.log_flush = option.flag()?;
            return Ok(());
        }
        let (function, place) = if CONNECTION.lines().any(|each| each == name) {
            ("wiredtiger_open", &mut self.connection)
        } else if is_of_table(name) {
            ("WT_SESSION.create", &mut self.table)
        } else {
            return Err(option.unknown(names()));
        };
        let text = option.text()?;
        if !is_one_value(&text) {
            return Err(option.wrong("one value, or a list such as `[data,log]`"));
        }
        let config = nested([(name, text.as_str())].into_iter());
        shim.validate(function, &config).map_err(|words| {
            let version = library.version;
            option.wrong(&format!("another value; {NAME} {version} reports: {words}"))
        })?;
        if COMPRESSORS.contains(&name) && !matches!(text.as_str(), "" | "none") {
            self.extensions.extend(extension(library, option, &text)?);
            self.extensions.dedup();
        }
        place.insert(name.to_owned(), text);
        Ok(())
    }

    /// The configuration of `wiredtiger_open`, for this many sessions of the run.
    pub(crate) fn of_connection(&self, log: Option<&Path>, sessions: u64) -> Result<String, RunError> {
        let mut options = self.connection.clone();
        options
            .entry("session_max".to_owned())
            .or_insert_with(|| (SESSIONS + sessions).to_string());
        if let Some(log) = log {
            let log = log.display().to_string();
            if log.contains(['"', '\\']) {
                let message =
                    format!("{NAME} cannot have its log in `{log}`, a path with quotation marks or backslashes");
                return Err(RunError::new(Code::NotWritable, message, "use another path"));
            }
            options.insert("log.path".to_owned(), format!("\"{log}\""));
        }
        let options = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let extensions = self.extensions.iter().map(|file| format!("\"{file}\""));
        // The configuration is this text alone: no file in the database and no variable of the environment adds to it.
        Ok(format!(
            "create,config_base=false,use_environment=false,{},extensions=[{}]",
            nested(options),
            extensions.collect::<Vec<_>>().join(",")
        ))
    }

    /// The configuration of `WT_SESSION.create`.
    pub(crate) fn of_table(&self) -> String {
        let options = self.table.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        format!("key_format=u,value_format=u,{}", nested(options))
    }

    /// Every option that is set, by name.
    pub(crate) fn options(&self) -> BTreeMap<String, String> {
        let mut options = self.connection.clone();
        options.extend(self.table.clone());
        options.insert(LOG_FLUSH.into(), self.log_flush.to_string());
        options
    }

    /// Returns true if synced commits reach the device, and checkpoints, after which the log is removed, as well.
    pub(crate) fn syncs(&self) -> bool {
        let skips = self
            .connection
            .get("checkpoint_sync")
            .is_some_and(|sync| sync == "false");
        self.sync_method != "none" && !skips
    }

    /// Returns true if direct I/O is configured for files of a kind: `data` or `log`.
    pub(crate) fn asks_for_direct_io(&self, kind: &str) -> bool {
        let configured = self.connection.get("direct_io");
        configured.is_some_and(|kinds| kinds.split(|c: char| !c.is_ascii_alphabetic()).any(|each| each == kind))
    }
}

/// The library that a compressor needs; none if it is compiled in, which opening the database shows.
fn extension(library: &WiredTiger, option: Choice<'_>, text: &str) -> Result<Option<String>, RunError> {
    if !text.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(option.wrong("the name of a compressor, such as `snappy`"));
    }
    match library.compressor(text) {
        Some(file) => Ok(Some(file.display().to_string())),
        None if library.compiled_in.contains(&text) => Ok(None),
        None => Err(option.wrong(&format!(
            "`none` or a compressor whose library, `libwiredtiger_NAME.so`, is beside `{}`",
            library.file.display()
        ))),
    }
}

/// Returns true if a text is one value or one list, so that it cannot add options.
fn is_one_value(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let inside = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .or_else(|| text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')));
    match inside {
        Some(inside) => inside.chars().all(|c| is_word(c) || ",= ".contains(c)),
        None => text.chars().all(is_word),
    }
}

/// Options in WiredTiger's notation: those with a dot within their group, as `log=(enabled=true)`.
fn nested<'a>(options: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut parts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in options {
        match name.split_once('.') {
            Some((group, inner)) => parts.entry(group).or_default().push(format!("{inner}={value}")),
            None => parts.entry(name).or_default().push(value.to_owned()),
        }
    }
    let groups = parts.iter().map(|(name, values)| match values[..] {
        [ref value] if !value.contains('=') || value.starts_with(['[', '(']) => format!("{name}={value}"),
        _ => format!("{name}=({})", values.join(",")),
    });
    groups.collect::<Vec<_>>().join(",")
}

/// The options of a table in WiredTiger's own list of them.
pub(crate) fn table_options(config: &str) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for part in split(config) {
        let Some((name, value)) = part.split_once('=') else {
            continue;
        };
        let inside = value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let nested = split(inside.unwrap_or_default()).filter_map(|each| each.split_once('='));
        options.insert(name.to_owned(), value.to_owned());
        options.extend(nested.map(|(inner, value)| (format!("{name}.{inner}"), value.to_owned())));
    }
    options.retain(|name, _| is_of_table(name));
    options
}

/// Parts between commas outside of parentheses and brackets.
fn split(config: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    config.split(move |c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn is_of_table(name: &str) -> bool {
    TABLE.lines().any(|each| each == name)
}

/// Names of all options.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CONNECTION.lines().chain(TABLE.lines()).chain([LOG_FLUSH])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_options_are_grouped_and_those_of_a_table_read() {
        let options = [
            ("cache_size", "1GB"),
            ("direct_io", "[data,log]"),
            ("file_extend", "(data=16MB)"),
            ("log.enabled", "true"),
            ("log.file_max", "1MB"),
        ];
        assert_eq!(
            nested(options.into_iter()),
            "cache_size=1GB,direct_io=[data,log],file_extend=(data=16MB),log=(enabled=true,file_max=1MB)"
        );
        assert_eq!(nested([("checkpoint.wait", "60")].into_iter()), "checkpoint=(wait=60)");
        let config = "allocation_size=4KB,app_metadata=,lsm=(bloom=true,merge_custom=(prefix=,suffix=)),type=file,id=2";
        let expected = [("allocation_size", "4KB"), ("lsm.bloom", "true"), ("type", "file")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(table_options(config), BTreeMap::from(expected));
    }

    #[test]
    fn a_value_cannot_add_options_and_no_option_names_a_file_or_a_library() {
        for one in ["1GB", "true", "[data,log]", "(data=128MB)", "snappy", "-1", ""] {
            assert!(is_one_value(one), "{one}");
        }
        for several in ["1GB,extensions=[/tmp/x.so]", "[data],log=(path=/)", "(a=(b=1))"] {
            assert!(!is_one_value(several), "{several}");
        }
        for unsafe_one in ["\"", "a b", "../x", "/tmp/x"] {
            assert!(!is_one_value(unsafe_one), "{unsafe_one}");
        }
        for name in names() {
            assert!(!name.contains("path") && !name.contains("extension"), "{name}");
        }
    }
}
