//! Sets `has_lmdb` where an LMDB is installed, so that tests that need one are counted as ignored and not as passed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_lmdb)");
    println!("cargo::rerun-if-changed=build.rs");
    for directory in include_str!("../kv/src/library_directories.txt").lines() {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        if names.any(|name| name.starts_with("liblmdb.so")) {
            println!("cargo::rustc-cfg=has_lmdb");
            return;
        }
    }
}
