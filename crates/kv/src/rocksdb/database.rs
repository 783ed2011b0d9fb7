//! An open RocksDB, and the access of one thread to it.
//!
//! Every call into C goes through the functions of [`RocksDb`]. Each object is created, used and destroyed by the same
//! library; sessions borrow the database, so they end before it is closed.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{ASSERTIONS, About, CachePlace, Lent, Place, Session, Store};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Direction, StoreDurability};

use crate::rocksdb::library::{Handle, NAME, RocksDb};
use crate::rocksdb::settings::{Options, Settings};
use crate::rocksdb::shim::Shim;
use crate::rocksdb::statistics;

/// `kDisable` of `PerfLevel`: threads do not count in their `PerfContext`, as in db_bench. It saves about 50 look-ups of
/// thread-local memory in a cached read of RocksDB 7.8, which counts by default.
const PERF_LEVEL_DISABLE: c_int = 1;

/// An open database.
pub(crate) struct Database {
    library: RocksDb,
    settings: Settings,
    handle: Handle,
    /// They contain the statistics.
    options: Handle,
    path: PathBuf,
    shim: Option<Shim>,
    /// Reason for not using the given shim.
    shim_problem: Option<String>,
    read_cache: Option<CachePlace>,
    is_closed: AtomicBool,
    /// A write failed.
    has_failed: AtomicBool,
}

// SAFETY: RocksDB allows any thread to use a database and its options at any time (its documentation, "Concurrency");
// objects bound to one thread at a time (batches, iterators) live in sessions.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    pub(crate) fn open(
        library: &RocksDb,
        settings: &Settings,
        shim: Option<Result<&Shim, &RunError>>,
        place: &Place,
    ) -> Result<Database, RunError> {
        let (path, log, read_cache, is_read_only) = match place {
            Place::Directory { path, log, read_cache } => (path, log.as_ref(), read_cache.as_ref(), false),
            Place::ReadOnly { path } => (path, None, None, true),
            _ => return Err(place.unsupported(NAME)),
        };
        let mut text = settings.text.clone();
        if let Some(log) = log {
            text = format!("wal_dir={};{text}", log.display());
        }
        let options =
            Options::parse(library, &text).map_err(|words| RunError::store(NAME, "take its options", words))?;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| RunError::new(Code::NotWritable, "a path with a zero byte", "use another path"))?;
        let (shim, shim_problem) = match shim {
            Some(Ok(shim)) => (Some(*shim), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        if let Some(cache) = read_cache {
            attach_read_cache(library, shim, &options, cache)?;
        }
        // SAFETY: options and path are valid; the database keeps what it needs of both.
        let handle = unsafe {
            (library.call.options_set_create_if_missing)(options.handle, (!is_read_only).into());
            if settings.statistics {
                (library.call.options_enable_statistics)(options.handle);
            }
            library.attempt(|error| match is_read_only {
                false => (library.call.open)(options.handle, name.as_ptr(), error),
                true => (library.call.open_for_read_only)(options.handle, name.as_ptr(), 0, error),
            })
        };
        let handle = handle.map_err(|words| RunError::store(NAME, format!("open `{}`", path.display()), words))?;
        let database = Database {
            library: library.clone(),
            settings: settings.clone(),
            handle,
            options: options.handle,
            path: path.clone(),
            shim,
            shim_problem,
            read_cache: read_cache.cloned(),
            is_closed: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        };
        // The database destroys them when it is closed.
        std::mem::forget(options);
        Ok(database)
    }

    fn number(&self, property: &str) -> Option<u64> {
        let name = CString::new(property).ok()?;
        let mut number = 0;
        // SAFETY: the database is open, the name a C string, the place for the number valid.
        let status = unsafe { (self.library.call.property_int)(self.handle, name.as_ptr(), &mut number) };
        (status == 0).then_some(number)
    }

    fn text(&self, property: &str) -> Option<String> {
        let name = CString::new(property).ok()?;
        // SAFETY: the database is open, the name a C string; the text is ours to free.
        let text = unsafe { (self.library.call.property_value)(self.handle, name.as_ptr()) };
        self.library.take_text(text)
    }

    /// Interface of reads.
    fn interface(&self) -> String {
        match (&self.shim, &self.shim_problem) {
            (Some(shim), _) => format!("C++ shim, compiled with the headers of RocksDB {}", shim.headers()),
            (None, None) => "C".into(),
            (None, Some(problem)) => format!("C; {problem}"),
        }
    }

    fn destroy(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            // SAFETY: both were made by this library, no session is left, and neither is used again.
            unsafe {
                (self.library.call.close)(self.handle);
                (self.library.call.options_destroy)(self.options);
            }
        }
    }

    /// The newest file in which RocksDB lists every option in effect.
    fn options_file(&self) -> Result<String, RunError> {
        let reading = |error: std::io::Error| RunError::io("read the options in", &self.path, &error);
        let entries = std::fs::read_dir(&self.path).map_err(reading)?;
        let newest = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                name.is_some_and(|name| name.starts_with("OPTIONS-") && !name.ends_with(".dbtmp"))
            })
            .max();
        match newest {
            Some(newest) => std::fs::read_to_string(newest).map_err(reading),
            None => Ok(String::new()),
        }
    }
}

