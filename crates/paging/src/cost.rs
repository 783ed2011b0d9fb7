//! Cost of measuring an access that hits: the loop of a job on resident pages, less the same accesses without clock,
//! check and histogram.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Budget, Exchange, JobPhases, PhasePlan, Recorder, RunError, Shared};
use iosonde_protocol::{PagingStream, Pattern};

use crate::content::Contents;
use crate::faults::Faults;
use crate::job::{Job, Tally};
use crate::mapping::Mapping;
use crate::pattern::Chooser;

/// Pages that stay in the caches, so that an access costs nearly nothing by itself.
const PAGES: u64 = 64;
const ACCESSES: u32 = 10_000;
/// The best batch counts: whatever interrupts one only adds to it.
const BATCHES: u32 = 10;

/// Nanoseconds that measuring adds to an access that hits.
pub(crate) fn measuring_cost_ns(clock: Clock) -> Result<f64, RunError> {
    let mapping = Mapping::anonymous(Contents::new(1, 4096, 0.0), PAGES, false)?;
    (0..PAGES).for_each(|page| mapping.fill(page));
    let shared = Shared::default();
    shared.set_begin(clock.now(), clock.now());
    let plan = PhasePlan {
        ramp: None,
        measure: Budget::UNLIMITED,
        duration_ns: None,
        active: None,
        largest_bytes: 0,
    };
    let mut job = Job {
        mapping: &mapping,
        clock,
        phases: JobPhases::new(plan, &shared, Recorder::new(Exchange::new(), u64::MAX / 2)),
        chooser: chooser(),
        threshold_ns: u64::MAX,
        seen: Faults::default(),
        tally: Tally::default(),
    };
    job.phases.begin();
    let measured_ns = best_ns(clock, || {
        black_box(job.step());
    });
    let mut bare = chooser();
    let bare_ns = best_ns(clock, || {
        let (page, is_read) = bare.next();
        let word = mapping.seal(page);
        black_box(match is_read {
            true => word.load(Ordering::Relaxed),
            false => word.fetch_add(1, Ordering::Relaxed),
        });
    });
    Ok((measured_ns - bare_ns).max(0.0))
}

/// Nanoseconds of an iteration in the best batch.
fn best_ns(clock: Clock, mut iteration: impl FnMut()) -> f64 {
    let batch_ns = |_| {
        let begin_ns = clock.now();
        (0..ACCESSES).for_each(|_| iteration());
        clock.now() - begin_ns
    };
    let best_ns = (0..BATCHES).map(batch_ns).min().unwrap_or_default();
    best_ns as f64 / f64::from(ACCESSES)
}

fn chooser() -> Chooser {
    let stream = PagingStream {
        name: "cost".into(),
        jobs: 1,
        pattern: Pattern::Uniform,
        read_fraction: 1.0,
        limit_operations: None,
        cpus: Vec::new(),
    };
    Chooser::new(&stream, 0, 0, PAGES, 1)
}
