//! A run that finds no memory, is aborted, or whose library panics, ends with an error event.
//!
//! Memory runs out in the middle of anything, so the event is composed without any, written past the buffer of standard
//! output (which never holds part of a line: `output`), and the process ends. What a run has locked, mapped or claimed the kernel releases.

use std::ffi::CString;
use std::io::{Cursor, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iosonde_harness::metrics::memory;
use iosonde_protocol::{Event, Failure};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

#[global_allocator]
static ALLOCATOR: memory::Reporting = memory::Reporting;

/// Set by the thread that writes the error event; any other one that ends the run meanwhile writes none.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// From now on a lack of memory ends the run with an event, and so does an abort.
///
/// The C library and the runtime abort where they find no memory for a new thread (its destructors, its signal stack), which no
/// allocator sees, and possibly while another thread reports that.
pub(crate) fn report_exhaustion() {
    memory::on_exhaustion(end_run);
    let action = SigAction::new(SigHandler::Handler(on_abort), SaFlags::empty(), SigSet::empty());
    let on_failed_page = SigAction::new(SigHandler::Handler(on_bus_error), SaFlags::empty(), SigSet::empty());
    for (signal, action) in [(Signal::SIGABRT, action), (Signal::SIGBUS, on_failed_page)] {
        // SAFETY: the handlers make only calls that are safe in one: statfs(2), writing a constant, ending the process.
        if let Err(error) = unsafe { sigaction(signal, &action) } {
            eprintln!("cannot handle {signal}: {error}");
        }
    }
}

fn end_run(bytes: usize) -> ! {
    let mut text = Cursor::new([0_u8; 512]);
    // The buffer is large enough, and a cursor does not fail before its end.
    let _ = writeln!(
        text,
        "{{\"event\":\"error\",\"code\":\"out_of_memory\",\"message\":\"the engine could not allocate {bytes} bytes\",\
         \"context\":\"\",\"hint\":\"raise the limit on memory (`ulimit -v`, the control group), or use fewer jobs, a smaller \
         queue depth, smaller blocks or a smaller cache of the store\"}}"
    );
    let length = text.position() as usize;
    end_with(&text.get_ref()[..length])
}

/// Free bytes below which a file system counts as full.
const FULL_BYTES: u64 = 1 << 20;

/// Files and directories of the run.
static PLACES: OnceLock<Vec<CString>> = OnceLock::new();

/// From now on an abort is a lack of space if one of the run's file systems is full: a store with assertions, such as RocksDB
/// as Debian builds it, aborts if it cannot write to its log.
pub(crate) fn expect_full_file_systems(paths: Vec<PathBuf>) {
    let is_in_file_system = |path: &PathBuf| path.is_dir() || path.is_file();
    let places = paths.into_iter().filter(is_in_file_system);
    let named = places.filter_map(|path| CString::new(path.as_os_str().as_bytes()).ok());
    // An engine carries out one run.
    let _ = PLACES.set(named.collect());
}

fn is_a_file_system_full() -> bool {
    let free_bytes = |place| rustix::fs::statvfs(place).map(|found| found.f_bavail * found.f_frsize);
    let mut places = PLACES.get().into_iter().flatten();
    places.any(|place| free_bytes(place.as_c_str()).is_ok_and(|free| free < FULL_BYTES))
}

extern "C" fn on_abort(_signal: libc::c_int) {
    if is_a_file_system_full() {
        end_with(
            b"{\"event\":\"error\",\"code\":\"no_space\",\"message\":\"a library aborted the engine, and a file system of the \
              run is full\",\"context\":\"\",\"hint\":\"free some space, or use fewer or smaller records\"}\n",
        );
    }
    end_with(
        b"{\"event\":\"error\",\"code\":\"internal\",\"message\":\"the engine was aborted\",\"context\":\"\",\
          \"hint\":\"its standard error names the cause; if a thread could not get memory, raise the limit on memory or use \
          fewer jobs\"}\n",
    )
}

/// The kernel could not read a page of a mapped file or from swap (mmap(2)).
extern "C" fn on_bus_error(_signal: libc::c_int) {
    end_with(
        b"{\"event\":\"error\",\"code\":\"io_error\",\"message\":\"the kernel could not read a page of mapped memory (SIGBUS)\",\
          \"context\":\"\",\"hint\":\"the device below the swap area or the mapped file failed, or the file was truncated; see \
          the kernel log (`dmesg`)\"}\n",
    )
}

/// Ends the run with an error event, from any thread: for libraries that cannot return to their callers.
pub fn end_with_failure(failure: Failure) -> ! {
    let mut line = serde_json::to_vec(&Event::Error(failure)).expect("a failure is texts");
    line.push(b'\n');
    end_with(&line)
}

fn end_with(event: &[u8]) -> ! {
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let _ = rustix::io::write(rustix::stdio::stdout(), event);
        // SAFETY: the call takes a plain number and is safe at any instant. Handlers at exit could allocate.
        unsafe { libc::_exit(1) }
    }
    // The thread that reports ends the process.
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
