//! The key-value workload: one spec's worth of operations on a store.
//!
//! [`Kv`] lists its steps. `check` validates the spec, `database` locates and protects a database, `checkpoint` copies it,
//! `records` defines its contents, `load` writes them, `sample` draws keys of a user's database, `choice` chooses records,
//! `trace` reads a trace instead, `job` is the measuring loop, `freshness` its check for old values, `threads` runs jobs. Stores
//! implement the traits in [`store`], one module and cargo feature each; `null` stores nothing. [`options`] has helpers for their
//! options, [`library`] finds shared libraries.

#[cfg(feature = "cassandra")]
pub mod cassandra;
mod check;
mod checkpoint;
mod choice;
#[cfg(test)]
mod contract;
mod database;
mod freshness;
mod job;
pub mod library;
#[cfg(feature = "lmdb")]
pub mod lmdb;
mod load;
#[cfg(feature = "memcached")]
pub mod memcached;
#[cfg(feature = "mongodb")]
pub mod mongodb;
mod null;
pub mod options;
pub mod records;
mod residency;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod sample;
pub mod store;
#[cfg(test)]
mod testing;
mod threads;
mod trace;
#[cfg(feature = "wiredtiger")]
pub mod wiredtiger;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iosonde_harness::{LoadPlan, Run, RunInputs, Workload};
use iosonde_protocol::{
    Coverage, Database, KvChoice, KvOperation, KvWorkload, LayoutResult, Outcome, PageCache, Phase, RunResult,
    StoreResult, StoreTarget, Warning,
};

pub use database::{FULL_BYTES, free_bytes};
pub use iosonde_harness::{Code, RunError};
pub use null::NullOpener;
pub use records::Contents;
pub use store::{ASSERTIONS, About, CachePlace, Demands, Keys, Lent, Opener, Place, Server, Session, Store};

use crate::checkpoint::Copied;
use crate::database::{Location, State};
use crate::load::Loading;
use crate::sample::Sample;
use crate::trace::Trace;

/// Poll period of a settling store.
const SETTLE_POLL: Duration = Duration::from_millis(20);

/// Makes a store ready for its contents, not yet open.
pub type MakeOpener<'a> = dyn Fn(&Arc<Contents>) -> Result<Box<dyn Opener>, RunError> + 'a;

/// The key-value workload of a spec, on the store that `opener` makes.
pub struct Kv<'a> {
    /// The spec.
    pub workload: &'a KvWorkload,
    /// Makes the store.
    pub opener: Box<MakeOpener<'a>>,
}

impl Workload for Kv<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        Some(threads::plan(self.workload))
    }

    fn check(&self) -> Result<(), RunError> {
        check::check(self.workload)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let traces = self.workload.streams.iter().filter_map(|stream| stream.trace.as_ref());
        let mut paths: Vec<PathBuf> = traces.map(|trace| PathBuf::from(&trace.path)).collect();
        paths.extend(target_paths(self.workload));
        paths
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let contents = Arc::new(Contents::new(&self.workload.records));
        let opener = (self.opener)(&contents)?;
        let input = Input {
            workload: self.workload,
            run: run.inputs,
            opener: &*opener,
            contents,
        };
        let trace = Trace::for_workload(self.workload, run.inputs.targets)?;
        let demands = demands(&input, trace.as_ref());
        let place = match database::place(&self.workload.target) {
            Place::Device { path, bytes } => Place::Device {
                path,
                bytes: database::usable_bytes(bytes),
            },
            place => place,
        };
        opener.check(&place, &demands)?;
        let mut location = Location::survey(run.inputs.targets, self.workload, &*opener)?;
        let stage = Stage {
            input: &input,
            demands,
            trace: trace.as_ref(),
            run,
        };
        let result = at_location(stage, &mut location).map_err(|error| location.explain(error));
        let removed = location.remove_read_cache();
        result.and_then(|result| removed.map(|()| result))
    }
}

/// State shared by the steps of a run.
struct Input<'a> {
    workload: &'a KvWorkload,
    run: RunInputs<'a>,
    opener: &'a dyn Opener,
    contents: Arc<Contents>,
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

