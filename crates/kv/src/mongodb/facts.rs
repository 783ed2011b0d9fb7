//! Self-reported facts of a server: product, storage engine, settings without secrets, statistics.

use std::collections::BTreeMap;

use iosonde_harness::RunError;
use mongodb::bson::{Bson, Document, RawDocumentBuf, rawdoc};

use crate::mongodb::connection::Connection;

/// Parts of the names of settings whose values are not recorded.
const SECRETS: [&str; 6] = ["password", "secret", "token", "keyfile", "credential", "passphrase"];
const NOT_RECORDED: &str = "not recorded";

/// Statistics of `serverStatus` that are recorded in every interval; those that a server does not have are left out.
const STATISTICS: [&[&str]; 33] = [
    &["connections", "current"],
    &["globalLock", "currentQueue", "readers"],
    &["globalLock", "currentQueue", "writers"],
    &["mem", "resident"],
    &["metrics", "commands", "delete", "total"],
    &["metrics", "commands", "find", "total"],
    &["metrics", "commands", "getMore", "total"],
    &["metrics", "commands", "insert", "total"],
    &["metrics", "commands", "update", "total"],
    &["metrics", "document", "deleted"],
    &["metrics", "document", "inserted"],
    &["metrics", "document", "returned"],
    &["metrics", "document", "updated"],
    &["network", "bytesIn"],
    &["network", "bytesOut"],
    &["opcounters", "command"],
    &["opcounters", "delete"],
    &["opcounters", "getmore"],
    &["opcounters", "insert"],
    &["opcounters", "query"],
    &["opcounters", "update"],
    &["uptimeMillis"],
    &["wiredTiger", "block-manager", "bytes read"],
    &["wiredTiger", "block-manager", "bytes written"],
    &["wiredTiger", "cache", "bytes currently in the cache"],
    &["wiredTiger", "cache", "bytes read into cache"],
    &["wiredTiger", "cache", "bytes written from cache"],
    &["wiredTiger", "cache", "maximum bytes configured"],
    &["wiredTiger", "cache", "tracked dirty bytes in the cache"],
    &["wiredTiger", "log", "log bytes written"],
    &["wiredTiger", "log", "log sync operations"],
    &["wiredTiger", "log", "log sync time duration (usecs)"],
    &["wiredTiger", "transaction", "transaction checkpoints"],
];

/// A server as it reports itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// With the product, where that is not MongoDB.
    pub(crate) version: String,
    pub(crate) build: BTreeMap<String, String>,
    /// Settings by their names in the configuration file, each after `server.`.
    pub(crate) settings: BTreeMap<String, String>,
    /// It is MongoDB with a storage engine that persists data: its journal survives a power failure.
    pub(crate) is_persistent: bool,
}

/// Asks a server. Users without the role `clusterMonitor` cannot read settings and storage engine.
pub(crate) fn ask(connection: &Connection) -> Result<Reported, RunError> {
    let build = connection.admin_command(rawdoc! { "buildInfo": 1 })?;
    let status = connection
        .admin_command(rawdoc! { "serverStatus": 1 })
        .unwrap_or_default();
    let started = connection
        .admin_command(rawdoc! { "getCmdLineOpts": 1 })
        .unwrap_or_default();
    Ok(described(&build, &status, &started))
}

/// The statistics; empty where the server does not let this user read them.
pub(crate) fn statistics(connection: &Connection) -> BTreeMap<String, u64> {
    let status = connection.admin_command(status_command()).unwrap_or_default();
    let found = STATISTICS
        .iter()
        .filter_map(|path| Some((path.join("."), number(&status, path)?)));
    found.collect()
}

/// The server status without sections that are costly and not needed.
fn status_command() -> RawDocumentBuf {
    rawdoc! { "serverStatus": 1, "repl": 0, "tcmalloc": 0, "locks": 0 }
}

fn described(build: &Document, status: &Document, started: &Document) -> Reported {
    let text = |name: &str| build.get_str(name).unwrap_or("unknown").to_owned();
    let other = build.get_str("ferretdbVersion").ok();
    let engine = status.get_document("storageEngine").ok();
    let engine_name = engine
        .and_then(|engine| engine.get_str("name").ok())
        .unwrap_or("not reported");
    let is_persistent = engine.is_some_and(|engine| engine.get_bool("persistent").unwrap_or(false));
    let mut settings = BTreeMap::new();
    if let Ok(parsed) = started.get_document("parsed") {
        flatten("server", parsed, &mut settings);
    }
    Reported {
        version: match other {
            Some(version) => format!("FerretDB {version}, compatible with {}", text("version")),
            None => text("version"),
        },
        build: BTreeMap::from([
            ("git_version".into(), text("gitVersion")),
            (
                "product".into(),
                if other.is_some() { "FerretDB" } else { "MongoDB" }.into(),
            ),
            ("storage_engine".into(), engine_name.into()),
        ]),
        settings,
        is_persistent: is_persistent && other.is_none(),
    }
}

