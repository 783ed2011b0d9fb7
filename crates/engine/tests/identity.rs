//! The engine opens only what was checked: links, hard links and swapped directories, for every workload. Devices are in
//! `tests/engine/test_identity.py`.

mod common;

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use common::*;
use serde_json::{Value, json};

/// A directory with the run's own file, and a file that no user named.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let files = Files {
            directory: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(files.own()).unwrap();
        std::fs::write(files.data(), vec![1; MIB as usize]).unwrap();
        std::fs::write(files.victim(), vec![7; MIB as usize]).unwrap();
        files
    }

    fn own(&self) -> PathBuf {
        self.directory.path().join("own")
    }

    fn data(&self) -> PathBuf {
        self.own().join("data")
    }

    fn victim(&self) -> PathBuf {
        self.directory.path().join("victim")
    }

    fn assert_victim_is_unchanged(&self) {
        assert!(std::fs::read(self.victim()).unwrap() == vec![7; MIB as usize]);
    }
}

fn identity(path: &Path) -> String {
    let found = std::fs::symlink_metadata(path).unwrap();
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    format!("{}={major}:{minor}:{}", path.display(), found.ino())
}

/// Writes all of the target once, after writing all of it as layout.
fn writes_to(target: Value) -> Value {
    let mut spec = block_spec(target, json!({"kind": "sync"}));
    spec["workload"]["layout"] = "always".into();
    let stream = &mut spec["workload"]["streams"][0];
    stream["queue_depth"] = 1.into();
    stream["mix"]["read_fraction"] = 0.0.into();
    stream["limit_bytes"] = MIB.into();
    spec
}

fn file_spec(path: &Path) -> Value {
    writes_to(json!({"kind": "file", "path": path, "size_bytes": MIB}))
}

fn kv_spec(store: &str, target: Value) -> Value {
    spec(json!({
        "kind": "kv", "target": target, "store": {"kind": store, "library": null, "options": {}},
        "records": {"count": 1000, "seed": 1, "key_bytes": {"kind": "fixed", "bytes": 16},
                    "value_bytes": {"kind": "fixed", "bytes": 100}, "value_compression_ratio": 1.0},
        "database": {"kind": "loaded", "order": "sequential", "batch": 100, "sync": false, "reload": false},
        "transition": {"settle": false, "reopen": true, "page_cache": "drop"},
        "ramp": {"duration_ns": 0, "bytes": null}, "duration_ns": null, "interval_ns": 100_000_000, "settle_at_end": false,
        "streams": [{
            "name": "main", "jobs": 1, "operations": [{"operation": "update", "weight": 1.0}],
            "choice": {"kind": "sequential"}, "direction": "forward", "batch": 1, "scan_records_min": 1, "scan_records_max": 1,
            "sync": false, "arrival": {"kind": "closed"}, "limit_bytes": null,
            "limit_operations": 1000, "background": false, "cpus": [],
        }],
    }))
}

fn run_with(spec: &Value, identities: &[String]) -> Output {
    let arguments = identities.iter().flat_map(|identity| ["--identity", identity]);
    let arguments: Vec<&str> = arguments.collect();
    output(engine(&arguments), &spec.to_string())
}

fn last_event(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("{output:?}"))).unwrap()
}

fn assert_completes(spec: &Value, identities: &[String]) -> Value {
    let output = run_with(spec, identities);
    let last = last_event(&output);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(last["event"], "result", "{last}, {}: {messages}", output.status);
    assert_eq!(output.status.code(), Some(0));
    last
}

/// The run is refused as one on the wrong target, and says where, why and what to do.
fn assert_refused(spec: &Value, identities: &[String], message: &str) {
    let output = run_with(spec, identities);
    let last = last_event(&output);
    assert_eq!(last["code"], "wrong_target", "{last}");
    assert_eq!(output.status.code(), Some(1));
    assert!(last["message"].as_str().unwrap().contains(message), "{last}");
    for part in ["context", "hint"] {
        assert!(!last[part].as_str().unwrap().is_empty(), "{last}");
    }
}

#[test]
fn a_file_or_journal_that_became_a_link_is_refused_with_and_without_identity() {
    let files = Files::new();
    let (spec, checked) = (file_spec(&files.data()), identity(&files.data()));
    std::fs::remove_file(files.data()).unwrap();
    symlink(files.victim(), files.data()).unwrap();
    assert_refused(&spec, std::slice::from_ref(&checked), "is a symbolic link");
    assert_refused(&spec, &[], "is a symbolic link");
    std::fs::remove_file(files.data()).unwrap();
    std::fs::hard_link(files.victim(), files.data()).unwrap();
    assert_refused(&spec, &[checked], "is not the target that was checked");
    assert_refused(&spec, &[identity(&files.data())], "has 2 names");
    assert_refused(&spec, &[], "has 2 names");
    files.assert_victim_is_unchanged();
    let files = Files::new();
    let mut spec = file_spec(&files.data());
    spec["workload"]["verify"] = json!({"when": "after", "journal_directory": null});
    symlink(files.victim(), files.own().join("data.verify")).unwrap();
    assert_refused(&spec, &[identity(&files.data())], "data.verify` is a symbolic link");
    std::fs::remove_file(files.own().join("data.verify")).unwrap();
    std::fs::hard_link(files.victim(), files.own().join("data.verify")).unwrap();
    assert_refused(&spec, &[identity(&files.data())], "data.verify` has 2 names");
    files.assert_victim_is_unchanged();
}

