//! Counts of a job, interval by interval, handed over without waiting for other threads.
//!
//! A job owns one [`IntervalRecord`] and writes to it. At the end of an interval it pushes the full one to the collector
//! and takes an empty one, through two bounded lock-free queues. If the collector is late and no empty one is there, the
//! job keeps the one it has: that interval becomes longer, and nothing is lost or allocated.

use std::sync::Arc;

use crate::metrics::histogram::Histogram;
use crossbeam_queue::ArrayQueue;
use iosonde_protocol::{Operation, Phase};

/// Records that circulate between a job and the collector. One turn of the loop hands over at most four.
const RECORDS: usize = 8;

/// Operations that a record has room for.
const OPERATIONS: usize = Operation::ALL.len();

/// Counts and latencies of one operation.
#[derive(Default)]
pub(crate) struct OperationRecord {
    pub count: u64,
    pub bytes: u64,
    pub completion_latency: Histogram,
    /// Filled in open loop only.
    pub response_latency: Histogram,
}

impl OperationRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn merge(&mut self, other: &OperationRecord) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.completion_latency.merge(&other.completion_latency);
        self.response_latency.merge(&other.response_latency);
    }

    fn clear(&mut self) {
        self.count = 0;
        self.bytes = 0;
        self.completion_latency.clear();
        self.response_latency.clear();
    }
}

/// One interval of one job.
pub(crate) struct IntervalRecord {
    pub phase: Phase,
    pub index: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub backlog_max: u64,
    pub operations: [OperationRecord; OPERATIONS],
}

impl IntervalRecord {
    fn new() -> IntervalRecord {
        IntervalRecord {
            phase: Phase::Ramp,
            index: 0,
            begin_ns: 0,
            end_ns: 0,
            backlog_max: 0,
            operations: Default::default(),
        }
    }

    fn begin(&mut self, phase: Phase, index: u64, begin_ns: u64) {
        (self.phase, self.index, self.begin_ns, self.end_ns) = (phase, index, begin_ns, begin_ns);
        self.backlog_max = 0;
        self.operations.iter_mut().for_each(OperationRecord::clear);
    }
}

/// The queues between one job and the collector.
#[derive(Clone)]
pub struct Exchange {
    full: Arc<ArrayQueue<Box<IntervalRecord>>>,
    empty: Arc<ArrayQueue<Box<IntervalRecord>>>,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::new()
    }
}

impl Exchange {
    /// Queues with all their records, empty.
    pub fn new() -> Exchange {
        let empty = ArrayQueue::new(RECORDS);
        for _ in 0..RECORDS {
            let pushed = empty.push(Box::new(IntervalRecord::new()));
            debug_assert!(pushed.is_ok(), "the queue holds all records");
        }
        Exchange {
            full: Arc::new(ArrayQueue::new(RECORDS)),
            empty: Arc::new(empty),
        }
    }

    /// For the collector: the oldest full record.
    pub(crate) fn take_full(&self) -> Option<Box<IntervalRecord>> {
        self.full.pop()
    }

    /// For the collector: gives a record back.
    pub(crate) fn give_back(&self, record: Box<IntervalRecord>) {
        let pushed = self.empty.push(record);
        debug_assert!(pushed.is_ok(), "there are never more records than places");
    }
}

/// A job's side: the record it writes to, and when that interval ends.
pub struct Recorder {
    exchange: Exchange,
    current: Box<IntervalRecord>,
    interval_ns: u64,
    /// When the current phase began; intervals count from there.
    origin_ns: u64,
    /// End of the current interval.
    boundary_ns: u64,
}

impl Recorder {
    /// A recorder that hands over to `exchange`, in intervals of `interval_ns`.
    pub fn new(exchange: Exchange, interval_ns: u64) -> Recorder {
        let current = exchange.empty.pop().expect("a new exchange holds records");
        Recorder {
            exchange,
            current,
            interval_ns,
            origin_ns: 0,
            boundary_ns: u64::MAX,
        }
    }

    /// Begins a phase at an instant; whatever was recorded before it is handed over.
    pub(crate) fn begin_phase(&mut self, phase: Phase, at_ns: u64) {
        self.origin_ns = at_ns;
        self.boundary_ns = at_ns + self.interval_ns;
        self.current.begin(phase, 0, at_ns);
    }

    /// When [`Recorder::cross`] must be called next.
    #[inline]
    pub(crate) fn boundary_ns(&self) -> u64 {
        self.boundary_ns
    }

    /// Hands over the interval that ended at or before `now`, and begins the one that holds `now`.
    pub(crate) fn cross(&mut self, now_ns: u64) {
        let index = (now_ns - self.origin_ns) / self.interval_ns;
        let begin_ns = self.origin_ns + index * self.interval_ns;
        let phase = self.current.phase;
        if self.hand_over(self.boundary_ns) {
            self.current.begin(phase, index, begin_ns);
        }
        self.boundary_ns = begin_ns + self.interval_ns;
    }

    /// Hands over the rest of the phase, which ended at `end_ns`. Unlike within a phase, this waits for the
    /// collector if it must: the load has ended or is about to restart.
    pub(crate) fn end_phase(&mut self, end_ns: u64) {
        self.boundary_ns = u64::MAX;
        while !self.hand_over(end_ns) {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    /// Counts operations that began and completed together, as those of a batch do: each took as long as the batch.
    pub(crate) fn record_batch(&mut self, operation: Operation, operations: u64, bytes: u64, completion_ns: u64) {
        let record = &mut self.current.operations[operation as usize];
        record.count += operations;
        record.bytes += bytes;
        record.completion_latency.record_many(completion_ns, operations);
    }

    /// Counts operations of one kind by their latencies.
    pub(crate) fn record_each(&mut self, operation: Operation, bytes: u64, latencies: &[u64]) {
        let record = &mut self.current.operations[operation as usize];
        record.count += latencies.len() as u64;
        record.bytes += bytes;
        for latency_ns in latencies {
            record.completion_latency.record(*latency_ns);
        }
    }

    /// Counts one I/O.
    #[inline]
    pub(crate) fn record(&mut self, operation: Operation, bytes: u64, completion_ns: u64, response_ns: Option<u64>) {
        let record = &mut self.current.operations[operation as usize];
        record.count += 1;
        record.bytes += bytes;
        record.completion_latency.record(completion_ns);
        if let Some(response_ns) = response_ns {
            record.response_latency.record(response_ns);
        }
    }

    /// Notes how many I/Os are due but not started.
    #[inline]
    pub(crate) fn backlog(&mut self, backlog: u64) {
        self.current.backlog_max = self.current.backlog_max.max(backlog);
    }

    fn hand_over(&mut self, end_ns: u64) -> bool {
        let Some(empty) = self.exchange.empty.pop() else {
            return false;
        };
        self.current.end_ns = end_ns;
        let full = std::mem::replace(&mut self.current, empty);
        let pushed = self.exchange.full.push(full);
        debug_assert!(pushed.is_ok(), "there are never more records than places");
        true
    }
}
