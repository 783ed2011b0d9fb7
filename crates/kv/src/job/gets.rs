//! Gets of several records at once, divided among the connections of a store that has them.
//!
//! In closed loop, a stream that only reads sends a connection its next gets as soon as its answers have arrived and were
//! verified. Other streams send a batch to all connections and wait for all answers.

use iosonde_harness::{RunError, wait_until};
use iosonde_protocol::{Operation, ReadThrough, Service};

use super::{Job, Pace};
use crate::store::Keys;

/// The gets of a job; memory that was needed once is kept.
pub(super) struct Gets {
    lanes: Vec<Lane>,
    /// Lanes without gets in flight. At first all.
    idle: Vec<usize>,
    in_flight: u64,
    /// Lane and place of those that the store did not have.
    misses: Vec<(usize, usize)>,
    /// The latest arrival: answers on different connections arrive in any order, and intervals follow each other.
    latest_ns: u64,
}

/// The gets on one connection.
#[derive(Default)]
struct Lane {
    keys: Keys,
    entries: Vec<Get>,
    arrived_ns: Vec<u64>,
    /// Answers that have not arrived.
    missing: usize,
    begin_ns: u64,
}

struct Get {
    number: u64,
    /// Generation that the value must have at least.
    expected: u64,
    /// Of key and value, once the value has arrived.
    bytes: u64,
}

impl Gets {
    pub(super) fn new(lanes: usize) -> Gets {
        Gets {
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            idle: (0..lanes).rev().collect(),
            in_flight: 0,
            misses: Vec::new(),
            latest_ns: 0,
        }
    }

    /// Gets that were sent and not recorded.
    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Number of records of a batch that a lane reads.
    #[inline]
    fn share(&self, lane: usize, records: u64) -> u64 {
        let (lane, lanes) = (lane as u64, self.lanes.len() as u64);
        records * (lane + 1) / lanes - records * lane / lanes
    }
}

impl Lane {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.arrived_ns.clear();
    }

    #[inline]
    fn add(&mut self, number: u64, key: &[u8], expected: u64) {
        self.keys.add(key);
        self.arrived_ns.push(0);
        self.entries.push(Get {
            number,
            expected,
            bytes: 0,
        });
    }
}

