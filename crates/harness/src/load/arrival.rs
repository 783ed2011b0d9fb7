//! Start times of I/Os in open loop: a schedule that no completion can delay.
//!
//! Instants are whole nanoseconds on the run's clock, but nothing is lost to rounding: a constant schedule computes
//! each instant from its number, a Poisson schedule carries the fraction of a nanosecond on.

use iosonde_protocol::{Arrival, RateStep, Spacing};

use crate::load::{Purpose, Rng};

const NS_PER_SECOND: f64 = 1e9;

/// Instants that are given, such as those of a trace.
pub trait Instants: std::fmt::Debug + Send {
    /// The next one, in nanoseconds since the start of the schedule; [`u64::MAX`] after the last.
    fn next_ns(&mut self) -> u64;

    /// The same instants from here on.
    fn boxed_clone(&self) -> Box<dyn Instants>;
}

impl Clone for Box<dyn Instants> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// The intended starts of one job's I/Os, in ascending order, without end.
#[derive(Debug, Clone)]
pub struct Arrivals {
    schedule: Schedule,
}

#[derive(Debug, Clone)]
enum Schedule {
    /// Arrival number `next` of the stream is this job's next; after it comes `next + jobs`.
    Constant {
        begin_ns: u64,
        gap_ns: f64,
        next: u64,
        jobs: u64,
    },
    Poisson {
        at_ns: u64,
        fraction_ns: f64,
        mean_gap_ns: f64,
        rng: Rng,
    },
    Steps(Steps),
    Given(Box<dyn Instants>),
}

impl Arrivals {
    /// The schedule of a job whose instants are given.
    pub fn given(instants: Box<dyn Instants>) -> Self {
        Self {
            schedule: Schedule::Given(instants),
        }
    }

    /// The schedule of job number `job` of `jobs`, beginning at `begin_ns`; `None` in closed loop.
    ///
    /// Each job carries an equal part of the stream's rate, which must be valid ([`crate::load::check::validate`]). A constant
    /// schedule deals the stream's arrivals out in turn, so that those of all jobs together are at equal gaps; job 0
    /// has the first, at `begin_ns`. In a Poisson schedule the jobs are independent, and together again Poisson.
    pub fn new(arrival: &Arrival, jobs: u32, job: u32, begin_ns: u64, seed: u64, stream_index: u64) -> Option<Self> {
        let schedule = match *arrival {
            // Its instants are given.
            Arrival::Closed | Arrival::Trace { .. } => return None,
            Arrival::Constant { rate } => Schedule::Constant {
                begin_ns,
                gap_ns: NS_PER_SECOND / rate,
                next: u64::from(job),
                jobs: u64::from(jobs),
            },
            Arrival::Poisson { rate } => Schedule::Poisson {
                at_ns: begin_ns,
                fraction_ns: 0.0,
                mean_gap_ns: NS_PER_SECOND / rate * f64::from(jobs),
                rng: Rng::new(seed, &[stream_index, Purpose::Arrivals as u64, u64::from(job)]),
            },
            Arrival::Steps { ref steps, spacing } => Schedule::Steps(Steps {
                steps: steps.clone(),
                current: 0,
                step_begin_ns: begin_ns,
                into_step_ns: 0.0,
                jobs: f64::from(jobs),
                gaps: match spacing {
                    Spacing::Constant => Gaps::Equal {
                        first: Some(f64::from(job)),
                    },
                    Spacing::Poisson => Gaps::Exponential(Rng::new(
                        seed,
                        &[stream_index, Purpose::Arrivals as u64, u64::from(job)],
                    )),
                },
            }),
        };
        Some(Self { schedule })
    }

    /// The next intended start, in nanoseconds on the run's clock.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "the schedule has no end, so there is no `Option` to return"
    )]
    pub fn next(&mut self) -> u64 {
        match &mut self.schedule {
            Schedule::Constant {
                begin_ns,
                gap_ns,
                next,
                jobs,
            } => {
                let at_ns = begin_ns.saturating_add((*next as f64 * *gap_ns) as u64);
                *next += *jobs;
                at_ns
            }
            Schedule::Poisson {
                at_ns,
                fraction_ns,
                mean_gap_ns,
                rng,
            } => {
                let gap_ns = *fraction_ns + *mean_gap_ns * rng.exponential();
                let whole_ns = gap_ns as u64;
                *fraction_ns = gap_ns - whole_ns as f64;
                *at_ns = at_ns.saturating_add(whole_ns);
                *at_ns
            }
            Schedule::Steps(steps) => steps.next(),
            Schedule::Given(instants) => instants.next_ns(),
        }
    }
}

