//! Cost of measuring, in nanoseconds a call: `cargo run --release -p iosonde-harness --example metrics_cost`.
//!
//! Each figure is the cheapest of ten batches of a million calls, so that interruptions do not count.

use std::hint::black_box;
use std::time::Instant;

use iosonde_harness::metrics::{Clock, Histogram, usage};

const CALLS: u32 = 1_000_000;
const BATCHES: u32 = 10;

fn main() {
    let clock = Clock::start();
    let mut histogram = Histogram::new();
    let mut ns = 80_000;
    report("loop alone", || {
        black_box(spread(&mut ns));
    });
    report("histogram record", || histogram.record(spread(&mut ns)));
    report(&format!("clock {}", clock.name()), || {
        black_box(clock.now());
    });
    let kernel = Clock::monotonic();
    report(&format!("clock {}", kernel.name()), || {
        black_box(kernel.now());
    });
    report("usage of the thread", || {
        black_box(usage::thread(0));
    });
}

/// Latencies from 64 us to 128 us in an order that no branch predictor learns.
fn spread(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    65_536 + (*state >> 48)
}

fn report(what: &str, mut call: impl FnMut()) {
    let batch = |_| {
        let begin = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let best = (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min);
    println!("{what:<24} {best:6.1} ns");
}
