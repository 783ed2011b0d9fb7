//! Operation and size of each I/O, chosen by fixed shares.
//!
//! A share is a threshold on 53 random bits. Where there is nothing to choose, no random number is drawn.

use iosonde_protocol::{BlockSize, Mix, Operation};

use crate::load::Rng;
use crate::load::check::FRACTION_TOLERANCE;

/// A probability of 1, as a threshold for [`Rng::next_u53`].
const CERTAIN: u64 = 1 << 53;

/// Chooses operations by their shares.
#[derive(Debug, Clone)]
pub(crate) struct Operations {
    /// The only operation, if there is but one.
    only: Option<Operation>,
    read_below: u64,
    trim_below: u64,
}

impl Operations {
    /// `mix` is valid.
    pub(crate) fn new(mix: &Mix) -> Self {
        let read_below = threshold(mix.read_fraction);
        let trim_below = threshold(mix.read_fraction + mix.trim_fraction);
        let only = match (read_below, trim_below) {
            (CERTAIN, _) => Some(Operation::Read),
            (0, CERTAIN) => Some(Operation::Trim),
            (0, 0) => Some(Operation::Write),
            _ => None,
        };
        Self {
            only,
            read_below,
            trim_below,
        }
    }

    /// The next operation: read, trim or write.
    #[inline]
    pub(crate) fn next(&self, rng: &mut Rng) -> Operation {
        if let Some(operation) = self.only {
            return operation;
        }
        let drawn = rng.next_u53();
        if drawn < self.read_below {
            Operation::Read
        } else if drawn < self.trim_below {
            Operation::Trim
        } else {
            Operation::Write
        }
    }
}

/// A size of I/O in a region that is counted in units, where a unit is the smallest size of the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Bytes of the I/O.
    pub(crate) bytes: u32,
    /// Units that it reaches over.
    pub(crate) units: u64,
    /// Units at which it may start: later ones would carry it across the region's end.
    pub(crate) starts: u64,
}

/// Chooses sizes by their weights.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Each size with the threshold below which it is chosen, if no earlier one was.
    choices: Box<[(u64, Size)]>,
}

impl Sizes {
    /// `block_sizes` are valid, and each fits into `region_bytes`.
    pub(crate) fn new(block_sizes: &[BlockSize], unit_bytes: u64, region_bytes: u64) -> Self {
        let total: f64 = block_sizes.iter().map(|size| size.weight).sum();
        let mut sum = 0.0;
        let choices = block_sizes.iter().map(|block_size| {
            sum += block_size.weight;
            let size = Size {
                bytes: block_size.bytes as u32,
                units: block_size.bytes.div_ceil(unit_bytes),
                starts: (region_bytes - block_size.bytes) / unit_bytes + 1,
            };
            (threshold(sum / total), size)
        });
        Self {
            choices: choices.collect(),
        }
    }

    /// The next size.
    #[inline]
    pub(crate) fn next(&self, rng: &mut Rng) -> Size {
        let (&(_, last), others) = self.choices.split_last().expect("a valid stream has a size");
        if others.is_empty() {
            return last;
        }
        let drawn = rng.next_u53();
        others
            .iter()
            .find(|(below, _)| drawn < *below)
            .map_or(last, |&(_, size)| size)
    }
}

/// A probability as a threshold. What differs from 1 by rounding is 1: a mix of reads and trims must never write.
fn threshold(probability: f64) -> u64 {
    if probability > 1.0 - FRACTION_TOLERANCE {
        CERTAIN
    } else {
        (probability * CERTAIN as f64).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::assert_frequencies;

    fn operations(read_fraction: f64, trim_fraction: f64) -> Operations {
        Operations::new(&Mix {
            read_fraction,
            trim_fraction,
        })
    }

    fn operation_counts(read_fraction: f64, trim_fraction: f64) -> [u64; 3] {
        let operations = operations(read_fraction, trim_fraction);
        let mut rng = Rng::new(1, &[]);
        let mut counts = [0; 3];
        for _ in 0..20_000 {
            match operations.next(&mut rng) {
                Operation::Read => counts[0] += 1,
                Operation::Trim => counts[1] += 1,
                Operation::Write => counts[2] += 1,
                _ => unreachable!("no share of a mix"),
            }
        }
        counts
    }

    #[test]
    fn operations_come_in_their_shares_and_without_a_choice_no_number_is_drawn() {
        assert_frequencies(&operation_counts(0.7, 0.1), &[0.7, 0.1, 0.2]);
        let [reads, trims, writes] = operation_counts(0.01, 0.0);
        assert_eq!(trims, 0);
        assert_frequencies(&[reads, writes], &[0.01, 0.99]);
        assert_eq!(operation_counts(1.0, 0.0), [20_000, 0, 0]);
        assert_eq!(operation_counts(0.0, 1.0), [0, 20_000, 0]);
        assert_eq!(operation_counts(0.0, 0.0), [0, 0, 20_000]);
        assert_eq!(operation_counts(0.5, 0.0)[1], 0);
        // The remainder by which rounding misses 1 is not a write, however many I/Os are drawn.
        assert_eq!(operations(0.6, 0.4 - 1e-15).trim_below, CERTAIN);
        let (mut rng, bytes, weight) = (Rng::new(1, &[]), 4096, 2.0);
        operations(0.0, 0.0).next(&mut rng);
        Sizes::new(&[BlockSize { bytes, weight }], 4096, 4096).next(&mut rng);
        assert_eq!(rng.next_u64(), Rng::new(1, &[]).next_u64());
    }

    #[test]
    fn sizes_come_by_their_weights_and_know_where_they_may_start() {
        let sizes = [(4096, 6.0), (8192, 3.0), (512, 1.0)];
        let block_sizes = sizes.map(|(bytes, weight)| BlockSize { bytes, weight });
        let (sizes, mut rng) = (Sizes::new(&block_sizes, 512, 1 << 20), Rng::new(1, &[]));
        let mut counts = [0; 3];
        for _ in 0..20_000 {
            let bytes = u64::from(sizes.next(&mut rng).bytes);
            let place = block_sizes.iter().position(|size| size.bytes == bytes);
            counts[place.expect("one of them")] += 1;
        }
        assert_frequencies(&counts, &[0.6, 0.3, 0.1]);
        let sizes = [4096, 10_000].map(|bytes| BlockSize { bytes, weight: 1.0 });
        let sizes = Sizes::new(&sizes, 4096, 20_000);
        let [(_, small), (_, large)] = *sizes.choices else {
            panic!("two sizes")
        };
        assert_eq!((small.units, small.starts), (1, 4));
        assert_eq!((large.units, large.starts), (3, 3));
    }
}
