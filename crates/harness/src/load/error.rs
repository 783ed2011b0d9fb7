//! Errors in the description of a stream, with hints.

use iosonde_protocol::{Access, Arrival, BlockSize, Coverage, Distribution, Mix, RateStep, Stream};

/// Smallest block size, in bytes: the smallest sector of a block device.
pub const BLOCK_BYTES_MIN: u64 = 512;
/// Largest block size, in bytes.
pub const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Highest arrival rate of a stream, in I/Os per second.
pub const RATE_MAX: f64 = 1e7;
/// Fractions are decimal in a study file; their sum may be this far above 1 by rounding.
pub(crate) const FRACTION_TOLERANCE: f64 = 1e-9;

/// A stream cannot be generated. The text describes the problem; [`LoadError::hint`] the remedy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// No threads.
    #[error("`jobs` is 0, so nothing would issue I/O")]
    NoJobs,
    /// Nothing in flight.
    #[error("`queue_depth` is 0, so no I/O could be in flight")]
    NoQueueDepth,
    /// A fraction is not one.
    #[error("`{name}` is {value}, which is not a fraction between 0 and 1")]
    Fraction {
        /// Name of the setting.
        name: &'static str,
        value: f64,
    },
    /// More than everything is read and trimmed.
    #[error("`read_fraction` {read} and `trim_fraction` {trim} add up to more than 1")]
    MixSum {
        /// Fraction of reads.
        read: f64,
        /// Fraction of trims.
        trim: f64,
    },
    /// No size to choose.
    #[error("`block_sizes` is empty")]
    NoBlockSize,
    /// A size out of range.
    #[error("block size {bytes} B is outside 512 B to 64 MiB")]
    BlockSize {
        /// The size, in bytes.
        bytes: u64,
    },
    /// A weight that is not one.
    #[error("block size {bytes} B has weight {weight}, which is not a finite number above 0")]
    Weight {
        /// The size, in bytes.
        bytes: u64,
        weight: f64,
    },
    /// A stride that would make I/Os overlap.
    #[error("`stride_bytes` {stride_bytes} is smaller than the block size of {block_bytes} B")]
    StrideTooShort {
        stride_bytes: u64,
        /// The largest block size, in bytes.
        block_bytes: u64,
    },
    /// A stride that would leave the blocks' alignment.
    #[error("`stride_bytes` {stride_bytes} is not a multiple of the block size of {block_bytes} B")]
    StrideAlignment {
        stride_bytes: u64,
        /// The smallest block size, in bytes.
        block_bytes: u64,
    },
    /// A skew without meaning.
    #[error("`theta` is {theta}, which is not a finite number above 0")]
    Theta {
        /// The skew.
        theta: f64,
    },
    /// A hot part that is nothing or everything.
    #[error("`hot_span` is {hot_span}, which leaves no hot or no cold part: it must lie between 0 and 1")]
    HotSpan {
        /// The hot fraction of the span.
        hot_span: f64,
    },
    /// A distribution for a visit that takes every block once.
    #[error("a visit that takes each block once cannot prefer some by a `zipfian` or `hot_cold` distribution")]
    EachOnceSkewed,
    /// Spare room that no drive has.
    #[error("`over_provisioning` is {over_provisioning}, which is not above 0 and at most 10")]
    OverProvisioning {
        /// Spare room as a fraction of the capacity.
        over_provisioning: f64,
    },
    /// A schedule that cannot be kept.
    #[error("`rate` is {rate} I/Os per second, which is not above 0 and at most 10,000,000")]
    Rate {
        /// The rate, in I/Os per second.
        rate: f64,
    },
    /// A schedule on which nothing ever arrives.
    #[error("`steps` holds no rate above 0, so nothing would ever arrive")]
    NoArrivals,
    /// Instants of a trace for a stream that has none.
    #[error("the arrival `trace` for a stream without a trace")]
    NoTrace,
    /// A span that reaches past the target.
    #[error("the span of {span_bytes} B from byte {offset_bytes} ends beyond the target of {target_bytes} B")]
    SpanBeyondTarget {
        /// First byte of the span.
        offset_bytes: u64,
        /// Length of the span, in bytes.
        span_bytes: u64,
        /// Length of the target, in bytes.
        target_bytes: u64,
    },
    /// A region that cannot hold one I/O.
    #[error("the region of each job is {region_bytes} B, less than one block of {block_bytes} B")]
    RegionTooSmall {
        /// Length of the region, in bytes.
        region_bytes: u64,
        /// The largest block size, in bytes.
        block_bytes: u64,
    },
}

