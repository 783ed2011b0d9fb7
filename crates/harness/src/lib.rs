//! The base of every workload: the phases of a run, its intervals, its threads, and its result.
//!
//! A workload brings jobs: closures that run one thread each, with a [`JobPhases`] that decides when to load, when to
//! count and when to stop. The [`execute`] function starts them together, keeps time, emits intervals and puts the result together. The jobs' side
//! neither allocates nor locks while load is applied; everything they share is a handful of atomics and two lock-free
//! queues each.

mod collector;
mod control;
mod execute;
mod heartbeat;
mod phases;
mod pin;
mod ramp;
mod recorder;
mod supervisor;

pub use collector::Collector;
pub use control::{Control, Stopper};
pub use execute::{CannotStart, Finished, execute};
pub use phases::{Budget, JobPhases, JobTotals, PhasePlan, Row, Shared, Stage};
pub use pin::pin;
pub use recorder::{Exchange, Recorder};
pub use supervisor::{Gate, Job, Supervision};