impl Drop for Database {
    /// After a failed write it stays open: closing writes again, and a RocksDB with assertions then aborts the process before
    /// the failure is reported. The process is about to exit anyway.
    fn drop(&mut self) {
        if !self.has_failed.load(Ordering::Acquire) {
            self.destroy();
        }
    }
}

impl Store for Database {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        let call = &self.library.call;
        // SAFETY: the level is this thread's, in which the session is used; the objects are made here and destroyed with it.
        unsafe {
            (call.set_perf_level)(PERF_LEVEL_DISABLE);
            let read_options = (call.readoptions_create)();
            (call.readoptions_set_verify_checksums)(read_options, self.settings.verify_checksums.into());
            (call.readoptions_set_fill_cache)(read_options, self.settings.fill_cache.into());
            if self.settings.readahead_size > 0 {
                (call.readoptions_set_readahead_size)(read_options, self.settings.readahead_size as usize);
            }
            let write_options = [false, true].map(|sync| {
                let options = (call.writeoptions_create)();
                (call.writeoptions_set_sync)(options, sync.into());
                (call.writeoptions_disable_WAL)(options, self.settings.disable_wal.into());
                options
            });
            let reader = self.shim.map(|shim| {
                let handle = (shim.reader_create)(self.handle, read_options);
                Reader { shim, handle }
            });
            Ok(Box::new(RocksdbSession {
                database: self,
                reader,
                read_options,
                write_options,
                batch: (call.writebatch_create)(),
                slice: null_mut(),
                iterator: null_mut(),
                direction: Direction::Forward,
                is_fresh: false,
            }))
        }
    }

    fn about(&self) -> Result<About, RunError> {
        let (version, mut options) = read_options_file(&self.options_file()?);
        options.extend(self.settings.calls());
        if let Some(capacity) = self.number("rocksdb.block-cache-capacity") {
            options.insert("block_cache".into(), capacity.to_string());
        }
        let mut build = build_facts(&self.library.file);
        build.insert("interface".into(), self.interface());
        if let Some(cache) = &self.read_cache {
            options.insert("persistent_cache".into(), format!("{} bytes", cache.bytes));
            options.insert("persistent_cache_direct_writes".into(), cache.direct_writes.to_string());
        }
        Ok(About {
            version,
            build,
            options,
        })
    }

    fn statistics(&self) -> BTreeMap<String, u64> {
        let mut found: BTreeMap<String, u64> = statistics::PROPERTIES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.number(name)?)))
            .collect();
        for level in 0..statistics::LEVELS {
            let name = format!("rocksdb.num-files-at-level{level}");
            if let Some(files) = self.text(&name).and_then(|text| text.trim().parse().ok()) {
                found.insert(name, files);
            }
        }
        if self.settings.statistics {
            // SAFETY: the options are those that the database was opened with; the text is ours to free.
            let text = unsafe { (self.library.call.options_statistics_get_string)(self.options) };
            found.extend(statistics::counters(&self.library.take_text(text).unwrap_or_default()));
        }
        if self.read_cache.is_none() {
            found.retain(|name, _| !statistics::READ_CACHE.contains(&name.as_str()));
        }
        found
    }

    /// Without a log, or with a log that is buffered in the process, a crash loses writes.
    fn durability(&self, sync: bool) -> StoreDurability {
        match (self.settings.disable_wal, sync, self.settings.manual_wal_flush) {
            (true, _, _) | (false, false, true) => StoreDurability::Nothing,
            (false, true, _) => StoreDurability::PowerLoss,
            (false, false, false) => StoreDurability::ProcessCrash,
        }
    }

    fn flush(&self) -> Result<(), RunError> {
        let call = &self.library.call;
        // SAFETY: the options are made and destroyed here; the database is open. Flushing waits by default.
        let flushed = unsafe {
            let options = (call.flushoptions_create)();
            let flushed = self.library.attempt(|error| (call.flush)(self.handle, options, error));
            (call.flushoptions_destroy)(options);
            flushed
        };
        flushed.map_err(|words| RunError::store(NAME, "flush its memory tables", words))
    }

    fn is_busy(&self) -> bool {
        let is_working = |name: &&str| self.number(name).unwrap_or(0) > 0;
        statistics::WORK.iter().any(is_working)
            || !self.settings.no_auto_compactions && is_working(&statistics::COMPACTION_PENDING)
    }

    fn close(self: Box<Self>) -> Result<(), RunError> {
        self.destroy();
        Ok(())
    }
}

