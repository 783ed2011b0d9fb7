//! Whatever a spec says, it is either refused with a reason or carried out to its end, and then the books balance.

use crate::common::*;
use iosonde_harness::load::Rng;
use iosonde_protocol::*;
use proptest::prelude::*;

const TARGET_BYTES: u64 = 8 << 30;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spec_survives_its_way_as_json_and_is_refused_with_a_reason_or_carried_out_in_full(seed: u64) {
        let workload = any_workload(&mut Dice(Rng::new(seed, &[])));
        let text = serde_json::to_string(&workload).unwrap();
        prop_assert_eq!(&serde_json::from_str::<BlockWorkload>(&text).unwrap(), &workload);
        match run(&workload) {
            Ok((result, intervals)) => assert_balanced(&workload, &result, &intervals),
            Err(error) => {
                let failure = error.to_failure();
                prop_assert_eq!(&failure.code, "invalid_spec", "{}", failure.message);
                prop_assert!(!failure.context.is_empty() && !failure.hint.is_empty(), "{:?}", failure);
            }
        }
    }
}

fn assert_balanced(workload: &BlockWorkload, result: &RunResult, intervals: &[Interval]) {
    assert_eq!(result.outcome, Outcome::Complete);
    let measured: Vec<&Interval> = intervals.iter().filter(|one| one.phase == Phase::Measure).collect();
    // Intervals tile the measurement.
    assert!(measured.windows(2).all(|pair| pair[0].end_ns == pair[1].begin_ns));
    if let (Some(first), Some(last)) = (measured.first(), measured.last()) {
        assert_eq!((first.begin_ns, last.end_ns), (result.begin_ns, result.end_ns));
    }
    let streams = measured.iter().flat_map(|interval| &interval.streams);
    let counted = streams.flat_map(|stream| &stream.operations);
    let (count, bytes) = counted.fold((0, 0), |(count, bytes), one| (count + one.count, bytes + one.bytes));
    assert_eq!(count, result.jobs.iter().map(|job| job.operations).sum::<u64>());
    assert_eq!(bytes, result.jobs.iter().map(|job| job.bytes).sum::<u64>());
    let mut busy_ns = 0;
    let streams = intervals.iter().flat_map(|interval| &interval.streams);
    for operation in streams.flat_map(|stream| &stream.operations) {
        assert_eq!(operation.count, operation.completion_latency.count);
        let response = operation.response_latency.as_ref();
        assert!(response.is_none_or(|latency| latency.count == operation.count));
        busy_ns += operation.completion_latency.sum_ns;
    }
    let in_flight = |stream: &Stream| u64::from(stream.jobs) * u64::from(stream.queue_depth);
    let concurrency: u64 = workload.streams.iter().map(in_flight).sum();
    assert!(busy_ns <= concurrency * result.end_ns, "more in flight than allowed");
}

struct Dice(Rng);

impl Dice {
    /// A sensible value, and now and then nonsense.
    fn of<T: Clone>(&mut self, sensible: &[T], nonsense: &[T]) -> T {
        let is_nonsense = !nonsense.is_empty() && self.0.below(61) == 0;
        let values = if is_nonsense { nonsense } else { sensible };
        values[self.0.below(values.len() as u64) as usize].clone()
    }

    fn maybe<T: Clone>(&mut self, sensible: &[T], nonsense: &[T]) -> Option<T> {
        let value = self.of(sensible, nonsense);
        (self.0.below(2) == 0).then_some(value)
    }
}

fn any_workload(dice: &mut Dice) -> BlockWorkload {
    let count = dice.of(&[1, 2, 3], &[0]);
    let size_bytes = TARGET_BYTES;
    BlockWorkload {
        page_cache: PageCache::Drop,
        streams: (0..count).map(|number| any_stream(dice, number)).collect(),
        ramp: Ramp {
            duration_ns: dice.of(&[0, 1, 20_000_000], &[u64::MAX]),
            bytes: dice.maybe(&[0, 4096, 1 << 20], &[]),
            until_steady: None,
        },
        duration_ns: dice.maybe(&[1, 100_000_000, 250_000_001], &[0, u64::MAX]),
        interval_ns: dice.of(&[100_000_000, 1_000_000_000], &[0, 99_999_999, u64::MAX]),
        ..workload(Target::Virtual { size_bytes }, any_backend(dice), TARGET_BYTES)
    }
}

fn any_backend(dice: &mut Dice) -> Backend {
    let mut stalls = Vec::new();
    for _ in 0..dice.of(&[0, 1, 2], &[]) {
        stalls.push(Stall {
            at_ns: dice.of(&[0, 1_000_000, 300_000_000], &[u64::MAX]),
            duration_ns: dice.of(&[0, 10_000_000], &[u64::MAX]),
        });
    }
    Backend::Simulated {
        servers: dice.of(&[1, 2, 40], &[0]),
        read_service_ns: dice.of(&[1_000, 100_000, 40_000_000], &[0, u64::MAX]),
        write_service_ns: dice.of(&[1_000, 100_000, 40_000_000], &[0, u64::MAX]),
        service: dice.of(&[Service::Constant, Service::Exponential], &[]),
        stalls,
    }
}

