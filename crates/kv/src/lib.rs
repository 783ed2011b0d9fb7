//! The key-value workload: one spec's worth of operations on a store.
//!
//! [`run`] reads as the list of its steps. The parts: `check` refuses nonsense, `database` knows where a database lies and whose
//! it is, `records` what is in it, `load` fills it, `choice` says what comes next, `job` is the measuring loop, `threads` runs jobs.
//! Stores stand behind the traits in [`store`]; `null` is the one that lives here. What stores need for their options is
//! in [`options`].

mod check;
mod choice;
#[cfg(feature = "contract")]
pub mod contract;
mod database;
pub mod error;
mod job;
mod load;
mod null;
pub mod options;
pub mod records;
pub mod store;
#[cfg(test)]
mod testing;
mod threads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iosonde_harness::Control;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{
    Coverage, Database, Edge, Event, KvChoice, KvOperation, KvWorkload, LayoutResult, Observe, Outcome, PageCache,
    Phase, PhaseEvent, RunResult, StoreResult, StoreTarget, Warning,
};
use iosonde_target::Targets;

pub use database::free_bytes;
pub use error::{Code, KvError};
pub use null::NullOpener;
pub use records::Contents;
pub use store::{About, Demands, Lent, Opener, Place, Session, Store};

use crate::database::{Location, State};
use crate::load::Loading;

/// How often a settling store is looked at, and how often that is told.
const SETTLE_POLL: Duration = Duration::from_millis(20);
const REPORT_NS: u64 = 1_000_000_000;

/// The build fact that says whether a store checks itself: `on` or `off`.
pub const ASSERTIONS: &str = "assertions";

/// What a run is given.
pub struct Run<'a> {
    /// What to do.
    pub workload: &'a KvWorkload,
    /// The run's seed.
    pub seed: u64,
    /// What to watch.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// The store that the workload names, not yet open.
    pub opener: &'a dyn Opener,
    /// The contents of its records.
    pub contents: Arc<Contents>,
    /// Opens what the workload names.
    pub targets: &'a Targets,
}

/// Every path that a run of this workload opens.
pub fn paths(workload: &KvWorkload) -> Vec<PathBuf> {
    match &workload.target {
        StoreTarget::Virtual => Vec::new(),
        StoreTarget::Directory { path, log_path } => std::iter::once(path).chain(log_path).map(PathBuf::from).collect(),
        StoreTarget::Device { path, .. } => vec![path.into()],
    }
}

/// Checks what the spec alone can tell; to be called before contents and store are made of it.
///
/// # Errors
/// When the spec contradicts itself.
pub fn check(workload: &KvWorkload) -> Result<(), KvError> {
    check::check(workload)
}

