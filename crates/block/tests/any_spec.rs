//! Whatever a spec says, it is either refused with a reason or carried out to its end, and then the books balance.

mod common;

use common::*;
use iosonde_block::Block;
use iosonde_harness::{Control, RunError, RunInputs, carry_out};
use iosonde_metrics::clock::Clock;
use iosonde_protocol::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const TARGET_BYTES: u64 = 8 << 30;
/// Ends every run that nothing else ends.
const OPERATIONS: u64 = 200;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spec_is_refused_with_a_reason_or_carried_out_in_full(workload in any_workload()) {
        match carried_out(&workload) {
            Ok((result, intervals)) => assert_balanced(&workload, &result, &intervals),
            Err(error) => {
                let failure = error.to_failure();
                prop_assert_eq!(&failure.code, "invalid_spec", "{}", failure.message);
                prop_assert!(!failure.context.is_empty() && !failure.hint.is_empty(), "{:?}", failure);
            }
        }
    }

    #[test]
    fn a_spec_survives_its_way_as_json(workload in any_workload()) {
        let text = serde_json::to_string(&workload).unwrap();
        prop_assert_eq!(serde_json::from_str::<BlockWorkload>(&text).unwrap(), workload);
    }
}

/// As [`run`], without the 20 ms that it takes to calibrate a clock that a simulation never reads.
fn carried_out(workload: &BlockWorkload) -> Result<(RunResult, Vec<Interval>), RunError> {
    let (mut control, _stopper) = Control::new();
    let mut intervals = Vec::new();
    let mut keep = |event| {
        if let Event::Interval(interval) = event {
            intervals.push(interval);
        }
    };
    let inputs = RunInputs {
        seed: 7,
        observe: &Observe::default(),
        clock: Clock::monotonic(),
        targets: &iosonde_target::Targets::default(),
    };
    let result = carry_out(&Block(workload), inputs, &mut control, &mut keep)?;
    Ok((result, intervals))
}

fn assert_balanced(workload: &BlockWorkload, result: &RunResult, intervals: &[Interval]) {
    assert_eq!(result.outcome, Outcome::Complete);
    let measured: Vec<&Interval> = intervals
        .iter()
        .filter(|interval| interval.phase == Phase::Measure)
        .collect();
    for pair in measured.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].begin_ns, "intervals tile the measurement");
    }
    if let (Some(first), Some(last)) = (measured.first(), measured.last()) {
        assert_eq!((first.begin_ns, last.end_ns), (result.begin_ns, result.end_ns));
    }
    let operations = || {
        measured
            .iter()
            .flat_map(|interval| &interval.streams)
            .flat_map(|stream| &stream.operations)
    };
    let counted: u64 = operations().map(|operation| operation.count).sum();
    let moved: u64 = operations().map(|operation| operation.bytes).sum();
    assert_eq!(counted, result.jobs.iter().map(|job| job.operations).sum::<u64>());
    assert_eq!(moved, result.jobs.iter().map(|job| job.bytes).sum::<u64>());
    let mut busy_ns = 0;
    for stream in intervals.iter().flat_map(|interval| &interval.streams) {
        for operation in &stream.operations {
            assert_eq!(operation.count, operation.completion_latency.count);
            assert!(
                operation
                    .response_latency
                    .as_ref()
                    .is_none_or(|latency| latency.count == operation.count)
            );
            busy_ns += operation.completion_latency.sum_ns;
        }
    }
    let concurrency: u64 = workload
        .streams
        .iter()
        .map(|stream| u64::from(stream.jobs) * u64::from(stream.queue_depth))
        .sum();
    assert!(
        busy_ns <= concurrency * result.end_ns,
        "never more in flight than the concurrency"
    );
}

/// Sensible values, and now and then nonsense.
fn mostly<T: Clone + std::fmt::Debug + 'static>(sensible: &[T], nonsense: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop_oneof![60 => select(sensible.to_vec()), 1 => select(nonsense.to_vec())]
}

