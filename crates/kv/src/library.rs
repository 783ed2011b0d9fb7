//! Shared libraries of stores, found and loaded while the engine runs.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
/// The linker takes a path that it has loaded for the same library, so the number in this one stays in use while the process
/// runs: the path would lead a later call to the library of this one.
///
/// # Errors
/// The linker's reason, or that the descriptor cannot be duplicated.
pub fn load_descriptor(descriptor: RawFd) -> Result<Library, String> {
    // SAFETY: the descriptor is borrowed for this call.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
    let own: OwnedFd = own.map_err(|error| error.to_string())?;
    let library = open(Path::new(&format!("/proc/self/fd/{}", own.as_raw_fd())))?;
    std::mem::forget(own);
    Ok(library)
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
    #[test]
    fn a_descriptor_leads_to_its_own_library_after_its_number_led_to_another() {
        const NUMBER: RawFd = 600;
        let directory = tempfile::tempdir().unwrap();
        for answer in [1, 2] {
            let [source, compiled] = ["c", "so"].map(|suffix| directory.path().join(format!("{answer}.{suffix}")));
            std::fs::write(&source, format!("int answer(void) {{ return {answer}; }}")).unwrap();
            let arguments = ["-shared", "-fPIC", "-o"];
            let done = std::process::Command::new("cc")
                .args(arguments)
                .args([&compiled, &source])
                .status();
            assert!(done.unwrap().success());
            let file = std::fs::File::open(compiled).unwrap();
            // SAFETY: no other test uses the number.
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), NUMBER) }, NUMBER);
            let library = load_descriptor(NUMBER).unwrap();
            // SAFETY: the function has this type.
            let found = unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"answer").unwrap()() };
            std::mem::forget(library);
            assert_eq!(found, answer);
        }
    }
}
