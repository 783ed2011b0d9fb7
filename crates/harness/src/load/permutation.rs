//! A random order of the numbers below `n` without a table: constant memory for any span.
//!
//! A Feistel network (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002) on pairs (left, right), where
//! right has a power of two of values and left as many as are needed to cover `n`. Less than one pair in `sqrt(n)` is in excess;
//! a number that lands there is sent through again until it does not ("cycle walking").

use std::array::from_fn;

use crate::load::Rng;

/// Four rounds suffice in theory (Luby and Rackoff, 1988), but for short spans only while few numbers are drawn: at four, the
/// distance between neighbours 1024 apart still showed in a chi-square test; at six nothing did.
const ROUNDS: usize = 6;

/// A one-to-one mapping of the numbers below `n` onto themselves.
#[derive(Debug, Clone)]
pub struct Permutation {
    n: u64,
    right_bits: u32,
    left_values: u64,
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// A random permutation of the numbers below `n`, which is above 0.
    pub fn new(n: u64, rng: &mut Rng) -> Self {
        let right_bits = n.ilog2() / 2;
        let left_values = n.div_ceil(1 << right_bits);
        Self {
            n,
            right_bits,
            left_values,
            keys: from_fn(|_| (rng.next_u64(), rng.next_u64())),
        }
    }

    /// Image of `number`, which is below `n`.
    #[inline]
    pub fn apply(&self, number: u64) -> u64 {
        let mut number = self.encrypt(number);
        while number >= self.n {
            number = self.encrypt(number);
        }
        number
    }

    #[inline]
    fn encrypt(&self, number: u64) -> u64 {
        let right_mask = (1u64 << self.right_bits) - 1;
        let (mut left, mut right) = (number >> self.right_bits, number & right_mask);
        for pair in self.keys.chunks_exact(2) {
            left += keyed_below(right, pair[0], self.left_values);
            if left >= self.left_values {
                left -= self.left_values;
            }
            right = (right + keyed_below(left, pair[1], right_mask + 1)) & right_mask;
        }
        left << self.right_bits | right
    }
}

/// A number from 0 to `n - 1` that follows from `value` and the key.
///
/// A product carries a difference of values upward only, so its upper half is folded down and multiplied again. (One
/// folded product, as in wyhash, is faster and not enough: neighbours were visibly related even after six rounds.)
#[inline]
fn keyed_below(value: u64, key: (u64, u64), n: u64) -> u64 {
    let product = (value ^ key.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (product ^ (product >> 32)).wrapping_mul(key.1 | 1);
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::assert_frequencies;
    use proptest::{prop_assert, proptest};

    fn permutation(n: u64, seed: u64) -> Permutation {
        Permutation::new(n, &mut Rng::new(seed, &[]))
    }

    proptest! {
        #[test]
        fn every_number_is_hit_exactly_once_and_huge_ranges_are_not_left(
            n in 1_u64..3000, huge in 1_u64..1 << 55, number: u64, seed: u64
        ) {
            prop_assert!(permutation(huge, seed).apply(number % huge) < huge);
            let permutation = permutation(n, seed);
            let mut images: Vec<u64> = (0..n).map(|number| permutation.apply(number)).collect();
            images.sort_unstable();
            prop_assert!(images.into_iter().eq(0..n));
        }
    }

    #[test]
    fn each_number_may_go_anywhere_and_neighbours_are_scattered() {
        for n in [16, 100] {
            for number in [0, n / 2, n - 1] {
                let mut counts = vec![0; n as usize];
                (0..200 * n).for_each(|seed| counts[permutation(n, seed).apply(number) as usize] += 1);
                assert_frequencies(&counts, &vec![1.0 / n as f64; n as usize]);
            }
        }
        // Numbers that are close must not stay related: their distance is to be like that of two random places.
        for (n, apart) in [(1 << 20, 1), (1 << 20, 1024), (1 << 14, 1), (100_000, 1), (1 << 40, 1)] {
            for seed in 0..5 {
                let permutation = permutation(n, seed);
                let mut counts = [0; 64];
                for number in 0..(n - apart).min(50_000) {
                    let distance = (permutation.apply(number + apart) + n - permutation.apply(number)) % n;
                    counts[(distance * 64 / n) as usize] += 1;
                }
                assert_frequencies(&counts, &[1.0 / 64.0; 64]);
            }
        }
    }
}
