//! LMDB's C interface: the LMDB that is compiled in, or the system's `liblmdb.so.0`, loaded at run time.
//!
//! The two have different on-disk formats. The one compiled in (0.9.90, branch `mdb.master3`) opens raw block devices and
//! writes data version 3; releases 0.9.x, and their tools `mdb_stat` and `mdb_copy`, read and write data version 1 only.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};

use crate::library;
use iosonde_harness::{Code, RunError};
use libloading::os::unix::Library;
use lmdb_master3_sys as ffi;

/// Name of the installed library in studies.
const SYSTEM: &str = "system";
const FILE: &str = "liblmdb.so.0";
const INSTALL: &str =
    "install LMDB (Debian and Ubuntu: `apt-get install liblmdb0`), or omit `library` for the one in the engine";
/// `MDB_DATA_VERSION` of the LMDB that is compiled in.
const COMPILED_IN_FORMAT: &str = "3 (releases 0.9.x and their tools cannot read it)";
/// `MDB_DATA_VERSION` of releases 0.9.x.
const RELEASE_FORMAT: &str = "1";

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of `lmdb.h` that are used.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Only the LMDB that is compiled in has it.
            pub(crate) mdb_env_set_pagesize: Option<unsafe extern "C" fn(*mut ffi::MDB_env, c_int) -> c_int>,
        }

        impl Functions {
            fn compiled_in() -> Functions {
                Functions {
                    $($name: ffi::$name,)*
                    mdb_env_set_pagesize: Some(ffi::mdb_env_set_pagesize),
                }
            }

            /// The functions of a library; the name of the first that is missing is the error.
            ///
            /// # Safety
            /// The library has LMDB's C interface if it has functions of these names.
            unsafe fn resolve(library: &Library) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the caller guarantees that the function of this name has this type.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| stringify!($name))?
                    },)*
                    mdb_env_set_pagesize: None,
                })
            }
        }
    };
}

functions! {
    mdb_version(*mut c_int, *mut c_int, *mut c_int) -> *mut c_char;
    mdb_strerror(c_int) -> *mut c_char;
    mdb_env_create(*mut *mut ffi::MDB_env) -> c_int;
    mdb_env_open(*mut ffi::MDB_env, *const c_char, c_uint, ffi::mdb_mode_t) -> c_int;
    mdb_env_close(*mut ffi::MDB_env);
    mdb_env_set_mapsize(*mut ffi::MDB_env, ffi::mdb_size_t) -> c_int;
    mdb_env_set_maxreaders(*mut ffi::MDB_env, c_uint) -> c_int;
    mdb_env_info(*mut ffi::MDB_env, *mut ffi::MDB_envinfo) -> c_int;
    mdb_env_stat(*mut ffi::MDB_env, *mut ffi::MDB_stat) -> c_int;
    mdb_env_get_flags(*mut ffi::MDB_env, *mut c_uint) -> c_int;
    mdb_env_set_flags(*mut ffi::MDB_env, c_uint, c_int) -> c_int;
    mdb_env_sync(*mut ffi::MDB_env, c_int) -> c_int;
    mdb_txn_begin(*mut ffi::MDB_env, *mut ffi::MDB_txn, c_uint, *mut *mut ffi::MDB_txn) -> c_int;
    mdb_txn_commit(*mut ffi::MDB_txn) -> c_int;
    mdb_txn_abort(*mut ffi::MDB_txn);
    mdb_txn_reset(*mut ffi::MDB_txn);
    mdb_txn_renew(*mut ffi::MDB_txn) -> c_int;
    mdb_dbi_open(*mut ffi::MDB_txn, *const c_char, c_uint, *mut ffi::MDB_dbi) -> c_int;
    mdb_get(*mut ffi::MDB_txn, ffi::MDB_dbi, *mut ffi::MDB_val, *mut ffi::MDB_val) -> c_int;
    mdb_put(*mut ffi::MDB_txn, ffi::MDB_dbi, *mut ffi::MDB_val, *mut ffi::MDB_val, c_uint) -> c_int;
    mdb_del(*mut ffi::MDB_txn, ffi::MDB_dbi, *mut ffi::MDB_val, *mut ffi::MDB_val) -> c_int;
    mdb_cursor_open(*mut ffi::MDB_txn, ffi::MDB_dbi, *mut *mut ffi::MDB_cursor) -> c_int;
    mdb_cursor_close(*mut ffi::MDB_cursor);
    mdb_cursor_get(*mut ffi::MDB_cursor, *mut ffi::MDB_val, *mut ffi::MDB_val, ffi::MDB_cursor_op) -> c_int;
}

/// An LMDB that can be called.
#[derive(Clone)]
pub(crate) struct Lmdb {
    pub(crate) call: Functions,
    /// The library's file; absent for the LMDB that is compiled in.
    pub(crate) file: Option<PathBuf>,
}

impl Lmdb {
    /// The LMDB that is compiled in, the system's, or the library at a path.
    pub(crate) fn load(named: Option<&str>) -> Result<Lmdb, RunError> {
        let Some(named) = named else {
            return Ok(Lmdb {
                call: Functions::compiled_in(),
                file: None,
            });
        };
        let path = Path::new(if named == SYSTEM { FILE } else { named });
        load_file(path).map_err(|error| error.at("`store.library`"))
    }

    /// The version as LMDB reports it.
    pub(crate) fn version(&self) -> String {
        // SAFETY: the call returns a static C string; null pointers mean that the numbers are not wanted.
        let version = unsafe {
            CStr::from_ptr((self.call.mdb_version)(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            ))
        };
        version.to_string_lossy().into_owned()
    }

    /// `MDB_DATA_VERSION` of the files that it writes.
    pub(crate) fn format(&self) -> &'static str {
        match self.file {
            None => COMPILED_IN_FORMAT,
            Some(_) => RELEASE_FORMAT,
        }
    }
}

fn load_file(path: &Path) -> Result<Lmdb, RunError> {
    let name = path.display();
    let library = library::load(path, INSTALL)?;
    // SAFETY: functions with LMDB's names have its interface, which releases 0.9.x have not changed.
    let call = unsafe { Functions::resolve(&library) }.map_err(|missing| {
        RunError::new(
            Code::Library,
            format!("the library `{name}` is not LMDB 0.9: it has no function `{missing}`"),
            "name LMDB's shared library, `liblmdb.so.0`",
        )
    })?;
    // The environments that use it may outlive this function.
    std::mem::forget(library);
    let lmdb = Lmdb {
        call,
        file: Some(path.to_owned()),
    };
    if lmdb.version().starts_with("LMDB 0.9.") {
        return Ok(lmdb);
    }
    Err(RunError::new(
        Code::Library,
        format!("the library `{name}` is {}, and 0.9 is supported", lmdb.version()),
        "name a release 0.9.x of LMDB, or omit `library` for the one in the engine",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_in_library_is_used_and_others_and_missing_ones_are_refused() {
        for (named, reason) in [("libc.so.6", "`mdb_version`"), ("/nowhere/liblmdb.so", "No such file")] {
            let error = Lmdb::load(Some(named)).err().expect("it is refused");
            assert_eq!((error.code, &error.context[..]), (Code::Library, "`store.library`"));
            assert!(error.to_string().contains(reason), "{error}");
        }
        let lmdb = Lmdb::load(None).unwrap();
        assert!(lmdb.version().starts_with("LMDB 0.9.90"));
        assert!(lmdb.format().starts_with('3'));
        assert!(lmdb.call.mdb_env_set_pagesize.is_some());
    }
}
