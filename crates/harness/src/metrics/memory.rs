//! Out-of-memory handling: by default the process aborts, as Rust programs do; it may report why first.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::OnceLock;

static HANDLER: OnceLock<fn(usize) -> !> = OnceLock::new();

/// Calls `handler` with the number of bytes that could not be had, instead of aborting. The first handler stays.
pub fn on_exhaustion(handler: fn(usize) -> !) {
    HANDLER.get_or_init(|| handler);
}

/// Ends the program, because this many bytes could not be had.
#[cold]
pub fn exhausted(bytes: usize) -> ! {
    match HANDLER.get() {
        Some(handler) => handler(bytes),
        None => handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())),
    }
}
