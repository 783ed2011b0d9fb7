//! Common parts of the tests of loads: a plain stream to vary, and the statistics that laws are tested with.

use iosonde_protocol::{
    Access, Arrival, BlockSize, Coverage, Distribution, Durability, IoMode, Mix, Payload, Sharing, Span, Stream,
};

/// 4 KiB random reads on 1 MiB, closed loop, one job; valid in every respect.
pub(crate) fn stream() -> Stream {
    Stream {
        name: "test".to_owned(),
        jobs: 1,
        queue_depth: 1,
        access: random(Distribution::Uniform),
        mix: Mix {
            read_fraction: 1.0,
            trim_fraction: 0.0,
        },
        block_sizes: vec![BlockSize {
            bytes: 4096,
            weight: 1.0,
        }],
        span: Span {
            offset_bytes: 0,
            bytes: 1 << 20,
            sharing: Sharing::Shared,
        },
        io_mode: IoMode::Direct,
        durability: Durability::None,
        arrival: Arrival::Closed,
        payload: Payload::Random,
        limit_bytes: None,
        limit_operations: None,
        active: None,
        spin_ns: 100_000,
        cpus: Vec::new(),
    }
}

pub(crate) fn random(distribution: Distribution) -> Access {
    Access::Random {
        coverage: Coverage::WithReplacement,
        distribution,
    }
}

pub(crate) fn each_once() -> Access {
    Access::Random {
        coverage: Coverage::EachOnce,
        distribution: Distribution::Uniform,
    }
}

/// Pearson's chi-square test: panics if counts this far from `probabilities` would come up by chance less than once in
/// 30,000 (four standard deviations of the statistic).
#[track_caller]
pub(crate) fn assert_frequencies(counts: &[u64], probabilities: &[f64]) {
    assert_eq!(counts.len(), probabilities.len());
    let total = counts.iter().sum::<u64>() as f64;
    let term = |(&count, &probability): (&u64, &f64)| {
        let expected = total * probability;
        assert!(expected >= 5.0, "too few draws for the test: {expected} expected");
        (count as f64 - expected).powi(2) / expected
    };
    let statistic: f64 = counts.iter().zip(probabilities).map(term).sum();
    let freedom = (counts.len() - 1) as f64;
    let limit = freedom + 4.0 * (2.0 * freedom).sqrt();
    assert!(statistic < limit, "{statistic} {freedom}");
}

/// The Kolmogorov-Smirnov test: panics if samples this far from the distribution would come up by chance less than once
/// in 1,000.
#[track_caller]
pub(crate) fn assert_distributed(mut samples: Vec<f64>, cumulative: impl Fn(f64) -> f64) {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    let distance = |(index, &sample): (usize, &f64)| {
        let (below, above) = (index as f64 / count, (index + 1) as f64 / count);
        let probability = cumulative(sample);
        (probability - below).abs().max((above - probability).abs())
    };
    let largest = samples.iter().enumerate().map(distance).fold(0.0, f64::max);
    assert!(largest * count.sqrt() < 1.95, "distance {largest} with {count} samples");
}

/// The exponential distribution with mean 1.
pub(crate) fn exponential(x: f64) -> f64 {
    1.0 - (-x).exp()
}
