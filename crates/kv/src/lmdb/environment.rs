//! An open LMDB environment, and the access of one thread to it: the only module that calls C.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use crate::{About, Lent, Session, Store};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Direction, StoreDurability};
use lmdb_master3_sys as ffi;

use crate::lmdb::library::{Functions, Lmdb};
use crate::lmdb::settings::{NAME, Settings};

/// An open environment with its one unnamed database.
pub(crate) struct Environment {
    library: Lmdb,
    /// Those of the library, at hand for every call.
    call: Functions,
    env: *mut ffi::MDB_env,
    database: ffi::MDB_dbi,
    settings: Settings,
    is_device: bool,
}

// SAFETY: LMDB allows any thread to use an environment and a database handle at any time (lmdb.h, "Restrictions"). Only
// transactions are bound to a thread, and they live in sessions. Closing takes the environment by value, so no session,
// which borrows it, can exist then.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl Environment {
    /// Opens a directory, or a device by a link to it.
    pub(crate) fn open(
        library: &Lmdb,
        path: &Path,
        settings: &Settings,
        device: Option<&Path>,
    ) -> Result<Environment, RunError> {
        let mut environment = Environment {
            library: library.clone(),
            call: library.call,
            env: null_mut(),
            database: 0,
            settings: settings.clone(),
            is_device: device.is_some(),
        };
        let call = library.call;
        let opening =
            |what| move |status| failed(&call, &format!("{what} `{}`", device.unwrap_or(path).display()), status);
        // SAFETY: the place for the handle is valid.
        let created = unsafe { (call.mdb_env_create)(&mut environment.env) };
        check(created, opening("prepare"))?;
        environment.configure().map_err(opening("prepare"))?;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| RunError::new(Code::NotWritable, "a path with a zero byte", "use another path"))?;
        let flags = settings.flags | ffi::MDB_NOTLS;
        // SAFETY: the handle is new and configured, the path is a C string. Should it fail, the handle is to be closed,
        // which dropping it does.
        let status = unsafe { (call.mdb_env_open)(environment.env, name.as_ptr(), flags, 0o644) };
        check(status, opening("open"))?;
        environment.open_database().map_err(opening("open the database of"))?;
        Ok(environment)
    }

    fn configure(&self) -> Result<(), i32> {
        let Settings {
            mapsize,
            maxreaders,
            pagesize,
            ..
        } = self.settings;
        // SAFETY: the handle is valid and not open yet, as these calls demand.
        unsafe {
            status((self.call.mdb_env_set_mapsize)(self.env, mapsize as usize))?;
            status((self.call.mdb_env_set_maxreaders)(self.env, maxreaders))?;
            if let (Some(set_pagesize), true) = (self.call.mdb_env_set_pagesize, pagesize > 0) {
                status(set_pagesize(self.env, pagesize as i32))?;
            }
        }
        Ok(())
    }

    fn open_database(&mut self) -> Result<(), i32> {
        let mut txn = null_mut();
        // SAFETY: the environment is open; the transaction begins and ends here, in one thread.
        unsafe {
            status((self.call.mdb_txn_begin)(self.env, null_mut(), 0, &mut txn))?;
            match status((self.call.mdb_dbi_open)(txn, null(), 0, &mut self.database)) {
                Ok(()) => status((self.call.mdb_txn_commit)(txn)),
                Err(error) => {
                    (self.call.mdb_txn_abort)(txn);
                    Err(error)
                }
            }
        }
    }

    fn info(&self) -> ffi::MDB_envinfo {
        // SAFETY: the structure is made of integers and a pointer, for which zero is valid; the environment is open.
        unsafe {
            let mut info = std::mem::zeroed();
            (self.call.mdb_env_info)(self.env, &mut info);
            info
        }
    }

    fn stat(&self) -> ffi::MDB_stat {
        // SAFETY: the structure is made of integers, for which zero is valid; the environment is open.
        unsafe {
            let mut stat = std::mem::zeroed();
            (self.call.mdb_env_stat)(self.env, &mut stat);
            stat
        }
    }

    fn flags(&self) -> u32 {
        let mut flags = 0;
        // SAFETY: the environment is open, and the place for the result valid.
        unsafe { (self.call.mdb_env_get_flags)(self.env, &mut flags) };
        flags
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: sessions borrow the environment, so none is left; the handle is not used afterwards. LMDB takes a null.
        unsafe { (self.call.mdb_env_close)(self.env) };
    }
}