fn any_workload() -> impl Strategy<Value = BlockWorkload> {
    let ramp = (
        mostly(&[0, 1, 20_000_000], &[u64::MAX]),
        option::of(select(vec![0, 4096, 1 << 20])),
    );
    let duration_ns = option::of(mostly(&[1, 100_000_000, 250_000_001], &[0, u64::MAX]));
    let interval_ns = mostly(&[100_000_000, 1_000_000_000], &[0, 99_999_999, u64::MAX]);
    let streams = prop_oneof![60 => vec(any_stream(), 1..4), 1 => Just(Vec::new())];
    (any_backend(), streams, ramp, duration_ns, interval_ns).prop_map(
        |(backend, mut streams, (ramp_ns, ramp_bytes), duration_ns, interval_ns)| {
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.name = format!("stream {number}");
            }
            BlockWorkload {
                target: Target::Virtual {
                    size_bytes: TARGET_BYTES,
                },
                backend,
                layout: Layout::Missing,
                page_cache: PageCache::Drop,
                streams,
                ramp: Ramp {
                    duration_ns: ramp_ns,
                    bytes: ramp_bytes,
                    until_steady: None,
                },
                duration_ns,
                interval_ns,
                verify: None,
            }
        },
    )
}

fn any_backend() -> impl Strategy<Value = Backend> {
    let service_ns = || mostly(&[1_000, 100_000, 40_000_000], &[0, u64::MAX]);
    let service = select(vec![Service::Constant, Service::Exponential]);
    let stall = (
        mostly(&[0, 1_000_000, 300_000_000], &[u64::MAX]),
        mostly(&[0, 10_000_000], &[u64::MAX]),
    );
    let stalls = vec(
        stall.prop_map(|(at_ns, duration_ns)| Stall { at_ns, duration_ns }),
        0..3,
    );
    (mostly(&[1, 2, 40], &[0]), service_ns(), service_ns(), service, stalls).prop_map(
        |(servers, read_service_ns, write_service_ns, service, stalls)| Backend::Simulated {
            servers,
            read_service_ns,
            write_service_ns,
            service,
            stalls,
        },
    )
}

fn any_stream() -> impl Strategy<Value = Stream> {
    let threads = (mostly(&[1, 2, 5], &[0, u32::MAX]), mostly(&[1, 4, 70], &[0, u32::MAX]));
    let what = (any_access(), any_mix(), vec(any_size(), 1..4), any_span());
    let limit_bytes = option::of(mostly(&[1 << 30, u64::MAX], &[0, 1 << 16]));
    let when = (any_durability(), any_arrival(), option::of(any_active()));
    let limits = (5..=OPERATIONS, limit_bytes);
    (threads, what, when, limits).prop_map(
        |(
            (jobs, queue_depth),
            (access, mix, block_sizes, span),
            (durability, arrival, active),
            (operations, limit_bytes),
        )| {
            Stream {
                jobs,
                queue_depth,
                access,
                mix,
                block_sizes,
                span,
                durability,
                arrival,
                active,
                limit_operations: Some(operations),
                limit_bytes,
                io_mode: IoMode::Direct,
                ..stream("named later", TARGET_BYTES)
            }
        },
    )
}

fn any_access() -> impl Strategy<Value = Access> {
    let stride_bytes = mostly(
        &[64 << 20, 128 << 20],
        &[0, 4096, (64 << 20) + 1, TARGET_BYTES, u64::MAX],
    );
    let coverage = prop_oneof![20 => Just(Coverage::WithReplacement), 1 => Just(Coverage::EachOnce)];
    prop_oneof![
        Just(Access::Sequential),
        stride_bytes.prop_map(|stride_bytes| Access::Strided { stride_bytes }),
        Just(Access::Random {
            coverage: Coverage::EachOnce,
            distribution: Distribution::Uniform
        }),
        mostly(&[0.07_f64, 0.28], &[0.0, -1.0, 1e9]).prop_map(|over_provisioning| Access::Aging { over_provisioning }),
        (coverage, any_distribution()).prop_map(|(coverage, distribution)| Access::Random { coverage, distribution }),
    ]
}

