//! The paging workload: accesses to mapped memory that is larger than what may be resident (PMbench's method).
//!
//! [`run`] lists its steps. `mapping` is the memory, `content` what its pages contain, `file` the file of a file mapping,
//! `pattern` chooses pages, `job` is the measuring loop, `faults` decides which accesses were page faults, `cost` finds out
//! what measuring costs, `statistics` reads the kernel's counters over time. The engine's own memory is locked where the
//! kernel permits it, so that only the mapping is paged.

mod check;
mod content;
mod cost;
pub mod error;
mod faults;
mod file;
mod job;
mod mapping;
mod pattern;
mod statistics;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iosonde_harness::{
    Budget, Control, Finished, Gate, JobPhases, JobTotals, PhasePlan, Recorder, Shared, Supervision, execute, pin,
};
use iosonde_metrics::DeviceWatch;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{
    BackendInEffect, Edge, Event, Fallback, JobResult, LayoutResult, Observe, PagingResult, PagingStream,
    PagingWorkload, Phase, PhaseEvent, RunResult, Target, Warning,
};
use iosonde_target::Targets;

use crate::content::Contents;
pub use crate::error::PagingError;
use crate::faults::{Classification, Faults};
use crate::file::PageFile;
use crate::job::{Job, Tally};
use crate::mapping::Mapping;
use crate::pattern::Chooser;
use crate::statistics::Statistics;

/// How often progress of filling and verifying is reported.
const REPORT_NS: u64 = 1_000_000_000;
/// Pages between two looks at the clock while filling and verifying.
const PAGES_BETWEEN_LOOKS: u64 = 256;

/// Inputs of a run.
pub struct RunInputs<'a> {
    /// The workload.
    pub workload: &'a PagingWorkload,
    /// The run's seed.
    pub seed: u64,
    /// Devices to observe.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// Opens the paths of the workload.
    pub targets: &'a Targets,
}

/// Every path that a run of this workload opens.
pub fn paths(workload: &PagingWorkload) -> Vec<PathBuf> {
    match &workload.target {
        Target::File { path, .. } => vec![path.into()],
        _ => Vec::new(),
    }
}