impl Store for Environment {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        let mut reader = null_mut();
        // SAFETY: the environment is open; with MDB_NOTLS a read transaction belongs to its handle.
        let began = unsafe { (self.call.mdb_txn_begin)(self.env, null_mut(), ffi::MDB_RDONLY, &mut reader) };
        check(began, |status| failed(&self.call, "begin a read transaction", status))?;
        // SAFETY: it has just been started and is reset until the first read.
        unsafe { (self.call.mdb_txn_reset)(reader) };
        Ok(Box::new(LmdbSession {
            environment: self,
            call: &self.call,
            reader,
            is_reading: false,
            writer: null_mut(),
            cursor: null_mut(),
            step: Step::End,
            put_flags: 0,
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        let mut options = BTreeMap::new();
        for (name, is_set) in Settings::flags_by_name(self.flags()) {
            options.insert(name.to_owned(), is_set.to_string());
        }
        options.insert("MDB_APPEND".into(), self.settings.append.to_string());
        options.insert("mapsize".into(), self.info().me_mapsize.to_string());
        options.insert("maxreaders".into(), self.info().me_maxreaders.to_string());
        options.insert("pagesize".into(), self.stat().ms_psize.to_string());
        let library = match &self.library.file {
            Some(file) => file.display().to_string(),
            None => "compiled in (lmdb-master3-sys)".into(),
        };
        Ok(About {
            version: self.library.version(),
            build: BTreeMap::from([
                ("library".into(), library),
                ("data_version".into(), self.library.format().into()),
            ]),
            options,
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        let (stat, info) = (self.stat(), self.info());
        BTreeMap::from([
            ("ms_depth".into(), u64::from(stat.ms_depth)),
            ("ms_branch_pages".into(), stat.ms_branch_pages as u64),
            ("ms_leaf_pages".into(), stat.ms_leaf_pages as u64),
            ("ms_overflow_pages".into(), stat.ms_overflow_pages as u64),
            ("ms_entries".into(), stat.ms_entries as u64),
            ("me_last_pgno".into(), info.me_last_pgno as u64),
            ("me_last_txnid".into(), info.me_last_txnid as u64),
            ("me_numreaders".into(), u64::from(info.me_numreaders)),
        ])
    }

    fn set_sync(&self, sync: bool) -> Result<(), RunError> {
        if self.settings.never_syncs() {
            return if sync {
                Err(RunError::invalid(
                    "`sync` is set, and LMDB is opened with `MDB_NOSYNC`",
                    "`store.options.MDB_NOSYNC`",
                    "omit the flag, or set `sync` to false",
                ))
            } else {
                Ok(())
            };
        }
        // SAFETY: the environment is open; this flag may change at any time, and no session exists yet.
        let changed = unsafe { (self.call.mdb_env_set_flags)(self.env, ffi::MDB_NOSYNC, i32::from(!sync)) };
        check(changed, |status| failed(&self.call, "change its durability", status))
    }

    fn has_sync_of_session(&self) -> bool {
        false
    }

    /// Without syncing, commits are in the page cache: by `write(2)`, or by the map with `MDB_WRITEMAP`.
    fn durability(&self, sync: bool) -> StoreDurability {
        match sync && self.settings.syncs_commits() {
            true => StoreDurability::PowerLoss,
            false => StoreDurability::ProcessCrash,
        }
    }

    fn flush(&self) -> Result<(), RunError> {
        // SAFETY: the environment is open.
        check(unsafe { (self.call.mdb_env_sync)(self.env, 1) }, |status| {
            failed(&self.call, "sync", status)
        })
    }

    fn used_bytes(&self) -> Option<u64> {
        let pages = self.info().me_last_pgno as u64 + 1;
        self.is_device.then(|| pages * u64::from(self.stat().ms_psize))
    }
}

/// Access of one thread: a read transaction that is renewed, a write transaction while one is open, and perhaps a cursor.
struct LmdbSession<'a> {
    environment: &'a Environment,
    call: &'a Functions,
    reader: *mut ffi::MDB_txn,
    is_reading: bool,
    writer: *mut ffi::MDB_txn,
    cursor: *mut ffi::MDB_cursor,
    step: Step,
    put_flags: u32,
}

/// Position of a cursor.
#[derive(Clone, Copy)]
enum Step {
    /// On the next record.
    Here(Direction),
    /// On the record before the next.
    On(Direction),
    End,
}

impl LmdbSession<'_> {
    #[inline]
    fn begin_reading(&mut self) -> Result<(), RunError> {
        if !self.is_reading {
            // SAFETY: the transaction is one of this session and reset.
            let renewed = unsafe { (self.call.mdb_txn_renew)(self.reader) };
            check(renewed, |status| failed(self.call, "renew a read transaction", status))?;
            self.is_reading = true;
        }
        Ok(())
    }

    #[inline]
    fn begin_writing(&mut self) -> Result<(), RunError> {
        if self.writer.is_null() {
            let env = self.environment.env;
            // SAFETY: the environment is open; this thread has no write transaction, so it waits at most for other threads.
            let began = unsafe { (self.call.mdb_txn_begin)(env, null_mut(), 0, &mut self.writer) };
            check(began, |status| failed(self.call, "begin a write transaction", status))?;
        }
        Ok(())
    }

    /// Ends the write transaction without effect: after an error nothing else may be done with it.
    #[cold]
    fn give_up_writing(&mut self) {
        if !self.writer.is_null() {
            // SAFETY: the transaction was started by this session and has not ended.
            unsafe { (self.call.mdb_txn_abort)(self.writer) };
            self.writer = null_mut();
        }
    }

    /// Moves the cursor; `None` where there is nothing.
    fn move_cursor(
        &mut self,
        key: &mut ffi::MDB_val,
        operation: ffi::MDB_cursor_op,
    ) -> Result<Option<ffi::MDB_val>, RunError> {
        let mut value = empty();
        // SAFETY: the cursor is open in a transaction that is under way; key and value are valid places.
        match unsafe { (self.call.mdb_cursor_get)(self.cursor, key, &mut value, operation) } {
            ffi::MDB_SUCCESS => Ok(Some(value)),
            ffi::MDB_NOTFOUND => Ok(None),
            status => Err(failed(self.call, "move a cursor", status)),
        }
    }
}

impl Session for LmdbSession<'_> {
    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        self.begin_reading()?;
        let (mut key, mut value) = (borrowed(key), empty());
        // SAFETY: the read transaction is under way; LMDB does not write through the key.
        match unsafe { (self.call.mdb_get)(self.reader, self.environment.database, &mut key, &mut value) } {
            // SAFETY: the value stays in the map until the transaction is reset, which takes this session mutably.
            ffi::MDB_SUCCESS => Ok(Some(unsafe { lent(&value) })),
            ffi::MDB_NOTFOUND => Ok(None),
            status => Err(failed(self.call, "get a record", status)),
        }
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        self.begin_writing()?;
        let (mut key, mut value) = (borrowed(key), borrowed(value));
        let database = self.environment.database;
        // SAFETY: the write transaction is under way; LMDB copies key and value and writes through neither.
        let put = unsafe { (self.call.mdb_put)(self.writer, database, &mut key, &mut value, self.put_flags) };
        check(put, |status| {
            self.give_up_writing();
            failed(self.call, "put a record", status)
        })
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        self.begin_writing()?;
        let mut key = borrowed(key);
        // SAFETY: the write transaction is under way; without sorted duplicates the value may be null.
        match unsafe { (self.call.mdb_del)(self.writer, self.environment.database, &mut key, null_mut()) } {
            ffi::MDB_SUCCESS | ffi::MDB_NOTFOUND => Ok(()),
            status => {
                self.give_up_writing();
                Err(failed(self.call, "delete a record", status))
            }
        }
    }

