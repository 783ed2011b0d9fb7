//! A user-level NVMe driver, for measuring what the kernel's costs.
//!
//! Decisions are pure, and access to the device is a narrow edge. [`queue`] is the state machine of a queue pair,
//! [`command`], [`completion`], [`identify`], [`registers`] and [`pointers`] are formats; none of them does I/O.
//! [`controller`] resets, enables and identifies a controller and sends admin commands; [`pair`] is an I/O queue pair that
//! one job polls. Both reach the device through [`bus`]: [`vfio`] is a real one; tests have a controller in memory (`tests/mock`).
//!
//! Unsafe code is in two modules: [`memory`], which hands out memory shared with a device as atomics and registers as
//! volatile accesses, and [`vfio`], which calls the kernel. Memory that a device may access is reference-counted by the
//! bus until the device can no longer access it, so no safe code can free it too early.

pub mod bus;
pub mod command;
pub mod completion;
pub mod controller;
mod doorbell;
mod error;
pub mod identify;
pub mod memory;
pub mod pair;
pub mod placement;
pub mod pointers;
pub mod queue;
pub mod registers;
mod ring;
pub mod vfio;

pub use error::NvmeError;