/// One file of the cache (`cache_file_size` in RocksDB's `persistent_cache_tier.h`).
const SMALLEST_READ_CACHE: u64 = 100 << 20;

/// Attaches an empty read cache to the options of a database that is not open yet.
fn attach_read_cache(
    library: &RocksDb,
    shim: Option<Shim>,
    options: &Options<'_>,
    cache: &CachePlace,
) -> Result<(), RunError> {
    let shim = shim.ok_or_else(|| RunError::new(Code::Internal, "a read cache was not checked", ""))?;
    let failed = |words: &dyn std::fmt::Display| {
        let action = format!(
            "create a read cache of {} bytes in `{}`",
            cache.bytes,
            cache.path.display()
        );
        RunError::store(NAME, action, words).at("`target.read_cache`")
    };
    let path = CString::new(cache.path.as_os_str().as_bytes())
        .map_err(|_| RunError::new(Code::NotWritable, "a path with a zero byte", "use another path"))?;
    // A RocksDB with assertions aborts the process where a size is refused, or it cannot create the directory.
    if cache.bytes < SMALLEST_READ_CACHE {
        return Err(failed(&format_args!("it needs at least {SMALLEST_READ_CACHE} bytes")));
    }
    std::fs::create_dir_all(cache.path.join("cache")).map_err(|error| failed(&error))?;
    // SAFETY: the options are of the library that the shim is bound to; it copies the path.
    let attached = library.attempt(|error| unsafe {
        (shim.attach_read_cache)(
            options.handle,
            path.as_ptr(),
            cache.bytes,
            cache.direct_writes.into(),
            error,
        );
    });
    attached.map_err(|words| failed(&words))
}

/// Reads of one thread through the shim.
struct Reader {
    shim: Shim,
    handle: Handle,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: it was made by this shim and is not used again.
        unsafe { (self.shim.reader_destroy)(self.handle) };
    }
}

/// Access of one thread: a batch, a pinned value, perhaps an iterator.
struct RocksdbSession<'a> {
    database: &'a Database,
    reader: Option<Reader>,
    read_options: Handle,
    /// Without and with sync.
    write_options: [Handle; 2],
    batch: Handle,
    slice: Handle,
    iterator: Handle,
    direction: Direction,
    /// The iterator is on the next record.
    is_fresh: bool,
}

