//! Runs the jobs of a workload on an open store, one thread each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use iosonde_harness::load::{Arrivals, Rng};
use iosonde_harness::{Code, JobDone, JobStart, Load, LoadPlan, Measured as Harness, Place, Run, RunError, StreamPlan};
use iosonde_protocol::{
    Arrival, BackendInEffect, Database, KeyOrder, KvChoice, KvOperation, KvStream, KvWorkload, Operation, Outcome,
    RunResult, StoreCheck, StoreDurability,
};

use crate::choice::{Chooser, Inserts};
use crate::freshness::Freshness;
use crate::job::{Common, Found, Job, JobPlan};
use crate::sample::Sample;
use crate::store::Store;
use crate::trace::{OwnTiming, Replay, Trace};
use crate::{Input, must_be_complete};

/// Outcome of the measurement.
pub(crate) struct Measured {
    /// Without facts about the store.
    pub result: RunResult,
    pub checks: Vec<StoreCheck>,
    pub first_corrupted: Option<u64>,
}

/// The load of a workload.
pub(crate) fn plan(workload: &KvWorkload) -> LoadPlan<'_> {
    let streams = workload.streams.iter().map(|stream| StreamPlan {
        arrival: &stream.arrival,
        limit_bytes: stream.limit_bytes,
        limit_operations: stream.limit_operations,
        // Sizes are known only afterwards: a limit of bytes is passed by less than one operation.
        largest_bytes: 1,
        ends_by_itself: stream.background || stream.trace.is_some(),
        ..StreamPlan::closed(&stream.name, stream.jobs, &stream.cpus)
    });
    LoadPlan {
        ramp: workload.ramp,
        duration_ns: workload.duration_ns,
        interval_ns: workload.interval_ns,
        streams: streams.collect(),
    }
}

/// Carries out ramp and measurement, on sampled keys of a user's database or a trace if there is one.
pub(crate) fn measure(
    input: &Input<'_>,
    store: &dyn Store,
    sample: Option<&Sample>,
    trace: Option<&Trace>,
    run: &mut Run<'_>,
) -> Result<Measured, RunError> {
    let (workload, seed) = (input.workload, input.run.seed);
    set_sync(&workload.streams, store)?;
    let plan = plan(workload);
    let inserters = plan.streams.iter().zip(&workload.streams);
    let inserters = inserters
        .filter(|(_, stream)| inserts(stream))
        .map(|(plan, _)| plan.jobs as usize);
    let inserts = Inserts::new(sample.map_or(workload.records.count, Sample::count), inserters.sum());
    let foreground = AtomicU32::new(foreground_jobs(&workload.streams));
    let freshness = freshness(workload, seed);
    let common = Common {
        clock: input.run.clock,
        contents: &input.contents,
        sample,
        inserts: &inserts,
        foreground: &foreground,
        // Iterators return hashed keys in another order.
        complete_below: match must_be_complete(workload) && input.contents.sorts_by_number() {
            true => workload.records.count,
            false => 0,
        },
        freshness: freshness.as_ref(),
    };
    let operations = Operations {
        workload,
        seed,
        store,
        common: &common,
        trace,
    };
    let Harness { mut result, found } =
        run.measure(&plan, &operations, &mut |interval| interval.store = store.statistics())?;
    result.backend = BackendInEffect {
        kind: workload.store.kind.name().into(),
        ..BackendInEffect::default()
    };
    if trace.is_some() {
        check_replayed(&result)?;
    }
    let streams: Vec<usize> = plan.places(|_| 1).iter().map(|place| place.stream).collect();
    Ok(Measured {
        result,
        checks: checks(&workload.streams, &streams, &found),
        first_corrupted: found.iter().find_map(|job| job.first_corrupted),
    })
}

/// Refuses a replay that had no row left for the measurement.
fn check_replayed(result: &RunResult) -> Result<(), RunError> {
    if result.outcome == Outcome::Complete && result.jobs.iter().all(|job| job.operations == 0) {
        return Err(RunError::new(
            Code::InvalidSpec,
            "the trace ended before the measurement started",
            "use a shorter `ramp`, or a longer trace",
        ));
    }
    Ok(())
}

fn inserts(stream: &KvStream) -> bool {
    let mut operations = stream.operations.iter();
    operations.any(|share| share.operation == KvOperation::Insert)
}

/// Returns true if the only job writes every record once, by key, into an empty database.
fn is_ordered_load(workload: &KvWorkload) -> bool {
    let [stream] = &workload.streams[..] else { return false };
    workload.database == Database::Empty
        && workload.records.key_order == KeyOrder::Number
        && stream.jobs == 1
        && stream.choice == KvChoice::Sequential
        && workload.ramp.duration_ns == 0
        && stream
            .operations
            .iter()
            .all(|share| share.operation == KvOperation::Update)
        && stream
            .limit_operations
            .is_some_and(|limit| limit <= workload.records.count)
}

/// Generations of the run, if any stream checks that values are fresh.
fn freshness(workload: &KvWorkload, seed: u64) -> Option<Freshness> {
    let is_checked = workload.streams.iter().any(|stream| stream.freshness);
    is_checked.then(|| Freshness::new(workload.records.count, Rng::new(seed, &[0xf4e5]).next_u64()))
}