fn any_stream(dice: &mut Dice, number: u32) -> Stream {
    let size = |dice: &mut Dice| BlockSize {
        bytes: dice.of(&[512, 4096, 65_536, 64 << 20], &[0, 511, 4097, u64::MAX]),
        weight: dice.of(&[0.5, 1.0, 1e9], &[-1.0, 0.0]),
    };
    let sizes = dice.of(&[1, 2, 3], &[0]);
    let every = dice.of(&[1, 7, u64::MAX], &[0]);
    let durabilities = [Durability::None, Durability::Dsync, Durability::Flush { every }];
    let window = Active {
        begin_ns: dice.of(&[0, 1_000_000], &[u64::MAX]),
        end_ns: dice.maybe(&[1, 50_000_000, 200_000_000], &[0, u64::MAX]),
        every_ns: dice.maybe(&[200_000_000, 300_000_000], &[0, 1, u64::MAX]),
    };
    Stream {
        jobs: dice.of(&[1, 2, 5], &[0, u32::MAX]),
        queue_depth: dice.of(&[1, 4, 70], &[0, u32::MAX]),
        access: any_access(dice),
        mix: Mix {
            read_fraction: dice.of(&[0.0, 0.1, 0.5], &[-0.1, 0.7, 1.5]),
            trim_fraction: dice.of(&[0.0, 0.1, 0.5], &[-0.1, 0.7, 1.5]),
        },
        block_sizes: (0..sizes).map(|_| size(dice)).collect(),
        span: Span {
            offset_bytes: dice.of(&[0, 4096, TARGET_BYTES / 2], &[1, TARGET_BYTES, u64::MAX]),
            bytes: dice.of(&[TARGET_BYTES / 4, TARGET_BYTES / 2 - 4096], &[0, 1, 1 << 20, u64::MAX]),
            sharing: dice.of(&[Sharing::Shared, Sharing::Split], &[]),
        },
        durability: dice.of(&durabilities, &[]),
        arrival: any_arrival(dice),
        active: dice.maybe(&[window], &[]),
        // It ends every run that nothing else ends.
        limit_operations: Some(5 + dice.0.below(196)),
        limit_bytes: dice.maybe(&[1 << 30, u64::MAX], &[0, 1 << 16]),
        io_mode: IoMode::Direct,
        ..stream(&format!("stream {number}"), TARGET_BYTES)
    }
}

fn any_access(dice: &mut Dice) -> Access {
    let mut fraction = || dice.of(&[0.1, 0.5, 0.9], &[-0.1, 0.0, 1.0, 1.1]);
    let (hot_span, hot_access) = (fraction(), fraction());
    let theta = dice.of(&[0.5, 0.99, 1.0, 3.0], &[-1.0, 0.0]);
    let hot_cold = Distribution::HotCold { hot_span, hot_access };
    let distributions = [Distribution::Uniform, Distribution::Zipfian { theta }, hot_cold];
    let stride_bytes = dice.of(
        &[64 << 20, 128 << 20],
        &[0, 4096, (64 << 20) + 1, TARGET_BYTES, u64::MAX],
    );
    let over_provisioning = dice.of(&[0.07, 0.28], &[0.0, -1.0, 1e9]);
    let random = Access::Random {
        coverage: dice.of(&[Coverage::WithReplacement], &[Coverage::EachOnce]),
        distribution: dice.of(&distributions, &[]),
    };
    let (strided, aging) = (Access::Strided { stride_bytes }, Access::Aging { over_provisioning });
    dice.of(&[Access::Sequential, strided, each_once(), aging, random], &[])
}

fn any_arrival(dice: &mut Dice) -> Arrival {
    let rate = dice.of(&[50.0, 1e4, 1e7], &[-1.0, 0.0, 1e9]);
    let mut steps = Vec::new();
    for _ in 0..dice.of(&[1, 2, 3], &[]) {
        steps.push(RateStep {
            rate: dice.of(&[0.0, 100.0, 1e4], &[-1.0, 1e9]),
            duration_ns: dice.of(&[1_000_000, 50_000_000], &[0, u64::MAX]),
        });
    }
    let spacing = dice.of(&[Spacing::Constant, Spacing::Poisson], &[]);
    let (constant, poisson) = (Arrival::Constant { rate }, Arrival::Poisson { rate });
    let steps = Arrival::Steps { steps, spacing };
    dice.of(&[Arrival::Closed, Arrival::Closed, constant, poisson, steps], &[])
}
