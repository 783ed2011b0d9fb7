//! The key-value workload: one spec's worth of operations on a store.
//!
//! [`run`] lists its steps. `check` validates the spec, `database` locates and protects a database, `checkpoint` copies it,
//! `records` defines its contents, `load` writes them, `sample` draws keys of a user's database, `choice` chooses records,
//! `trace` reads a trace instead, `job` is the measuring loop, `freshness` its check for old values, `threads` runs jobs. Stores
//! implement the traits in [`store`]; `null` is the one defined here. [`options`] has helpers for their options, [`library`] finds
//! shared libraries.

mod check;
mod checkpoint;
mod choice;
#[cfg(feature = "contract")]
pub mod contract;
mod database;
pub mod error;
mod freshness;
mod job;
pub mod library;
mod load;
mod null;
pub mod options;
pub mod records;
mod sample;
pub mod store;
#[cfg(test)]
mod testing;
mod threads;
mod trace;

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
pub use store::{About, CachePlace, Demands, Keys, Lent, Opener, Place, Session, Store};

use crate::checkpoint::Copied;
use crate::database::{Location, State};
use crate::load::Loading;
use crate::sample::Sample;
use crate::trace::Trace;

/// Intervals at which a settling store is polled, and progress is reported.
const SETTLE_POLL: Duration = Duration::from_millis(20);
const REPORT_NS: u64 = 1_000_000_000;

/// The build fact of whether assertions are compiled in: `on` or `off`.
pub const ASSERTIONS: &str = "assertions";

/// Inputs of a run.
pub struct RunInputs<'a> {
    /// The workload.
    pub workload: &'a KvWorkload,
    /// The run's seed.
    pub seed: u64,
    /// Devices to observe.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// The store of the workload, not yet open.
    pub opener: &'a dyn Opener,
    /// The contents of its records.
    pub contents: Arc<Contents>,
    /// Opens the paths of the workload.
    pub targets: &'a Targets,
}

/// Every path that a run of this workload opens.
pub fn paths(workload: &KvWorkload) -> Vec<PathBuf> {
    let traces = workload.streams.iter().filter_map(|stream| stream.trace.as_ref());
    let mut paths: Vec<PathBuf> = traces.map(|trace| PathBuf::from(&trace.path)).collect();
    paths.extend(target_paths(workload));
    paths
}

fn target_paths(workload: &KvWorkload) -> Vec<PathBuf> {
    match &workload.target {
        StoreTarget::Virtual | StoreTarget::Socket { .. } | StoreTarget::Server { .. } => Vec::new(),
        StoreTarget::Directory {
            path,
            log_path,
            read_cache,
        } => std::iter::once(path)
            .chain(log_path)
            .chain(read_cache.as_ref().map(|cache| &cache.path))
            .map(PathBuf::from)
            .collect(),
        StoreTarget::Device { path, .. } | StoreTarget::ReadOnly { path } => vec![path.into()],
    }
}

/// Checks the spec by itself, before contents and store are created from it.
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
pub fn run(run: &RunInputs<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, KvError> {
    let workload = run.workload;
    let trace = Trace::for_workload(workload, run.targets)?;
    let demands = demands(run, trace.as_ref());
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
        trace: trace.as_ref(),
        control,
        emit,
    };
    let result = at_location(stage, &mut location).map_err(|error| location.explain(error));
    let removed = location.remove_read_cache();
    result.and_then(|result| removed.map(|()| result))
}

/// The run on a target that may be used.
fn at_location(mut stage: Stage<'_, '_>, location: &mut Location) -> Result<RunResult, KvError> {
    let run = stage.run;
    let workload = run.workload;
    let Prepared {
        store,
        layout,
        kept,
        restored,
        sample,
    } = stage.prepare(location)?;
    let (store, settle_ns) = stage.transit(store, location)?;
    if changes_the_set(workload) {
        location.mark_incomplete()?;
    }
    let about = store.about().map_err(|error| error.at("reading its options"))?;
    stage.warn_of_assertions(&about);
    let cached_bytes_at_start = location.cached_bytes();
    let statistics_at_start = store.statistics();
    let cancelled_at_start = cancelled_write_bytes();
    let measured = threads::run(run, &*store, sample.as_ref(), stage.trace, stage.control, stage.emit)?;
    let measured_cancelled_write_bytes = cancelled_write_bytes()
        .zip(cancelled_at_start)
        .map(|(end, begin)| end - begin);
    let durability = threads::durability(&workload.streams, &*store);
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
        durability,
        kept,
        restored_copied_bytes: restored.map(|restored| restored.copied_bytes),
        restored_linked_bytes: restored.map(|restored| restored.linked_bytes),
        database_bytes: used_bytes.unwrap_or_else(|| location.allocated_bytes()),
        record_bytes: sample.map_or_else(|| run.contents.record_bytes(), |sample| sample.record_bytes),
        cancelled_write_bytes: cancelled_write_bytes(),
        measured_cancelled_write_bytes,
        cached_bytes_at_start,
        cached_bytes_at_end,
        settle_ns,
        settle_at_end_ns,
        close_ns,
        checks: measured.checks,
        statistics_at_start,
        statistics_at_end,
    });
    Ok(result)
}