impl RocksdbSession<'_> {
    #[cold]
    fn failed(&self, action: &str, words: String) -> RunError {
        RunError::store(NAME, action, words)
    }

    /// A value in the reader's own slice.
    #[inline]
    fn read(&self, reader: &Reader, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        let (mut bytes, mut error) = (0, null_mut());
        // SAFETY: the database is open, the reader this thread's; RocksDB reads the key during the call only.
        let value =
            unsafe { (reader.shim.reader_get)(reader.handle, key.as_ptr().cast(), key.len(), &mut bytes, &mut error) };
        if value.is_null() {
            return self.no_value(error);
        }
        // SAFETY: the value is valid until the reader is used again, which takes the session mutably.
        Ok(Some(unsafe { std::slice::from_raw_parts(value.cast(), bytes) }))
    }

    /// There is no record, or an error if there is one.
    #[cold]
    fn no_value(&self, error: *mut c_char) -> Result<Option<&[u8]>, RunError> {
        match self.database.library.take_text(error) {
            None => Ok(None),
            Some(words) => Err(self.failed("get a record", words)),
        }
    }
}

impl Session for RocksdbSession<'_> {
    /// Blocks and memtables have a record's key directly before its value (`table/block_based/block_builder.cc`); other
    /// values are copies, whose memory was just written.
    fn reads_byte_before_value(&self) -> bool {
        true
    }

    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        if let Some(reader) = &self.reader {
            return self.read(reader, key);
        }
        if !self.slice.is_null() {
            self.release();
        }
        let Database { library, handle, .. } = self.database;
        let (key, bytes) = (key.as_ptr().cast::<c_char>(), key.len());
        // SAFETY: the database is open; RocksDB reads the key during the call only.
        let got = unsafe {
            library.attempt(|error| (library.call.get_pinned)(*handle, self.read_options, key, bytes, error))
        };
        self.slice = got.map_err(|words| self.failed("get a record", words))?;
        if self.slice.is_null() {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: the slice is pinned until it is destroyed, which takes the session mutably.
        unsafe {
            let value = (library.call.pinnableslice_value)(self.slice, &mut bytes);
            Ok(Some(slice(value, bytes)))
        }
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RunError> {
        // SAFETY: the batch is this session's; RocksDB copies key and value.
        unsafe {
            (self.database.library.call.writebatch_put)(
                self.batch,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), RunError> {
        // SAFETY: as for `put`.
        unsafe { (self.database.library.call.writebatch_delete)(self.batch, key.as_ptr().cast(), key.len()) };
        Ok(())
    }

    #[inline]
    fn commit(&mut self, sync: bool) -> Result<(), RunError> {
        let Database { library, handle, .. } = self.database;
        let options = self.write_options[usize::from(sync)];
        // SAFETY: the database is open; options and batch are this session's.
        let written = unsafe {
            let written = library.attempt(|error| (library.call.write)(*handle, options, self.batch, error));
            (library.call.writebatch_clear)(self.batch);
            written
        };
        written.map_err(|words| {
            self.database.has_failed.store(true, Ordering::Release);
            self.failed("write", words)
        })
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        self.release();
        let Database { library, handle, .. } = self.database;
        // SAFETY: the database is open; the iterator is destroyed by `release`. RocksDB reads the key during the call only.
        unsafe {
            self.iterator = (library.call.create_iterator)(*handle, self.read_options);
            match (key, direction) {
                (None, Direction::Forward) => (library.call.iter_seek_to_first)(self.iterator),
                (None, Direction::Reverse) => (library.call.iter_seek_to_last)(self.iterator),
                (Some(key), Direction::Forward) => {
                    (library.call.iter_seek)(self.iterator, key.as_ptr().cast(), key.len());
                }
                (Some(key), Direction::Reverse) => {
                    (library.call.iter_seek_for_prev)(self.iterator, key.as_ptr().cast(), key.len());
                }
            }
        }
        (self.direction, self.is_fresh) = (direction, true);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        if self.iterator.is_null() {
            return Ok(None);
        }
        let library = &self.database.library;
        let call = &library.call;
        // SAFETY: the iterator is open; it is moved only while it is on a record, as RocksDB requires. The record stays valid
        // until the iterator moves, which takes the session mutably.
        unsafe {
            if !std::mem::replace(&mut self.is_fresh, false) && (call.iter_valid)(self.iterator) != 0 {
                match self.direction {
                    Direction::Forward => (call.iter_next)(self.iterator),
                    Direction::Reverse => (call.iter_prev)(self.iterator),
                }
            }
            if (call.iter_valid)(self.iterator) == 0 {
                let ended = library.attempt(|error| (call.iter_get_error)(self.iterator, error));
                return ended.map(|()| None).map_err(|words| self.failed("iterate", words));
            }
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = (call.iter_key)(self.iterator, &mut key_bytes);
            let value = (call.iter_value)(self.iterator, &mut value_bytes);
            Ok(Some((slice(key, key_bytes), slice(value, value_bytes))))
        }
    }

    /// A value that was read through the shim stays pinned until the next read, as in db_bench.
    #[inline]
    fn release(&mut self) {
        let call = &self.database.library.call;
        // SAFETY: all were made for this session, and nothing lent by them is left; slice and iterator are not used again.
        unsafe {
            if !self.slice.is_null() {
                (call.pinnableslice_destroy)(self.slice);
                self.slice = null_mut();
            }
            if !self.iterator.is_null() {
                (call.iter_destroy)(self.iterator);
                self.iterator = null_mut();
            }
        }
    }
}

impl Drop for RocksdbSession<'_> {
    fn drop(&mut self) {
        self.release();
        self.reader = None;
        let call = &self.database.library.call;
        // SAFETY: all were made for this session and are not used again.
        unsafe {
            (call.writebatch_destroy)(self.batch);
            (call.readoptions_destroy)(self.read_options);
            for options in self.write_options {
                (call.writeoptions_destroy)(options);
            }
        }
    }
}

/// # Safety
/// RocksDB returned pointer and length, and keeps the bytes as long as the result is used.
#[inline]
unsafe fn slice<'a>(pointer: *const c_char, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }
}

