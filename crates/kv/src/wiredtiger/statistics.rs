//! Statistics of a running WiredTiger: a selection of those of the connection, by WiredTiger's own descriptions.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

/// Configured size of the cache.
pub(crate) const CACHE_SIZE: &str = "cache: maximum bytes configured";
/// 1 while a checkpoint is written.
pub(crate) const CHECKPOINT_RUNNING: &str = "transaction: transaction checkpoint currently running";

/// Statistics that are recorded in every interval.
const RECORDED: [&str; 49] = [
    "block-manager: blocks read",
    "block-manager: blocks written",
    "block-manager: bytes read",
    "block-manager: bytes written",
    "block-manager: bytes written for checkpoint",
    "cache: application threads page read from disk to cache count",
    "cache: application threads page read from disk to cache time (usecs)",
    "cache: application threads page write from cache to disk count",
    "cache: application threads page write from cache to disk time (usecs)",
    "cache: bytes currently in the cache",
    "cache: bytes read into cache",
    "cache: bytes written from cache",
    "cache: cache overflow table entries",
    "cache: eviction server evicting pages",
    "cache: eviction worker thread evicting pages",
    "cache: modified pages evicted",
    "cache: modified pages evicted by application threads",
    "cache: pages evicted by application threads",
    "cache: pages read into cache",
    "cache: pages requested from the cache",
    "cache: pages written from cache",
    "cache: tracked dirty bytes in the cache",
    "cache: unmodified pages evicted",
    "connection: files currently open",
    "connection: total fsync I/Os",
    "connection: total read I/Os",
    "connection: total write I/Os",
    "log: log bytes of payload data",
    "log: log bytes written",
    "log: log flush operations",
    "log: log sync operations",
    "log: log sync time duration (usecs)",
    "log: log write operations",
    "log: slot join calls yielded",
    "log: total in-memory size of compressed records",
    "log: total size of compressed records",
    "LSM: bloom filter hits",
    "LSM: bloom filter misses",
    "LSM: sleep for LSM checkpoint throttle",
    "LSM: sleep for LSM merge throttle",
    "thread-yield: application thread time evicting (usecs)",
    "thread-yield: application thread time waiting for cache (usecs)",
    "transaction: transaction checkpoint most recent time (msecs)",
    "transaction: transaction checkpoint total time (msecs)",
    "transaction: transaction checkpoints",
    "transaction: transactions committed",
    "transaction: transactions rolled back",
    CACHE_SIZE,
    CHECKPOINT_RUNNING,
];

/// Adds a statistic to the map that `context` points to, if it is recorded.
///
/// # Safety
/// `context` is a `BTreeMap<String, u64>`, and `name` a C string.
pub(crate) unsafe extern "C" fn visit(context: *mut c_void, name: *const c_char, value: i64) {
    // SAFETY: guaranteed by the caller.
    let (found, name) = unsafe { (&mut *context.cast::<BTreeMap<String, u64>>(), CStr::from_ptr(name)) };
    if let Ok(name) = name.to_str()
        && RECORDED.contains(&name)
    {
        found.insert(name.to_owned(), value.max(0) as u64);
    }
}
