//! RocksDB's C interface, found in a shared library while the engine runs.
//!
//! No build of RocksDB is needed, and every installed version can be measured. Only functions of `rocksdb/c.h` are used that
//! have not changed since RocksDB 6. The library is never unloaded, because RocksDB leaves threads and static objects behind.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::path::{Path, PathBuf};

use crate::library::{self, file_of};
use iosonde_harness::{Code, RunError};

/// The store's name in messages.
pub(crate) const NAME: &str = "RocksDB";
/// The name of the RocksDB that is compiled in.
const BUNDLED: &str = "bundled";
const FILE: &str = "librocksdb.so";
const INSTALL: &str = "install RocksDB (Debian and Ubuntu: `apt-get install librocksdb7.8` or another version), or name its `librocksdb.so`";

/// An opaque object of RocksDB.
pub(crate) type Handle = *mut c_void;
/// Receives the text of an error, allocated with `malloc`.
pub(crate) type ErrorPlace = *mut *mut c_char;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of `rocksdb/c.h` that are used, by their names without `rocksdb_`.
        #[derive(Clone, Copy)]
        #[expect(non_snake_case, reason = "the fields are named as RocksDB names its functions")]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        const NAMES: &[&str] = &[$(concat!("rocksdb_", stringify!($name))),*];

        impl Functions {
            /// From the addresses of [`NAMES`], in their order.
            ///
            /// # Safety
            /// Each address is that of the function of that name in RocksDB's C interface.
            unsafe fn from_addresses(addresses: &[*mut c_void]) -> Functions {
                let mut addresses = addresses.iter();
                Functions {
                    // SAFETY: the caller vouches for name and interface; a function pointer has the size of an address.
                    $($name: unsafe {
                        let address = *addresses.next().expect("there is an address for every name");
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                    },)*
                }
            }
        }

        #[cfg(feature = "bundled")]
        mod bundled {
            //! Addresses of the functions that are linked in. Their types are of no use here, so they are declared without.
            use std::ffi::c_void;
            // Links the library that has them.
            extern crate librocksdb_sys;

            pub(super) fn addresses() -> Vec<*mut c_void> {
                vec![$({
                    unsafe extern "C" {
                        #[link_name = concat!("rocksdb_", stringify!($name))]
                        fn $name();
                    }
                    $name as *mut c_void
                }),*]
            }
        }
    };
}

functions! {
    open(Handle, *const c_char, ErrorPlace) -> Handle;
    open_for_read_only(Handle, *const c_char, c_uchar, ErrorPlace) -> Handle;
    close(Handle);
    write(Handle, Handle, Handle, ErrorPlace);
    get_pinned(Handle, Handle, *const c_char, usize, ErrorPlace) -> Handle;
    pinnableslice_value(Handle, *mut usize) -> *const c_char;
    pinnableslice_destroy(Handle);
    create_iterator(Handle, Handle) -> Handle;
    iter_destroy(Handle);
    iter_valid(Handle) -> c_uchar;
    iter_seek(Handle, *const c_char, usize);
    iter_seek_for_prev(Handle, *const c_char, usize);
    iter_seek_to_first(Handle);
    iter_seek_to_last(Handle);
    iter_next(Handle);
    iter_prev(Handle);
    iter_key(Handle, *mut usize) -> *const c_char;
    iter_value(Handle, *mut usize) -> *const c_char;
    iter_get_error(Handle, ErrorPlace);
    writebatch_create() -> Handle;
    writebatch_destroy(Handle);
    writebatch_clear(Handle);
    writebatch_put(Handle, *const c_char, usize, *const c_char, usize);
    writebatch_delete(Handle, *const c_char, usize);
    options_create() -> Handle;
    options_destroy(Handle);
    options_set_create_if_missing(Handle, c_uchar);
    options_enable_statistics(Handle);
    options_statistics_get_string(Handle) -> *mut c_char;
    get_options_from_string(Handle, *const c_char, Handle, ErrorPlace);
    property_value(Handle, *const c_char) -> *mut c_char;
    property_int(Handle, *const c_char, *mut u64) -> c_int;
    flushoptions_create() -> Handle;
    flushoptions_destroy(Handle);
    flush(Handle, Handle, ErrorPlace);
    writeoptions_create() -> Handle;
    writeoptions_destroy(Handle);
    writeoptions_set_sync(Handle, c_uchar);
    writeoptions_disable_WAL(Handle, c_int);
    readoptions_create() -> Handle;
    readoptions_destroy(Handle);
    readoptions_set_verify_checksums(Handle, c_uchar);
    readoptions_set_fill_cache(Handle, c_uchar);
    readoptions_set_readahead_size(Handle, usize);
    set_perf_level(c_int);
    free(*mut c_void);
}