/// Rates that change: a schedule at rate 1, stretched in each step by that step's rate.
#[derive(Debug, Clone)]
struct Steps {
    steps: Vec<RateStep>,
    current: usize,
    step_begin_ns: u64,
    /// Position of the last arrival in the current step, in nanoseconds.
    into_step_ns: f64,
    jobs: f64,
    gaps: Gaps,
}

/// Gaps of a schedule at rate 1, in arrivals of the stream.
#[derive(Debug, Clone)]
enum Gaps {
    /// One for every job in turn; the first is the job's own number.
    Equal {
        first: Option<f64>,
    },
    Exponential(Rng),
}

impl Steps {
    fn next(&mut self) -> u64 {
        let mut arrivals = match &mut self.gaps {
            Gaps::Equal { first } => first.take().unwrap_or(self.jobs),
            Gaps::Exponential(rng) => self.jobs * rng.exponential(),
        };
        loop {
            let RateStep { rate, duration_ns } = self.steps[self.current];
            let is_last = self.current + 1 == self.steps.len();
            let left = (duration_ns as f64 - self.into_step_ns) * rate / NS_PER_SECOND;
            if arrivals < left || (is_last && rate > 0.0) {
                self.into_step_ns += arrivals * NS_PER_SECOND / rate;
                return self.step_begin_ns.saturating_add(self.into_step_ns as u64);
            }
            if is_last {
                return u64::MAX;
            }
            arrivals -= left.max(0.0);
            self.step_begin_ns = self.step_begin_ns.saturating_add(duration_ns);
            self.into_step_ns = 0.0;
            self.current += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::{assert_distributed, assert_frequencies, exponential};

    const BEGIN_NS: u64 = 7_000_000_000;

    fn arrivals(arrival: &Arrival, jobs: u32, job: u32) -> Arrivals {
        Arrivals::new(arrival, jobs, job, BEGIN_NS, 1, 0).expect("the loop is open")
    }

    fn constant(rate: f64, jobs: u32, job: u32) -> Arrivals {
        arrivals(&Arrival::Constant { rate }, jobs, job)
    }

    fn poisson(rate: f64, jobs: u32, job: u32) -> Arrivals {
        arrivals(&Arrival::Poisson { rate }, jobs, job)
    }

    fn take(mut arrivals: Arrivals, count: usize) -> Vec<u64> {
        (0..count).map(|_| arrivals.next()).collect()
    }

    fn gaps(arrivals_ns: &[u64], mean_ns: f64) -> Vec<f64> {
        let pairs = arrivals_ns.windows(2);
        pairs.map(|pair| (pair[1] - pair[0]) as f64 / mean_ns).collect()
    }

    #[test]
    fn a_constant_schedule_does_not_drift_however_odd_the_gap() {
        let last_ns = take(constant(3.0, 1, 0), 300_001)[300_000];
        assert!((last_ns - BEGIN_NS).abs_diff(100_000_000_000_000) <= 1, "{last_ns}");
        for rate in [1e3, 1e5, 1e6, 999_983.0, 1e7] {
            let last_ns = take(constant(rate, 1, 0), 100_001)[100_000] - BEGIN_NS;
            let found = 100_000.0 / last_ns as f64 * 1e9;
            assert!((found / rate - 1.0).abs() < 1e-7, "asked {rate}, found {found}");
        }
    }

    #[test]
    fn a_poisson_schedule_keeps_its_rate() {
        for rate in [1e3, 1e5, 1e6] {
            let last_ns = take(poisson(rate, 1, 0), 1_000_000)[999_999] - BEGIN_NS;
            let found = 1e6 / last_ns as f64 * 1e9;
            // Three standard deviations.
            assert!((found / rate - 1.0).abs() < 3e-3, "asked {rate}, found {found}");
        }
    }

    /// Gaps of 100 ns on average: whole nanoseconds per gap would lose half a nanosecond each, 0.5 %.
    #[test]
    fn fractions_of_a_nanosecond_are_carried_on() {
        let mut rng = Rng::new(1, &[0, Purpose::Arrivals as u64, 0]);
        let exact_ns: f64 = (0..100_000).map(|_| rng.exponential() * 100.0).sum();
        let found_ns = (take(poisson(1e7, 1, 0), 100_000)[99_999] - BEGIN_NS) as f64;
        assert!((found_ns - exact_ns).abs() <= 1.0, "exact {exact_ns}, found {found_ns}");
    }

    #[test]
    fn poisson_gaps_are_exponential_for_a_job_and_for_all_jobs_together() {
        assert_distributed(gaps(&take(poisson(1e5, 1, 0), 20_000), 1e4), exponential);
        assert_distributed(gaps(&take(poisson(1e5, 4, 2), 20_000), 4e4), exponential);
        let mut all_ns: Vec<u64> = (0..4).flat_map(|job| take(poisson(1e5, 4, job), 6000)).collect();
        all_ns.sort_unstable();
        all_ns.truncate(20_000);
        assert_distributed(gaps(&all_ns, 1e4), exponential);
    }

    #[test]
    fn the_jobs_of_a_poisson_schedule_are_independent() {
        let of_job = |job| gaps(&take(poisson(1e6, 2, job), 40_000), 2e3);
        let mut cells = [0; 4];
        for (a, b) in of_job(0).into_iter().zip(of_job(1)) {
            cells[usize::from(a < 2_f64.ln()) * 2 + usize::from(b < 2_f64.ln())] += 1;
        }
        assert_frequencies(&cells, &[0.25; 4]);
    }

    #[test]
    fn a_schedule_slower_than_the_clock_lasts_does_not_overflow() {
        for arrivals in [constant(1e-300, 1, 0), poisson(1e-300, 1, 0)] {
            let found = take(arrivals, 10);
            assert!(found.is_sorted() && found[9] == u64::MAX, "{found:?}");
        }
    }

    fn steps(spacing: Spacing, rates: &[(f64, u64)], jobs: u32, job: u32) -> Arrivals {
        let steps = rates.iter().map(|&(rate, duration_ns)| RateStep { rate, duration_ns });
        let steps = steps.collect();
        arrivals(&Arrival::Steps { steps, spacing }, jobs, job)
    }

    #[test]
    fn steps_hold_their_rates_and_the_last_one_lasts() {
        let second = 1_000_000_000;
        let rates = [(1_000.0, second), (0.0, second), (10_000.0, second), (100.0, second)];
        for spacing in [Spacing::Constant, Spacing::Poisson] {
            let arrivals = take(steps(spacing, &rates, 1, 0), 11_500);
            let within = |from: u64| {
                let range = BEGIN_NS + from * second..BEGIN_NS + (from + 1) * second;
                arrivals.iter().filter(|at| range.contains(at)).count() as f64
            };
            let limit = if spacing == Spacing::Constant { 1.0 } else { 400.0_f64 };
            for (from, expected) in [(0, 1_000.0), (1, 0.0), (2, 10_000.0), (3, 100.0), (4, 100.0)] {
                let (found, deviation) = (within(from), f64::sqrt(expected));
                let is_near = (found - expected).abs() <= limit.min(4.0 * deviation.max(0.3));
                assert!(is_near, "{spacing:?} second {from}: {found}");
            }
        }
    }

    #[test]
    fn the_jobs_of_constant_and_stepped_schedules_take_turns() {
        let rates = [(2_000.0, 500_000_000), (4_000.0, 1)];
        let of_job = |job| take(steps(Spacing::Constant, &rates, 4, job), 500);
        let mut all: Vec<u64> = (0..4).flat_map(of_job).collect();
        all.sort_unstable();
        assert_eq!(all[..1_000], take(steps(Spacing::Constant, &rates, 1, 0), 1_000)[..]);
        let mut all_ns: Vec<u64> = (0..4).flat_map(|job| take(constant(1e6, 4, job), 1000)).collect();
        all_ns.sort_unstable();
        let expected: Vec<u64> = (0..4000).map(|number| BEGIN_NS + number * 1000).collect();
        assert_eq!(all_ns, expected);
    }

    #[test]
    fn a_closed_loop_and_one_after_a_last_step_of_rate_0_have_no_arrivals() {
        let arrivals = steps(Spacing::Constant, &[(10.0, 1_000_000_000), (0.0, 1)], 1, 0);
        assert_eq!(take(arrivals, 11)[10], u64::MAX);
        assert!(Arrivals::new(&Arrival::Closed, 1, 0, 0, 1, 0).is_none());
    }
}