#[test]
fn checked_files_are_used_and_files_of_jobs_in_a_swapped_directory_refused() {
    let files = Files::new();
    let spec = writes_to(json!({"kind": "file_per_job", "directory": files.own(), "size_bytes": MIB}));
    let checked = [identity(&files.own())];
    assert_completes(&spec, &checked);
    std::fs::rename(files.own(), files.directory.path().join("aside")).unwrap();
    std::fs::create_dir(files.own()).unwrap();
    std::fs::hard_link(files.victim(), files.own().join("main.0")).unwrap();
    assert_refused(&spec, &checked, "is not the target that was checked");
    files.assert_victim_is_unchanged();
    let files = Files::new();
    let identities = [identity(&files.data()), identity(&files.own())];
    assert_completes(&file_spec(&files.data()), &identities);
    assert_ne!(std::fs::read(files.data()).unwrap(), vec![1; MIB as usize]);
}

#[test]
fn an_identity_of_no_path_of_the_spec_or_of_another_form_is_an_error() {
    let files = Files::new();
    let spec = file_spec(&files.data());
    let last = last_event(&run_with(&spec, &[identity(&files.victim())]));
    assert_eq!([&last["code"], &last["context"]], ["invalid_spec", "`--identity`"]);
    assert!(last["message"].as_str().unwrap().contains("victim"), "{last}");
    let output = run_with(&spec, &["data".into()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("PATH=MAJOR:MINOR"));
}

const STORES: [&str; 2] = ["lmdb", "rocksdb"];

/// Stores that this machine has.
fn stores() -> impl Iterator<Item = &'static str> {
    STORES.into_iter().filter(|store| {
        let files = Files::new();
        std::fs::remove_file(files.data()).unwrap();
        let last = last_event(&run_with(&kv_spec(store, directory(&files.own())), &[]));
        last["code"] != "library"
    })
}

fn directory(path: &Path) -> Value {
    json!({"kind": "directory", "path": path, "log_path": null})
}

#[test]
fn every_store_works_in_a_checked_directory_and_its_record_names_that_directory() {
    for store in stores() {
        let files = Files::new();
        std::fs::remove_file(files.data()).unwrap();
        let spec = kv_spec(store, directory(&files.own()));
        let identities = [identity(&files.own())];
        let loaded = assert_completes(&spec, &identities);
        assert_eq!(loaded["store"]["kept"], false);
        let kept = assert_completes(&spec, &identities);
        assert_eq!(kept["store"]["kept"], true, "{store}");
        assert!(!kept.to_string().contains("/proc/self/fd"), "{kept}");
    }
}

#[test]
fn a_database_directory_that_became_a_link_or_holds_one_is_refused() {
    for store in stores() {
        let files = Files::new();
        std::fs::remove_file(files.data()).unwrap();
        let spec = kv_spec(store, directory(&files.own()));
        let identities = [identity(&files.own())];
        assert_completes(&spec, &identities);
        let database = files.own().join("database");
        let planted = database.join("planted");
        symlink(files.victim(), &planted).unwrap();
        assert_refused(&spec, &identities, "planted` is a symbolic link");
        std::fs::remove_file(&planted).unwrap();
        std::fs::hard_link(files.victim(), &planted).unwrap();
        assert_refused(&spec, &identities, "planted` has 2 names");
        std::fs::remove_file(&planted).unwrap();
        let aside = files.directory.path().join("aside");
        std::fs::rename(&database, &aside).unwrap();
        symlink(&aside, &database).unwrap();
        assert_refused(&spec, &identities, "database` is a symbolic link");
        files.assert_victim_is_unchanged();
    }
}

#[test]
fn a_swapped_directory_of_a_database_is_refused() {
    let files = Files::new();
    std::fs::remove_file(files.data()).unwrap();
    let spec = kv_spec("lmdb", directory(&files.own()));
    let checked = [identity(&files.own())];
    let other = files.directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::remove_dir(files.own()).unwrap();
    symlink(&other, files.own()).unwrap();
    assert_refused(&spec, &checked, "is a symbolic link");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
}
