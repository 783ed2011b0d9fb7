//! Where, what and when: the sequence of I/Os that a job is to carry out.
//!
//! - [`Generator`] gives one I/O after the other: operation, offset, size.
//! - [`Arrivals`] gives the instants at which they are to start, when the load has a schedule of its own.
//! - [`regions`] divides a stream's span among its jobs.
//! - [`Schedule`] follows those instants, and counts what is late.
//! - [`Permutation`] and [`Zipf`] choose numbers, for loads that are not block I/O.
//! - [`Rng`] is the random numbers under all of them.
//!
//! Everything follows from the stream's description and the run's seed: the same spec gives the same I/Os. Nothing here
//! reads a clock, does I/O, or allocates once it is made.

mod access;
pub mod arrival;
pub mod check;
pub mod generator;
mod mix;
mod permutation;
pub mod random;
pub mod region;
mod schedule;
#[cfg(test)]
mod testing;
mod zipf;

pub use arrival::{Arrivals, Instants};
pub use generator::{Generator, Io};
pub use permutation::Permutation;
pub use random::Rng;
pub use region::{Region, regions};
pub use schedule::Schedule;
pub use zipf::Zipf;

/// Purpose of an independent stream of random numbers: the last part of its path under the run's seed.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// Choice of offsets, operations and sizes, by job.
    Generator = 0,
    /// Gaps between arrivals, by job.
    Arrivals = 1,
    /// Places of the popular blocks in the span: the same for all jobs of a stream.
    Scatter = 2,
}
