//! Puts the jobs' interval records together into the run's intervals.
//!
//! An interval is complete when every job has handed over that interval or a later one, or has ended, and, where usage is
//! sampled, when that is known up to its end. If all jobs stall for whole intervals, empty ones are created, so that a
//! stall is seen and not left out.

use std::collections::BTreeMap;
use std::ops::Range;

use iosonde_protocol::{
    DeviceUsage, EngineStalls, Interval, Operation, OperationInterval, Phase, SteadyRamp, StreamInterval, Usage,
    Warning,
};

use crate::heartbeat::Heartbeat;
use crate::ramp::RampWatch;
use crate::recorder::{Exchange, IntervalRecord, OperationRecord};

/// Order of an interval in the run: ramp before measure, then by number.
type Key = (bool, u64);

/// After every interval.
const END: Key = (true, u64::MAX);

/// One job's records, as the collector sees it.
struct Source {
    stream: usize,
    exchange: Exchange,
    /// The last interval handed over.
    reached: Option<Key>,
}

/// Puts intervals together.
pub struct Collector {
    stream_names: Vec<String>,
    open_loop: Vec<bool>,
    sources: Vec<Source>,
    pending: BTreeMap<Key, Pending>,
    usage: BTreeMap<Key, (Usage, Vec<DeviceUsage>)>,
    /// The last interval whose usage is known; every interval has one where usage is sampled.
    noted: Option<Key>,
    awaits_usage: bool,
    heartbeat: Option<Heartbeat>,
    ramp: Option<RampWatch>,
    emitted: Option<Key>,
    interval_ns: u64,
}

struct Pending {
    begin_ns: u64,
    end_ns: u64,
    streams: Vec<StreamSum>,
}

#[derive(Default)]
struct StreamSum {
    backlog_max: u64,
    operations: [OperationRecord; Operation::ALL.len()],
}

impl Collector {
    /// For streams with these names, and whether each is open loop.
    pub fn new(streams: impl Iterator<Item = (String, bool)>, interval_ns: u64) -> Collector {
        let (stream_names, open_loop) = streams.unzip();
        Collector {
            stream_names,
            open_loop,
            sources: Vec::new(),
            pending: BTreeMap::new(),
            usage: BTreeMap::new(),
            noted: None,
            awaits_usage: false,
            heartbeat: None,
            ramp: None,
            emitted: None,
            interval_ns,
        }
    }

    /// Hold every interval back until its usage is noted: a job that reaches its limit hands over its last interval before
    /// the end of the run is known.
    pub fn await_usage(mut self) -> Collector {
        self.awaits_usage = true;
        self
    }