fn any_distribution() -> impl Strategy<Value = Distribution> {
    let fraction = || mostly(&[0.1, 0.5, 0.9], &[-0.1, 0.0, 1.0, 1.1]);
    prop_oneof![
        Just(Distribution::Uniform),
        mostly(&[0.5, 0.99, 1.0, 3.0], &[-1.0, 0.0]).prop_map(|theta| Distribution::Zipfian { theta }),
        (fraction(), fraction()).prop_map(|(hot_span, hot_access)| Distribution::HotCold { hot_span, hot_access }),
    ]
}

fn any_mix() -> impl Strategy<Value = Mix> {
    let fraction = || mostly(&[0.0, 0.1, 0.5], &[-0.1, 0.7, 1.5]);
    (fraction(), fraction()).prop_map(|(read_fraction, trim_fraction)| Mix {
        read_fraction,
        trim_fraction,
    })
}

fn any_size() -> impl Strategy<Value = BlockSize> {
    let bytes = mostly(&[512, 4096, 65_536, 64 << 20], &[0, 511, 4097, u64::MAX]);
    (bytes, mostly(&[0.5, 1.0, 1e9], &[-1.0, 0.0])).prop_map(|(bytes, weight)| BlockSize { bytes, weight })
}

fn any_span() -> impl Strategy<Value = Span> {
    let offset_bytes = mostly(&[0, 4096, TARGET_BYTES / 2], &[1, TARGET_BYTES, u64::MAX]);
    let bytes = mostly(&[TARGET_BYTES / 4, TARGET_BYTES / 2 - 4096], &[0, 1, 1 << 20, u64::MAX]);
    let sharing = select(vec![Sharing::Shared, Sharing::Split]);
    (offset_bytes, bytes, sharing).prop_map(|(offset_bytes, bytes, sharing)| Span {
        offset_bytes,
        bytes,
        sharing,
    })
}

fn any_durability() -> impl Strategy<Value = Durability> {
    prop_oneof![
        Just(Durability::None),
        Just(Durability::Dsync),
        mostly(&[1, 7, u64::MAX], &[0]).prop_map(|every| Durability::Flush { every }),
    ]
}

fn any_active() -> impl Strategy<Value = Active> {
    let end_ns = option::of(mostly(&[1, 50_000_000, 200_000_000], &[0, u64::MAX]));
    let every_ns = option::of(mostly(&[200_000_000, 300_000_000], &[0, 1, u64::MAX]));
    (mostly(&[0, 1_000_000], &[u64::MAX]), end_ns, every_ns).prop_map(|(begin_ns, end_ns, every_ns)| Active {
        begin_ns,
        end_ns,
        every_ns,
    })
}

fn any_arrival() -> impl Strategy<Value = Arrival> {
    let rate = || mostly(&[50.0, 1e4, 1e7], &[-1.0, 0.0, 1e9]);
    let step = (
        mostly(&[0.0, 100.0, 1e4], &[-1.0, 1e9]),
        mostly(&[1_000_000, 50_000_000], &[0, u64::MAX]),
    );
    let steps = vec(
        step.prop_map(|(rate, duration_ns)| RateStep { rate, duration_ns }),
        1..4,
    );
    let spacing = select(vec![Spacing::Constant, Spacing::Poisson]);
    prop_oneof![
        2 => Just(Arrival::Closed),
        1 => rate().prop_map(|rate| Arrival::Constant { rate }),
        1 => rate().prop_map(|rate| Arrival::Poisson { rate }),
        1 => (steps, spacing).prop_map(|(steps, spacing)| Arrival::Steps { steps, spacing }),
    ]
}
