//! The paging workload: accesses to mapped memory that is larger than what may be resident (PMbench's method).
//!
//! [`Paging`] lists its steps. `mapping` is the memory, `content` what its pages contain, `file` the file of a file mapping,
//! `pattern` chooses pages, `job` is the measuring loop, `faults` decides which accesses were page faults, `cost` finds out
//! what measuring costs, `statistics` reads the kernel's counters over time. The engine's own memory is locked where the
//! kernel permits it, so that only the mapping is paged.

mod check;
mod content;
mod cost;
mod faults;
mod file;
mod job;
mod mapping;
mod pattern;
mod statistics;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iosonde_harness::{JobDone, JobStart, Load, LoadPlan, Measured, Run, RunError, RunInputs, StreamPlan, Workload};
use iosonde_protocol::{
    BackendInEffect, Fallback, Interval, LayoutResult, PagingResult, PagingWorkload, Phase, RunResult, Target, Warning,
};

use crate::content::Contents;
use crate::faults::{Classification, Faults};
use crate::file::PageFile;
use crate::job::{Job, Tally};
use crate::mapping::Mapping;
use crate::pattern::Chooser;
use crate::statistics::Statistics;

/// Pages between two looks at the clock while filling and verifying.
const PAGES_BETWEEN_LOOKS: u64 = 256;

/// The paging workload of a spec.
pub struct Paging<'a>(pub &'a PagingWorkload);

impl Workload for Paging<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let streams = self.0.streams.iter().map(|stream| StreamPlan {
            limit_operations: stream.limit_operations,
            ..StreamPlan::closed(&stream.name, stream.jobs, &stream.cpus)
        });
        Some(LoadPlan {
            ramp: self.0.ramp,
            duration_ns: self.0.duration_ns,
            interval_ns: self.0.interval_ns,
            streams: streams.collect(),
        })
    }

    fn check(&self) -> Result<(), RunError> {
        check::check(self.0, page_bytes())
    }

    fn paths(&self) -> Vec<PathBuf> {
        match &self.0.target {
            Target::File { path, .. } => vec![path.into()],
            _ => Vec::new(),
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let clock = run.inputs.clock;
        let classification = Classification::calibrate(clock);
        let mut facts = PagingResult {
            page_bytes: page_bytes(),
            threshold_ns: classification.threshold_ns,
            fastest_minor_fault_ns: classification.fastest_minor_fault_ns,
            classification_cost_ns: 2.0 * classification.counters_cost_ns,
            measuring_cost_ns: cost::measuring_cost_ns(clock)?,
            is_locked: mapping::lock_own_memory(),
            ..PagingResult::default()
        };
        let (mapping, layout) = self.map(run)?;
        facts.pages = mapping.pages();
        let mut result = self.measure(run, &mapping, &mut facts)?;
        if self.0.verify_after {
            verify(run, &mapping, &mut facts);
        }
        warn_of(run, &facts);
        result.backend = self.backend(facts.is_locked);
        result.layout = layout;
        result.paging = Some(facts);
        Ok(result)
    }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Unlocks mapped memory, which a limit or `mlockall` of the parent may have locked: locked pages are not paged out.
fn unlock(mapping: &Mapping) -> Result<(), RunError> {
    mapping
        .unlock()
        .map_err(|error| RunError::refused("cannot unlock the mapped memory", &error))
}

impl Paging<'_> {
    /// Maps the memory with its contents; phase `layout`.
    fn map(&self, run: &mut Run<'_>) -> Result<(Mapping, LayoutResult), RunError> {
        let (workload, page_bytes) = (self.0, page_bytes());
        let contents = Contents::new(workload.content_seed, page_bytes, workload.compressible_fraction);
        let (mapping, layout) = match &workload.target {
            Target::File { path, size_bytes } => {
                self.map_file(run, Path::new(path), contents, size_bytes / page_bytes)?
            }
            Target::Virtual { size_bytes } => {
                let mapping = Mapping::anonymous(contents, size_bytes / page_bytes, workload.huge_pages)?;
                unlock(&mapping)?;
                let filled = each_page(run, Phase::Layout, &mapping, |page| mapping.fill(page));
                let layout = LayoutResult {
                    written_bytes: filled * page_bytes,
                    kept_bytes: 0,
                };
                (mapping, layout)
            }
            _ => unreachable!("the spec was checked"),
        };
        mapping.advise(workload.advice).map_err(|error| {
            RunError::unsupported(
                format!("the kernel refuses the advice: {error}"),
                "use the advice `normal`",
            )
        })?;
        Ok((mapping, layout))
    }

    fn map_file(
        &self,
        run: &mut Run<'_>,
        path: &Path,
        contents: Contents,
        pages: u64,
    ) -> Result<(Mapping, LayoutResult), RunError> {
        let file = PageFile::open(run.inputs.targets, path, contents, pages)?;
        run.begin(Phase::Layout);
        let layout = file.lay_out(&mut |bytes| run.progress(Phase::Layout, bytes))?;
        run.end(Phase::Layout, layout.written_bytes);
        file.prepare_cache(self.0.page_cache)?;
        let mapping = Mapping::file(contents, pages, file.file(), path)?;
        unlock(&mapping)?;
        Ok((mapping, layout))
    }

    /// Ramp and measurement.
    fn measure(&self, run: &mut Run<'_>, mapping: &Mapping, facts: &mut PagingResult) -> Result<RunResult, RunError> {
        let statistics = Statistics::find();
        let mut at_start = statistics.read();
        let mut at_end = BTreeMap::new();
        let mut at_interval = |interval: &mut Interval| {
            interval.store = statistics.read();
            match interval.phase {
                Phase::Measure => at_end.clone_from(&interval.store),
                _ => at_start.clone_from(&interval.store),
            }
        };
        let plan = self.plan().expect("paging is always measured");
        let accesses = Accesses {
            workload: self.0,
            inputs: run.inputs,
            mapping,
            threshold_ns: facts.threshold_ns,
        };
        let Measured { result, found } = run.measure(&plan, &accesses, &mut at_interval)?;
        let mut tally = Tally::default();
        found.iter().for_each(|found| tally.add(found));
        facts.statistics_at_start = at_start;
        facts.statistics_at_end = at_end;
        note(facts, &tally);
        Ok(result)
    }

    fn backend(&self, is_locked: bool) -> BackendInEffect {
        let fallback = Fallback {
            feature: "locked_memory".into(),
            reason: "the kernel does not permit locking the engine's memory (`ulimit -l`)".into(),
        };
        BackendInEffect {
            kind: match self.0.target {
                Target::File { .. } => "file_mapping".into(),
                _ => "anonymous_mapping".into(),
            },
            features: is_locked.then(|| "locked_memory".to_owned()).into_iter().collect(),
            fallbacks: (!is_locked).then_some(fallback).into_iter().collect(),
        }
    }
}

