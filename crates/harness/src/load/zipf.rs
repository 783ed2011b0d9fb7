//! Zipfian ranks: rank `r` from 1 to `n` with probability proportional to `r^-theta`, exactly, for any `theta` above 0.
//!
//! Rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", 1996): constant setup and memory, fewer than 1.2 draws a rank. Gray's method, which YCSB and fio use, is an
//! approximation, needs a sum over all `n` at setup and excludes `theta` 1.
//!
//! Notation of the paper: `h` is the weight, `H` its integral; a draw is uniform under `H` and inverted.

use crate::load::Rng;

/// Draws ranks by Zipf's law.
#[derive(Debug, Clone)]
pub struct Zipf {
    n: f64,
    theta: f64,
    integral_first: f64,
    integral_last: f64,
    /// A draw this close below its rank is accepted without looking further.
    shortcut: f64,
}

impl Zipf {
    /// Ranks from 1 to `n`, which is above 0, with skew `theta`, which is above 0.
    pub fn new(n: u64, theta: f64) -> Self {
        let n = n as f64;
        Self {
            n,
            theta,
            integral_first: integral(1.5, theta) - 1.0,
            integral_last: integral(n + 0.5, theta),
            shortcut: 2.0 - integral_inverse(integral(2.5, theta) - weight(2.0, theta), theta),
        }
    }

    /// A rank, from 1 to `n`.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> u64 {
        loop {
            let drawn = self.integral_last + rng.unit() * (self.integral_first - self.integral_last);
            let x = integral_inverse(drawn, self.theta);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.shortcut || drawn >= integral(rank + 0.5, self.theta) - weight(rank, self.theta) {
                return rank as u64;
            }
        }
    }
}

/// `x^-theta`.
fn weight(x: f64, theta: f64) -> f64 {
    (-theta * x.ln()).exp()
}

/// The integral of the weight from 1 to `x`: `(x^(1-theta) - 1) / (1-theta)`, or `ln x` where `theta` is 1.
fn integral(x: f64, theta: f64) -> f64 {
    let log = x.ln();
    exp_m1_over((1.0 - theta) * log) * log
}

/// The `x` up to which the integral is `area`.
fn integral_inverse(area: f64, theta: f64) -> f64 {
    // Rounding may carry the argument below -1, where the logarithm ends.
    let argument = (area * (1.0 - theta)).max(-1.0);
    (ln_1p_over(argument) * area).exp()
}

/// `(e^x - 1) / x`, also where `x` is next to 0.
fn exp_m1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`, also where `x` is next to 0.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::assert_frequencies;

    /// Ranks from this one on are counted together, so that the rare ones are frequent enough for the test.
    const TAIL: usize = 50;

    fn assert_law(n: u64, theta: f64) {
        let zipf = Zipf::new(n, theta);
        let mut rng = Rng::new(n, &[theta.to_bits()]);
        let mut counts = [0; TAIL];
        (0..100_000).for_each(|_| counts[(zipf.next(&mut rng) as usize).min(TAIL) - 1] += 1);
        let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-theta)).collect();
        let total: f64 = weights.iter().sum();
        let mut probabilities: Vec<f64> = weights[..TAIL - 1].iter().map(|weight| weight / total).collect();
        probabilities.push(weights[TAIL - 1..].iter().sum::<f64>() / total);
        assert_frequencies(&counts, &probabilities);
    }

    #[test]
    fn ranks_follow_the_law_stay_in_range_and_each_of_a_short_one_comes_up() {
        for theta in [1e-9, 0.99, 50.0] {
            let (zipf, mut rng) = (Zipf::new(1 << 50, theta), Rng::new(1, &[]));
            let is_in_range = (0..10_000).all(|_| (1..=1 << 50).contains(&zipf.next(&mut rng)));
            assert!(is_in_range, "theta {theta}");
        }
        for n in 1..=3 {
            let (zipf, mut rng) = (Zipf::new(n, 0.99), Rng::new(1, &[]));
            let mut seen = [false; 3];
            (0..200).for_each(|_| seen[zipf.next(&mut rng) as usize - 1] = true);
            assert_eq!(seen, std::array::from_fn(|index| (index as u64) < n));
        }
        for theta in [0.1, 0.5, 0.99, 1.0, 1.000_000_001, 1.2, 2.0] {
            assert_law(1000, theta);
        }
        assert_law(2_000_000, 0.99);
    }
}