fn foreground_jobs(streams: &[KvStream]) -> u32 {
    let foreground = streams.iter().filter(|stream| !stream.background);
    foreground.map(|stream| stream.jobs).sum()
}

/// Sets the durability of stores with one setting for all sessions; streams that write must then agree.
fn set_sync(streams: &[KvStream], store: &dyn Store) -> Result<(), RunError> {
    let settings = sync_settings(streams);
    if settings.len() > 1 && !store.has_sync_of_session() {
        return Err(RunError::unsupported(
            "this store has one durability for all writers, and streams differ in `sync`",
            "give all streams that write the same `sync`",
        )
        .at("`streams`"));
    }
    match settings.first() {
        Some(sync) => store.set_sync(*sync),
        None => Ok(()),
    }
}

/// The values of `sync` of all streams that write.
fn sync_settings(streams: &[KvStream]) -> BTreeSet<bool> {
    let writes = |stream: &&KvStream| {
        let mut operations = stream.operations.iter().map(|share| share.operation);
        operations.any(|operation| !matches!(operation, KvOperation::Read | KvOperation::Scan | KvOperation::Iterate))
    };
    streams.iter().filter(writes).map(|stream| stream.sync).collect()
}

/// Failures that acknowledged writes of all streams survive; `None` if no stream writes.
pub(crate) fn durability(streams: &[KvStream], store: &dyn Store) -> Option<StoreDurability> {
    sync_settings(streams)
        .into_iter()
        .map(|sync| store.durability(sync))
        .min()
}

/// The load: what its jobs share.
struct Operations<'a> {
    workload: &'a KvWorkload,
    seed: u64,
    store: &'a dyn Store,
    common: &'a Common<'a>,
    trace: Option<&'a Trace>,
}

impl Load for Operations<'_> {
    type Found = Found;

    fn job(&self, start: JobStart<'_>) -> Result<Option<JobDone<Found>>, RunError> {
        let stream = &self.workload.streams[start.place.stream];
        let done = self.work(stream, start);
        if !stream.background {
            self.common.foreground.fetch_sub(1, Ordering::Relaxed);
        }
        done
    }
}

impl Operations<'_> {
    fn work(&self, stream: &KvStream, start: JobStart<'_>) -> Result<Option<JobDone<Found>>, RunError> {
        let mut session = self.store.session()?;
        if is_ordered_load(self.workload) {
            session.expect_ascending_keys();
        }
        let plan = self.plan(stream, start.place, start.arrivals)?;
        let mut job = Job::new(plan, self.common, start.phases, session);
        if !start.gate.pass() {
            return Ok(None);
        }
        let driven = job.drive();
        if driven.is_err() {
            job.phases.end_load(self.common.clock.now());
        }
        driven?;
        Ok(Some(job.into_done()))
    }

    fn plan<'s>(
        &self,
        stream: &'s KvStream,
        place: Place,
        arrivals: Option<Arrivals>,
    ) -> Result<JobPlan<'s>, RunError> {
        let (number, job, seed) = (place.stream as u64, place.job, self.seed);
        let rows = self.trace.map(|trace| trace.rows(stream.jobs, job));
        Ok(JobPlan {
            stream,
            chooser: Chooser::new(stream, number, job, self.common.inserts.first(), seed),
            arrivals: match (&rows, &stream.arrival) {
                (Some(rows), Arrival::Trace { speed }) => Some(Arrivals::given(Box::new(OwnTiming {
                    rows: rows.clone(),
                    speed: *speed,
                }))),
                _ => arrivals,
            },
            inserter: inserts(stream).then(|| self.inserters_before(place.stream) + job as usize),
            generations: Rng::new(seed, &[0x6e6, number, u64::from(job)]),
            latencies: Rng::new(seed, &[0xbac, number, u64::from(job)]),
            replay: rows.map(Replay::new).transpose()?,
        })
    }

    /// Inserting jobs of earlier streams.
    fn inserters_before(&self, stream: usize) -> usize {
        let earlier = self.workload.streams[..stream].iter();
        earlier
            .filter(|stream| inserts(stream))
            .map(|stream| stream.jobs as usize)
            .sum()
    }
}

/// Sums the tallies of each stream's jobs; operations that read nothing are left out.
fn checks(streams: &[KvStream], stream_of: &[usize], found: &[Found]) -> Vec<StoreCheck> {
    let mut checks = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        for operation in Operation::ALL {
            let jobs = stream_of.iter().zip(found).filter(|(stream, _)| **stream == number);
            let mut check = StoreCheck {
                stream: stream.name.clone(),
                operation,
                values: 0,
                missing: 0,
                corrupted: 0,
                stale: 0,
            };
            for (_, job) in jobs {
                let tally = job.tallies[operation as usize];
                check.values += tally.values;
                check.missing += tally.missing;
                check.corrupted += tally.corrupted;
                check.stale += tally.stale;
            }
            if check.values + check.missing > 0 {
                checks.push(check);
            }
        }
    }
    checks
}
