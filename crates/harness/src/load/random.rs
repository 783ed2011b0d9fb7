//! Random numbers: fast, seeded, in any number of independent streams.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), written
//! out because it is ten lines and because a result must stay reproducible: no library may change the sequence under it.

use std::array::from_fn;

/// 2^-53: one step of a fraction with all the bits that an `f64` keeps.
const FRACTION_STEP: f64 = 1.0 / (1u64 << 53) as f64;

/// A stream of random numbers, determined by a seed and a path.
///
/// ```
/// use iosonde_harness::load::Rng;
/// let mut job_0 = Rng::new(42, &[0]);
/// let mut job_1 = Rng::new(42, &[1]);
/// assert_ne!(job_0.next_u64(), job_1.next_u64());
/// assert_eq!(Rng::new(42, &[0]).below(100), Rng::new(42, &[0]).below(100));
/// ```
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream at `path` under `seed`. Different paths, also those of different length, give unrelated streams.
    pub fn new(seed: u64, path: &[u64]) -> Self {
        let mut hash = path.iter().fold(mixed(seed), |hash, &step| mixed(hash ^ step));
        Self {
            state: from_fn(|_| split_mix(&mut hash)),
        }
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number from 0 to `n - 1`, each exactly as likely; `n` is above 0.
    ///
    /// Lemire, "Fast random integer generation in an interval", 2019: a multiplication, and a division only when the
    /// draw falls into the excess that would favour some numbers.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0, "there is no number below 0");
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let excess = n.wrapping_neg() % n;
            while (product as u64) < excess {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// 53 random bits: to be compared with a probability as a multiple of 2^-53.
    #[inline]
    pub fn next_u53(&mut self) -> u64 {
        self.next_u64() >> 11
    }

    /// A fraction from 0 up to but without 1, in steps of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.next_u53() as f64 * FRACTION_STEP
    }

    /// An exponentially distributed number with mean 1, at most 36.8.
    ///
    /// Minus the logarithm of a fraction above 0 and up to 1: 6 ns, so that a ziggurat's tables would save little.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -((self.next_u53() + 1) as f64 * FRACTION_STEP).ln()
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&self.next_u64().to_le_bytes()[..rest.len()]);
    }
}

/// The next number of the SplitMix64 sequence (Steele, Lea and Flood, 2014), which xoshiro's authors advise for seeding.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number that shows nothing of `value`, though it follows from it.
fn mixed(mut value: u64) -> u64 {
    split_mix(&mut value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::{assert_distributed, assert_frequencies, exponential};

    #[test]
    fn the_sequence_is_that_of_the_reference_implementation_and_each_path_has_its_own() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(from_fn(|_| rng.next_u64()), expected);
        let expected = [9_228_616_714_210_784_205, 9_973_669_472_204_895_162];
        assert_eq!(from_fn(|_| rng.next_u64()), expected);
        let mut state = 1_477_776_061_723_855_037;
        let expected = [1_985_237_415_132_408_290, 2_979_275_885_539_914_483];
        assert_eq!(from_fn(|_| split_mix(&mut state)), expected);
        let paths: [&[u64]; 7] = [&[], &[0], &[0, 0], &[1], &[0, 1], &[1, 0], &[u64::MAX]];
        let mut first: Vec<u64> = (0..50)
            .flat_map(|seed| paths.map(|path| Rng::new(seed, path).next_u64()))
            .collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 50 * paths.len());
        assert_eq!(Rng::new(7, &[1, 2]).next_u64(), Rng::new(7, &[1, 2]).next_u64());
        let (mut one, mut other) = (Rng::new(1, &[0]), Rng::new(1, &[1]));
        let mut cells = [0; 64];
        for _ in 0..64_000 {
            cells[(one.below(8) * 8 + other.below(8)) as usize] += 1;
        }
        assert_frequencies(&cells, &[1.0 / 64.0; 64]);
    }

    #[test]
    fn numbers_below_a_bound_are_alike() {
        let mut rng = Rng::new(1, &[]);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[rng.below(7) as usize] += 1);
        assert_frequencies(&counts, &[1.0 / 7.0; 7]);
        assert_eq!(rng.below(1), 0);
        // Three quarters of the range: without the rejection, every third number would come up twice as often.
        let mut rng = Rng::new(1, &[]);
        let n = 3 << 62;
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[(rng.below(n) % 3) as usize] += 1);
        assert_frequencies(&counts, &[1.0 / 3.0; 3]);
    }

    #[test]
    fn fractions_are_uniform_and_exponential_numbers_follow_the_law() {
        let mut rng = Rng::new(1, &[]);
        let samples: Vec<f64> = (0..20_000).map(|_| rng.unit()).collect();
        assert!(samples.iter().all(|sample| (0.0..1.0).contains(sample)));
        assert_distributed(samples, |x| x);
        let mut rng = Rng::new(1, &[]);
        let samples: Vec<f64> = (0..20_000).map(|_| rng.exponential()).collect();
        assert!(samples.iter().all(|sample| (0.0..37.0).contains(sample)));
        assert_distributed(samples, exponential);
    }

    #[test]
    fn a_buffer_of_any_length_is_filled_to_its_end() {
        for length in 0..40 {
            // A byte is 0 by chance once in 256 fills; 32 fills leave none that is never written.
            let mut seen = vec![0; length];
            let mut rng = Rng::new(length as u64, &[]);
            for _ in 0..32 {
                let mut bytes = vec![0; length];
                rng.fill(&mut bytes);
                seen.iter_mut().zip(bytes).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(seen.iter().all(|&byte| byte != 0), "length {length}");
        }
    }
}
