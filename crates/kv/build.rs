//! Sets flags for tests if this machine has a store's library or headers, so that tests that need them count as ignored instead of
//! passed.

use std::path::Path;

/// Flag, directory of its own or none for the library directories, and the start of a file's name.
const INSTALLED: [(&str, Option<&str>, &str); 4] = [
    ("has_lmdb", None, "liblmdb.so"),
    ("has_rocksdb", None, "librocksdb.so"),
    ("has_rocksdb_headers", Some("/usr/include/rocksdb"), "version.h"),
    ("has_wiredtiger", Some("/usr/include"), "wiredtiger.h"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (flag, directory, file) in INSTALLED {
        println!("cargo::rustc-check-cfg=cfg({flag})");
        let mut libraries = include_str!("src/library_directories.txt").lines();
        let is_there = match directory {
            Some(directory) => contains(directory, file),
            None => libraries.any(|directory| contains(directory, file)),
        };
        if is_there {
            println!("cargo::rustc-cfg={flag}");
        }
    }
}

fn contains(directory: &str, start: &str) -> bool {
    let entries = Path::new(directory).read_dir().into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with(start))
}
