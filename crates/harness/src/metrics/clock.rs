//! The clock of a run: nanoseconds since its 0, for a few nanoseconds a reading.
//!
//! Two readings go with every I/O, so their cost decides what a core can drive. Where the kernel itself keeps time by
//! the CPU's time-stamp counter, [`Clock`] reads the counter directly; elsewhere it reads `CLOCK_MONOTONIC`.
//!
//! The counter's rate is found by two readings of it against `CLOCK_MONOTONIC_RAW`, 20 ms apart. Each reading is the
//! tightest of many brackets (counter, kernel clock, counter), so the error of the rate is at most half of both
//! brackets' widths over 20 ms; a rate that could be off by more than 50 ppm is refused and the kernel's clock used.
//! `CLOCK_MONOTONIC_RAW` rather than `CLOCK_MONOTONIC`, because the latter may just then be slewed (chrony: up to 8 %), and
//! that rate would stay for the whole run.

use nix::time::ClockId;

/// Attempts at a bracket; the tightest counts.
const BRACKETS: usize = 64;
/// Readings in one batch when their cost is measured, and number of batches.
const COST_READINGS: u32 = 500;
const COST_BATCHES: usize = 8;

/// A monotone clock in nanoseconds since the run's 0. Copies share the 0.
///
/// ```
/// let clock = iosonde_harness::metrics::Clock::start();
/// let before_ns = clock.now();
/// assert!(clock.now() >= before_ns);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
    read_cost_ns: f64,
    realtime_at_zero_ns: u64,
}

impl Clock {
    /// Starts the best clock that this machine has; takes about 21 ms. The instant of return is close to 0.
    pub fn start() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(source) = tsc::calibrate() {
            return Self::with(source);
        }
        Self::monotonic()
    }

    /// Starts a clock that asks the kernel for `CLOCK_MONOTONIC`.
    pub fn monotonic() -> Self {
        Self::with(Source::Monotonic {
            zero_ns: kernel_ns(ClockId::CLOCK_MONOTONIC),
        })
    }

    /// Nanoseconds since 0. Never less than any earlier reading, on whichever thread that was.
    #[inline]
    pub fn now(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Tsc {
                zero_ticks,
                ns_per_tick_q32,
            } => tsc::to_ns(tsc::read().saturating_sub(zero_ticks), ns_per_tick_q32),
            Source::Monotonic { zero_ns } => kernel_ns(ClockId::CLOCK_MONOTONIC) - zero_ns,
        }
    }

    /// Like [`Clock::now`], for the beginning of something, at about half the cost: the CPU may take the reading before the
    /// work that precedes it is quite finished, some nanoseconds early. Never for an end: that could be taken before what
    /// it ends.
    #[inline]
    pub fn now_early(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Tsc {
                zero_ticks,
                ns_per_tick_q32,
            } => tsc::to_ns(tsc::read_early().saturating_sub(zero_ticks), ns_per_tick_q32),
            Source::Monotonic { .. } => self.now(),
        }
    }

    /// Clock source: `tsc` or `monotonic`.
    pub fn name(&self) -> &'static str {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Tsc { .. } => "tsc",
            Source::Monotonic { .. } => "monotonic",
        }
    }

    /// Cost of one reading in nanoseconds, measured when the clock was started.
    pub fn read_cost_ns(&self) -> f64 {
        self.read_cost_ns
    }

    /// Unix time in nanoseconds at this clock's 0.
    pub fn realtime_at_zero_ns(&self) -> u64 {
        self.realtime_at_zero_ns
    }

    /// This clock and `CLOCK_REALTIME` at one instant: the tightest of several brackets, within 1 us.
    pub fn wall(&self) -> WallReading {
        let bracket = |_| {
            let before_ns = self.now();
            let unix_ns = kernel_ns(ClockId::CLOCK_REALTIME);
            let after_ns = self.now();
            (after_ns - before_ns, before_ns.midpoint(after_ns), unix_ns)
        };
        let (_, clock_ns, unix_ns) = (0..BRACKETS).map(bracket).min().expect("there is a bracket");
        WallReading { clock_ns, unix_ns }
    }

    fn with(source: Source) -> Self {
        let mut clock = Self {
            source,
            read_cost_ns: 0.0,
            realtime_at_zero_ns: 0,
        };
        clock.read_cost_ns = measured_read_cost_ns(&clock);
        clock.realtime_at_zero_ns = kernel_ns(ClockId::CLOCK_REALTIME).saturating_sub(clock.now());
        clock
    }
}

/// A clock and `CLOCK_REALTIME` at one instant. Converts instants close to it, between which neither is adjusted.
#[derive(Debug, Clone, Copy)]
pub struct WallReading {
    clock_ns: u64,
    unix_ns: u64,
}