fn demands(run: &RunInputs<'_>, trace: Option<&Trace>) -> Demands {
    let (key_bytes_max, value_bytes_max) = match trace {
        Some(trace) => (trace.key_bytes_max, trace.value_bytes_max),
        None => run.contents.bytes_max(),
    };
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

/// Bytes of this process that were deleted or truncated before writeback (proc(5)); `None` where they are not counted.
fn cancelled_write_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cancelled_write_bytes:"))?;
    line.trim().parse().ok()
}

/// Whether the set of records changes during the measurement.
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

/// A database that is ready for the transition to the measurement.
struct Prepared {
    store: Box<dyn Store>,
    layout: LayoutResult,
    /// A complete database was found and used.
    kept: bool,
    /// It was restored from a checkpoint.
    restored: Option<Copied>,
    /// Keys of a user's database.
    sample: Option<Sample>,
}

/// The steps before and after the measurement.
struct Stage<'a, 'r> {
    run: &'a RunInputs<'r>,
    demands: Demands,
    trace: Option<&'a Trace>,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
}

impl Stage<'_, '_> {
    /// Opens the database with the contents that the workload requires.
    fn prepare(&mut self, location: &mut Location) -> Result<Prepared, KvError> {
        match self.run.workload.database {
            Database::Existing if matches!(self.run.workload.target, StoreTarget::ReadOnly { .. }) => {
                self.sample(location)
            }
            Database::Existing => {
                if !location.is_occupied() {
                    self.clear(location)?;
                }
                let kept = location.is_complete();
                Ok(Prepared {
                    kept,
                    ..self.as_it_is(location)?
                })
            }
            Database::Empty => {
                self.clear(location)?;
                self.as_it_is(location)
            }
            Database::Loaded {
                reload,
                restore,
                order,
                batch,
                sync,
                rate,
                checkpoint,
            } => {
                if !reload && restore && location.has_checkpoint() {
                    return self.restore(location);
                }
                let loading = Loading {
                    order,
                    batch,
                    sync,
                    rate,
                };
                let prepared = match location.is_complete() && !reload && !restore {
                    true => self.keep(location)?,
                    false => self.reload(location, loading)?,
                };
                match checkpoint && location.is_complete() && !location.has_checkpoint() {
                    true => self.save_checkpoint(prepared, location),
                    false => Ok(prepared),
                }
            }
        }
    }

    /// Removes the database, and prepares for a new one.
    fn clear(&self, location: &mut Location) -> Result<(), KvError> {
        location.clear()?;
        let place = database::place(&self.run.workload.target);
        let cleared = self.run.opener.clear(&place, &self.demands);
        cleared.map_err(|error| error.at("removing the records of the database"))
    }

    fn as_it_is(&self, location: &mut Location) -> Result<Prepared, KvError> {
        Ok(Prepared {
            store: self.open(location)?,
            layout: LayoutResult::default(),
            kept: false,
            restored: None,
            sample: None,
        })
    }

    fn keep(&self, location: &mut Location) -> Result<Prepared, KvError> {
        let layout = LayoutResult {
            kept_bytes: self.run.contents.record_bytes(),
            ..LayoutResult::default()
        };
        Ok(Prepared {
            layout,
            kept: true,
            ..self.as_it_is(location)?
        })
    }

    fn reload(&mut self, location: &mut Location, loading: Loading) -> Result<Prepared, KvError> {
        self.clear(location)?;
        let mut prepared = self.as_it_is(location)?;
        let loaded = self.load(&*prepared.store, loading);
        let (written_bytes, is_complete) = loaded.map_err(|error| error.at("phase `layout`"))?;
        if is_complete {
            location.mark(State::Complete)?;
        }
        prepared.layout.written_bytes = written_bytes;
        Ok(prepared)
    }

    /// Restores the database from its checkpoint; phase `layout`.
    fn restore(&mut self, location: &mut Location) -> Result<Prepared, KvError> {
        self.report(Phase::Layout, Edge::Begin, 0);
        let restored = location.restore_checkpoint(self.run.opener)?;
        self.report(Phase::Layout, Edge::End, restored.copied_bytes);
        let layout = LayoutResult {
            written_bytes: restored.copied_bytes,
            kept_bytes: restored.linked_bytes,
        };
        Ok(Prepared {
            layout,
            restored: Some(restored),
            ..self.as_it_is(location)?
        })
    }