    #[inline]
    fn commit(&mut self, _sync: bool) -> Result<(), RunError> {
        let writer = std::mem::replace(&mut self.writer, null_mut());
        if writer.is_null() {
            return Ok(());
        }
        // SAFETY: the transaction is under way and is not used again; committing frees it, also when that fails.
        check(unsafe { (self.call.mdb_txn_commit)(writer) }, |status| {
            failed(self.call, "commit", status)
        })
    }

    fn expect_ascending_keys(&mut self) {
        if self.environment.settings.append {
            self.put_flags = ffi::MDB_APPEND;
        }
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        self.release();
        self.begin_reading()?;
        // SAFETY: the read transaction is under way; the place for the handle is valid.
        let opened = unsafe { (self.call.mdb_cursor_open)(self.reader, self.environment.database, &mut self.cursor) };
        check(opened, |status| failed(self.call, "open a cursor", status))?;
        let mut found_key = key.map_or(empty(), borrowed);
        let first = match (key, direction) {
            (Some(_), _) => ffi::MDB_SET_RANGE,
            (None, Direction::Forward) => ffi::MDB_FIRST,
            (None, Direction::Reverse) => ffi::MDB_LAST,
        };
        let found = self.move_cursor(&mut found_key, first)?;
        self.step = match (found, direction, key) {
            (Some(_), Direction::Forward, _) | (Some(_), Direction::Reverse, None) => Step::Here(direction),
            (None, Direction::Forward, _) | (None, Direction::Reverse, None) => Step::End,
            // SAFETY: the key is in the map as long as the transaction is under way.
            (Some(_), Direction::Reverse, Some(key)) if unsafe { lent(&found_key) } == key => Step::Here(direction),
            // The cursor is on the first record after the key: the one before it is next.
            (Some(_), Direction::Reverse, Some(_)) => Step::On(direction),
            // No record at or after the key: the last record is next.
            (None, Direction::Reverse, Some(_)) => match self.move_cursor(&mut empty(), ffi::MDB_LAST)? {
                Some(_) => Step::Here(direction),
                None => Step::End,
            },
        };
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let (operation, direction) = match self.step {
            Step::End => return Ok(None),
            Step::Here(direction) => (ffi::MDB_GET_CURRENT, direction),
            Step::On(Direction::Forward) => (ffi::MDB_NEXT, Direction::Forward),
            Step::On(Direction::Reverse) => (ffi::MDB_PREV, Direction::Reverse),
        };
        self.step = Step::On(direction);
        let mut key = empty();
        match self.move_cursor(&mut key, operation)? {
            // SAFETY: both lie in the map until the transaction is reset, which takes this session mutably.
            Some(value) => Ok(Some(unsafe { (lent(&key), lent(&value)) })),
            None => {
                self.step = Step::End;
                Ok(None)
            }
        }
    }

