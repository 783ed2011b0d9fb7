//! Simulated solid-state drives and arrays of them, on virtual time.
//!
//! [`Storage`] is what a host sees: it takes [`Request`]s, lets time pass and returns which are complete. Inside it an
//! `array` divides requests among drives, a `drive` takes time for them (link, controller, channels, dies, buffer), and
//! a `translation` decides where pages lie and what must be copied to make room. `limits` throttles requests as the rules
//! of a cloud volume do. Everything follows from the model, the
//! seed and the requests; nothing here reads a clock or a file, and saving the state is left to a writer of the caller's.
//!
//! The mapping unit is 4 KiB, two tables of 4 bytes a page: 400 GB with 28 % over-provisioning take 0.89 GB of memory,
//! and only for what was written.
//!
//! ```
//! use iosonde_ssd::{Action, Request, Storage, sample};
//! let mut storage = Storage::new(&sample::flash(), &sample::SINGLE, 1).unwrap();
//! storage.submit(7, &Request { operation: Action::Write, offset_bytes: 0, bytes: 4096, durable: false });
//! storage.advance(u64::MAX);
//! assert_eq!(storage.completed(), Some((7, 4096)));
//! ```

mod array;
mod check;
mod die;
mod drive;
mod geometry;
mod limits;
pub mod sample;
mod state;
mod storage;
mod translation;
mod units;

pub use check::ModelError;
pub use state::StateError;
pub use storage::{Filled, Request, Storage};

/// Bytes of a logical page, the unit of mapping.
pub const PAGE_BYTES: u64 = 4096;

/// A request of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
    /// Forget what is there.
    Trim,
    /// Make what was written survive a power cut.
    Flush,
}
