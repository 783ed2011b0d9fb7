//! Shared libraries of stores, found and loaded while the engine runs.

use std::ffi::{CStr, c_void};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use iosonde_harness::{Code, RunError};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Library directories of distributions.
const DIRECTORIES: &str = include_str!("library_directories.txt");

/// Loads a library by path or name.
///
/// # Errors
/// When the linker refuses it; `install` is the hint.
pub fn load(path: &Path, install: &str) -> Result<Library, RunError> {
    open(path).map_err(|reason| {
        let message = format!("the library `{}` cannot be loaded: {reason}", path.display());
        RunError::new(Code::Library, message, install)
    })
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: loading runs the library's initialisers, as the user who names it requests.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
}

/// Loads a library from a descriptor: the file that the parent process has compiled and checked.
///
/// # Errors
/// The linker's reason.
pub fn load_descriptor(descriptor: RawFd) -> Result<Library, String> {
    open(Path::new(&format!("/proc/self/fd/{descriptor}")))
}

/// The library with the highest version in the library directories; if there is none, its name, for the linker to find.
pub fn newest_installed(name: &str) -> PathBuf {
    let files = DIRECTORIES
        .lines()
        .filter_map(|path| std::fs::read_dir(path).ok())
        .flatten();
    let libraries = files.flatten().map(|entry| entry.path());
    libraries
        .filter_map(|path| Some((version_in(path.file_name()?.to_str()?, name)?, path)))
        .max()
        .map_or(PathBuf::from(name), |(_, path)| path)
}

/// The numbers after the library's name, `libNAME.so`.
fn version_in(file: &str, name: &str) -> Option<Vec<u32>> {
    let numbers = file.strip_prefix(name)?;
    if numbers.is_empty() {
        return Some(Vec::new());
    }
    let numbers = numbers.strip_prefix('.')?.split('.');
    numbers.map(|number| number.parse().ok()).collect()
}

/// The file that a function was loaded from, with links followed.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the call below compares the address and does not read from it"
)]
pub fn file_of(address: *mut c_void) -> Option<PathBuf> {
    // SAFETY: the structure is made of pointers, for which null is valid; the call writes only to it.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned();
        std::fs::canonicalize(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_and_files_that_are_no_libraries_refused() {
        let version = |name: &str| version_in(name, "librocksdb.so");
        let ordered = ["", ".7.8", ".7.8.3", ".10.2"].map(|version| format!("librocksdb.so{version}"));
        assert!(ordered.is_sorted_by_key(|name| version(name)));
        assert_eq!(version("librocksdb_shared.so"), None);
        assert_eq!(version("librocksdb.so.7x"), None);
        let refused = load(Path::new("/nowhere/libnone.so"), "").unwrap_err();
        assert!(refused.message.contains("No such file"), "{refused}");
        assert_eq!(newest_installed("libnone.so"), Path::new("libnone.so"));
    }
}
