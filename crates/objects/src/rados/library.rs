//! librados, found at run time: the functions of its C interface that are used, with their addresses.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use iosonde_harness::{Code, RunError};
use iosonde_kv::library::{self, file_of};
use libloading::os::unix::Library;

const FILE: &str = "librados.so";
const INSTALL: &str = "install librados (Debian and Ubuntu: `apt-get install librados2`), or name its `librados.so.2`";

/// `rados_t`, `rados_ioctx_t` and `rados_completion_t`.
pub(crate) type Handle = *mut c_void;
pub(crate) type Callback = unsafe extern "C" fn(Handle, *mut c_void);

/// Addresses of functions, each with the interface that `rados/librados.h` has had since Ceph 15.
pub(crate) struct Librados {
    pub version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int),
    pub create: unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int,
    pub conf_read_file: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pub conf_set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    pub connect: unsafe extern "C" fn(Handle) -> c_int,
    pub shutdown: unsafe extern "C" fn(Handle),
    pub ioctx_create: unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int,
    pub ioctx_destroy: unsafe extern "C" fn(Handle),
    pub completion_create: unsafe extern "C" fn(*mut c_void, Option<Callback>, *mut Handle) -> c_int,
    pub completion_value: unsafe extern "C" fn(Handle) -> c_int,
    pub completion_release: unsafe extern "C" fn(Handle),
    pub write_full: unsafe extern "C" fn(Handle, *const c_char, Handle, *const c_char, usize) -> c_int,
    pub read: unsafe extern "C" fn(Handle, *const c_char, Handle, *mut c_char, usize, u64) -> c_int,
    pub remove: unsafe extern "C" fn(Handle, *const c_char, Handle) -> c_int,
    /// The file that was loaded.
    pub file: PathBuf,
}

impl Librados {
    /// The named library, or the newest installed one. It stays loaded: it has threads of its own.
    pub(crate) fn load(named: Option<&str>) -> Result<Librados, RunError> {
        let path = named.map_or_else(|| library::newest_installed(FILE), PathBuf::from);
        let library = library::load(&path, INSTALL).map_err(|error| error.at("`store.library`"))?;
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the types are those of the functions in `rados/librados.h`.
        unsafe {
            Ok(Librados {
                version: function(&library, "rados_version")?,
                create: function(&library, "rados_create")?,
                conf_read_file: function(&library, "rados_conf_read_file")?,
                conf_set: function(&library, "rados_conf_set")?,
                connect: function(&library, "rados_connect")?,
                shutdown: function(&library, "rados_shutdown")?,
                ioctx_create: function(&library, "rados_ioctx_create")?,
                ioctx_destroy: function(&library, "rados_ioctx_destroy")?,
                completion_create: function(&library, "rados_aio_create_completion2")?,
                completion_value: function(&library, "rados_aio_get_return_value")?,
                completion_release: function(&library, "rados_aio_release")?,
                write_full: function(&library, "rados_aio_write_full")?,
                read: function(&library, "rados_aio_read")?,
                remove: function(&library, "rados_aio_remove")?,
                file: file_of(function(&library, "rados_version")?).unwrap_or(path),
            })
        }
    }

    /// `16.2.15` is not reported; the library has a version of its interface.
    pub(crate) fn describe(&self) -> String {
        let [mut major, mut minor, mut extra] = [0; 3];
        // SAFETY: the function writes three integers.
        unsafe { (self.version)(&mut major, &mut minor, &mut extra) };
        format!("librados {major}.{minor}.{extra}")
    }
}

/// A function's address as its type.
///
/// # Safety
/// The type must be that of the function.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, RunError> {
    // SAFETY: as the caller promises.
    unsafe { library.get::<T>(name.as_bytes()) }
        .map(|symbol| *symbol)
        .map_err(|_| {
            RunError::new(
                Code::Library,
                format!("the library has no function `{name}`: it is not librados of Ceph 15 or newer"),
                "name librados of Ceph 15 or newer, `librados.so.2`",
            )
            .at("`store.library`")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_one_of_another_kind_are_refused_and_the_package_named() {
        for (named, reason) in [
            ("/nowhere/librados.so.2", "librados.so.2"),
            ("libc.so.6", "no function `rados_version`"),
        ] {
            let failure = Librados::load(Some(named)).err().expect("it is refused").to_failure();
            assert_eq!([&failure.code[..], &failure.context], ["library", "`store.library`"]);
            assert!(failure.message.contains(reason), "{}", failure.message);
            assert!(failure.hint.contains("librados"), "{}", failure.hint);
        }
    }
}