impl LoadError {
    /// Imperative that corrects the problem.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoJobs => "set `jobs` to 1 or more",
            Self::NoQueueDepth => "set `queue_depth` to 1 or more",
            Self::Fraction { .. } => "write a share of 70 % as 0.7",
            Self::MixSum { .. } => "what remains of 1 is writes: lower one of the two",
            Self::NoBlockSize => "give at least one block size",
            Self::BlockSize { .. } => "choose a block size from 512 B to 64 MiB",
            Self::Weight { .. } => "give each block size a weight above 0, or leave the size out",
            Self::StrideTooShort { .. } => "make the stride at least one block, or use sequential access",
            Self::StrideAlignment { .. } => "make the stride a multiple of the smallest block size",
            Self::Theta { .. } => "use a skew above 0, such as YCSB's 0.99, or the uniform distribution",
            Self::HotSpan { .. } => "write a hot tenth of the span as 0.1",
            Self::EachOnceSkewed => "use coverage `with_replacement`, or the uniform distribution",
            Self::OverProvisioning { .. } => "write 7 % of spare room as 0.07",
            Self::Rate { .. } => "choose a rate in that range, or a closed loop for as fast as it goes",
            Self::NoArrivals => "give at least one step a rate above 0",
            Self::NoTrace => "only key-value streams can have a trace: use another arrival",
            Self::SpanBeyondTarget { .. } => "make the target larger, or the span smaller",
            Self::RegionTooSmall { .. } => "make the span larger, the block size smaller, or the jobs fewer",
        }
    }
}

/// Checks everything about a stream that does not depend on its target.
///
/// # Errors
/// The first setting found that makes no sense.
pub fn validate(stream: &Stream) -> Result<(), LoadError> {
    if stream.jobs == 0 {
        return Err(LoadError::NoJobs);
    }
    if stream.queue_depth == 0 {
        return Err(LoadError::NoQueueDepth);
    }
    validate_mix(&stream.mix)?;
    validate_block_sizes(&stream.block_sizes)?;
    validate_access(&stream.access, &stream.block_sizes)?;
    validate_arrival(&stream.arrival)
}

/// The smallest and the largest of the sizes, in bytes.
pub(crate) fn size_range(sizes: &[BlockSize]) -> Result<(u64, u64), LoadError> {
    let bytes = || sizes.iter().map(|size| size.bytes);
    bytes().min().zip(bytes().max()).ok_or(LoadError::NoBlockSize)
}

fn validate_mix(mix: &Mix) -> Result<(), LoadError> {
    validate_fraction("read_fraction", mix.read_fraction)?;
    validate_fraction("trim_fraction", mix.trim_fraction)?;
    if mix.read_fraction + mix.trim_fraction > 1.0 + FRACTION_TOLERANCE {
        return Err(LoadError::MixSum {
            read: mix.read_fraction,
            trim: mix.trim_fraction,
        });
    }
    Ok(())
}

fn validate_block_sizes(sizes: &[BlockSize]) -> Result<(), LoadError> {
    size_range(sizes)?;
    for &BlockSize { bytes, weight } in sizes {
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) {
            return Err(LoadError::BlockSize { bytes });
        }
        if !is_positive(weight) {
            return Err(LoadError::Weight { bytes, weight });
        }
    }
    Ok(())
}

fn validate_access(access: &Access, sizes: &[BlockSize]) -> Result<(), LoadError> {
    match *access {
        Access::Sequential => Ok(()),
        Access::Strided { stride_bytes } => validate_stride(stride_bytes, sizes),
        Access::Aging { over_provisioning } if is_positive(over_provisioning) && over_provisioning <= 10.0 => Ok(()),
        Access::Aging { over_provisioning } => Err(LoadError::OverProvisioning { over_provisioning }),
        Access::Random {
            coverage: Coverage::EachOnce,
            distribution: Distribution::Uniform,
        } => Ok(()),
        Access::Random {
            coverage: Coverage::EachOnce,
            ..
        } => Err(LoadError::EachOnceSkewed),
        Access::Random {
            coverage: Coverage::WithReplacement,
            distribution,
        } => validate_distribution(&distribution),
    }
}

fn validate_stride(stride_bytes: u64, sizes: &[BlockSize]) -> Result<(), LoadError> {
    let (smallest, largest) = size_range(sizes)?;
    if stride_bytes < largest {
        return Err(LoadError::StrideTooShort {
            stride_bytes,
            block_bytes: largest,
        });
    }
    if !stride_bytes.is_multiple_of(smallest) {
        return Err(LoadError::StrideAlignment {
            stride_bytes,
            block_bytes: smallest,
        });
    }
    Ok(())
}

fn validate_distribution(distribution: &Distribution) -> Result<(), LoadError> {
    match *distribution {
        Distribution::Uniform => Ok(()),
        Distribution::Zipfian { theta } if is_positive(theta) => Ok(()),
        Distribution::Zipfian { theta } => Err(LoadError::Theta { theta }),
        Distribution::HotCold { hot_span, .. } if !(hot_span > 0.0 && hot_span < 1.0) => {
            Err(LoadError::HotSpan { hot_span })
        }
        Distribution::HotCold { hot_access, .. } => validate_fraction("hot_access", hot_access),
    }
}

/// Checks that arrivals can be generated.
///
/// # Errors
/// When a rate makes no sense.
pub fn validate_arrival(arrival: &Arrival) -> Result<(), LoadError> {
    match *arrival {
        Arrival::Constant { rate } | Arrival::Poisson { rate } => validate_rate(rate),
        Arrival::Steps { ref steps, .. } => validate_steps(steps),
        Arrival::Closed => Ok(()),
        Arrival::Trace { .. } => Err(LoadError::NoTrace),
    }
}