/// The run on a target that may be used.
fn at_location(mut stage: Stage<'_, '_>, location: &mut Location) -> Result<RunResult, RunError> {
    let (input, clock) = (stage.input, stage.run.inputs.clock);
    let workload = input.workload;
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
    let at_start = location.residency(store.used_bytes());
    let statistics_at_start = store.statistics();
    let cancelled_at_start = cancelled_write_bytes();
    let measured = threads::measure(input, &*store, sample.as_ref(), stage.trace, stage.run)?;
    let measured_cancelled_write_bytes = cancelled_write_bytes()
        .zip(cancelled_at_start)
        .map(|(end, begin)| end - begin);
    let durability = threads::durability(&workload.streams, &*store);
    let at_end = location.residency(store.used_bytes());
    let settle_at_end_ns = match workload.settle_at_end {
        true => stage.settle(&*store, Phase::Settle)?,
        false => 0,
    };
    let statistics_at_end = store.statistics();
    let used_bytes = store.used_bytes();
    let closing_ns = clock.now();
    store.close().map_err(|error| error.at("closing the database"))?;
    let close_ns = clock.now() - closing_ns;
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
        record_bytes: sample.map_or_else(|| input.contents.record_bytes(), |sample| sample.record_bytes),
        cancelled_write_bytes: cancelled_write_bytes(),
        measured_cancelled_write_bytes,
        database_bytes_at_start: at_start.data_bytes,
        cached_bytes_at_start: at_start.cached_bytes,
        database_bytes_at_end: at_end.data_bytes,
        cached_bytes_at_end: at_end.cached_bytes,
        settle_ns,
        settle_at_end_ns,
        close_ns,
        checks: measured.checks,
        statistics_at_start,
        statistics_at_end,
    });
    Ok(result)
}