/// A RocksDB that can be called.
#[derive(Clone)]
pub(crate) struct RocksDb {
    pub(crate) call: Functions,
    /// The file, or `bundled`.
    pub(crate) file: PathBuf,
}

impl RocksDb {
    /// The named library, or the newest installed one.
    pub(crate) fn load(named: Option<&str>) -> Result<RocksDb, RunError> {
        match named {
            Some(BUNDLED) => bundled_library(),
            Some(name) => load_file(Path::new(name)),
            None => load_file(&library::newest_installed(FILE)),
        }
        .map_err(|error| error.at("`store.library`"))
    }

    /// Converts and frees a text that RocksDB has allocated.
    pub(crate) fn take_text(&self, text: *mut c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: RocksDB returns C strings; it was not null, and is freed once, by RocksDB's own `free`.
        unsafe {
            let taken = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.call.free)(text.cast());
            Some(taken)
        }
    }

    /// Calls a function that reports errors as text.
    pub(crate) fn attempt<T>(&self, call: impl FnOnce(ErrorPlace) -> T) -> Result<T, String> {
        let mut error = std::ptr::null_mut();
        let returned = call(&mut error);
        match self.take_text(error) {
            None => Ok(returned),
            Some(words) => Err(words),
        }
    }
}

#[cfg(feature = "bundled")]
fn bundled_library() -> Result<RocksDb, RunError> {
    // SAFETY: the addresses are those of the functions of these names, linked in from RocksDB itself.
    let call = unsafe { Functions::from_addresses(&bundled::addresses()) };
    Ok(RocksDb {
        call,
        file: PathBuf::from(BUNDLED),
    })
}

#[cfg(not(feature = "bundled"))]
fn bundled_library() -> Result<RocksDb, RunError> {
    Err(RunError::new(
        Code::Library,
        "this engine was built without RocksDB",
        "name a `librocksdb.so`, or build with `cargo build --features iosonde-kv/bundled`",
    ))
}

fn load_file(path: &Path) -> Result<RocksDb, RunError> {
    let name = path.display();
    let library = library::load(path, INSTALL)?;
    // SAFETY: only addresses are taken here; their types are stated below, where they become functions.
    let address = |name: &&str| unsafe { library.get::<*mut c_void>(name.as_bytes()) }.map(|symbol| *symbol);
    let addresses: Vec<*mut c_void> = NAMES
        .iter()
        .map(|name| address(name).unwrap_or(std::ptr::null_mut()))
        .collect();
    // RocksDB leaves threads and static objects behind, so the library stays loaded.
    std::mem::forget(library);
    let missing: Vec<&str> = NAMES
        .iter()
        .zip(&addresses)
        .filter(|(_, address)| address.is_null())
        .map(|(name, _)| *name)
        .collect();
    if missing.len() == NAMES.len() {
        return Err(RunError::new(
            Code::Library,
            format!("the library `{name}` is not RocksDB: it has none of its functions"),
            "name RocksDB's shared library, `librocksdb.so`",
        ));
    }
    if let Some(first) = missing.first() {
        return Err(RunError::new(
            Code::Library,
            format!(
                "the library `{name}` lacks {} of {} required functions, for example `{first}`",
                missing.len(),
                NAMES.len()
            ),
            "use RocksDB 6 or newer, built with its C interface",
        ));
    }
    // SAFETY: the functions were found by their names in a library that has RocksDB's C interface.
    let call = unsafe { Functions::from_addresses(&addresses) };
    Ok(RocksDb {
        call,
        file: file_of(addresses[0]).unwrap_or_else(|| path.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(named: &str) -> RunError {
        let error = RocksDb::load(Some(named)).err().expect("it cannot be used");
        assert_eq!(error.code, Code::Library);
        assert_eq!(error.context, "`store.library`");
        assert!(!error.hint.is_empty());
        error
    }

    #[test]
    fn a_library_of_another_kind_and_what_is_none_are_refused() {
        for (named, reason) in [
            ("libc.so.6", "is not RocksDB: it has none of its functions"),
            ("/etc/passwd", "cannot be loaded"),
            ("/nowhere/librocksdb.so", "No such file"),
        ] {
            assert!(refused(named).to_string().contains(reason), "{named}");
        }
    }

    #[cfg(not(feature = "bundled"))]
    #[test]
    fn a_bundled_library_is_refused_where_none_is_compiled_in() {
        assert!(refused("bundled").hint.contains("--features"));
    }
}
