//! Decides whether a ramp is steady: rate and hit ratio of the last intervals against those before.

use std::collections::VecDeque;

use iosonde_protocol::{Interval, Operation, Phase, SteadyRamp, Warning};

/// Unit of `fs_inputs` (getrusage(2)).
const FS_INPUT_BYTES: f64 = 512.0;
/// A read that misses the page cache requests at least one page.
const PAGE_BYTES: u64 = 4096;
/// Share of an interval during which the engine did not run that makes its rate meaningless.
const STALLED_SHARE: f64 = 0.05;

/// Watches the intervals of a ramp.
pub(crate) struct RampWatch {
    rule: SteadyRamp,
    interval_ns: u64,
    /// The last intervals, at most twice as many as the rule compares.
    recent: VecDeque<Sample>,
    is_steady: bool,
}

#[derive(Clone, Copy)]
struct Sample {
    rate: f64,
    hit_ratio: f64,
}

impl RampWatch {
    pub(crate) fn new(rule: SteadyRamp, interval_ns: u64) -> RampWatch {
        RampWatch {
            rule,
            interval_ns,
            recent: VecDeque::new(),
            is_steady: false,
        }
    }

    /// Takes an interval into account; those of other phases, and partial ones, are ignored.
    pub(crate) fn add(&mut self, interval: &Interval) {
        let length_ns = interval.end_ns.saturating_sub(interval.begin_ns);
        if interval.phase != Phase::Ramp || length_ns < self.interval_ns {
            return;
        }
        if interval.stalled_ns as f64 > STALLED_SHARE * length_ns as f64 {
            self.recent.clear();
            return;
        }
        if self.recent.len() == 2 * self.rule.intervals as usize {
            self.recent.pop_front();
        }
        self.recent.push_back(sample(interval, length_ns));
        self.is_steady |= self.holds();
    }

    /// Returns true if the rule has held.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }

    fn holds(&self) -> bool {
        let half = self.rule.intervals as usize;
        if half == 0 || self.recent.len() < 2 * half {
            return false;
        }
        let mean = |samples: &mut dyn Iterator<Item = f64>| samples.sum::<f64>() / half as f64;
        let of = |value: fn(&Sample) -> f64| {
            (
                mean(&mut self.recent.iter().take(half).map(value)),
                mean(&mut self.recent.iter().skip(half).map(value)),
            )
        };
        let (before, now) = of(|sample| sample.rate);
        let (hits_before, hits_now) = of(|sample| sample.hit_ratio);
        now > 0.0
            && (now - before).abs() <= self.rule.tolerance * now
            && (hits_now - hits_before).abs() <= self.rule.tolerance
    }

    /// For a ramp that its limit ended.
    pub(crate) fn warning(&self) -> Warning {
        Warning {
            code: "ramp_not_steady".into(),
            message: "rate or hit ratio were still changing when the ramp reached its limit".into(),
            hint: "allow a longer `ramp`".into(),
        }
    }
}

fn sample(interval: &Interval, length_ns: u64) -> Sample {
    let operations = || interval.streams.iter().flat_map(|stream| &stream.operations);
    let count: u64 = operations().map(|operation| operation.count).sum();
    let read: u64 = operations()
        .filter(|operation| {
            matches!(
                operation.operation,
                Operation::Read | Operation::Scan | Operation::ReadModifyWrite
            )
        })
        .map(|operation| operation.bytes.max(operation.count * PAGE_BYTES))
        .sum();
    let missed = interval.process.fs_inputs as f64 * FS_INPUT_BYTES;
    Sample {
        rate: count as f64 / length_ns as f64,
        hit_ratio: if read > 0 {
            1.0 - (missed / read as f64).min(1.0)
        } else {
            1.0
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::metrics::histogram::Histogram;
    use iosonde_protocol::{OperationInterval, StreamInterval, Usage};

    const INTERVAL_NS: u64 = 1_000_000;

    fn interval(count: u64, missed_pages: u64) -> Interval {
        let operation = OperationInterval {
            operation: Operation::Read,
            count,
            bytes: count * 100,
            errors: 0,
            completion_latency: Histogram::default().to_protocol(),
            response_latency: None,
        };
        let stream = StreamInterval {
            stream: "main".into(),
            backlog_max: 0,
            operations: vec![operation],
        };
        Interval {
            phase: Phase::Ramp,
            index: 0,
            begin_ns: 0,
            end_ns: INTERVAL_NS,
            streams: vec![stream],
            process: Usage {
                fs_inputs: missed_pages * PAGE_BYTES / 512,
                ..Usage::default()
            },
            devices: Vec::new(),
            stalled_ns: 0,
            stall_max_ns: 0,
            store: BTreeMap::new(),
            oltp: None,
        }
    }

    fn first_steady(intervals: impl Iterator<Item = Interval>) -> Option<usize> {
        let rule = SteadyRamp {
            intervals: 3,
            tolerance: 0.05,
        };
        let mut watch = RampWatch::new(rule, INTERVAL_NS);
        intervals.enumerate().find_map(|(number, interval)| {
            watch.add(&interval);
            watch.is_steady().then_some(number + 1)
        })
    }

    #[test]
    fn a_load_is_steady_two_windows_after_its_rate_and_its_cache_and_never_without_progress() {
        let rising = |number: u64| interval(100 * number.min(20) + 1, 0);
        let warming = |number: u64| interval(1000, 1000 - 50 * number.min(20));
        let found = first_steady((0..40).map(rising)).unwrap();
        assert!((18..27).contains(&found), "{found}");
        let found = first_steady((0..40).map(warming)).unwrap();
        assert!((20..27).contains(&found), "{found}");
        assert_eq!(first_steady((0..20).map(|_| interval(1000, 0))), Some(6));
        let measured = |_| Interval {
            phase: Phase::Measure,
            ..interval(1000, 0)
        };
        let stalled = |number: u64| Interval {
            stalled_ns: if number.is_multiple_of(5) { INTERVAL_NS / 2 } else { 0 },
            ..interval(1000, 0)
        };
        assert_eq!(first_steady((0..20).map(measured)), None);
        assert_eq!(first_steady((0..40).map(|_| interval(0, 0))), None);
        assert_eq!(first_steady((0..40).map(stalled)), None);
    }
}
