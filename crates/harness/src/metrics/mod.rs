//! Instruments of a run.
//!
//! - [`Histogram`] counts latencies: 0.1 % at any size, a few nanoseconds a value.
//! - [`Clock`] reads nanoseconds since the run's 0.
//! - [`usage`] takes the kernel's account of the process and its threads.
//! - [`DeviceWatch`] takes the kernel's counters of block devices.
//! - [`machine`] takes the kernel's account of CPU time and interrupts, for all processes.
//! - [`kernel_threads`] takes its account of its own threads, which work for an array outside of any process.
//!
//! This module gathers facts. Rates, percentiles over a run and intervals of confidence are derived elsewhere.

pub mod clock;
pub mod device;
pub mod histogram;
pub mod kernel_threads;
pub mod machine;
pub mod memory;
pub mod usage;

pub use clock::Clock;
pub use device::DeviceWatch;
pub use histogram::{BUCKETS, Histogram, bucket_lower, bucket_midpoint, bucket_of};