impl WallReading {
    /// The Unix time of an instant of the clock.
    pub fn unix_ns(&self, clock_ns: u64) -> u64 {
        shifted(self.unix_ns, self.clock_ns, clock_ns)
    }

    /// The instant of the clock at a Unix time; 0 if that is before the clock's 0.
    pub fn clock_ns(&self, unix_ns: u64) -> u64 {
        shifted(self.clock_ns, self.unix_ns, unix_ns)
    }
}

/// `value` and the time from one instant to another; 0 instead of less.
fn shifted(value: u64, from_ns: u64, to_ns: u64) -> u64 {
    value
        .saturating_add(to_ns.saturating_sub(from_ns))
        .saturating_sub(from_ns.saturating_sub(to_ns))
}

/// `CLOCK_REALTIME` now, in nanoseconds.
pub fn unix_ns() -> u64 {
    kernel_ns(ClockId::CLOCK_REALTIME)
}

#[derive(Debug, Clone, Copy)]
enum Source {
    #[cfg(target_arch = "x86_64")]
    Tsc {
        zero_ticks: u64,
        /// Nanoseconds in a tick, as a multiple of 2^-32.
        ns_per_tick_q32: u64,
    },
    Monotonic {
        zero_ns: u64,
    },
}

/// A kernel clock in nanoseconds.
fn kernel_ns(clock: ClockId) -> u64 {
    let time = clock.now().expect("Linux has had each of these clocks since 2.6.28");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// The cheapest batch counts: whatever interrupts a batch only adds to it.
fn measured_read_cost_ns(clock: &Clock) -> f64 {
    let batch_ns = || {
        let begin_ns = clock.now();
        for _ in 1..COST_READINGS {
            std::hint::black_box(clock.now());
        }
        clock.now() - begin_ns
    };
    let best_ns = (0..COST_BATCHES).map(|_| batch_ns()).min().expect("there is a batch");
    best_ns as f64 / f64::from(COST_READINGS)
}

/// The CPU's time-stamp counter.
#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::time::Duration;

    use nix::time::ClockId;

    use super::{BRACKETS, Source, kernel_ns};

    /// Distance between the two readings that give the counter's rate.
    const CALIBRATION: Duration = Duration::from_millis(20);
    /// Error of the counter's rate from which on the counter is not used.
    const RATE_ERROR_MAX: f64 = 50e-6;

    /// The counter with its rate, if it is fit to keep time.
    pub(super) fn calibrate() -> Option<Source> {
        if !is_timekeeper() {
            return None;
        }
        let first = Reading::take();
        std::thread::sleep(CALIBRATION);
        let second = Reading::take();
        let ticks = second.ticks.checked_sub(first.ticks).filter(|&ticks| ticks > 0)?;
        let elapsed_ns = second.kernel_ns.checked_sub(first.kernel_ns)?;
        let error = (first.uncertainty_ticks + second.uncertainty_ticks) as f64 / ticks as f64;
        if error > RATE_ERROR_MAX {
            return None;
        }
        let ns_per_tick_q32 = ((u128::from(elapsed_ns) << 32) / u128::from(ticks)) as u64;
        Some(Source::Tsc {
            zero_ticks: second.ticks,
            ns_per_tick_q32,
        })
    }

    /// Reads the counter, not before earlier loads have their values.
    ///
    /// Plain `rdtsc` may execute before an earlier load, even before the one that shows a completion: the latency would
    /// come out short, and two threads could see time go backward between them. `rdtscp` waits (Intel SDM, volume 2B).
    /// Measured on a virtual Sapphire Rapids Xeon: `rdtsc` 9 ns, `rdtscp` 15 ns, `clock_gettime` 20 ns.
    #[inline]
    pub(super) fn read() -> u64 {
        let mut processor = 0;
        // SAFETY: the instruction reads the counter and a register; `calibrate` checked that this CPU has it, and
        // nothing else makes a `Source::Tsc`.
        unsafe { core::arch::x86_64::__rdtscp(&mut processor) }
    }

    /// The counter without waiting for the instructions before.
    #[inline]
    pub(super) fn read_early() -> u64 {
        // SAFETY: the instruction reads the counter, which every CPU of this architecture has.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    #[inline]
    pub(super) fn to_ns(ticks: u64, ns_per_tick_q32: u64) -> u64 {
        ((u128::from(ticks) * u128::from(ns_per_tick_q32)) >> 32) as u64
    }

    /// True if the counter runs at one rate through all power states, is readable, and is the kernel's clock source:
    /// the kernel has then found it in step on all cores and monitors that.
    fn is_timekeeper() -> bool {
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = processors
            .lines()
            .find(|line| line.starts_with("flags"))
            .unwrap_or_default();
        let has = |name| flags.split_whitespace().any(|flag| flag == name);
        source.is_ok_and(|name| name.trim() == "tsc") && has("constant_tsc") && has("nonstop_tsc") && has("rdtscp")
    }

    /// The counter and the kernel's clock at one instant.
    struct Reading {
        ticks: u64,
        kernel_ns: u64,
        /// The two may be this far apart.
        uncertainty_ticks: u64,
    }

    impl Reading {
        /// The tightest of several brackets.
        fn take() -> Self {
            let brackets = (0..BRACKETS).map(|_| Self::bracket());
            brackets
                .min_by_key(|reading| reading.uncertainty_ticks)
                .expect("there is a bracket")
        }

        fn bracket() -> Self {
            let before = read();
            let kernel_ns = kernel_ns(ClockId::CLOCK_MONOTONIC_RAW);
            let width = read().saturating_sub(before);
            Self {
                ticks: before + width / 2,
                kernel_ns,
                uncertainty_ticks: width / 2,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    /// By how much the clock runs faster than a kernel clock, as a fraction, at most: readings of the kernel's clock lie
    /// between two of the clock, however long a thread waits for its CPU.
    fn assert_keeps_the_rate(clock: &Clock, kernel: ClockId) {
        let reading = || {
            let before_ns = clock.now();
            let kernel_ns = kernel_ns(kernel);
            (before_ns, kernel_ns, clock.now())
        };
        let (begin_ns, kernel_begin_ns, later_ns) = reading();
        std::thread::sleep(Duration::from_millis(200));
        let (earlier_ns, kernel_end_ns, end_ns) = reading();
        let kernel_ns = (kernel_end_ns - kernel_begin_ns) as f64;
        let (least, most) = ((earlier_ns - later_ns) as f64, (end_ns - begin_ns) as f64);
        let range = least / kernel_ns - 1.0..most / kernel_ns - 1.0;
        assert!(range.start < 100e-6 && range.end > -100e-6, "off by {range:?}");
    }

    #[test]
    fn both_clocks_keep_the_kernels_rate_also_for_decades() {
        // `CLOCK_MONOTONIC` may be slewed while the test runs; what the clock promises is the raw rate.
        assert_keeps_the_rate(&Clock::start(), ClockId::CLOCK_MONOTONIC_RAW);
        let fallback = Clock::monotonic();
        assert_eq!(fallback.name(), "monotonic");
        assert_keeps_the_rate(&fallback, ClockId::CLOCK_MONOTONIC);
    }

    #[test]
    fn time_never_goes_back_even_between_threads() {
        for clock in [Clock::start(), Clock::monotonic()] {
            let latest_ns = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..100_000 {
                            let seen_ns = latest_ns.load(Ordering::Acquire);
                            let now_ns = clock.now();
                            assert!(now_ns >= seen_ns, "{} went back to {now_ns}", clock.name());
                            latest_ns.fetch_max(now_ns, Ordering::AcqRel);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn zero_is_tied_to_the_wall_clock_and_instants_convert_both_ways() {
        const TOLERANCE_NS: u64 = 50_000_000;
        for clock in [Clock::start(), Clock::monotonic()] {
            let before_ns = unix_ns();
            let reported_ns = clock.realtime_at_zero_ns() + clock.now();
            let range = before_ns - TOLERANCE_NS..unix_ns() + TOLERANCE_NS;
            assert!(range.contains(&reported_ns), "{} {reported_ns} {range:?}", clock.name());
            assert!(clock.read_cost_ns() > 0.0);
        }
        let clock = Clock::start();
        let (before_ns, reading, after_ns) = (unix_ns(), clock.wall(), unix_ns());
        assert!((before_ns..=after_ns).contains(&reading.unix_ns(reading.clock_ns)));
        for clock_ns in [reading.clock_ns + 5_000_000, reading.clock_ns / 2] {
            assert_eq!(reading.clock_ns(reading.unix_ns(clock_ns)), clock_ns);
        }
        assert_eq!(reading.clock_ns(0), 0, "long before the clock was started");
        let last_ns = u64::MAX - reading.unix_ns + reading.clock_ns;
        assert_eq!(reading.clock_ns(u64::MAX), last_ns);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn ticks_of_decades_convert_without_loss() {
        let half_ns_q32 = 1 << 31;
        assert_eq!(tsc::to_ns(1 << 62, half_ns_q32), 1 << 61);
        assert_eq!(tsc::to_ns((1 << 62) + 2, half_ns_q32), (1 << 61) + 1);
    }
}