    /// Add to each interval how long the engine did not run.
    pub(crate) fn with_heartbeat(mut self, heartbeat: Heartbeat) -> Collector {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// Judge whether the ramp is steady.
    pub fn with_ramp(mut self, rule: Option<SteadyRamp>) -> Collector {
        self.ramp = rule.map(|rule| RampWatch::new(rule, self.interval_ns));
        self
    }

    /// Returns true if the ramp is to end, because it is steady.
    pub fn is_ramp_steady(&self) -> bool {
        self.ramp.as_ref().is_some_and(RampWatch::is_steady)
    }

    /// A warning if the ramp ended although it was to be steady and is not; asked once, at its end.
    pub fn end_ramp(&mut self) -> Option<Warning> {
        let ramp = self.ramp.take()?;
        (!ramp.is_steady()).then(|| ramp.warning())
    }

    /// Time in which the engine did not run in a part of the run; none without a heartbeat.
    pub(crate) fn stalls(&self, within: Range<u64>) -> EngineStalls {
        self.heartbeat
            .as_ref()
            .map_or_else(EngineStalls::default, |heartbeat| heartbeat.stalls(within))
    }

    /// Adds a job of a stream; returns its number.
    pub fn add(&mut self, stream: usize, exchange: Exchange) -> usize {
        self.sources.push(Source {
            stream,
            exchange,
            reached: None,
        });
        self.sources.len() - 1
    }

    /// Takes everything that jobs have handed over.
    pub fn drain(&mut self) {
        for number in 0..self.sources.len() {
            while let Some(record) = self.sources[number].exchange.take_full() {
                self.merge(number, &record);
                self.sources[number].exchange.give_back(record);
            }
        }
    }

    /// No more will come from this job.
    pub fn job_finished(&mut self, number: usize) {
        self.drain();
        self.sources[number].reached = Some(END);
    }

    /// Notes what process and devices did up to the end of an interval.
    pub fn note_usage(&mut self, phase: Phase, index: u64, process: Usage, devices: Vec<DeviceUsage>) {
        self.noted = self.noted.max(Some(key(phase, index)));
        self.usage.insert(key(phase, index), (process, devices));
    }

    /// The intervals that are complete and were not given before, in order.
    pub fn ready(&mut self) -> Vec<Interval> {
        let Some(reached) = self.complete() else {
            return Vec::new();
        };
        let mut intervals = Vec::new();
        while self.pending.first_key_value().is_some_and(|(key, _)| *key <= reached) {
            let (key, pending) = self.pending.pop_first().expect("looked at above");
            self.fill_gap(key, &pending, &mut intervals);
            intervals.push(self.interval(key, &pending));
            self.emitted = Some(key);
        }
        if let Some(ramp) = &mut self.ramp {
            intervals.iter().for_each(|interval| ramp.add(interval));
        }
        intervals
    }

    /// The last interval to which nothing is added any more. After the last job's end there is none to wait for.
    fn complete(&self) -> Option<Key> {
        let reached = self.sources.iter().map(|source| source.reached).min().flatten();
        if self.awaits_usage && reached < Some(END) {
            reached.min(self.noted)
        } else {
            reached
        }
    }

    fn merge(&mut self, number: usize, record: &IntervalRecord) {
        let (source, key) = (&mut self.sources[number], key(record.phase, record.index));
        source.reached = Some(key);
        let streams = self.stream_names.len();
        let pending = self.pending.entry(key).or_insert_with(|| Pending {
            begin_ns: record.begin_ns,
            end_ns: record.end_ns,
            streams: (0..streams).map(|_| StreamSum::default()).collect(),
        });
        pending.begin_ns = pending.begin_ns.min(record.begin_ns);
        pending.end_ns = pending.end_ns.max(record.end_ns);
        let sum = &mut pending.streams[source.stream];
        sum.backlog_max += record.backlog_max;
        for (total, part) in sum.operations.iter_mut().zip(&record.operations) {
            total.merge(part);
        }
    }

    /// Empty intervals for the time before `pending` in which no job crossed a boundary.
    fn fill_gap(&mut self, key: Key, pending: &Pending, intervals: &mut Vec<Interval>) {
        let first = match self.emitted {
            Some((measure, index)) if measure == key.0 => index + 1,
            _ => 0,
        };
        let origin_ns = pending.begin_ns.saturating_sub(key.1 * self.interval_ns);
        for index in first..key.1 {
            let begin_ns = origin_ns + index * self.interval_ns;
            let streams = (0..self.stream_names.len()).map(|_| StreamSum::default()).collect();
            let empty = Pending {
                begin_ns,
                end_ns: begin_ns + self.interval_ns,
                streams,
            };
            intervals.push(self.interval((key.0, index), &empty));
        }
    }

    fn interval(&mut self, key: Key, pending: &Pending) -> Interval {
        let (process, devices) = self.usage.remove(&key).unwrap_or_default();
        let streams = pending.streams.iter().enumerate();
        let stalls = self.stalls(pending.begin_ns..pending.end_ns);
        Interval {
            phase: if key.0 { Phase::Measure } else { Phase::Ramp },
            index: key.1,
            begin_ns: pending.begin_ns,
            end_ns: pending.end_ns,
            streams: streams.map(|(number, sum)| self.stream_interval(number, sum)).collect(),
            process,
            devices,
            stalled_ns: stalls.stalled_ns,
            stall_max_ns: stalls.longest_ns,
            store: BTreeMap::new(),
            oltp: None,
        }
    }

    fn stream_interval(&self, number: usize, sum: &StreamSum) -> StreamInterval {
        let occurred = Operation::ALL
            .iter()
            .zip(&sum.operations)
            .filter(|(_, record)| !record.is_empty());
        StreamInterval {
            stream: self.stream_names[number].clone(),
            backlog_max: sum.backlog_max,
            operations: occurred
                .map(|(operation, record)| OperationInterval {
                    operation: *operation,
                    count: record.count,
                    bytes: record.bytes,
                    errors: 0,
                    completion_latency: record.completion_latency.to_protocol(),
                    response_latency: self.open_loop[number].then(|| record.response_latency.to_protocol()),
                })
                .collect(),
        }
    }
}

fn key(phase: Phase, index: u64) -> Key {
    (phase == Phase::Measure, index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    const INTERVAL_NS: u64 = 1_000;

    fn of_jobs(jobs: usize) -> (Collector, Vec<Recorder>) {
        let mut collector = Collector::new(std::iter::once(("main".to_string(), false)), INTERVAL_NS);
        let mut recorders = Vec::new();
        for _ in 0..jobs {
            let exchange = Exchange::new();
            collector.add(0, exchange.clone());
            recorders.push(Recorder::new(exchange, INTERVAL_NS));
        }
        for recorder in &mut recorders {
            recorder.begin_phase(Phase::Measure, 0);
        }
        (collector, recorders)
    }

    fn count(interval: &Interval) -> u64 {
        let operations = interval.streams.iter().flat_map(|stream| &stream.operations);
        operations.map(|operation| operation.count).sum()
    }

    #[test]
    fn an_interval_waits_for_the_slowest_job_and_for_none_that_has_ended() {
        let (mut collector, mut recorders) = of_jobs(2);
        for recorder in &mut recorders {
            recorder.record(Operation::Read, 1, 10, None);
        }
        recorders[0].cross(1_000);
        collector.drain();
        assert!(collector.ready().is_empty());
        recorders[1].cross(1_500);
        collector.drain();
        let ready = collector.ready();
        assert_eq!(ready.iter().map(count).collect::<Vec<_>>(), [2]);
        assert_eq!((ready[0].begin_ns, ready[0].end_ns), (0, 1_000));
        let (mut collector, mut recorders) = of_jobs(2);
        recorders[0].end_phase(500);
        collector.job_finished(0);
        recorders[1].cross(3_000);
        collector.drain();
        assert_eq!(collector.ready().len(), 1, "the interval that both were in");
        recorders[1].cross(5_000);
        collector.drain();
        let indices: Vec<u64> = collector.ready().iter().map(|interval| interval.index).collect();
        assert_eq!(indices, [1, 2, 3], "two without a record, and the one handed over");
    }

    #[test]
    fn nothing_is_lost_when_the_collector_is_late() {
        let (mut collector, mut recorders) = of_jobs(1);
        for interval in 0..100 {
            recorders[0].record(Operation::Write, 4096, 10, None);
            recorders[0].cross((interval + 1) * INTERVAL_NS);
        }
        let collected = std::thread::scope(|scope| {
            let mut recorder = recorders.remove(0);
            scope.spawn(move || recorder.end_phase(100 * INTERVAL_NS));
            let mut intervals = Vec::new();
            while intervals.iter().map(count).sum::<u64>() < 100 {
                collector.drain();
                intervals.extend(collector.ready());
            }
            intervals
        });
        assert_eq!(collected.iter().map(count).sum::<u64>(), 100);
        assert!(collected.windows(2).all(|pair| pair[0].index < pair[1].index));
    }

    #[test]
    fn an_interval_waits_for_its_usage_until_all_jobs_have_ended() {
        let (collector, mut recorders) = of_jobs(1);
        let mut collector = collector.await_usage();
        let used = |user_ns| Usage {
            user_ns,
            ..Usage::default()
        };
        recorders[0].cross(1_000);
        collector.drain();
        assert!(collector.ready().is_empty(), "the sample at its boundary is missing");
        collector.note_usage(Phase::Measure, 0, used(7), Vec::new());
        assert_eq!(collector.ready()[0].process.user_ns, 7);
        recorders[0].end_phase(1_300);
        collector.drain();
        // The job reached its limit, and the run continues to its end.
        assert!(collector.ready().is_empty());
        collector.job_finished(0);
        collector.note_usage(Phase::Measure, 1, used(3), Vec::new());
        assert_eq!(collector.ready()[0].process.user_ns, 3);
    }
}
