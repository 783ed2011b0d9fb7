//! Choice of pages: uniform, zipfian, normal or sequential.

use iosonde_harness::load::{Permutation, Rng, Zipf};
use iosonde_protocol::{PagingStream, Pattern};

/// Uniform numbers whose sum is taken as normally distributed (Irwin and Hall): twelve have a variance of 1.
const SUMMANDS: u32 = 12;

/// Chooses pages for one job.
pub(crate) struct Chooser {
    pages: u64,
    choice: Choice,
    rng: Rng,
    /// A read if 53 random bits are below this.
    read_below: u64,
}

enum Choice {
    Uniform,
    Zipfian { ranks: Zipf, places: Permutation },
    Normal { deviation: f64 },
    Sequential { next: u64 },
}

impl Chooser {
    /// Job `job` of stream number `stream` among `pages` pages.
    pub(crate) fn new(plan: &PagingStream, stream: u64, job: u32, pages: u64, seed: u64) -> Chooser {
        let choice = match plan.pattern {
            Pattern::Uniform => Choice::Uniform,
            Pattern::Zipfian { theta } => Choice::Zipfian {
                ranks: Zipf::new(pages, theta),
                // All jobs of a stream agree on the popular pages.
                places: Permutation::new(pages, &mut Rng::new(seed, &[0x9a6e, stream])),
            },
            Pattern::Normal { deviation } => Choice::Normal { deviation },
            Pattern::Sequential => Choice::Sequential {
                next: (u128::from(pages) * u128::from(job) / u128::from(plan.jobs.max(1))) as u64,
            },
        };
        Chooser {
            pages,
            choice,
            rng: Rng::new(seed, &[0x9a6f, stream, u64::from(job)]),
            read_below: (plan.read_fraction * (1_u64 << 53) as f64) as u64,
        }
    }

    /// The next page, and whether it is read.
    #[inline]
    pub(crate) fn next(&mut self) -> (u64, bool) {
        let page = match &mut self.choice {
            Choice::Uniform => self.rng.below(self.pages),
            Choice::Zipfian { ranks, places } => places.apply(ranks.next(&mut self.rng) - 1),
            Choice::Normal { deviation } => normal(self.pages, *deviation, &mut self.rng),
            Choice::Sequential { next } => {
                let page = *next;
                *next = if page + 1 < self.pages { page + 1 } else { 0 };
                page
            }
        };
        (page, self.rng.next_u53() < self.read_below)
    }
}

/// A page around the middle of the mapping; choices outside of it are drawn again.
#[inline]
fn normal(pages: u64, deviation: f64, rng: &mut Rng) -> u64 {
    loop {
        let sum: f64 = (0..SUMMANDS).map(|_| rng.unit()).sum();
        let place = 0.5 + deviation * (sum - f64::from(SUMMANDS) / 2.0);
        if (0.0..1.0).contains(&place) {
            return (place * pages as f64) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 1000;

    fn chooser(pattern: Pattern, job: u32, jobs: u32) -> Chooser {
        let plan = PagingStream {
            name: "main".into(),
            jobs,
            pattern,
            read_fraction: 0.8,
            limit_operations: None,
            cpus: Vec::new(),
        };
        Chooser::new(&plan, 0, job, PAGES, 1)
    }

    fn counts(pattern: Pattern) -> Vec<u32> {
        let mut chooser = chooser(pattern, 0, 1);
        let mut counts = vec![0; PAGES as usize];
        (0..200_000).for_each(|_| counts[chooser.next().0 as usize] += 1);
        counts
    }

    #[test]
    fn uniform_and_sequential_choices_cover_all_pages_and_keep_the_read_fraction() {
        let counts = counts(Pattern::Uniform);
        assert!(counts.iter().all(|count| (100..300).contains(count)), "{counts:?}");
        let mut chooser = chooser(Pattern::Uniform, 0, 1);
        let reads = (0..100_000).filter(|_| chooser.next().1).count();
        assert!((79_000..81_000).contains(&reads), "{reads}");
        let mut second = self::chooser(Pattern::Sequential, 1, 2);
        let visited: Vec<u64> = (0..600).map(|_| second.next().0).collect();
        assert_eq!((visited[0], visited[1], visited[499], visited[500]), (500, 501, 999, 0));
    }

    #[test]
    fn zipfian_and_normal_choices_have_their_shares() {
        let mut counts = counts(Pattern::Zipfian { theta: 0.99 });
        assert!(counts[0] < 20_000, "the most popular page is not the first one");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let weights: f64 = (1..=PAGES).map(|rank| (rank as f64).powf(-0.99)).sum();
        let (found, expected) = (f64::from(counts[0]), 200_000.0 / weights);
        assert!((found / expected - 1.0).abs() < 0.03, "{found} of {expected}");
        let counts = self::counts(Pattern::Normal { deviation: 0.125 });
        let mean_of = |value: &dyn Fn(f64) -> f64| {
            let terms = counts.iter().enumerate();
            let sum: f64 = terms.map(|(page, count)| value(page as f64) * f64::from(*count)).sum();
            sum / 200_000.0
        };
        let mean = mean_of(&|page| page);
        let variance = mean_of(&|page| (page - mean).powi(2));
        assert!((mean - 499.5).abs() < 2.0, "mean {mean}");
        assert!((variance.sqrt() - 125.0).abs() < 2.0, "deviation {}", variance.sqrt());
    }
}
