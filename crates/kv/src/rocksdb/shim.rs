//! Additions to the C interface: the persistent read cache, and reads into a reused `PinnableSlice`.
//!
//! A small C++ library adds both. It is compiled by the parent process against the installed headers of RocksDB
//! (`python/iosonde/data/shim/rocksdb.cc`), and handed over as an open descriptor: the file that was checked is the one that
//! is loaded. It is used only if headers, RocksDB and the library that it is bound to are of one version and one file.

use std::ffi::{CStr, c_char, c_uchar, c_void};
use std::os::fd::RawFd;

use crate::library::{self, file_of};
use iosonde_harness::{Code, RunError};
use libloading::os::unix::Library;

use crate::rocksdb::library::{ErrorPlace, Handle, NAME, RocksDb};

/// Functions of the shim.
#[derive(Clone, Copy)]
pub(crate) struct Shim {
    pub(crate) attach_read_cache: unsafe extern "C" fn(Handle, *const c_char, u64, c_uchar, ErrorPlace),
    pub(crate) reader_create: unsafe extern "C" fn(Handle, Handle) -> Handle,
    pub(crate) reader_destroy: unsafe extern "C" fn(Handle),
    pub(crate) reader_get: unsafe extern "C" fn(Handle, *const c_char, usize, *mut usize, ErrorPlace) -> *const c_char,
    version: Version,
}

/// `major.minor.patch`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version([u8; 32]);

impl Shim {
    /// Loads the shim from a descriptor, for a library that is loaded already.
    pub(crate) fn load(descriptor: RawFd, rocksdb: &RocksDb) -> Result<Shim, RunError> {
        let library = library::load_descriptor(descriptor)
            .map_err(|reason| unusable(&format!("it cannot be loaded: {reason}")))?;
        // SAFETY: the types are those of the functions in `rocksdb.cc`.
        let found = unsafe { Self::functions(&library) }.map_err(|error| unusable(&error.to_string()));
        // Its code is called until the process exits.
        std::mem::forget(library);
        let (shim, bound, address) = found?;
        if shim.version != bound {
            return Err(unusable(&format!(
                "it was compiled with the headers of RocksDB {}, and the library is {}",
                shim.version.text(),
                bound.text()
            )));
        }
        let other = file_of(address).filter(|file| *file != rocksdb.file);
        match other {
            None => Ok(shim),
            Some(other) => Err(unusable(&format!(
                "it is bound to `{}`, and `{}` is measured",
                other.display(),
                rocksdb.file.display()
            ))),
        }
    }

    /// # Safety
    /// The library was compiled from `rocksdb.cc`.
    unsafe fn functions(library: &Library) -> Result<(Shim, Version, *mut c_void), libloading::Error> {
        // SAFETY: the types are those of `rocksdb.cc`; the library stays loaded.
        unsafe {
            let headers = *library.get::<unsafe extern "C" fn(*mut c_char, usize)>(b"iosonde_headers_version")?;
            let bound = *library.get::<unsafe extern "C" fn(*mut c_char, usize)>(b"iosonde_library_version")?;
            let address = *library.get::<unsafe extern "C" fn() -> *mut c_void>(b"iosonde_library_address")?;
            let shim = Shim {
                attach_read_cache: *library.get(b"iosonde_attach_read_cache")?,
                reader_create: *library.get(b"iosonde_reader_create")?,
                reader_destroy: *library.get(b"iosonde_reader_destroy")?,
                reader_get: *library.get(b"iosonde_reader_get")?,
                version: Version::read(headers),
            };
            Ok((shim, Version::read(bound), address()))
        }
    }

    /// Version of the headers that it was compiled with.
    pub(crate) fn headers(&self) -> String {
        self.version.text()
    }
}

impl Version {
    /// # Safety
    /// The function writes a C string of at most this many bytes.
    unsafe fn read(call: unsafe extern "C" fn(*mut c_char, usize)) -> Version {
        let mut text = [0u8; 32];
        // SAFETY: guaranteed by the caller.
        unsafe { call(text.as_mut_ptr().cast(), text.len()) };
        Version(text)
    }

    fn text(&self) -> String {
        let text = CStr::from_bytes_until_nul(&self.0).map(CStr::to_string_lossy);
        text.map(std::borrow::Cow::into_owned).unwrap_or_default()
    }
}

fn unusable(reason: &str) -> RunError {
    RunError::new(
        Code::Library,
        format!("the C++ shim of {NAME} cannot be used: {reason}"),
        "install headers of the same version as the library (Debian and Ubuntu: `apt-get install librocksdb-dev g++`)",
    )
}