/// Carries out a checked key-value workload and emits its events: phases, intervals, warnings. The caller emits the result.
///
/// # Errors
/// When the store or the target cannot be used, or an operation fails. Events emitted before stay true.
pub fn run(run: &Run<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, KvError> {
    let workload = run.workload;
    let demands = demands(run);
    let place = match database::place(&workload.target) {
        Place::Device { path, bytes } => Place::Device {
            path,
            bytes: database::usable_bytes(bytes),
        },
        place => place,
    };
    run.opener.check(&place, &demands)?;
    let mut location = Location::survey(run.targets, workload, run.opener)?;
    let stage = Stage {
        run,
        demands,
        control,
        emit,
    };
    at_location(stage, &mut location).map_err(|error| location.explain(error))
}

/// Everything after the target was found to be usable.
fn at_location(mut stage: Stage<'_, '_>, location: &mut Location) -> Result<RunResult, KvError> {
    let run = stage.run;
    let workload = run.workload;
    let (store, layout, kept) = stage.bring_about(location)?;
    let (store, settle_ns) = stage.transit(store, location)?;
    if changes_the_set(workload) {
        location.mark_incomplete()?;
    }
    let about = store.about().map_err(|error| error.at("reading its options"))?;
    stage.warn_of_assertions(&about);
    let cached_bytes_at_begin = location.cached_bytes();
    let statistics_at_begin = store.statistics();
    let measured = threads::run(run, &*store, stage.control, stage.emit)?;
    let cached_bytes_at_end = location.cached_bytes();
    let settle_at_end_ns = match workload.settle_at_end {
        true => stage.settle(&*store, Phase::Settle)?,
        false => 0,
    };
    let statistics_at_end = store.statistics();
    let used_bytes = store.used_bytes();
    let closing_ns = run.clock.now();
    store.close().map_err(|error| error.at("closing the database"))?;
    let close_ns = run.clock.now() - closing_ns;
    let mut result = measured.result;
    if result.outcome == Outcome::Complete && writes_every_record(workload) {
        location.mark(State::Complete)?;
    }
    stage.warn_of(&measured.checks, measured.first_corrupted);
    result.layout = layout;
    result.store = Some(StoreResult {
        kind: workload.store.kind,
        version: about.version,
        build: about.build,
        options: about
            .options
            .into_iter()
            .map(|(name, value)| (name, location.with_names(&value)))
            .collect(),
        kept,
        database_bytes: used_bytes.unwrap_or_else(|| location.allocated_bytes()),
        record_bytes: run.contents.record_bytes(),
        cached_bytes_at_begin,
        cached_bytes_at_end,
        settle_ns,
        settle_at_end_ns,
        close_ns,
        checks: measured.checks,
        statistics_at_begin,
        statistics_at_end,
    });
    Ok(result)
}

fn demands(run: &Run<'_>) -> Demands {
    let (key_bytes_max, value_bytes_max) = run.contents.bytes_max();
    Demands {
        key_bytes_max,
        value_bytes_max,
        sessions: run
            .workload
            .streams
            .iter()
            .map(|stream| u64::from(stream.jobs))
            .sum::<u64>()
            + 1,
    }
}

/// Whether records come or go while it is measured.
fn changes_the_set(workload: &KvWorkload) -> bool {
    let operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    operations
        .into_iter()
        .any(|share| matches!(share.operation, KvOperation::Insert | KvOperation::Delete))
}

/// Whether the measurement, carried out to its end on an empty database, leaves a complete one.
fn writes_every_record(workload: &KvWorkload) -> bool {
    let [stream] = &workload.streams[..] else { return false };
    let each_once = matches!(
        stream.choice,
        KvChoice::Sequential
            | KvChoice::Random {
                coverage: Coverage::EachOnce,
                ..
            }
    );
    workload.database == Database::Empty
        && each_once
        && workload.duration_ns.is_none()
        && workload.ramp.duration_ns == 0
        && stream.limit_bytes.is_none()
        && stream
            .limit_operations
            .is_some_and(|limit| limit >= workload.records.count)
        && matches!(&stream.operations[..], [share] if share.operation == KvOperation::Update)
}

/// What comes before and after the measurement.
struct Stage<'a, 'r> {
    run: &'a Run<'r>,
    demands: Demands,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
}

impl Stage<'_, '_> {
    /// The database in the state that the workload asks for, open; what loading wrote; whether it was there already.
    fn bring_about(&mut self, location: &mut Location) -> Result<(Box<dyn Store>, LayoutResult, bool), KvError> {
        let nothing = LayoutResult::default();
        match self.run.workload.database {
            Database::Existing => {
                if !location.is_occupied() {
                    location.clear()?;
                }
                Ok((self.open(location)?, nothing, location.is_complete()))
            }
            Database::Empty => {
                location.clear()?;
                Ok((self.open(location)?, nothing, false))
            }
            Database::Loaded { reload: false, .. } if location.is_complete() => {
                let layout = LayoutResult {
                    kept_bytes: self.run.contents.record_bytes(),
                    ..nothing
                };
                Ok((self.open(location)?, layout, true))
            }
            Database::Loaded { order, batch, sync, .. } => {
                location.clear()?;
                let store = self.open(location)?;
                let (written_bytes, all) = self
                    .load(&*store, Loading { order, batch, sync })
                    .map_err(|error| error.at("phase `layout`"))?;
                if all {
                    location.mark(State::Complete)?;
                }
                let layout = LayoutResult {
                    written_bytes,
                    ..nothing
                };
                Ok((store, layout, false))
            }
        }
    }

    fn open(&self, location: &mut Location) -> Result<Box<dyn Store>, KvError> {
        let place = location.held_place()?;
        let opened = self.run.opener.open(&place, &self.demands);
        let store = opened.map_err(|error| error.at("opening the database"))?;
        location.check_contents()?;
        Ok(store)
    }

    fn load(&mut self, store: &dyn Store, loading: Loading) -> Result<(u64, bool), KvError> {
        let clock = self.run.clock;
        self.report(Phase::Layout, Edge::Begin, 0);
        let mut reported_ns = clock.now();
        let (emit, control) = (&mut *self.emit, &mut *self.control);
        let loaded = load::load(store, &self.run.contents, loading, &mut |bytes| {
            if clock.now() >= reported_ns + REPORT_NS {
                reported_ns = clock.now();
                emit(phase_event(Phase::Layout, Edge::Progress, reported_ns, bytes));
            }
            !control.is_stopped()
        })?;
        self.report(Phase::Layout, Edge::End, loaded.0);
        Ok(loaded)
    }

    /// Settles, closes, prepares the page cache and opens again, as the workload wants it; phase `precondition`.
    fn transit(
        &mut self,
        mut store: Box<dyn Store>,
        location: &mut Location,
    ) -> Result<(Box<dyn Store>, u64), KvError> {
        let transition = self.run.workload.transition;
        let reopen = transition.reopen || transition.page_cache != PageCache::Keep;
        if !reopen && !transition.settle {
            return Ok((store, 0));
        }
        self.report(Phase::Precondition, Edge::Begin, 0);
        let settle_ns = match transition.settle {
            true => self.settle(&*store, Phase::Precondition)?,
            false => 0,
        };
        if reopen {
            store
                .close()
                .map_err(|error| error.at("closing the database before the measurement"))?;
            location.prepare_page_cache(transition.page_cache)?;
            store = self.open(location)?;
        }
        self.report(Phase::Precondition, Edge::End, 0);
        Ok((store, settle_ns))
    }

    /// Waits until the store has done its background work, or the run is stopped; returns how long that took.
    fn settle(&mut self, store: &dyn Store, phase: Phase) -> Result<u64, KvError> {
        let begin_ns = self.run.clock.now();
        if phase == Phase::Settle {
            self.report(phase, Edge::Begin, 0);
        }
        store.flush().map_err(|error| error.at("settling"))?;
        let mut reported_ns = begin_ns;
        while store.is_busy() && !self.control.is_stopped() {
            self.control.wait(SETTLE_POLL);
            if self.run.clock.now() >= reported_ns + REPORT_NS {
                reported_ns = self.run.clock.now();
                self.report(phase, Edge::Progress, 0);
            }
        }
        if phase == Phase::Settle {
            self.report(phase, Edge::End, 0);
        }
        Ok(self.run.clock.now() - begin_ns)
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) {
        (self.emit)(phase_event(phase, edge, self.run.clock.now(), bytes));
    }

    /// A library with assertions is slower than the one that people use.
    fn warn_of_assertions(&mut self, about: &About) {
        if about.build.get(ASSERTIONS).is_some_and(|assertions| assertions == "on") {
            (self.emit)(Event::Warning(Warning {
                code: "assertions_enabled".into(),
                message: format!(
                    "the library of `{}`, version {}, was built with assertions, which cost time",
                    self.run.workload.store.kind.name(),
                    about.version
                ),
                hint: "compare it only with runs on the same library, or name a release build in `library`".into(),
            }));
        }
    }

    /// Values that are not right, and records that are not there though they must be.
    fn warn_of(&mut self, checks: &[iosonde_protocol::StoreCheck], first_corrupted: Option<u64>) {
        let corrupted: u64 = checks.iter().map(|check| check.corrupted).sum();
        let values: u64 = checks.iter().map(|check| check.values).sum();
        if corrupted > 0 {
            let first = first_corrupted.map_or(String::new(), |number| format!(", first of record {number}"));
            (self.emit)(Event::Warning(Warning {
                code: "corrupted_values".into(),
                message: format!("{corrupted} of {values} values read are not what their key demands{first}"),
                hint: "the store or what is under it lost or mixed up data: repeat the run, and look at the kernel log"
                    .into(),
            }));
        }
        let missing: u64 = checks.iter().map(|check| check.missing).sum();
        let must_be_there = matches!(self.run.workload.database, Database::Loaded { .. });
        if missing > 0 && must_be_there && !deletes(self.run.workload) {
            (self.emit)(Event::Warning(Warning {
                code: "missing_records".into(),
                message: format!("{missing} records were not found, though the database was loaded with all of them"),
                hint: "the store lost them: load again (`reload`) and repeat the run".into(),
            }));
        }
    }
}

fn deletes(workload: &KvWorkload) -> bool {
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    operations.any(|share| share.operation == KvOperation::Delete)
}

fn phase_event(phase: Phase, edge: Edge, at_ns: u64, bytes: u64) -> Event {
    Event::Phase(PhaseEvent {
        phase,
        edge,
        at_ns,
        bytes,
    })
}