impl Job<'_> {
    /// Gets several records and waits for all. Each has its own latency; values are verified after all answers have
    /// arrived.
    pub(super) fn read_many(&mut self, records: u64, now_ns: u64) -> Result<u64, RunError> {
        self.gets.misses.clear();
        for lane in 0..self.gets.lanes.len() {
            let share = self.gets.share(lane, records);
            self.choose_gets(lane, share);
        }
        let intended_ns = self.start(records, now_ns);
        let begin_ns = self.common.clock.now_early();
        if let (Pace::Open(schedule), Some(intended_ns)) = (&mut self.pace, intended_ns) {
            schedule.note_start(intended_ns, begin_ns);
        }
        self.phases.take_batch(records, 0);
        self.phases.started(records, self.found_ns, begin_ns);
        self.gets.idle.clear();
        for lane in 0..self.gets.lanes.len() {
            self.send_gets(lane, begin_ns)?;
        }
        while self.gets.idle.len() < self.gets.lanes.len() {
            self.receive_answers()?;
        }
        let end_ns = self.common.clock.now();
        for lane in 0..self.gets.lanes.len() {
            self.check_answers(lane);
        }
        let end_ns = match self.stream.read_through {
            Some(backend) if !self.gets.misses.is_empty() => self.ask_backend(backend, end_ns),
            _ => end_ns,
        };
        for lane in 0..self.gets.lanes.len() {
            self.record_gets(lane, intended_ns);
        }
        self.session.release();
        if self.stream.read_through.is_some() && !self.gets.misses.is_empty() {
            return self.fill();
        }
        Ok(end_ns)
    }

    /// Sends the next gets to connections that have none in flight, then waits for answers; returns when the last arrived.
    pub(super) fn read_on(&mut self, now_ns: u64) -> Result<u64, RunError> {
        while self.phases.may_issue()
            && let Some(lane) = self.gets.idle.pop()
        {
            let batch = u64::from(self.stream.batch);
            let share = self.gets.share(lane, batch).min(self.phases.operations_left());
            self.choose_gets(lane, share);
            let begin_ns = self.common.clock.now_early();
            self.phases.take_batch(share, 0);
            self.phases.started(share, now_ns, begin_ns);
            self.send_gets(lane, begin_ns)?;
        }
        self.receive()
    }

    /// Waits for answers, and verifies and records those of connections that have all; returns when the last arrived.
    pub(super) fn receive(&mut self) -> Result<u64, RunError> {
        let idle = self.gets.idle.len();
        self.receive_answers()?;
        self.gets.misses.clear();
        for index in idle..self.gets.idle.len() {
            let lane = self.gets.idle[index];
            self.check_answers(lane);
            self.record_gets(lane, None);
        }
        Ok(self.gets.latest_ns)
    }

    /// Draws the records that a lane gets next.
    fn choose_gets(&mut self, lane: usize, records: u64) {
        self.gets.lanes[lane].clear();
        for _ in 0..records {
            let number = self.chooser.record(self.common.inserts);
            self.set_key(number);
            let expected = self.expected_generation(number);
            self.gets.lanes[lane].add(number, &self.key, expected);
        }
    }

    #[inline]
    fn send_gets(&mut self, lane: usize, begin_ns: u64) -> Result<(), RunError> {
        let gets = &mut self.gets.lanes[lane];
        gets.begin_ns = begin_ns;
        gets.missing = gets.entries.len();
        if gets.missing == 0 {
            self.gets.idle.push(lane);
            return Ok(());
        }
        self.gets.in_flight += gets.missing as u64;
        self.session.send_gets(lane, &gets.keys)
    }

    /// Waits until some answers have arrived.
    #[inline]
    fn receive_answers(&mut self) -> Result<(), RunError> {
        let (clock, gets) = (self.common.clock, &mut self.gets);
        self.session.receive_answers(&mut |lane, places| {
            let arrived_ns = clock.now();
            gets.latest_ns = gets.latest_ns.max(arrived_ns);
            let place = &mut gets.lanes[lane];
            place.missing -= places.len();
            place.arrived_ns[places].fill(arrived_ns);
            if place.missing == 0 {
                gets.idle.push(lane);
            }
        })
    }

    /// Verifies the answers of a lane, and notes the misses.
    fn check_answers(&mut self, lane: usize) {
        let tally = &mut self.tallies[Operation::Read as usize];
        let Lane { entries, keys, .. } = &mut self.gets.lanes[lane];
        for (place, get) in entries.iter_mut().enumerate() {
            match self.session.answer(lane, place) {
                Some(value) => {
                    get.bytes = (keys.get(place).len() + value.len()) as u64;
                    if !tally.check(self.common, get.number, value, get.expected) {
                        self.first_corrupted.get_or_insert(get.number);
                    }
                }
                None => {
                    tally.missing += 1;
                    self.gets.misses.push((lane, place));
                }
            }
        }
    }

    fn record_gets(&mut self, lane: usize, intended_ns: Option<u64>) {
        let gets = &self.gets.lanes[lane];
        let mut latest_ns = gets.begin_ns;
        for (get, arrived_ns) in gets.entries.iter().zip(&gets.arrived_ns) {
            latest_ns = latest_ns.max(*arrived_ns);
            self.phases.take_batch(0, get.bytes);
            self.phases.advance(latest_ns, self.gets.in_flight);
            let response_ns = intended_ns.map(|intended_ns| arrived_ns.saturating_sub(intended_ns));
            let latency_ns = arrived_ns.saturating_sub(gets.begin_ns);
            self.phases
                .record(Operation::Read, get.bytes, latest_ns, latency_ns, response_ns);
        }
        self.gets.in_flight -= gets.entries.len() as u64;
    }

    /// Waits for the modelled backend, from which all misses are requested when they are known; returns the time then.
    fn ask_backend(&mut self, backend: ReadThrough, end_ns: u64) -> u64 {
        let mut last_ns = end_ns;
        for index in 0..self.gets.misses.len() {
            let latency_ns = self.backend_latency(backend);
            let (lane, place) = self.gets.misses[index];
            let arrived_ns = &mut self.gets.lanes[lane].arrived_ns[place];
            *arrived_ns += latency_ns;
            last_ns = last_ns.max(*arrived_ns);
        }
        let mut now_ns = self.common.clock.now();
        while now_ns < last_ns {
            now_ns = wait_until(self.common.clock, last_ns);
        }
        now_ns
    }

    /// Latency of the next request to the modelled backend.
    pub(super) fn backend_latency(&mut self, backend: ReadThrough) -> u64 {
        match backend.distribution {
            Service::Constant => backend.latency_ns,
            Service::Exponential => (self.latencies.exponential() * backend.latency_ns as f64) as u64,
        }
    }

    /// Puts the values that the backend returned into the cache.
    fn fill(&mut self) -> Result<u64, RunError> {
        self.batch.clear();
        for (lane, place) in &self.gets.misses {
            self.generation = self.generation.wrapping_add(1);
            let number = self.gets.lanes[*lane].entries[*place].number;
            let generation = Some(self.generation);
            self.batch
                .add(self.common.contents, Operation::Write, number, generation);
        }
        let begin_ns = self.common.clock.now_early();
        for index in 0..self.batch.entries.len() {
            let (key, value) = self.batch.record(index);
            self.session.put(key, value)?;
        }
        self.session.commit(false)?;
        let end_ns = self.common.clock.now();
        let (records, bytes) = (self.batch.entries.len() as u64, self.batch.bytes);
        self.phases.advance_to_completion(end_ns);
        self.phases.record_batch(
            Operation::Write,
            records,
            bytes,
            end_ns,
            end_ns.saturating_sub(begin_ns),
        );
        Ok(end_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::Range;
    use std::rc::Rc;

    use iosonde_harness::Budget;
    use iosonde_protocol::{Direction, KvOperation, KvStream};

    use super::*;
    use crate::records::Contents;
    use crate::store::{Lent, Session};
    use crate::testing::{driven, only_reads, stream};

    /// Two connections: the second answers one get after each five answers of the first.
    struct Uneven<'a> {
        contents: &'a Contents,
        in_flight: [usize; 2],
        values: [Vec<Vec<u8>>; 2],
        answered: usize,
        sent: Rc<RefCell<Vec<usize>>>,
    }

    impl Session for Uneven<'_> {
        fn connections(&self) -> usize {
            2
        }

        fn send_gets(&mut self, connection: usize, keys: &Keys) -> Result<(), RunError> {
            assert_eq!(self.in_flight[connection], 0, "sent before all answers had arrived");
            self.in_flight[connection] = keys.len();
            self.sent.borrow_mut().push(connection);
            let value = |place| {
                let (number, mut value) = (self.contents.number(keys.get(place)).unwrap(), Vec::new());
                self.contents.add_value(number, 0, &mut value);
                value
            };
            self.values[connection] = (0..keys.len()).map(value).collect();
            Ok(())
        }

        fn receive_answers(&mut self, arrived: &mut dyn FnMut(usize, Range<usize>)) -> Result<(), RunError> {
            let connection = usize::from(self.in_flight[0] == 0 || self.answered % 6 == 5);
            let place = self.values[connection].len() - self.in_flight[connection];
            self.in_flight[connection] -= 1;
            self.answered += 1;
            arrived(connection, place..place + 1);
            Ok(())
        }

        fn answer(&self, connection: usize, place: usize) -> Option<&[u8]> {
            Some(&self.values[connection][place])
        }

        fn get(&mut self, _key: &[u8]) -> Result<Option<&[u8]>, RunError> {
            unreachable!("records are read in batches")
        }

        only_reads!();
    }

    /// Reads 24 records in batches of 8; returns the connections in the order in which gets were sent on them.
    fn connections_used(change: impl FnOnce(&mut KvStream)) -> Vec<usize> {
        let mut stream = stream("main", KvOperation::Read);
        stream.batch = 8;
        change(&mut stream);
        let sent = Rc::new(RefCell::new(Vec::new()));
        let mut measure = Budget::UNLIMITED;
        measure.operations = 24;
        let driven = driven(&stream, measure, 1 << 40, |contents| {
            Box::new(Uneven {
                contents,
                in_flight: [0; 2],
                values: Default::default(),
                answered: 0,
                sent: sent.clone(),
            })
        });
        driven.result.unwrap();
        let found = driven.reads;
        assert_eq!((found.values, found.missing, found.corrupted), (24, 0, 0));
        assert_eq!(driven.totals.operations, 24);
        sent.take()
    }

    #[test]
    fn a_closed_loop_of_reads_does_not_wait_for_a_slow_connection_and_paced_batches_do() {
        assert_eq!(connections_used(|_| {}), [0, 1, 0, 0, 0, 0]);
        let used = connections_used(|stream| stream.rate_limit = Some(1e9));
        assert_eq!(used, [0, 1, 0, 1, 0, 1]);
    }
}
