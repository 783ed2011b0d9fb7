//! The C shim: WiredTiger's methods as functions of a fixed interface.
//!
//! The parent process compiles it against the installed header (`python/iosonde/data/shim/wiredtiger.c`), and hands it over as an
//! open descriptor: the file that was checked is the one that is loaded. It is refused unless the header has exactly the
//! version of the library, because the layout of WiredTiger's structures changes between versions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::OnceLock;

use crate::library;
use iosonde_harness::{Code, RunError};
use libloading::os::unix::Library;

use crate::wiredtiger::library::{NAME, Version, WiredTiger};

/// `struct database` or `struct session` of the shim.
pub(crate) type Handle = *mut c_void;

/// `struct change`.
#[repr(C)]
pub(crate) struct Change {
    pub(crate) key: *const c_void,
    pub(crate) key_bytes: usize,
    /// Null: the record is removed.
    pub(crate) value: *const c_void,
    pub(crate) value_bytes: usize,
}

/// Receives the name and value of a statistic.
pub(crate) type Visit = unsafe extern "C" fn(*mut c_void, *const c_char, i64);

/// Receives the text of a panic.
pub(crate) type Panicked = unsafe extern "C" fn(*const c_char);

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the shim, by their names without `iosonde_`.
        #[derive(Clone, Copy)]
        pub(crate) struct Shim {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Shim {
            /// # Safety
            /// The library was compiled from `wiredtiger.c`.
            unsafe fn resolve(library: &Library) -> Result<Shim, libloading::Error> {
                Ok(Shim {
                    // SAFETY: the types are those of `wiredtiger.c`; the library stays loaded.
                    $($name: unsafe { *library.get(concat!("iosonde_", stringify!($name), "\0").as_bytes())? },)*
                })
            }
        }
    };
}

functions! {
    header_version(*mut c_int, *mut c_int, *mut c_int);
    bind(*mut c_void, *mut c_void, *mut c_void, Panicked);
    create() -> Handle;
    destroy(Handle);
    message(Handle, c_int, *mut c_char, usize);
    validate(Handle, *const c_char, *const c_char) -> c_int;
    open(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
    close(Handle) -> c_int;
    checkpoint(Handle) -> c_int;
    statistics(Handle, Visit, *mut c_void) -> c_int;
    table_config(Handle, *const c_char, *mut c_char, usize) -> c_int;
    session_open(Handle, *mut Handle) -> c_int;
    session_close(Handle);
    get(Handle, *const c_void, usize, *mut *const c_void, *mut usize) -> c_int;
    write(Handle, *const Change, usize, c_int, c_int) -> c_int;
    seek(Handle, *const c_void, usize, c_int) -> c_int;
    next(Handle, c_int, *mut *const c_void, *mut usize, *mut *const c_void, *mut usize) -> c_int;
    release(Handle);
}

impl Shim {
    /// Loads the shim from a descriptor, and binds it to a library of the version that it was compiled for.
    pub(crate) fn load(descriptor: Option<RawFd>, wiredtiger: &WiredTiger) -> Result<Shim, RunError> {
        let Some(descriptor) = descriptor else {
            return Err(unusable("it was not handed over"));
        };
        let library = library::load_descriptor(descriptor)
            .map_err(|reason| unusable(&format!("it cannot be loaded: {reason}")))?;
        // SAFETY: the parent process has compiled it; another file lacks the functions.
        let found = unsafe { Shim::resolve(&library) }.map_err(|error| unusable(&error.to_string()));
        // Its code is called until the process exits.
        std::mem::forget(library);
        let shim = found?;
        let header = shim.header();
        if header != wiredtiger.version {
            return Err(unusable(&format!(
                "it was compiled with the header of {NAME} {header}, and the library `{}` is {}",
                wiredtiger.file.display(),
                wiredtiger.version
            )));
        }
        let [open, validate, strerror] = wiredtiger.addresses;
        // SAFETY: the addresses are those of these functions, in a library of the header's version.
        unsafe { (shim.bind)(open, validate, strerror, panicked) };
        Ok(shim)
    }

    /// Version of the header that it was compiled with.
    pub(crate) fn header(&self) -> Version {
        let mut numbers = [0; 3];
        let [major, minor, patch] = &mut numbers;
        // SAFETY: the function writes three numbers.
        unsafe { (self.header_version)(major, minor, patch) };
        Version(numbers)
    }

    /// Checks the configuration of a function of WiredTiger; the error is WiredTiger's own text.
    pub(crate) fn validate(&self, function: &str, config: &str) -> Result<(), String> {
        let database = Owner::create(self)?;
        let (function, config) = (c_text(function)?, c_text(config)?);
        // SAFETY: the object was created, and the texts are C strings.
        let code = unsafe { (self.validate)(database.handle, function.as_ptr(), config.as_ptr()) };
        database.check(code)
    }
}

/// Ends the process after a panic of WiredTiger; see [`on_panic`].
static END: OnceLock<fn(&RunError)> = OnceLock::new();

/// Sets the function that ends the process after a panic of WiredTiger, such as a log that cannot be written: threads that wait
/// for the log then wait forever (seen in 3.2.1), and WiredTiger's documentation asks to exit.
pub fn on_panic(end: fn(&RunError)) {
    let _ = END.set(end);
}

/// # Safety
/// The text is a C string.
unsafe extern "C" fn panicked(text: *const c_char) {
    if let Some(end) = END.get() {
        // SAFETY: guaranteed by the caller.
        let words = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        end(&RunError::store(NAME, "use its files", words).at("`store`"));
    }
}

pub(crate) fn c_text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a text with a zero byte".to_owned())
}

/// A `struct database`, which closes and frees itself.
pub(crate) struct Owner {
    pub(crate) shim: Shim,
    pub(crate) handle: Handle,
}

// SAFETY: any thread may use a connection at any time (WiredTiger's documentation, "Multithreading"); sessions and cursors, which
// belong to one thread at a time, are in `struct session`, except those that only keep a file open.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn create(shim: &Shim) -> Result<Owner, String> {
        // SAFETY: the call has no preconditions.
        let handle = unsafe { (shim.create)() };
        match handle.is_null() {
            true => Err("out of memory".into()),
            false => Ok(Owner { shim: *shim, handle }),
        }
    }

    /// The text of a code other than 0.
    #[inline]
    pub(crate) fn check(&self, code: c_int) -> Result<(), String> {
        match code {
            0 => Ok(()),
            _ => Err(self.text(code)),
        }
    }

    #[cold]
    fn text(&self, code: c_int) -> String {
        let mut text = [0_u8; 640];
        // SAFETY: the object exists, and the call writes a C string of at most this many bytes.
        unsafe { (self.shim.message)(self.handle, code, text.as_mut_ptr().cast(), text.len()) };
        CStr::from_bytes_until_nul(&text).map_or_else(|_| code.to_string(), |text| text.to_string_lossy().into_owned())
    }

    /// Closes the database, if it is open.
    pub(crate) fn close(&self) -> Result<(), String> {
        // SAFETY: the object exists, and no session is left.
        self.check(unsafe { (self.shim.close)(self.handle) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Errors of closing were reported by `close` before.
        let _ = self.close();
        // SAFETY: the object exists and is not used again.
        unsafe { (self.shim.destroy)(self.handle) };
    }
}

fn unusable(reason: &str) -> RunError {
    RunError::new(
        Code::Library,
        format!("the C shim of {NAME} cannot be used: {reason}"),
        "install a compiler and the header of the library's version (Debian and Ubuntu: `apt-get install gcc libwiredtiger-dev`)",
    )
    .at("`store`")
}