fn validate_rate(rate: f64) -> Result<(), LoadError> {
    if is_positive(rate) && rate <= RATE_MAX {
        Ok(())
    } else {
        Err(LoadError::Rate { rate })
    }
}

/// A step may be a pause, but something must arrive at some time.
fn validate_steps(steps: &[RateStep]) -> Result<(), LoadError> {
    if steps.iter().all(|step| step.rate == 0.0) {
        return Err(LoadError::NoArrivals);
    }
    let rates = steps.iter().map(|step| step.rate);
    rates.filter(|rate| *rate != 0.0).try_for_each(validate_rate)
}

fn validate_fraction(name: &'static str, value: f64) -> Result<(), LoadError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(LoadError::Fraction { name, value })
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::{each_once, random, stream};

    /// Error and hint after a change to a valid stream.
    fn error(change: impl FnOnce(&mut Stream)) -> String {
        let mut stream = stream();
        assert_eq!(validate(&stream), Ok(()));
        change(&mut stream);
        validate(&stream).map_or_else(|error| format!("{error}; {}", error.hint()), |()| "valid".to_owned())
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
        let cases: [(Change, &str); 21] = [
            (|s| s.jobs = 0, "`jobs` is 0"),
            (|s| s.queue_depth = 0, "`queue_depth` is 0"),
            (|s| s.mix.read_fraction = 70.0, "`read_fraction` is 70"),
            (|s| s.mix.trim_fraction = -0.1, "`trim_fraction` is -0.1"),
            (|s| s.mix.read_fraction = f64::NAN, "`read_fraction` is NaN"),
            (
                |s| (s.mix.read_fraction, s.mix.trim_fraction) = (0.7, 0.4),
                "`read_fraction` 0.7 and `trim_fraction` 0.4 add up to more than 1",
            ),
            (|s| s.block_sizes.clear(), "`block_sizes` is empty"),
            (|s| s.block_sizes[0].bytes = 511, "block size 511 B"),
            (
                |s| s.block_sizes.push(size((64 << 20) + 1, 1.0)),
                "block size 67108865 B",
            ),
            (
                |s| s.access = Access::Strided { stride_bytes: 2048 },
                "`stride_bytes` 2048 is smaller",
            ),
            (
                |s| s.access = Access::Strided { stride_bytes: 10_000 },
                "`stride_bytes` 10000 is not a multiple",
            ),
            (
                |s| two_sizes(4096)(s),
                "`stride_bytes` 4096 is smaller than the block size of 8192 B",
            ),
            (
                |s| s.access = random(Distribution::Zipfian { theta: 0.0 }),
                "`theta` is 0",
            ),
            (|s| s.access = hot_cold(1.0, 0.9), "`hot_span` is 1"),
            (|s| s.access = hot_cold(f64::NAN, 0.9), "`hot_span` is NaN"),
            (|s| s.access = hot_cold(0.1, 90.0), "`hot_access` is 90"),
            (|s| s.access = aging(0.0), "`over_provisioning` is 0"),
            (|s| s.access = aging(f64::NAN), "`over_provisioning` is NaN"),
            (|s| s.access = aging(11.0), "`over_provisioning` is 11"),
            (|s| s.access = skewed_each_once(), "a visit that takes each block once"),
            (|s| s.arrival = Arrival::Poisson { rate: 2e7 }, "`rate` is 20000000"),
        ];
        for (change, message) in cases {
            let found = error(change);
            assert!(found.starts_with(message), "{found}");
        }
        for number in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(error(|s| s.block_sizes[0].weight = number).contains("not a finite number above 0"));
            let zipfian = Distribution::Zipfian { theta: number };
            assert!(error(|s| s.access = random(zipfian)).starts_with("`theta` is"));
            assert!(error(|s| s.arrival = Arrival::Constant { rate: number }).starts_with("`rate` is"));
        }
        assert!(error(|s| s.arrival = Arrival::Constant { rate: 0.0 }).starts_with("`rate` is"));
        assert_eq!(
            error(|s| s.block_sizes[0].weight = 0.0),
            "block size 4096 B has weight 0, which is not a finite number above 0; \
             give each block size a weight above 0, or leave the size out"
        );
    }

    #[test]
    fn limits_themselves_are_valid() {
        let changes: [fn(&mut Stream); 8] = [
            // Decimal fractions may add up to a little more than 1.
            |s| (s.mix.read_fraction, s.mix.trim_fraction) = (0.6, 0.4 + 1e-12),
            |s| s.block_sizes = vec![size(512, 0.1), size(64 << 20, 9.0)],
            |s| s.access = Access::Strided { stride_bytes: 4096 },
            |s| two_sizes(12_288)(s),
            |s| s.access = hot_cold(0.1, 1.0),
            |s| s.access = aging(0.07),
            |s| s.access = each_once(),
            |s| s.arrival = Arrival::Constant { rate: 1e7 },
        ];
        assert!(changes.into_iter().all(|change| error(change) == "valid"));
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
