//! Passes build information to the program; every record contains it.
//!
//! The revision must be that of the sources that the program was built from, so this runs again whenever one of them
//! changes and whenever a commit is made or another is checked out.

use std::path::Path;
use std::process::Command;

/// Sources of the engine, relative to this crate.
const SOURCES: [&str; 3] = ["..", "../../Cargo.toml", "../../Cargo.lock"];

fn main() {
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    // Git appends to this log whenever HEAD moves. Named only if it is there: cargo takes a missing file for a change.
    let head = output("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = output(&of("RUSTC"), &["--version"]);
    let build = format!("{} {}, {rustc}, source {}", of("PROFILE"), of("TARGET"), revision());
    println!("cargo::rustc-env=IOSONDE_BUILD={build}");
}

/// The commit, with as many digits in every clone, and whether the sources are another than it has.
fn revision() -> String {
    let commit = output("git", &["describe", "--always", "--abbrev=12"]);
    let changed = output("git", &[&["status", "--porcelain", "--"][..], &SOURCES].concat());
    match (commit.is_empty(), changed.is_empty()) {
        (true, _) => "unknown".to_string(),
        (false, true) => commit,
        (false, false) => format!("{commit}-dirty"),
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}
