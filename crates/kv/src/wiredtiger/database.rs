//! An open WiredTiger database with one table, and the access of one thread to it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use crate::{About, Lent, Session, Store};
use iosonde_harness::RunError;
use iosonde_protocol::{Direction, StoreDurability};

use crate::wiredtiger::library::{NAME, WiredTiger};
use crate::wiredtiger::open_files::{self, Access};
use crate::wiredtiger::settings::{self, Settings};
use crate::wiredtiger::shim::{Change, Handle, Owner, Shim, c_text};
use crate::wiredtiger::statistics;

/// The file of a table of type `file`.
const FILE: &str = "file:records.wt";
/// Start of the names of a table's files, and of those of the log.
const DATA_FILES: &str = "records";
const LOG_FILES: &str = "WiredTigerLog.";
const CONFIG_BYTES: usize = 8192;

/// An open database.
pub(crate) struct Database {
    owner: Owner,
    library: WiredTiger,
    settings: Settings,
    data_access: Option<Access>,
    log_access: Option<Access>,
}

impl Database {
    pub(crate) fn open(
        library: &WiredTiger,
        shim: &Shim,
        settings: &Settings,
        path: &Path,
        log: Option<&PathBuf>,
        sessions: u64,
    ) -> Result<Database, RunError> {
        let failed = |words: String| RunError::store(NAME, format!("open `{}`", path.display()), words);
        let config = settings.of_connection(log.map(PathBuf::as_path), sessions)?;
        let owner = Owner::create(shim).map_err(failed)?;
        let home = c_text(&path.display().to_string()).map_err(failed)?;
        let (config, table) = (
            c_text(&config).map_err(failed)?,
            c_text(&settings.of_table()).map_err(failed)?,
        );
        // SAFETY: the object was created, and the texts are C strings.
        let code = unsafe { (shim.open)(owner.handle, home.as_ptr(), config.as_ptr(), table.as_ptr()) };
        owner.check(code).map_err(failed)?;
        let database = Database {
            owner,
            library: library.clone(),
            settings: settings.clone(),
            data_access: open_files::access(path, DATA_FILES),
            log_access: open_files::access(log.map_or(path, PathBuf::as_path), LOG_FILES),
        };
        database.check_direct_io("data", database.data_access)?;
        database.check_direct_io("log", database.log_access)?;
        Ok(database)
    }

    /// Refuses direct I/O that is configured and not in effect.
    fn check_direct_io(&self, kind: &str, access: Option<Access>) -> Result<(), RunError> {
        match access {
            Some(access) if access != Access::Direct && self.settings.asks_for_direct_io(kind) => {
                Err(RunError::unsupported(
                    format!(
                        "{NAME} has opened its {kind} files without `O_DIRECT` ({}), though `direct_io` includes `{kind}`",
                        access.name()
                    ),
                    format!("leave `{kind}` out of `direct_io`, or use a file system that supports it"),
                )
                .at("`store.options.direct_io`"))
            }
            _ => Ok(()),
        }
    }

    fn attempt(&self, action: &str, code: c_int) -> Result<(), RunError> {
        self.owner
            .check(code)
            .map_err(|words| RunError::store(NAME, action, words))
    }

    /// The options with which the table was created; empty for other types than `file`.
    fn table_options(&self) -> Result<BTreeMap<String, String>, RunError> {
        let file = c_text(FILE).expect("it has no zero byte");
        let mut text = vec![0_u8; CONFIG_BYTES];
        // SAFETY: the database is open; the call writes a C string of at most this many bytes.
        let code = unsafe {
            (self.owner.shim.table_config)(self.owner.handle, file.as_ptr(), text.as_mut_ptr().cast(), text.len())
        };
        self.attempt("read the options of its table", code)?;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(settings::table_options(&String::from_utf8_lossy(text)))
    }
}

