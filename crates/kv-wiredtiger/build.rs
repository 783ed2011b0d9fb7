//! Sets a flag for tests if this machine has WiredTiger and its header, so that tests that need them count as ignored instead of
//! passed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_wiredtiger)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::path::Path::new("/usr/include/wiredtiger.h").is_file() {
        println!("cargo::rustc-cfg=has_wiredtiger");
    }
}
