//! Tells the program how it was built: facts that every record repeats.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = output(&of("RUSTC"), &["--version"]);
    let revision = output("git", &["describe", "--always", "--dirty"]);
    let build = format!(
        "{} {}, {rustc}, source {}",
        of("PROFILE"),
        of("TARGET"),
        or(&revision, "unknown")
    );
    println!("cargo::rustc-env=IOSONDE_BUILD={build}");
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
        .unwrap_or_default()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