impl Store for Database {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        let mut handle = null_mut();
        // SAFETY: the database is open; the session is closed when it is dropped, before the database.
        let code = unsafe { (self.owner.shim.session_open)(self.owner.handle, &mut handle) };
        self.attempt("open a session", code)?;
        Ok(Box::new(WiredtigerSession {
            database: self,
            handle,
            memory: Vec::new(),
            entries: Vec::new(),
            changes: Vec::new(),
            direction: Direction::Forward,
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        let mut build = BTreeMap::from([
            ("library".to_owned(), self.library.file.display().to_string()),
            ("release".to_owned(), self.library.release.clone()),
            (
                "interface".to_owned(),
                format!(
                    "C shim, compiled with the header of {NAME} {}",
                    self.owner.shim.header()
                ),
            ),
        ]);
        for (name, access) in [("data_files", self.data_access), ("log_files", self.log_access)] {
            if let Some(access) = access {
                build.insert(name.to_owned(), access.name().to_owned());
            }
        }
        let mut options = self.table_options()?;
        if let Some(bytes) = self.statistics().get(statistics::CACHE_SIZE) {
            options.insert("cache_size".into(), bytes.to_string());
        }
        options.extend(self.settings.options());
        Ok(About {
            version: self.library.version.to_string(),
            build,
            options,
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let context: *mut c_void = (&raw mut found).cast();
        // SAFETY: the database is open; the function is called with this map, only during the call.
        unsafe { (self.owner.shim.statistics)(self.owner.handle, statistics::visit, context) };
        found
    }

    /// Without a log only checkpoints survive. Without `sync`, or with the method `none`, the log is written to its file, unless
    /// `log_flush` leaves it in memory.
    fn durability(&self, sync: bool) -> StoreDurability {
        let settings = &self.settings;
        match (
            settings.log_enabled,
            sync && settings.syncs(),
            sync || settings.log_flush,
        ) {
            (false, _, _) | (true, false, false) => StoreDurability::Nothing,
            (true, true, _) => StoreDurability::PowerLoss,
            (true, false, true) => StoreDurability::ProcessCrash,
        }
    }

    fn flush(&self) -> Result<(), RunError> {
        // SAFETY: the database is open.
        let code = unsafe { (self.owner.shim.checkpoint)(self.owner.handle) };
        self.attempt("write a checkpoint", code)
    }

    fn is_busy(&self) -> bool {
        self.statistics().get(statistics::CHECKPOINT_RUNNING) == Some(&1)
    }

    fn close(self: Box<Self>) -> Result<(), RunError> {
        self.owner
            .close()
            .map_err(|words| RunError::store(NAME, "close", words))
    }
}

/// A change in the memory of a session: where its key begins and ends, and where its value ends; none for a deletion.
type Entry = (usize, usize, Option<usize>);

/// Access of one thread: its cursors are in the shim.
struct WiredtigerSession<'a> {
    database: &'a Database,
    handle: Handle,
    /// Keys and values of the next write.
    memory: Vec<u8>,
    entries: Vec<Entry>,
    changes: Vec<Change>,
    direction: Direction,
}

impl WiredtigerSession<'_> {
    fn shim(&self) -> &Shim {
        &self.database.owner.shim
    }

    /// Writes all changes in one transaction.
    fn write(&mut self, sync: bool) -> c_int {
        let start = self.memory.as_ptr();
        self.changes.clear();
        // SAFETY: keys and values lie in the memory, which does not move before the call below returns.
        self.changes.extend(self.entries.iter().map(|(key, end, value)| unsafe {
            Change {
                key: start.add(*key).cast(),
                key_bytes: end - key,
                value: value.map_or(null(), |_| start.add(*end).cast()),
                value_bytes: value.map_or(0, |value| value - end),
            }
        }));
        let settings = &self.database.settings;
        let flush = settings.log_enabled && settings.log_flush;
        // SAFETY: the session is open; WiredTiger copies keys and values.
        unsafe {
            (self.shim().write)(
                self.handle,
                self.changes.as_ptr(),
                self.changes.len(),
                sync.into(),
                flush.into(),
            )
        }
    }
}

impl Session for WiredtigerSession<'_> {
    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let (mut value, mut bytes) = (null(), 0);
        // SAFETY: the session is open; WiredTiger reads the key during the call only.
        let code = unsafe { (self.shim().get)(self.handle, key.as_ptr().cast(), key.len(), &mut value, &mut bytes) };
        self.database.attempt("get a record", code)?;
        // SAFETY: the value is valid until the session is used again, which takes it mutably.
        Ok((!value.is_null()).then(|| unsafe { slice(value, bytes) }))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        let begin = self.memory.len();
        self.memory.extend_from_slice(key);
        let end = self.memory.len();
        self.memory.extend_from_slice(value);
        self.entries.push((begin, end, Some(self.memory.len())));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        let begin = self.memory.len();
        self.memory.extend_from_slice(key);
        self.entries.push((begin, self.memory.len(), None));
        Ok(())
    }

    #[inline]
    fn commit(&mut self, sync: bool) -> Result<(), RunError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let code = self.write(sync);
        self.memory.clear();
        self.entries.clear();
        self.database.attempt("write", code)
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        self.direction = direction;
        let (start, bytes) = key.map_or((null(), 0), |key| (key.as_ptr().cast(), key.len()));
        // SAFETY: the session is open; WiredTiger reads the key during the call only.
        let code = unsafe { (self.shim().seek)(self.handle, start, bytes, reverse(direction)) };
        self.database.attempt("seek", code)
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let (mut key, mut key_bytes, mut value, mut value_bytes) = (null(), 0, null(), 0);
        // SAFETY: the session is open, and the places for the results are valid.
        let code = unsafe {
            (self.shim().next)(
                self.handle,
                reverse(self.direction),
                &mut key,
                &mut key_bytes,
                &mut value,
                &mut value_bytes,
            )
        };
        self.database.attempt("iterate", code)?;
        if key.is_null() {
            return Ok(None);
        }
        // SAFETY: the record is valid until the session is used again, which takes it mutably.
        Ok(Some(unsafe { (slice(key, key_bytes), slice(value, value_bytes)) }))
    }

    #[inline]
    fn release(&mut self) {
        // SAFETY: the session is open, and nothing lent by it is in use.
        unsafe { (self.shim().release)(self.handle) };
    }
}

impl Drop for WiredtigerSession<'_> {
    fn drop(&mut self) {
        // SAFETY: the session is open and not used again.
        unsafe { (self.shim().session_close)(self.handle) };
    }
}

fn reverse(direction: Direction) -> c_int {
    (direction == Direction::Reverse).into()
}

/// # Safety
/// WiredTiger returned pointer and length, and keeps the bytes as long as the result is used.
#[inline]
unsafe fn slice<'a>(pointer: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }
}
