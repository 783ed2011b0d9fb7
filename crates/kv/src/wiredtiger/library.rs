//! WiredTiger's shared library: four functions whose interface has not changed, found at run time.
//!
//! All others are members of structures whose layout depends on the version; the shim calls them. The library is never
//! unloaded, because WiredTiger leaves threads behind when a database could not be closed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::library::{self, file_of};
use iosonde_harness::{Code, RunError};

/// The store's name in messages.
pub(crate) const NAME: &str = "WiredTiger";
const FILE: &str = "libwiredtiger.so";
const INSTALL: &str =
    "install WiredTiger (Debian and Ubuntu: `apt-get install libwiredtiger-dev`), or name its `libwiredtiger.so`";
const NAMES: [&str; 4] = [
    "wiredtiger_open",
    "wiredtiger_config_validate",
    "wiredtiger_strerror",
    "wiredtiger_version",
];

/// Compressors that a build may have compiled in.
const COMPRESSORS: [&str; 4] = ["lz4", "snappy", "zlib", "zstd"];

/// `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(pub [c_int; 3]);

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

/// A WiredTiger that the shim can be bound to.
#[derive(Debug, Clone)]
pub(crate) struct WiredTiger {
    /// Addresses of `wiredtiger_open`, `wiredtiger_config_validate` and `wiredtiger_strerror`.
    pub(crate) addresses: [*mut c_void; 3],
    pub(crate) version: Version,
    /// Version and date of the release.
    pub(crate) release: String,
    pub(crate) file: PathBuf,
    /// Compressors that are compiled in.
    pub(crate) compiled_in: Vec<&'static str>,
}

// SAFETY: the addresses are those of functions of a library that stays loaded.
unsafe impl Send for WiredTiger {}
// SAFETY: as above.
unsafe impl Sync for WiredTiger {}

impl WiredTiger {
    /// The named library, or the newest installed one.
    pub(crate) fn load(named: Option<&str>) -> Result<WiredTiger, RunError> {
        let path = named.map_or_else(|| library::newest_installed(FILE), PathBuf::from);
        load_file(&path).map_err(|error| error.at("`store.library`"))
    }

    /// The library of a compressor, next to WiredTiger's own.
    pub(crate) fn compressor(&self, name: &str) -> Option<PathBuf> {
        let file = self.file.with_file_name(format!("libwiredtiger_{name}.so"));
        file.is_file().then_some(file)
    }
}

fn load_file(path: &Path) -> Result<WiredTiger, RunError> {
    let name = path.display();
    let library = library::load(path, INSTALL)?;
    // SAFETY: only addresses are taken here.
    let address = |name: &str| unsafe { library.get::<*mut c_void>(name.as_bytes()) }.map(|symbol| *symbol);
    let found: Vec<*mut c_void> = NAMES.iter().filter_map(|name| address(name).ok()).collect();
    let compiled_in = COMPRESSORS
        .into_iter()
        .filter(|name| address(&format!("{name}_extension_init")).is_ok())
        .collect();
    // WiredTiger leaves threads behind, so the library stays loaded.
    std::mem::forget(library);
    let [open, validate, strerror, version] = found[..] else {
        return Err(RunError::new(
            Code::Library,
            format!(
                "the library `{name}` is not WiredTiger: it has {} of the functions `{}`",
                found.len(),
                NAMES.join("`, `")
            ),
            "name WiredTiger's shared library, `libwiredtiger.so`",
        ));
    };
    let mut numbers = [0; 3];
    let [major, minor, patch] = &mut numbers;
    // SAFETY: functions of this name have had this interface since WiredTiger 1; the result is a static C string.
    let release = unsafe {
        let version = std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char,
        >(version);
        CStr::from_ptr(version(major, minor, patch))
            .to_string_lossy()
            .into_owned()
    };
    Ok(WiredTiger {
        addresses: [open, validate, strerror],
        version: Version(numbers),
        release,
        file: file_of(open).unwrap_or_else(|| path.to_owned()),
        compiled_in,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_kind_and_a_missing_one_are_refused_and_the_package_named() {
        for (named, reason) in [
            ("libc.so.6", "is not WiredTiger: it has 0 of the functions"),
            ("/nowhere/libwiredtiger.so", "No such file"),
        ] {
            let error = WiredTiger::load(Some(named)).unwrap_err();
            assert_eq!((error.code, &error.context[..]), (Code::Library, "`store.library`"));
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.hint.contains("libwiredtiger"), "{}", error.hint);
        }
    }
}