/// Carries out a paging workload and emits its events. The caller emits the result.
///
/// # Errors
/// When the spec is wrong, the memory or file cannot be mapped, or the file cannot be written.
pub fn run(run: &RunInputs<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, PagingError> {
    let page_bytes = rustix::param::page_size() as u64;
    check::check(run.workload, page_bytes)?;
    let watch = DeviceWatch::open(&run.observe.block_devices)?;
    let classification = Classification::calibrate(run.clock);
    let mut facts = PagingResult {
        page_bytes,
        threshold_ns: classification.threshold_ns,
        fastest_minor_fault_ns: classification.fastest_minor_fault_ns,
        classification_cost_ns: 2.0 * classification.counters_cost_ns,
        measuring_cost_ns: cost::measuring_cost_ns(run.clock)?,
        is_locked: mapping::lock_own_memory(),
        ..PagingResult::default()
    };
    let mut steps = Steps { run, control, emit };
    let (mapping, layout) = steps.map(page_bytes)?;
    facts.pages = mapping.pages();
    let mut result = steps.measure(&mapping, watch, &mut facts)?;
    if run.workload.verify_after {
        steps.verify(&mapping, &mut facts);
    }
    steps.warn_of(&facts);
    result.layout = layout;
    result.paging = Some(facts);
    Ok(result)
}

/// The steps of a run.
struct Steps<'a, 'r> {
    run: &'a RunInputs<'r>,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
}

impl Steps<'_, '_> {
    /// Maps the memory with its contents; phase `layout`.
    fn map(&mut self, page_bytes: u64) -> Result<(Mapping, LayoutResult), PagingError> {
        let workload = self.run.workload;
        let contents = Contents::new(workload.content_seed, page_bytes, workload.compressible_fraction);
        let (mapping, layout) = match &workload.target {
            Target::File { path, size_bytes } => self.map_file(Path::new(path), contents, size_bytes / page_bytes)?,
            Target::Virtual { size_bytes } => {
                let mapping = Mapping::anonymous(contents, size_bytes / page_bytes, workload.huge_pages)?;
                // Locked pages could not be paged out; where nothing is locked, there is nothing to unlock.
                let _ = mapping.unlock();
                let filled = self.each_page(Phase::Layout, &mapping, page_bytes, |page| mapping.fill(page));
                let layout = LayoutResult {
                    written_bytes: filled * page_bytes,
                    kept_bytes: 0,
                };
                (mapping, layout)
            }
            _ => unreachable!("the spec was checked"),
        };
        mapping.advise(workload.advice).map_err(|error| {
            PagingError::new(
                "unsupported",
                format!("the kernel refuses the advice: {error}"),
                "use the advice `normal`",
            )
        })?;
        Ok((mapping, layout))
    }

    fn map_file(
        &mut self,
        path: &Path,
        contents: Contents,
        pages: u64,
    ) -> Result<(Mapping, LayoutResult), PagingError> {
        let file = PageFile::open(self.run.targets, path, contents, pages)?;
        self.report(Phase::Layout, Edge::Begin, 0);
        let clock = self.run.clock;
        let mut reported_ns = clock.now();
        let layout = file.lay_out(&mut |bytes| {
            if clock.now() >= reported_ns + REPORT_NS {
                reported_ns = clock.now();
                self.report(Phase::Layout, Edge::Progress, bytes);
            }
            !self.control.is_stopped()
        })?;
        self.report(Phase::Layout, Edge::End, layout.written_bytes);
        file.prepare_cache(self.run.workload.page_cache)?;
        let mapping = Mapping::file(contents, pages, file.file(), path)?;
        let _ = mapping.unlock();
        Ok((mapping, layout))
    }

    /// Ramp and measurement.
    fn measure(
        &mut self,
        mapping: &Mapping,
        watch: DeviceWatch,
        facts: &mut PagingResult,
    ) -> Result<RunResult, PagingError> {
        let (run, workload) = (self.run, self.run.workload);
        let shared = Shared::default();
        let threads = Threads {
            run,
            mapping,
            shared: &shared,
            threshold_ns: facts.threshold_ns,
        };
        let planned: Vec<(usize, u32)> = workload
            .streams
            .iter()
            .enumerate()
            .flat_map(|(stream, plan)| (0..plan.jobs).map(move |job| (stream, job)))
            .collect();
        let jobs = planned
            .iter()
            .map(|&(stream, job)| (stream, threads.job(stream, job)))
            .collect();
        let supervision = Supervision {
            clock: run.clock,
            shared: &shared,
            ramp_ns: workload.ramp.duration_ns,
            ramp_may_end_early: false,
            ramp_until_steady: workload.ramp.until_steady,
            duration_ns: workload.duration_ns,
            interval_ns: workload.interval_ns,
            streams: workload
                .streams
                .iter()
                .map(|stream| (stream.name.clone(), false))
                .collect(),
            watch,
            pinned_cpus: pinned_cpus(&workload.streams),
        };
        let statistics = Statistics::find();
        let mut at_start = statistics.read();
        let mut at_end = BTreeMap::new();
        let emit = &mut *self.emit;
        let mut with_statistics = |event| match event {
            Event::Interval(mut interval) => {
                interval.store = statistics.read();
                match interval.phase {
                    Phase::Measure => at_end.clone_from(&interval.store),
                    _ => at_start.clone_from(&interval.store),
                }
                emit(Event::Interval(interval));
            }
            other => emit(other),
        };
        let mut tally = Tally::default();
        let result = execute(supervision, jobs, self.control, &mut with_statistics, |returned| {
            let mut finished = Vec::new();
            for joined in returned {
                let panicked = |_| {
                    let hint = "please report this with the spec that caused it";
                    PagingError::new("internal", "a job's thread panicked", hint)
                };
                finished.extend(joined.map_err(panicked)?);
            }
            finished.iter().for_each(|(_, found)| tally.add(found));
            Ok::<_, PagingError>(finished_jobs(workload, &planned, finished, facts.is_locked))
        })?;
        facts.statistics_at_start = at_start;
        facts.statistics_at_end = at_end;
        note(facts, &tally);
        Ok(result)
    }

    /// Compares every page in full; phase `verify`.
    fn verify(&mut self, mapping: &Mapping, facts: &mut PagingResult) {
        let (mut wrong_pages, mut first) = (0, facts.first_wrong_page);
        facts.verified_pages = self.each_page(Phase::Verify, mapping, facts.page_bytes, |page| {
            if !mapping.is_whole(page) {
                wrong_pages += 1;
                first.get_or_insert(page);
            }
        });
        facts.wrong_pages = wrong_pages;
        facts.first_wrong_page = first;
    }

    /// Does something with every page in order, until the run is stopped; returns how many there were.
    fn each_page(&mut self, phase: Phase, mapping: &Mapping, page_bytes: u64, mut act: impl FnMut(u64)) -> u64 {
        self.report(phase, Edge::Begin, 0);
        let mut reported_ns = self.run.clock.now();
        let mut done = 0;
        while done < mapping.pages() {
            if done.is_multiple_of(PAGES_BETWEEN_LOOKS) {
                if self.control.is_stopped() {
                    break;
                }
                if self.run.clock.now() >= reported_ns + REPORT_NS {
                    reported_ns = self.run.clock.now();
                    self.report(phase, Edge::Progress, done * page_bytes);
                }
            }
            act(done);
            done += 1;
        }
        self.report(phase, Edge::End, done * page_bytes);
        done
    }

    fn warn_of(&mut self, facts: &PagingResult) {
        let wrong = facts.corrupted + facts.stale + facts.wrong_pages;
        if wrong > 0 {
            let first = facts.first_wrong_page.unwrap_or_default();
            (self.emit)(Event::Warning(Warning {
                code: "wrong_pages".into(),
                message: format!(
                    "{wrong} checks found a page that did not contain what was written to it, the first one page {first}"
                ),
                hint: "the device below the swap area or the file returned wrong data, or the memory is faulty".into(),
            }));
        }
        let unattributed = facts.unattributed_major_faults;
        if unattributed * 100 > facts.major_faults {
            (self.emit)(Event::Warning(Warning {
                code: "unattributed_faults".into(),
                message: format!(
                    "{unattributed} of {} major faults belong to no measured access",
                    facts.major_faults
                ),
                hint: "the engine's own memory is paged as well; raise `ulimit -l`, or run as root, so that it can be \
                       locked"
                    .into(),
            }));
        }
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) {
        let at_ns = self.run.clock.now();
        (self.emit)(Event::Phase(PhaseEvent {
            phase,
            edge,
            at_ns,
            bytes,
        }));
    }
}

/// What the jobs of a run share.
#[derive(Clone, Copy)]
struct Threads<'a> {
    run: &'a RunInputs<'a>,
    mapping: &'a Mapping,
    shared: &'a Shared,
    threshold_ns: u64,
}

