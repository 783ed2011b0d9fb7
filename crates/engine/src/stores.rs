//! The stores of `iosonde-engine`, by the kind that a spec names.

use std::os::fd::RawFd;
use std::sync::Arc;

use iosonde_kv::lmdb::LmdbOpener;
use iosonde_kv::rocksdb::RocksdbOpener;
use iosonde_kv::wiredtiger::WiredtigerOpener;
use iosonde_kv::{Contents, NullOpener, Opener, RunError, memcached};
use iosonde_protocol::{Store, StoreKind};

/// Constants of stores that planning needs.
pub(crate) fn constants() -> serde_json::Value {
    serde_json::json!({"lmdb": std::collections::BTreeMap::from(iosonde_kv::lmdb::map_constants())})
}

/// Names of the options of each store.
pub(crate) fn option_names() -> serde_json::Value {
    serde_json::json!({
        "lmdb": iosonde_kv::lmdb::option_names(),
        "rocksdb": iosonde_kv::rocksdb::option_names(),
        "wiredtiger": iosonde_kv::wiredtiger::option_names(),
        "memcached": memcached::option_names(),
    })
}

/// The store that a workload names, not yet open.
pub(crate) fn opener(
    store: &Store,
    contents: &Arc<Contents>,
    shim: Option<RawFd>,
) -> Result<Box<dyn Opener>, RunError> {
    match store.kind {
        StoreKind::Null => Ok(Box::new(NullOpener::new(contents.clone(), store.options.clone()))),
        StoreKind::Lmdb => Ok(Box::new(LmdbOpener::new(
            store.library.as_deref(),
            &store.options,
            contents.record_bytes(),
        )?)),
        StoreKind::Rocksdb => Ok(Box::new(RocksdbOpener::new(
            store.library.as_deref(),
            &store.options,
            shim,
        )?)),
        StoreKind::Wiredtiger => {
            iosonde_kv::wiredtiger::on_panic(|error| iosonde_engine::end_with_failure(error.to_failure()));
            let opener = WiredtigerOpener::new(store.library.as_deref(), &store.options, shim)?;
            Ok(Box::new(opener))
        }
        StoreKind::Memcached => memcached::opener(&store.options),
        StoreKind::Cassandra | StoreKind::Mongodb => Err(RunError::unsupported(
            "clients of Cassandra and MongoDB are not part of `iosonde-engine`",
            "use `iosonde-engine-clients`",
        )),
    }
}
