//! What every workload stands on: the course of a run through warmup and measurement, its intervals, its threads.
//!
//! A workload brings jobs: closures that run one thread each, with a [`Course`] that tells them when to load, when to
//! count and when to end. The [`supervise`] function starts them together, keeps time, and carries intervals out. The jobs' side
//! neither allocates nor locks while load is applied; everything they share is a handful of atomics and two lock-free
//! queues each.

mod collector;
mod control;
mod course;
mod pin;
mod recorder;
mod supervisor;

pub use collector::Collector;
pub use control::{Control, Stopper};
pub use course::{Budget, Course, CourseOutcome, CoursePlan, Shared, Stage};
pub use pin::pin;
pub use recorder::{Exchange, Recorder};
pub use supervisor::{Gate, Job, Supervised, Supervision, supervise};