/// What a job's thread returns; nothing if the run was cancelled before it started.
type Returned = Option<(JobTotals, Tally)>;

impl<'a> Threads<'a> {
    fn job(self, number: usize, job: u32) -> iosonde_harness::Job<'a, Returned> {
        Box::new(move |gate: &Gate<'_>, recorder: Recorder| {
            let stream = &self.run.workload.streams[number];
            pin(&stream.cpus, job);
            let job = Job {
                mapping: self.mapping,
                clock: self.run.clock,
                phases: JobPhases::new(self.phase_plan(stream, job), self.shared, recorder),
                chooser: Chooser::new(stream, number as u64, job, self.mapping.pages(), self.run.seed),
                threshold_ns: self.threshold_ns,
                seen: Faults::default(),
                tally: Tally::default(),
            };
            gate.pass().then(|| job.drive())
        })
    }

    fn phase_plan(self, stream: &PagingStream, job: u32) -> PhasePlan {
        let (jobs, job) = (u64::from(stream.jobs), u64::from(job));
        let share = |total: u64| total / jobs + u64::from(job < total % jobs);
        PhasePlan {
            ramp: (self.run.workload.ramp.duration_ns > 0).then_some(Budget::UNLIMITED),
            measure: Budget {
                operations: stream.limit_operations.map_or(u64::MAX, share),
                ..Budget::UNLIMITED
            },
            duration_ns: self.run.workload.duration_ns,
            active: None,
            largest_bytes: 0,
        }
    }
}

fn finished_jobs(
    workload: &PagingWorkload,
    planned: &[(usize, u32)],
    finished: Vec<(JobTotals, Tally)>,
    is_locked: bool,
) -> Finished {
    let fallback = Fallback {
        feature: "locked_memory".into(),
        reason: "the kernel does not permit locking the engine's memory (`ulimit -l`)".into(),
    };
    Finished {
        end_ns: finished.iter().map(|(totals, _)| totals.end_ns).max(),
        jobs: planned
            .iter()
            .zip(finished)
            .map(|(&(stream, job), (totals, _))| JobResult {
                stream: workload.streams[stream].name.clone(),
                job,
                operations: totals.operations,
                bytes: totals.bytes,
                last_completion_ns: totals.last_completion_ns,
                usage: totals.usage,
                abandoned: 0,
                schedule: None,
                pacing: Some(totals.pacing),
            })
            .collect(),
        backend: BackendInEffect {
            kind: match workload.target {
                Target::File { .. } => "file_mapping".into(),
                _ => "anonymous_mapping".into(),
            },
            features: is_locked.then(|| "locked_memory".to_owned()).into_iter().collect(),
            fallbacks: (!is_locked).then_some(fallback).into_iter().collect(),
        },
    }
}

/// Notes what the jobs found.
fn note(facts: &mut PagingResult, tally: &Tally) {
    facts.minor_faults = tally.faults.minor;
    facts.major_faults = tally.faults.major;
    facts.unattributed_minor_faults = tally.faults.minor.saturating_sub(tally.attributed.minor);
    facts.unattributed_major_faults = tally.faults.major.saturating_sub(tally.attributed.major);
    facts.checked = tally.checked;
    facts.corrupted = tally.corrupted;
    facts.stale = tally.stale;
    facts.first_wrong_page = tally.first_wrong_page;
}

/// The CPUs that jobs are pinned to, each once.
fn pinned_cpus(streams: &[PagingStream]) -> Vec<u32> {
    let cpus: std::collections::BTreeSet<u32> = streams.iter().flat_map(|stream| stream.cpus.clone()).collect();
    cpus.into_iter().collect()
}

#[cfg(test)]
mod tests;