fn demands(input: &Input<'_>, trace: Option<&Trace>) -> Demands {
    let (key_bytes_max, value_bytes_max) = match trace {
        Some(trace) => (trace.key_bytes_max, trace.value_bytes_max),
        None => input.contents.bytes_max(),
    };
    Demands {
        key_bytes_max,
        value_bytes_max,
        sessions: input
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

/// Returns true if the set of records changes during the measurement.
fn changes_the_set(workload: &KvWorkload) -> bool {
    let operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    operations
        .into_iter()
        .any(|share| matches!(share.operation, KvOperation::Insert | KvOperation::Delete))
}

/// Returns true if the measurement, carried out to its end on an empty database, leaves a complete one.
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
    input: &'a Input<'a>,
    demands: Demands,
    trace: Option<&'a Trace>,
    run: &'a mut Run<'r>,
}

impl Stage<'_, '_> {
    /// Opens the database with the contents that the workload requires.
    fn prepare(&mut self, location: &mut Location) -> Result<Prepared, RunError> {
        match self.input.workload.database {
            Database::Existing if matches!(self.input.workload.target, StoreTarget::ReadOnly { .. }) => {
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
    fn clear(&self, location: &mut Location) -> Result<(), RunError> {
        location.clear()?;
        let place = database::place(&self.input.workload.target);
        let cleared = self.input.opener.clear(&place, &self.demands);
        cleared.map_err(|error| error.at("removing the records of the database"))
    }

    fn as_it_is(&self, location: &mut Location) -> Result<Prepared, RunError> {
        Ok(Prepared {
            store: self.open(location)?,
            layout: LayoutResult::default(),
            kept: false,
            restored: None,
            sample: None,
        })
    }

    fn keep(&self, location: &mut Location) -> Result<Prepared, RunError> {
        let layout = LayoutResult {
            kept_bytes: self.input.contents.record_bytes(),
            ..LayoutResult::default()
        };
        Ok(Prepared {
            layout,
            kept: true,
            ..self.as_it_is(location)?
        })
    }

    fn reload(&mut self, location: &mut Location, loading: Loading) -> Result<Prepared, RunError> {
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
    fn restore(&mut self, location: &mut Location) -> Result<Prepared, RunError> {
        self.run.begin(Phase::Layout);
        let restored = location.restore_checkpoint(self.input.opener)?;
        self.run.end(Phase::Layout, restored.copied_bytes);
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
    fn save_checkpoint(&mut self, prepared: Prepared, location: &mut Location) -> Result<Prepared, RunError> {
        let closed = prepared.store.close();
        closed.map_err(|error| error.at("closing the database for its checkpoint"))?;
        location.save_checkpoint(self.input.opener)?;
        Ok(Prepared {
            store: self.open(location)?,
            ..prepared
        })
    }

    /// Opens a user's database and samples its keys; phase `layout`. It is opened again, so that caches are empty.
    fn sample(&mut self, location: &mut Location) -> Result<Prepared, RunError> {
        let store = self.open(location)?;
        self.run.begin(Phase::Layout);
        let (records, seed) = (self.input.workload.records.count, self.run.inputs.seed);
        let sample = Sample::draw(&*store, records, seed, &mut |bytes| {
            self.run.progress(Phase::Layout, bytes)
        })?;
        self.run.end(Phase::Layout, sample.record_bytes);
        store
            .close()
            .map_err(|error| error.at("closing the database after sampling"))?;
        Ok(Prepared {
            sample: Some(sample),
            kept: true,
            ..self.as_it_is(location)?
        })
    }

    fn open(&self, location: &mut Location) -> Result<Box<dyn Store>, RunError> {
        let place = location.held_place()?;
        let opened = self.input.opener.open(&place, &self.demands);
        let store = opened.map_err(|error| error.at("opening the database"))?;
        location.check_contents()?;
        Ok(store)
    }

    fn load(&mut self, store: &dyn Store, loading: Loading) -> Result<(u64, bool), RunError> {
        self.run.begin(Phase::Layout);
        let mut go_on = |bytes| self.run.progress(Phase::Layout, bytes);
        let loaded = match self.trace {
            Some(trace) => load::load_trace(store, &self.input.contents, trace.rows(1, 0), loading, &mut go_on),
            None => load::load(store, &self.input.contents, loading, &mut go_on),
        }?;
        self.run.end(Phase::Layout, loaded.0);
        Ok(loaded)
    }

    /// Settles, closes, prepares the page cache and reopens, as the workload requires; phase `precondition`.
    fn transit(
        &mut self,
        mut store: Box<dyn Store>,
        location: &mut Location,
    ) -> Result<(Box<dyn Store>, u64), RunError> {
        let transition = self.input.workload.transition;
        let reopen = transition.reopen || transition.page_cache != PageCache::Keep;
        if !reopen && !transition.settle {
            return Ok((store, 0));
        }
        self.run.begin(Phase::Precondition);
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
        self.run.end(Phase::Precondition, 0);
        Ok((store, settle_ns))
    }

    /// Waits until background work is done, or the run is stopped; returns the duration.
    fn settle(&mut self, store: &dyn Store, phase: Phase) -> Result<u64, RunError> {
        let begin_ns = self.run.inputs.clock.now();
        if phase == Phase::Settle {
            self.run.begin(phase);
        }
        store.flush().map_err(|error| error.at("settling"))?;
        while store.is_busy() && self.run.progress(phase, 0) {
            self.run.wait(SETTLE_POLL);
        }
        if phase == Phase::Settle {
            self.run.end(phase, 0);
        }
        Ok(self.run.inputs.clock.now() - begin_ns)
    }

    /// Warns of a library with assertions, which is slower than release builds.
    fn warn_of_assertions(&mut self, about: &About) {
        if about.build.get(ASSERTIONS).is_some_and(|assertions| assertions == "on") {
            self.run.warn(Warning {
                code: "assertions_enabled".into(),
                message: format!(
                    "the library of `{}`, version {}, was built with assertions, which slow it down",
                    self.input.workload.store.kind.name(),
                    about.version
                ),
                hint: "compare it only with runs on the same library, or name a release build in `library`".into(),
            });
        }
    }

    /// Warns of corrupted, stale and missing records.
    fn warn_of(&mut self, checks: &[iosonde_protocol::StoreCheck], first_corrupted: Option<u64>) {
        let corrupted: u64 = checks.iter().map(|check| check.corrupted).sum();
        let values: u64 = checks.iter().map(|check| check.values).sum();
        if corrupted > 0 {
            let first = first_corrupted.map_or(String::new(), |number| format!(", first of record {number}"));
            self.run.warn(Warning {
                code: "corrupted_values".into(),
                message: format!("{corrupted} of {values} values read are corrupted or out of order{first}"),
                hint: "the store, file system or device returned wrong data: repeat the run, and check the kernel log"
                    .into(),
            });
        }
        let stale: u64 = checks.iter().map(|check| check.stale).sum();
        if stale > 0 {
            self.run.warn(Warning {
                code: "stale_values".into(),
                message: format!("{stale} of {values} values read are older than an acknowledged write"),
                hint: "the store returned an old value after it had confirmed a new one: repeat the run".into(),
            });
        }
        let missing: u64 = checks.iter().map(|check| check.missing).sum();
        if missing > 0 && must_be_complete(self.input.workload) {
            self.run.warn(Warning {
                code: "missing_records".into(),
                message: format!("{missing} records were not found in a database that was loaded with all of them"),
                hint: "the store lost them: load again (`reload`) and repeat the run".into(),
            });
        }
    }
}

/// Returns true if the database has every record during the whole run.
fn must_be_complete(workload: &KvWorkload) -> bool {
    let mut operations = workload.streams.iter().flat_map(|stream| &stream.operations);
    matches!(workload.database, Database::Loaded { .. })
        && !workload.store.kind.is_cache()
        && workload.streams.iter().all(|stream| stream.trace.is_none())
        && operations.all(|share| share.operation != KvOperation::Delete)
}
