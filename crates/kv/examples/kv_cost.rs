//! Harness cost of key-value workloads for each operation, on the store that keeps nothing.
//!
//! ```sh
//! cargo run --release -p iosonde-kv --example kv_cost [read-100]
//! ```
//!
//! One thread, closed loop, uniform choice among ten million records, every value compared in full. The figure is the CPU time
//! of the whole loop divided by its operations: choosing, two readings of the clock, comparing, counting in the histogram.
//! The best of some runs counts, since whatever else the machine does only adds. The last line is the process's peak memory.

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Control, RunInputs, carry_out};
use iosonde_kv::{Kv, NullOpener};
use iosonde_protocol::{
    Arrival, Coverage, Database, Direction, KeyOrder, KvChoice, KvDistribution, KvOperation, KvShare, KvSize, KvStream,
    KvWorkload, Observe, PageCache, Ramp, Records, Store, StoreKind, StoreTarget, Transition,
};

const RECORDS: u64 = 10_000_000;
const OPERATIONS: u64 = 5_000_000;
const RUNS: usize = 5;

fn main() {
    let clock_ns = Clock::start().read_cost_ns();
    println!("one reading of the clock: {clock_ns:.1} ns");
    for (name, operation, value_bytes, limit) in [
        ("read", KvOperation::Read, 100, Some(60.0)),
        ("read", KvOperation::Read, 4000, Some(120.0)),
        ("update", KvOperation::Update, 100, None),
        ("update", KvOperation::Update, 4000, None),
        ("iterate", KvOperation::Iterate, 100, None),
    ] {
        if std::env::args()
            .nth(1)
            .is_some_and(|only| only != format!("{name}-{value_bytes}"))
        {
            continue;
        }
        let best_ns = (0..RUNS)
            .map(|_| cost_ns(&workload(operation, value_bytes)))
            .fold(f64::INFINITY, f64::min);
        let limit = limit.map_or(String::new(), |limit: f64| format!(" (at most {limit})"));
        println!("{name} of {value_bytes:4} bytes: {best_ns:6.1} ns{limit}");
    }
    let peak_bytes = iosonde_harness::metrics::usage::peak_memory_bytes();
    println!("peak memory: {:.1} MB", peak_bytes as f64 / 1e6);
}

fn cost_ns(workload: &KvWorkload) -> f64 {
    let kv = Kv {
        workload,
        opener: Box::new(|contents| Ok(Box::new(NullOpener::new(contents.clone(), Default::default())))),
    };
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &iosonde_harness::target::Targets::default(),
    };
    let (mut control, _stopper) = Control::new();
    let result = carry_out(&kv, inputs, &mut control, &mut |_| {}).expect("the null store does not fail");
    let used = result.jobs[0].usage;
    (used.user_ns + used.system_ns) as f64 / OPERATIONS as f64
}

fn workload(operation: KvOperation, value_bytes: u64) -> KvWorkload {
    KvWorkload {
        store: Store {
            kind: StoreKind::Null,
            library: None,
            options: Default::default(),
        },
        target: StoreTarget::Virtual,
        records: Records {
            count: RECORDS,
            key_bytes: KvSize::Fixed { bytes: 16 },
            value_bytes: KvSize::Fixed { bytes: value_bytes },
            value_compression_ratio: 1.0,
            key_order: KeyOrder::Number,
            fields: 1,
            seed: 1,
        },
        database: Database::Existing,
        transition: Transition {
            settle: false,
            reopen: false,
            page_cache: PageCache::Keep,
        },
        streams: vec![KvStream {
            name: "main".into(),
            jobs: 1,
            operations: vec![KvShare { operation, weight: 1.0 }],
            choice: KvChoice::Random {
                coverage: Coverage::WithReplacement,
                distribution: KvDistribution::Uniform,
            },
            direction: Direction::Forward,
            scan_records_min: 1,
            scan_records_max: 1,
            batch: 1,
            sync: false,
            freshness: false,
            read_through: None,
            trace: None,
            arrival: Arrival::Closed,
            rate_limit: None,
            background: false,
            limit_bytes: None,
            limit_operations: Some(OPERATIONS),
            cpus: Vec::new(),
        }],
        ramp: Ramp::default(),
        duration_ns: None,
        interval_ns: 1_000_000_000,
        settle_at_end: false,
    }
}