/// The version and every option in RocksDB's own list of them, an INI file.
fn read_options_file(text: &str) -> (String, BTreeMap<String, String>) {
    let mut options: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.trim().split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect();
    options.remove("options_file_version");
    (options.remove("rocksdb_version").unwrap_or_default(), options)
}

/// Build facts from the library's file and the libraries that it has loaded.
fn build_facts(file: &Path) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("library".to_owned(), file.display().to_string())]);
    if let Ok(bytes) = std::fs::read(file) {
        // A failed assertion calls this function of the C library; release builds do not use it.
        let name = b"\0__assert_fail\0";
        let checks_itself = bytes.windows(name.len()).any(|window| window == name);
        facts.insert(ASSERTIONS.into(), if checks_itself { "on" } else { "off" }.into());
    }
    facts.insert("compression_libraries".into(), loaded_compressors().join(", "));
    facts
}

/// Compression libraries in this process, by the names of their files; the engine itself uses none.
fn loaded_compressors() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<String> = maps
        .lines()
        .filter_map(|line| {
            Path::new(line.split_whitespace().nth(5)?)
                .file_name()?
                .to_str()
                .map(str::to_owned)
        })
        .filter(|name| {
            ["libsnappy.", "libz.", "libbz2.", "liblz4.", "libzstd."]
                .iter()
                .any(|library| name.starts_with(library))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_options_gives_version_and_every_option() {
        let text = "# a comment\n[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n\n[DBOptions]\n  \
                    max_open_files=-1\n[CFOptions \"default\"]\n  compression_opts={level=3;window_bits=-14;}\n  \n";
        let (version, options) = read_options_file(text);
        assert_eq!(version, "7.8.3");
        assert_eq!(options["max_open_files"], "-1");
        assert_eq!(options["compression_opts"], "{level=3;window_bits=-14;}");
        assert_eq!(options.len(), 2);
    }
}