    #[inline]
    fn release(&mut self) {
        if !self.cursor.is_null() {
            // SAFETY: the cursor was opened by this session and is not used again.
            unsafe { (self.call.mdb_cursor_close)(self.cursor) };
            self.cursor = null_mut();
            self.step = Step::End;
        }
        if self.is_reading {
            // SAFETY: the transaction is under way; nothing lent by it is left, as this takes the session mutably.
            unsafe { (self.call.mdb_txn_reset)(self.reader) };
            self.is_reading = false;
        }
    }
}

impl Drop for LmdbSession<'_> {
    fn drop(&mut self) {
        self.release();
        self.give_up_writing();
        // SAFETY: the transaction is one of this session, and the environment, which it borrows, is still open.
        unsafe { (self.call.mdb_txn_abort)(self.reader) };
    }
}

fn empty() -> ffi::MDB_val {
    ffi::MDB_val {
        mv_size: 0,
        mv_data: null_mut(),
    }
}

/// For calls that read only.
fn borrowed(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val {
        mv_size: bytes.len(),
        mv_data: bytes.as_ptr().cast_mut().cast(),
    }
}

/// # Safety
/// The value was returned by LMDB in a transaction that lasts as long as the result is used.
unsafe fn lent<'a>(value: &ffi::MDB_val) -> &'a [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: LMDB returns a pointer into its map and a length; the caller guarantees the lifetime.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

fn status(status: i32) -> Result<(), i32> {
    if status == ffi::MDB_SUCCESS {
        Ok(())
    } else {
        Err(status)
    }
}

#[inline]
fn check(status: i32, error: impl FnOnce(i32) -> RunError) -> Result<(), RunError> {
    if status == ffi::MDB_SUCCESS {
        Ok(())
    } else {
        Err(error(status))
    }
}

/// The error of a status: LMDB's own codes are negative, others are the kernel's.
#[cold]
fn failed(call: &Functions, action: &str, status: i32) -> RunError {
    // SAFETY: the call returns a static or thread-local C string for any number.
    let words = unsafe { CStr::from_ptr((call.mdb_strerror)(status)) }.to_string_lossy();
    match status {
        ffi::MDB_MAP_FULL => RunError::new(
            Code::MapFull,
            format!("{NAME} failed to {action}: {words}"),
            "raise `mapsize`: it limits the database, including old pages that readers still use",
        ),
        libc::ENOSPC | libc::EDQUOT => RunError::new(
            Code::NoSpace,
            format!("{NAME} failed to {action}: {words}"),
            "free some space, or use fewer or smaller records",
        ),
        _ => RunError::store(NAME, action, words),
    }
}
