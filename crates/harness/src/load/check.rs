//! Refuses streams that cannot be generated.

use iosonde_protocol::{Access, Arrival, Coverage, Distribution, Stream};

use crate::error::{RunError, require};

/// Smallest block size, in bytes: the smallest sector of a block device.
const BLOCK_BYTES_MIN: u64 = 512;
/// Largest block size, in bytes.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Highest arrival rate of a stream, in I/Os per second.
pub const RATE_MAX: f64 = 1e7;
/// Fractions are decimal in a study file; their sum may be this far above 1 by rounding.
pub(crate) const FRACTION_TOLERANCE: f64 = 1e-9;

/// Checks everything about a stream that does not depend on its target.
///
/// # Errors
/// The first setting found that makes no sense.
pub fn validate(stream: &Stream) -> Result<(), RunError> {
    let at = |field| place(stream, field);
    require(stream.jobs > 0, at("jobs"))?;
    require(stream.queue_depth > 0, at("queue_depth"))?;
    let (reads, trims) = (stream.mix.read_fraction, stream.mix.trim_fraction);
    let is_mix = is_fraction(reads) && is_fraction(trims) && reads + trims <= 1.0 + FRACTION_TOLERANCE;
    require(is_mix, at("mix"))?;
    let range = size_range(stream)?;
    let sizes_fit = BLOCK_BYTES_MIN <= range.0 && range.1 <= BLOCK_BYTES_MAX;
    require(
        sizes_fit && stream.block_sizes.iter().all(|size| is_positive(size.weight)),
        at("block_sizes"),
    )?;
    require(is_possible(&stream.access, range), at("access"))?;
    validate_arrival(&stream.arrival, at("arrival"))
}

/// The smallest and the largest block of a stream, in bytes.
pub(crate) fn size_range(stream: &Stream) -> Result<(u64, u64), RunError> {
    let bytes = || stream.block_sizes.iter().map(|size| size.bytes);
    let range = bytes().min().zip(bytes().max());
    range.ok_or_else(|| RunError::out_of_range(place(stream, "block_sizes")))
}

/// A field of a stream, as errors name it.
pub(crate) fn place(stream: &Stream, field: &str) -> String {
    format!("stream `{}`, `{field}`", stream.name)
}

fn is_possible(access: &Access, (smallest, largest): (u64, u64)) -> bool {
    match *access {
        Access::Sequential => true,
        Access::Strided { stride_bytes } => stride_bytes >= largest && stride_bytes.is_multiple_of(smallest),
        Access::Aging { over_provisioning } => is_positive(over_provisioning) && over_provisioning <= 10.0,
        Access::Random { coverage, distribution } => match distribution {
            Distribution::Uniform => true,
            _ if coverage == Coverage::EachOnce => false,
            Distribution::Zipfian { theta } => is_positive(theta),
            Distribution::HotCold { hot_span, hot_access } => {
                hot_span > 0.0 && hot_span < 1.0 && is_fraction(hot_access)
            }
        },
    }
}

/// Checks that arrivals can be generated: rates that can be timed, and a step other than a pause.
///
/// # Errors
/// When a rate makes no sense.
pub fn validate_arrival(arrival: &Arrival, context: impl Into<String>) -> Result<(), RunError> {
    let is_rate = |rate: f64| is_positive(rate) && rate <= RATE_MAX;
    let holds = match *arrival {
        Arrival::Constant { rate } | Arrival::Poisson { rate } => is_rate(rate),
        Arrival::Steps { ref steps, .. } => {
            let mut rates = steps
                .iter()
                .map(|step| step.rate)
                .filter(|rate| *rate != 0.0)
                .peekable();
            rates.peek().is_some() && rates.all(is_rate)
        }
        Arrival::Closed => true,
        // Only key-value streams have one.
        Arrival::Trace { .. } => false,
    };
    require(holds, context)
}