    /// Copies the loaded database, which is closed for this, for later runs.
    fn save_checkpoint(&mut self, prepared: Prepared, location: &mut Location) -> Result<Prepared, KvError> {
        let closed = prepared.store.close();
        closed.map_err(|error| error.at("closing the database for its checkpoint"))?;
        location.save_checkpoint(self.run.opener)?;
        Ok(Prepared {
            store: self.open(location)?,
            ..prepared
        })
    }

    /// Opens a user's database and samples its keys; phase `layout`. It is opened again, so that caches are empty.
    fn sample(&mut self, location: &mut Location) -> Result<Prepared, KvError> {
        let store = self.open(location)?;
        self.report(Phase::Layout, Edge::Begin, 0);
        let (clock, emit, control) = (self.run.clock, &mut *self.emit, &mut *self.control);
        let mut reported_ns = clock.now();
        let sample = Sample::draw(&*store, self.run.workload.records.count, self.run.seed, &mut |bytes| {
            if clock.now() >= reported_ns + REPORT_NS {
                reported_ns = clock.now();
                emit(phase_event(Phase::Layout, Edge::Progress, reported_ns, bytes));
            }
            !control.is_stopped()
        })?;
        self.report(Phase::Layout, Edge::End, sample.record_bytes);
        store
            .close()
            .map_err(|error| error.at("closing the database after sampling"))?;
        Ok(Prepared {
            sample: Some(sample),
            kept: true,
            ..self.as_it_is(location)?
        })
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
        let mut go_on = |bytes| {
            if clock.now() >= reported_ns + REPORT_NS {
                reported_ns = clock.now();
                emit(phase_event(Phase::Layout, Edge::Progress, reported_ns, bytes));
            }
            !control.is_stopped()
        };
        let loaded = match self.trace {
            Some(trace) => load::load_trace(store, &self.run.contents, trace.rows(1, 0), loading, &mut go_on),
            None => load::load(store, &self.run.contents, loading, &mut go_on),
        }?;
        self.report(Phase::Layout, Edge::End, loaded.0);
        Ok(loaded)
    }

    /// Settles, closes, prepares the page cache and reopens, as the workload requires; phase `precondition`.
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

    /// Waits until background work is done, or the run is stopped; returns the duration.
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

    /// Warns of a library with assertions, which is slower than release builds.
    fn warn_of_assertions(&mut self, about: &About) {
        if about.build.get(ASSERTIONS).is_some_and(|assertions| assertions == "on") {
            (self.emit)(Event::Warning(Warning {
                code: "assertions_enabled".into(),
                message: format!(
                    "the library of `{}`, version {}, was built with assertions, which slow it down",
                    self.run.workload.store.kind.name(),
                    about.version
                ),
                hint: "compare it only with runs on the same library, or name a release build in `library`".into(),
            }));
        }
    }

    /// Warns of corrupted, stale and missing records.
    fn warn_of(&mut self, checks: &[iosonde_protocol::StoreCheck], first_corrupted: Option<u64>) {
        let corrupted: u64 = checks.iter().map(|check| check.corrupted).sum();
        let values: u64 = checks.iter().map(|check| check.values).sum();
        if corrupted > 0 {
            let first = first_corrupted.map_or(String::new(), |number| format!(", first of record {number}"));
            (self.emit)(Event::Warning(Warning {
                code: "corrupted_values".into(),
                message: format!("{corrupted} of {values} values read are corrupted or out of order{first}"),
                hint: "the store, file system or device returned wrong data: repeat the run, and check the kernel log"
                    .into(),
            }));
        }
        let stale: u64 = checks.iter().map(|check| check.stale).sum();
        if stale > 0 {
            (self.emit)(Event::Warning(Warning {
                code: "stale_values".into(),
                message: format!("{stale} of {values} values read are older than an acknowledged write"),
                hint: "the store returned an old value after it had confirmed a new one: repeat the run".into(),
            }));
        }
        let missing: u64 = checks.iter().map(|check| check.missing).sum();
        if missing > 0 && must_be_complete(self.run.workload) {
            (self.emit)(Event::Warning(Warning {
                code: "missing_records".into(),
                message: format!("{missing} records were not found in a database that was loaded with all of them"),
                hint: "the store lost them: load again (`reload`) and repeat the run".into(),
            }));
        }
    }
}

/// Whether the database has every record during the whole run.
fn must_be_complete(workload: &KvWorkload) -> bool {
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    matches!(workload.database, Database::Loaded { .. })
        && !workload.store.kind.is_cache()
        && workload.streams.iter().all(|stream| stream.trace.is_none())
        && operations.all(|share| share.operation != KvOperation::Delete)
}

fn phase_event(phase: Phase, edge: Edge, at_ns: u64, bytes: u64) -> Event {
    Event::Phase(PhaseEvent {
        phase,
        edge,
        at_ns,
        bytes,
    })
}
