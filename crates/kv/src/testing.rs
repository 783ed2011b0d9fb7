//! A plain stream for the tests of this crate to change, and a job that drives it on a session of the test.

use std::sync::atomic::AtomicU32;

use iosonde_harness::load::Rng;
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Budget, Exchange, JobPhases, JobTotals, PhasePlan, Recorder, RunError, Shared};
use iosonde_protocol::{KeyOrder, KvOperation, KvSize, KvStream, Operation, Records};
use serde_json::json;

use crate::choice::{Chooser, Inserts};
use crate::job::{Common, Job, JobPlan, Tally};
use crate::records::Contents;
use crate::store::Session;

/// Records of the database of [`driven`].
pub(crate) const RECORDS: u64 = 100;
/// Bytes of key and value of each.
pub(crate) const RECORD_BYTES: u64 = 116;

/// The methods of a session that a test which only reads does not call.
macro_rules! only_reads {
    () => {
        fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), RunError> {
            unreachable!("nothing is written")
        }

        fn delete(&mut self, _key: &[u8]) -> Result<(), RunError> {
            unreachable!("nothing is deleted")
        }

        fn commit(&mut self, _sync: bool) -> Result<(), RunError> {
            unreachable!("nothing is written")
        }

        fn seek(&mut self, _key: Option<&[u8]>, _direction: Direction) -> Result<(), RunError> {
            unreachable!("nothing is scanned")
        }

        fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
            unreachable!("nothing is scanned")
        }

        fn release(&mut self) {}
    };
}
pub(crate) use only_reads;

/// Result of a job.
pub(crate) struct Driven {
    pub result: Result<(), RunError>,
    pub totals: JobTotals,
    pub reads: Tally,
    pub first_corrupted: Option<u64>,
}

/// Drives a job of a stream until its budget is used up, on the session that `connect` makes for its contents.
pub(crate) fn driven(
    stream: &KvStream,
    measure: Budget,
    interval_ns: u64,
    connect: impl for<'a> FnOnce(&'a Contents) -> Box<dyn Session + 'a>,
) -> Driven {
    let contents = Contents::new(&Records {
        count: RECORDS,
        key_bytes: KvSize::Fixed { bytes: 16 },
        value_bytes: KvSize::Fixed { bytes: 100 },
        value_compression_ratio: 1.0,
        key_order: KeyOrder::Number,
        fields: 1,
        seed: 7,
    });
    let (clock, inserts, foreground) = (Clock::start(), Inserts::new(RECORDS, 0), AtomicU32::new(1));
    let common = Common {
        clock,
        contents: &contents,
        sample: None,
        inserts: &inserts,
        foreground: &foreground,
        complete_below: RECORDS,
        freshness: None,
    };
    let shared = Shared::default();
    let now_ns = clock.now();
    shared.set_begin(now_ns, now_ns);
    let plan = PhasePlan {
        ramp: None,
        measure,
        duration_ns: None,
        active: None,
        largest_bytes: RECORD_BYTES,
    };
    let phases = JobPhases::new(plan, &shared, Recorder::new(Exchange::new(), interval_ns));
    let plan = JobPlan {
        stream,
        chooser: Chooser::new(stream, 0, 0, RECORDS, 1),
        arrivals: None,
        inserter: None,
        generations: Rng::new(1, &[]),
        latencies: Rng::new(2, &[]),
        replay: None,
    };
    let mut job = Job::new(plan, &common, phases, connect(&contents));
    let result = job.drive();
    let done = job.into_done();
    Driven {
        result,
        reads: done.found.tallies[Operation::Read as usize],
        first_corrupted: done.found.first_corrupted,
        totals: done.totals,
    }
}

/// One job, one operation, uniform choice, closed loop, without a limit.
pub(crate) fn stream(name: &str, operation: KvOperation) -> KvStream {
    let plain = json!({
        "name": name, "jobs": 1, "operations": [{"operation": operation, "weight": 1.0}],
        "choice": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
        "direction": "forward", "scan_records_min": 1, "scan_records_max": 1, "batch": 1, "sync": false,
        "arrival": {"kind": "closed"}, "background": false, "limit_bytes": null, "limit_operations": null, "cpus": [],
    });
    serde_json::from_value(plain).unwrap()
}
