//! The interface of workloads, and the driver that all of them share.

use std::path::PathBuf;

use iosonde_protocol::{Event, RunResult};

use crate::control::Control;
use crate::error::{RunError, require};
use crate::measure::RunInputs;
use crate::plan::LoadPlan;
use crate::run::Run;

/// A workload of one spec. What its jobs do under load is a [`crate::Load`], which [`Run::measure`] drives.
pub trait Workload {
    /// Streams and times; none if nothing is to be measured.
    fn plan(&self) -> Option<LoadPlan<'_>>;

    /// Refuses a spec that contradicts itself; what is true of every [`LoadPlan`] is checked already. Opens nothing.
    ///
    /// # Errors
    /// With code `invalid_spec`.
    fn check(&self) -> Result<(), RunError>;

    /// Every path that a run opens.
    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// True if its time is that of a simulation.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Prepares the target, measures, and makes a result of what was found.
    ///
    /// # Errors
    /// When the target cannot be used, or the load fails. Events emitted before stay true.
    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError>;
}

/// Carries out a workload and emits its events: phases, intervals, warnings. The caller emits the result.
///
/// # Errors
/// When the spec is wrong, or the run fails. Events emitted before stay true.
pub fn carry_out(
    workload: &dyn Workload,
    inputs: RunInputs<'_>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> Result<RunResult, RunError> {
    match workload.plan() {
        Some(plan) => plan.check()?,
        None => require(control.start().is_none(), "`start`")?,
    }
    workload.check()?;
    workload.run(&mut Run::new(inputs, control, emit)?)
}
