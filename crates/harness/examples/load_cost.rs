//! Cost of generating a load, in nanoseconds a call: `cargo run --release -p iosonde-harness --example load_cost`.
//!
//! Each figure is the cheapest of ten batches of a million calls, so that interruptions do not count.

use std::hint::black_box;
use std::time::Instant;

use iosonde_harness::load::{Arrivals, Generator, Rng, regions};
use iosonde_protocol::{
    Access, Arrival, BlockSize, Coverage, Distribution, Durability, IoMode, Mix, Payload, Sharing, Span, Stream,
};

const CALLS: u32 = 1_000_000;
const BATCHES: u32 = 10;
const SPAN_BYTES: u64 = 1 << 40;

fn main() {
    let mut rng = Rng::new(1, &[]);
    report("random: 64 bits", || {
        black_box(rng.next_u64());
    });
    report("random: below", || {
        black_box(rng.below(1_000_003));
    });
    report("random: exponential", || {
        black_box(rng.exponential());
    });
    let mut page = [0; 4096];
    report("random: fill 4 KiB", || rng.fill(black_box(&mut page)));
    for (name, access) in accesses() {
        let stream = stream(access, 0.7);
        let region = regions(&stream, SPAN_BYTES).expect("the span is the target")[0];
        let mut generator = Generator::new(&stream, 0, region, 1, 0).expect("the stream is valid");
        report(&format!("70/30 I/O: {name}"), || {
            black_box(generator.next());
        });
    }
    for (name, arrival) in [
        ("constant", Arrival::Constant { rate: 1e6 }),
        ("poisson", Arrival::Poisson { rate: 1e6 }),
    ] {
        let mut arrivals = Arrivals::new(&arrival, 1, 0, 0, 1, 0).expect("the loop is open");
        report(&format!("arrival: {name}"), || {
            black_box(arrivals.next());
        });
    }
}

fn accesses() -> [(&'static str, Access); 6] {
    let random = |distribution| Access::Random {
        coverage: Coverage::WithReplacement,
        distribution,
    };
    [
        ("sequential", Access::Sequential),
        ("strided", Access::Strided { stride_bytes: 65536 }),
        ("uniform", random(Distribution::Uniform)),
        ("zipfian", random(Distribution::Zipfian { theta: 0.99 })),
        (
            "hot/cold",
            random(Distribution::HotCold {
                hot_span: 0.1,
                hot_access: 0.9,
            }),
        ),
        (
            "each once",
            Access::Random {
                coverage: Coverage::EachOnce,
                distribution: Distribution::Uniform,
            },
        ),
    ]
}

fn stream(access: Access, read_fraction: f64) -> Stream {
    Stream {
        name: "cost".to_owned(),
        jobs: 1,
        queue_depth: 1,
        access,
        mix: Mix {
            read_fraction,
            trim_fraction: 0.0,
        },
        block_sizes: vec![BlockSize {
            bytes: 4096,
            weight: 1.0,
        }],
        span: Span {
            offset_bytes: 0,
            bytes: SPAN_BYTES,
            sharing: Sharing::Shared,
        },
        io_mode: IoMode::Direct,
        durability: Durability::None,
        arrival: Arrival::Closed,
        payload: Payload::Random,
        limit_bytes: None,
        limit_operations: None,
        active: None,
        spin_ns: 0,
        cpus: Vec::new(),
    }
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