/// Compares every page in full; phase `verify`.
fn verify(run: &mut Run<'_>, mapping: &Mapping, facts: &mut PagingResult) {
    let (mut wrong_pages, mut first) = (0, facts.first_wrong_page);
    facts.verified_pages = each_page(run, Phase::Verify, mapping, |page| {
        if !mapping.is_whole(page) {
            wrong_pages += 1;
            first.get_or_insert(page);
        }
    });
    facts.wrong_pages = wrong_pages;
    facts.first_wrong_page = first;
}

/// Does something with every page in order, until the run is stopped; returns how many there were.
fn each_page(run: &mut Run<'_>, phase: Phase, mapping: &Mapping, mut act: impl FnMut(u64)) -> u64 {
    run.begin(phase);
    let mut done = 0;
    while done < mapping.pages() {
        if done.is_multiple_of(PAGES_BETWEEN_LOOKS) && !run.progress(phase, done * page_bytes()) {
            break;
        }
        act(done);
        done += 1;
    }
    run.end(phase, done * page_bytes());
    done
}

fn warn_of(run: &mut Run<'_>, facts: &PagingResult) {
    let wrong = facts.corrupted + facts.stale + facts.wrong_pages;
    if wrong > 0 {
        let first = facts.first_wrong_page.unwrap_or_default();
        run.warn(Warning {
            code: "wrong_pages".into(),
            message: format!(
                "{wrong} checks found a page that did not contain what was written to it, the first one page {first}"
            ),
            hint: "the device below the swap area or the file returned wrong data, or the memory is faulty".into(),
        });
    }
    let unattributed = facts.unattributed_major_faults;
    if unattributed * 100 > facts.major_faults {
        run.warn(Warning {
            code: "unattributed_faults".into(),
            message: format!(
                "{unattributed} of {} major faults belong to no measured access",
                facts.major_faults
            ),
            hint:
                "the engine's own memory is paged as well; raise `ulimit -l`, or run as root, so that it can be locked"
                    .into(),
        });
    }
}

/// The load: what its jobs share.
struct Accesses<'a> {
    workload: &'a PagingWorkload,
    inputs: RunInputs<'a>,
    mapping: &'a Mapping,
    threshold_ns: u64,
}

impl Load for Accesses<'_> {
    type Found = Tally;

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<Tally>>, RunError> {
        let (number, pages, seed) = (start.place.stream, self.mapping.pages(), self.inputs.seed);
        let stream = &self.workload.streams[number];
        let job = Job {
            mapping: self.mapping,
            clock: self.inputs.clock,
            phases: start.phases,
            chooser: Chooser::new(stream, number as u64, start.place.job, pages, seed),
            threshold_ns: self.threshold_ns,
            seen: Faults::default(),
            tally: Tally::default(),
        };
        Ok(start.gate.pass().then(|| job.drive()))
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

#[cfg(test)]
mod tests;
