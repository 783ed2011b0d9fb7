//! Out-of-memory handling: by default the process aborts, as Rust programs do; it may report why first.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::sync::OnceLock;

/// The system's allocator; where that fails, the program ends.
///
/// It is never inlined: the crates of the programs, where it would be, are compiled without optimization.
pub struct Reporting;

// SAFETY: every call is the system allocator's; what is returned is its memory, never null.
unsafe impl GlobalAlloc for Reporting {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the trait, which is the system's too.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline(never)]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    #[inline(never)]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[inline]
fn checked(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        exhausted(bytes);
    }
    pointer
}

static HANDLER: OnceLock<fn(usize) -> !> = OnceLock::new();

/// Calls `handler` with the number of bytes that could not be had, instead of aborting. The first handler stays.
pub fn on_exhaustion(handler: fn(usize) -> !) {
    HANDLER.get_or_init(|| handler);
}

/// Ends the program, because this many bytes could not be had.
#[cold]
pub(crate) fn exhausted(bytes: usize) -> ! {
    match HANDLER.get() {
        Some(handler) => handler(bytes),
        None => handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())),
    }
}
