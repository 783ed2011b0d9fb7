//! The base of every workload: the driver of a run, its phases, intervals and threads, its result and its errors.
//!
//! A workload implements [`Workload`]: it checks its spec, lists its paths, prepares its target, and makes a result of what was
//! found. Between, [`Run::measure`] drives its [`Load`], whose jobs run one thread each, with a [`JobPhases`] that decides when
//! to load, when to count and when to stop. The jobs' side neither allocates nor locks while load is applied; everything they
//! share is a handful of atomics and two lock-free queues each.
//!
//! It is built on [`load`] (where, what and when), [`metrics`] (instruments) and [`target`] (checked opens), which workloads use
//! too.

mod collector;
mod control;
mod error;
mod heartbeat;
pub mod load;
mod measure;
pub mod metrics;
mod pacing;
mod page_cache;
mod phases;
mod pin;
mod plan;
mod ramp;
mod recorder;
pub mod residency;
mod run;
mod start;
mod supervisor;
pub mod target;
mod virtual_run;
mod workload;

pub use collector::Collector;
pub use control::{Control, Remote};
pub use error::{Code, RunError, require};
pub use measure::{JobDone, JobStart, Load, Measured, RunInputs, job_results};
pub use pacing::{SPIN_NS, wait_until, wait_until_due};
pub use page_cache::prepare_page_cache;
pub use phases::{Budget, JobPhases, JobTotals, PhasePlan, Row, Shared, Stage};
pub use plan::{LoadPlan, Place, StreamPlan};
pub use recorder::{Exchange, Recorder};
pub use run::Run;
pub use start::AgreedStart;
pub use supervisor::Gate;
pub use virtual_run::VirtualRun;
pub use workload::{Workload, carry_out};
