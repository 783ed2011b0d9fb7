//! CPU time of an access that hits, in a whole run on memory that stays resident.
//!
//! ```sh
//! cargo run --release -p iosonde-paging --example paging_cost
//! ```
//!
//! One line of JSON: `cpu_ns` (CPU time of the job's thread over its accesses: choosing, clock, check, histogram),
//! `measuring_cost_ns` (found by the run itself: the loop less the same accesses without clock, check and histogram), and
//! `clock_read_ns`. Repeat it and take the best of each: other load only adds.

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Control, RunInputs, carry_out};
use iosonde_paging::Paging;
use iosonde_protocol::{Advice, Observe, PageCache, PagingStream, PagingWorkload, Pattern, Ramp, Target};

const ACCESSES: u64 = 20_000_000;
const BYTES: u64 = 1 << 20;

fn main() {
    let clock = Clock::start();
    let workload = PagingWorkload {
        target: Target::Virtual { size_bytes: BYTES },
        advice: Advice::Normal,
        huge_pages: false,
        compressible_fraction: 0.0,
        content_seed: 1,
        page_cache: PageCache::Keep,
        streams: vec![PagingStream {
            name: "main".into(),
            jobs: 1,
            pattern: Pattern::Uniform,
            read_fraction: 1.0,
            limit_operations: Some(ACCESSES),
            cpus: Vec::new(),
        }],
        ramp: Ramp::default(),
        duration_ns: None,
        interval_ns: 1_000_000_000,
        verify_after: false,
    };
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock,
        targets: &iosonde_harness::target::Targets::default(),
    };
    let (mut control, _stopper) = Control::new();
    let result = carry_out(&Paging(&workload), inputs, &mut control, &mut |_| {}).expect("a mebibyte can be mapped");
    let used = result.jobs[0].usage;
    let cpu_ns = (used.user_ns + used.system_ns) as f64 / ACCESSES as f64;
    let measuring_ns = result.paging.map_or(f64::NAN, |facts| facts.measuring_cost_ns);
    let clock_ns = clock.read_cost_ns();
    println!("{{\"cpu_ns\":{cpu_ns:.2},\"measuring_cost_ns\":{measuring_ns:.2},\"clock_read_ns\":{clock_ns:.2}}}");
}