/// Scalars of nested settings by their path.
fn flatten(path: &str, settings: &Document, found: &mut BTreeMap<String, String>) {
    for (name, value) in settings {
        let path = format!("{path}.{name}");
        let is_secret = SECRETS.iter().any(|part| path.to_lowercase().contains(part));
        match value {
            Bson::Document(inner) => flatten(&path, inner, found),
            _ if is_secret => _ = found.insert(path, NOT_RECORDED.into()),
            Bson::String(text) => _ = found.insert(path, text.clone()),
            other => _ = found.insert(path, other.to_string()),
        }
    }
}

pub(crate) fn number(status: &Document, path: &[&str]) -> Option<u64> {
    let (last, sections) = path.split_last()?;
    let section = sections
        .iter()
        .try_fold(status, |section, name| section.get_document(name).ok())?;
    match section.get(last)? {
        Bson::Int32(number) => u64::try_from(*number).ok(),
        Bson::Int64(number) => u64::try_from(*number).ok(),
        Bson::Double(number) if *number >= 0.0 => Some(*number as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    /// Documents as MongoDB's manual shows them: MongoDB itself was not available.
    fn of_mongodb() -> Reported {
        let build = doc! { "version": "7.0.14", "gitVersion": "ce59cfc6a3c5e5c067dca0d30697edd68d4f5188" };
        let status = doc! { "storageEngine": { "name": "wiredTiger", "persistent": true } };
        let parsed = doc! {
            "net": { "port": 27017, "tls": { "certificateKeyFilePassword": "hunter2" } },
            "security": { "keyFile": "/etc/key", "authorization": "enabled" },
            "storage": { "dbPath": "/data/db", "wiredTiger": { "engineConfig": { "cacheSizeGB": 1.5 } } },
            "setParameter": { "ldapQueryPassword": "hunter2" },
        };
        let started = doc! { "argv": ["mongod", "--tlsCertificateKeyFilePassword", "hunter2"], "parsed": parsed };
        described(&build, &status, &started)
    }

    #[test]
    fn settings_are_named_by_their_path_and_secrets_are_left_out() {
        let server = of_mongodb();
        for (name, value) in [
            ("net.port", "27017"),
            ("storage.wiredTiger.engineConfig.cacheSizeGB", "1.5"),
            ("security.authorization", "enabled"),
            ("net.tls.certificateKeyFilePassword", NOT_RECORDED),
            ("security.keyFile", NOT_RECORDED),
            ("setParameter.ldapQueryPassword", NOT_RECORDED),
        ] {
            assert_eq!(server.settings[&format!("server.{name}")], value, "{name}");
        }
        assert!(!format!("{server:?}").contains("hunter2"));
    }

    #[test]
    fn only_mongodb_with_a_persistent_storage_engine_has_a_journal_and_statistics_are_numbers() {
        assert!(of_mongodb().is_persistent);
        let nothing = Document::new();
        let engine = doc! { "storageEngine": { "name": "wiredTiger", "persistent": true } };
        let memory = doc! { "storageEngine": { "name": "inMemory", "persistent": false } };
        let ferretdb = doc! { "version": "7.0.42", "ferretdbVersion": "v1.24.2" };
        assert!(!described(&doc! { "version": "7.0.14" }, &memory, &nothing).is_persistent);
        assert!(!described(&doc! { "version": "7.0.14" }, &nothing, &nothing).is_persistent);
        let other = described(&ferretdb, &engine, &nothing);
        assert!(!other.is_persistent);
        assert_eq!(other.version, "FerretDB v1.24.2, compatible with 7.0.42");
        assert_eq!(other.build["product"], "FerretDB");
        let status =
            doc! { "opcounters": { "insert": 5_i64, "query": 6, "update": 7.0, "delete": "x", "getmore": -1 } };
        let read = |name| number(&status, &["opcounters", name]);
        assert_eq!(["insert", "query", "update"].map(read), [5, 6, 7].map(Some));
        assert_eq!(["delete", "getmore", "missing"].map(read), [None; 3]);
    }
}