fn is_fraction(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::{each_once, random, stream};
    use iosonde_protocol::{BlockSize, RateStep, Spacing};

    /// The refused field after a change to a valid stream; empty if it is still valid.
    fn refused(change: impl FnOnce(&mut Stream)) -> String {
        let mut stream = stream();
        assert_eq!(validate(&stream), Ok(()));
        change(&mut stream);
        validate(&stream).map_or_else(|error| error.context, |()| String::new())
    }

    fn size(bytes: u64, weight: f64) -> BlockSize {
        BlockSize { bytes, weight }
    }

    fn hot_cold(hot_span: f64, hot_access: f64) -> Access {
        random(Distribution::HotCold { hot_span, hot_access })
    }

    fn two_sizes(stride_bytes: u64) -> impl FnOnce(&mut Stream) {
        move |stream| {
            stream.access = Access::Strided { stride_bytes };
            stream.block_sizes.push(size(8192, 1.0));
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        type Change = fn(&mut Stream);
        let cases: [(Change, &str); 23] = [
            (|s| s.jobs = 0, "jobs"),
            (|s| s.queue_depth = 0, "queue_depth"),
            (|s| s.mix.read_fraction = 70.0, "mix"),
            (|s| s.mix.trim_fraction = -0.1, "mix"),
            (|s| s.mix.read_fraction = f64::NAN, "mix"),
            (|s| (s.mix.read_fraction, s.mix.trim_fraction) = (0.7, 0.4), "mix"),
            (|s| s.block_sizes.clear(), "block_sizes"),
            (|s| s.block_sizes[0].bytes = 511, "block_sizes"),
            (|s| s.block_sizes.push(size((64 << 20) + 1, 1.0)), "block_sizes"),
            (|s| s.block_sizes[0].weight = 0.0, "block_sizes"),
            (|s| s.access = Access::Strided { stride_bytes: 2048 }, "access"),
            (|s| s.access = Access::Strided { stride_bytes: 10_000 }, "access"),
            (|s| two_sizes(4096)(s), "access"),
            (|s| s.access = random(Distribution::Zipfian { theta: 0.0 }), "access"),
            (|s| s.access = hot_cold(1.0, 0.9), "access"),
            (|s| s.access = hot_cold(f64::NAN, 0.9), "access"),
            (|s| s.access = hot_cold(0.1, 90.0), "access"),
            (|s| s.access = aging(0.0), "access"),
            (|s| s.access = aging(f64::NAN), "access"),
            (|s| s.access = aging(11.0), "access"),
            (|s| s.access = skewed_each_once(), "access"),
            (|s| s.arrival = Arrival::Poisson { rate: 2e7 }, "arrival"),
            (|s| s.arrival = Arrival::Constant { rate: 0.0 }, "arrival"),
        ];
        for (number, (change, field)) in cases.into_iter().enumerate() {
            let context = refused(change);
            assert!(context.ends_with(&format!("`, `{field}`")), "{number}: {context}");
        }
        for number in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(!refused(|s| s.block_sizes[0].weight = number).is_empty());
            let zipfian = Distribution::Zipfian { theta: number };
            assert!(!refused(|s| s.access = random(zipfian)).is_empty());
            assert!(!refused(|s| s.arrival = Arrival::Constant { rate: number }).is_empty());
            assert!(!refused(|s| s.arrival = steps([1.0, number])).is_empty());
        }
        assert!(!refused(|s| s.arrival = steps([0.0, 0.0])).is_empty());
    }

    #[test]
    fn limits_themselves_are_valid() {
        let changes: [fn(&mut Stream); 9] = [
            // Decimal fractions may add up to a little more than 1.
            |s| (s.mix.read_fraction, s.mix.trim_fraction) = (0.6, 0.4 + 1e-12),
            |s| s.block_sizes = vec![size(512, 0.1), size(64 << 20, 9.0)],
            |s| s.access = Access::Strided { stride_bytes: 4096 },
            |s| two_sizes(12_288)(s),
            |s| s.access = hot_cold(0.1, 1.0),
            |s| s.access = aging(0.07),
            |s| s.access = each_once(),
            |s| s.arrival = Arrival::Constant { rate: 1e7 },
            |s| s.arrival = steps([0.0, 1.0]),
        ];
        assert!(changes.into_iter().all(|change| refused(change).is_empty()));
    }

    fn steps(rates: [f64; 2]) -> Arrival {
        let steps = rates.map(|rate| RateStep { rate, duration_ns: 1 }).into();
        let spacing = Spacing::Constant;
        Arrival::Steps { steps, spacing }
    }

    fn aging(over_provisioning: f64) -> Access {
        Access::Aging { over_provisioning }
    }

    fn skewed_each_once() -> Access {
        Access::Random {
            coverage: Coverage::EachOnce,
            distribution: Distribution::Zipfian { theta: 0.99 },
        }
    }
}
