//! One job: a thread that executes one operation or batch after the other on its own session of the store.
//!
//! Values to write are generated before the clock is read, and values read are verified after it. Once buffers have grown
//! to the largest record, the loop allocates nothing; it never logs or formats.

mod gets;
mod replay;
mod row;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use iosonde_harness::load::{Arrivals, Rng, Schedule};
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Code, JobDone, JobPhases, RunError, Stage, wait_until, wait_until_due};
use iosonde_protocol::{Direction, KvOperation, KvStream, Operation};

use crate::choice::{Chooser, Inserts};
use crate::freshness::Freshness;
use crate::records::{Contents, prefetch};
use crate::sample::Sample;
use crate::store::{Lent, Session};
use crate::trace::Replay;
use gets::Gets;
use row::Reads;

/// The smallest page that a machine maps.
const PAGE_BYTES: usize = 4096;
/// State that the jobs of a run share.
pub(crate) struct Common<'a> {
    pub clock: Clock,
    pub contents: &'a Contents,
    /// Keys of a user's database; absent for our own records.
    pub sample: Option<&'a Sample>,
    pub inserts: &'a Inserts,
    /// Foreground jobs that have not ended.
    pub foreground: &'a AtomicU32,
    /// Iterators must return the records below this number without gaps; 0 if records may be missing.
    pub complete_below: u64,
    /// Present if any stream checks it.
    pub freshness: Option<&'a Freshness>,
}

/// Verification of the values read by one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub values: u64,
    pub missing: u64,
    pub corrupted: u64,
    pub stale: u64,
}

/// The tallies of a job, by operation.
pub(crate) type Tallies = [Tally; Operation::ALL.len()];

/// Results of a job.
pub(crate) struct Found {
    pub tallies: Tallies,
    /// Number of the first record with a corrupted value.
    pub first_corrupted: Option<u64>,
}

/// Parts of a job.
pub(crate) struct JobPlan<'a> {
    pub stream: &'a KvStream,
    pub chooser: Chooser,
    pub arrivals: Option<Arrivals>,
    /// Number of this job among the inserting jobs.
    pub inserter: Option<usize>,
    pub generations: Rng,
    pub latencies: Rng,
    /// Rows to replay instead of operations of the chooser.
    pub replay: Option<Replay>,
}

/// One job; see the module.
pub(crate) struct Job<'a> {
    common: &'a Common<'a>,
    stream: &'a KvStream,
    pub(crate) phases: JobPhases<'a>,
    session: Box<dyn Session + 'a>,
    chooser: Chooser,
    pace: Pace,
    arrivals: Option<Arrivals>,
    /// Its batches, if it has any, may consist of reads.
    reads_in_batches: bool,
    /// A connection whose answers have arrived gets its next reads at once, without waiting for the others.
    reads_on: bool,
    /// Present if the job does nothing but read, one record after the other.
    reads: Option<Box<Reads<'a>>>,
    inserter: Option<usize>,
    inserted: u64,
    generation: u64,
    /// Of the modelled backend.
    latencies: Rng,
    replay: Option<Replay>,
    iterating: bool,
    /// Position of the iterator of `iterate`.
    sequence: Sequence,
    /// CPU time spent spinning.
    spun_ns: u64,
    /// Completion time of the previous operation.
    found_ns: u64,
    batch: Batch,
    gets: Gets,
    arrival: Arrival,
    /// Excludes other writers of the record that is being written; only with freshness checks.
    turn: Option<MutexGuard<'a, ()>>,
    key: Vec<u8>,
    /// A record being updated, and its new field.
    value: Vec<u8>,
    field: Vec<u8>,
    tallies: Tallies,
    /// Number of the first record with a corrupted value.
    first_corrupted: Option<u64>,
}

/// Start of the next operation.
enum Pace {
    /// Immediately.
    Closed,
    /// Not before `next_ns`, which advances by `gap_ns` per record.
    Limited { next_ns: u64, gap_ns: f64 },
    /// On schedule.
    Open(Box<Schedule>),
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        plan: JobPlan<'a>,
        common: &'a Common<'a>,
        phases: JobPhases<'a>,
        session: Box<dyn Session + 'a>,
    ) -> Job<'a> {
        let (mut generations, latencies) = (plan.generations, plan.latencies);
        let connections = session.connections().clamp(1, plan.stream.batch.max(1) as usize);
        let only_reads = (plan.stream.operations.iter()).all(|share| share.operation == KvOperation::Read);
        let arrival = match session.reads_byte_before_value() {
            true => Arrival::FirstPageRead,
            false => Arrival::NothingRead,
        };
        let is_paced = plan.arrivals.is_some() || plan.stream.rate_limit.is_some();
        let is_simple = only_reads && plan.stream.read_through.is_none() && !is_paced;
        let reads_in_rows = is_simple
            && plan.stream.batch <= 1
            && plan.replay.is_none()
            && !plan.stream.background
            && !plan.stream.freshness
            && plan.chooser.can_draw_ahead();
        Job {
            common,
            stream: plan.stream,
            phases,
            session,
            chooser: plan.chooser,
            pace: match plan.stream.rate_limit {
                Some(rate) => Pace::Limited {
                    next_ns: 0,
                    gap_ns: 1e9 / rate * f64::from(plan.stream.jobs),
                },
                None => Pace::Closed,
            },
            arrivals: plan.arrivals,
            reads_in_batches: (plan.stream.operations.iter()).any(|share| share.operation == KvOperation::Read),
            reads_on: is_simple && plan.stream.batch > 1,
            reads: reads_in_rows.then(Default::default),
            inserter: plan.inserter,
            inserted: 0,
            // Different from those of other jobs and runs, and from the generation of loaded records.
            generation: generations.next_u64() | 1 << 63,
            latencies,
            replay: plan.replay,
            iterating: false,
            sequence: Sequence::default(),
            spun_ns: 0,
            found_ns: 0,
            batch: Batch::default(),
            gets: Gets::new(connections),
            arrival,
            turn: None,
            key: Vec::new(),
            value: Vec::new(),
            field: Vec::new(),
            tallies: Tallies::default(),
            first_corrupted: None,
        }
    }

    /// Runs until the load ends: the measuring loop.
    pub(crate) fn drive(&mut self) -> Result<(), RunError> {
        let begin_ns = self.phases.begin();
        if let Some(arrivals) = self.arrivals.take() {
            self.pace = Pace::Open(Box::new(Schedule::new(arrivals, begin_ns)));
        }
        let mut now_ns = self.common.clock.now();
        loop {
            self.phases.advance(now_ns, self.gets.in_flight());
            if self.stream.background && self.common.foreground.load(Ordering::Relaxed) == 0 {
                self.phases.end_load(now_ns);
            }
            if self.has_replayed_all() {
                now_ns = self.end_of_trace(now_ns);
                if self.phases.stage() == Stage::Drain {
                    return Ok(());
                }
                continue;
            }
            if !self.phases.may_issue() {
                if self.gets.in_flight() > 0 {
                    now_ns = self.receive()?;
                    continue;
                }
                self.phases.notice_exhaustion(now_ns, 0);
                if self.phases.stage() == Stage::Drain {
                    return Ok(());
                }
                now_ns = wait_until(self.common.clock, self.phases.idle_until(now_ns));
                continue;
            }
            let due_ns = self.due_ns();
            if due_ns > now_ns {
                let until_ns = due_ns.min(self.phases.idle_until(now_ns));
                now_ns = wait_until_due(self.common.clock, now_ns, until_ns, &mut self.spun_ns);
            } else {
                now_ns = self.step(now_ns)?;
            }
        }
    }

    /// Ends the load of a job that has replayed all its rows, but not before the measurement starts; returns the time.
    fn end_of_trace(&mut self, now_ns: u64) -> u64 {
        match self.phases.stage() {
            Stage::Ramp => wait_until(self.common.clock, u64::MAX),
            Stage::Measure | Stage::Drain => {
                self.phases.end_load(now_ns);
                now_ns
            }
        }
    }

    #[inline]
    fn due_ns(&self) -> u64 {
        match &self.pace {
            Pace::Closed => 0,
            Pace::Limited { next_ns, .. } => *next_ns,
            Pace::Open(schedule) => schedule.next_ns(),
        }
    }

    pub(crate) fn into_done(self) -> JobDone<Found> {
        let end_ns = self.phases.ended_ns();
        let schedule = match self.pace {
            Pace::Open(schedule) => Some(schedule.into_result(end_ns, self.spun_ns)),
            Pace::Closed | Pace::Limited { .. } => None,
        };
        let found = Found {
            tallies: self.tallies,
            first_corrupted: self.first_corrupted,
        };
        JobDone {
            schedule,
            ..JobDone::new(self.phases.into_outcome(), found)
        }
    }

    /// One operation or batch; returns the instant of its completion.
    #[inline]
    fn step(&mut self, now_ns: u64) -> Result<u64, RunError> {
        self.found_ns = now_ns;
        if let Some(mut reads) = self.reads.take() {
            let end_ns = self.read_row(&mut reads, now_ns);
            self.reads = Some(reads);
            return end_ns;
        }
        if self.replay.is_some() {
            return self.replay_next(now_ns);
        }
        self.chooser.age(now_ns);
        if self.reads_on {
            return self.read_on(now_ns);
        }
        if self.stream.batch > 1 {
            let records = u64::from(self.stream.batch).min(self.phases.operations_left());
            if self.reads_in_batches {
                return self.batch_of_one_kind(records, now_ns);
            }
            self.gather(records);
            return self.write(now_ns);
        }
        let operation = self.chooser.operation();
        match operation {
            KvOperation::Read if self.stream.read_through.is_some() => self.read_many(1, now_ns),
            KvOperation::Read => self.read(now_ns),
            KvOperation::UpdateField => self.update_field(now_ns, Operation::Write),
            KvOperation::ReadModifyWrite if self.common.contents.fields() > 1 => {
                self.update_field(now_ns, Operation::ReadModifyWrite)
            }
            KvOperation::Update | KvOperation::Insert | KvOperation::Delete => {
                self.batch.clear();
                self.add(operation);
                self.write(now_ns)
            }
            KvOperation::Scan => self.scan(now_ns),
            KvOperation::Iterate => self.iterate(now_ns),
            KvOperation::ReadModifyWrite => self.read_modify_write(now_ns),
        }
    }

    /// Writes the key of a record to the buffer.
    #[inline(always)]
    fn set_key(&mut self, number: u64) {
        match self.common.sample {
            None => self.common.contents.key(number, &mut self.key),
            Some(sample) => {
                self.key.clear();
                self.key.extend_from_slice(sample.key(number));
            }
        }
    }

    /// The generation that a read of a record must return at least; 0 without a check.
    #[inline]
    fn expected_generation(&self, number: u64) -> u64 {
        match self.common.freshness {
            Some(freshness) if self.stream.freshness => freshness.expected(number),
            _ => 0,
        }
    }

    fn read(&mut self, now_ns: u64) -> Result<u64, RunError> {
        let number = self.chooser.record(self.common.inserts);
        self.set_key(number);
        self.common.contents.prefetch(number);
        let expected = self.expected_generation(number);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let value = self.session.get(&self.key)?;
        self.arrival.complete(value.unwrap_or_default());
        let end_ns = self.common.clock.now();
        // The read is recorded before its value is verified: meanwhile the CPU loads the value.
        let completed = Completed {
            operation: Operation::Read,
            bytes: read_bytes(&self.key, value),
            begin_ns,
            end_ns,
            intended_ns,
        };
        completed.record(&mut self.pace, &mut self.phases, self.found_ns);
        let tally = &mut self.tallies[Operation::Read as usize];
        tally.note(self.common, number, value, expected, &mut self.first_corrupted);
        self.session.release();
        Ok(end_ns)
    }

    /// A batch of operations of one kind, which is drawn once for all: reads and writes cannot be sent together.
    fn batch_of_one_kind(&mut self, records: u64, now_ns: u64) -> Result<u64, RunError> {
        let operation = self.chooser.operation();
        if operation == KvOperation::Read {
            return self.read_many(records, now_ns);
        }
        self.batch.clear();
        for _ in 0..records {
            self.add(operation);
        }
        self.write(now_ns)
    }

    fn read_modify_write(&mut self, now_ns: u64) -> Result<u64, RunError> {
        self.batch.clear();
        self.add(KvOperation::Update);
        let number = self.batch.entries[0].number;
        let expected = self.expected_generation(number);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let (key, new) = self.batch.record(0);
        let value = self.session.get(key)?;
        self.arrival.complete(value.unwrap_or_default());
        let read_ns = self.common.clock.now();
        let tally = &mut self.tallies[Operation::ReadModifyWrite as usize];
        tally.note(self.common, number, value, expected, &mut self.first_corrupted);
        let bytes = self.batch.bytes + read_bytes(key, value);
        self.session.release();
        // Verification is excluded: the latency is that of both halves.
        let write_ns = self.common.clock.now();
        self.session.put(key, new)?;
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
        self.acknowledge();
        let compared_ns = write_ns - read_ns;
        self.done(
            Operation::ReadModifyWrite,
            bytes,
            begin_ns + compared_ns,
            end_ns,
            intended_ns,
        );
        Ok(end_ns)
    }

    /// Reads the chosen record, replaces one of its fields, and writes it, as YCSB does on stores that know no fields.
    fn update_field(&mut self, now_ns: u64, operation: Operation) -> Result<u64, RunError> {
        let contents = self.common.contents;
        let number = self.chooser.record(self.common.inserts);
        let field = self.chooser.field(contents.fields());
        contents.key(number, &mut self.key);
        self.generation = self.generation.wrapping_add(1);
        self.field.clear();
        contents.add_field(number, field, self.generation, &mut self.field);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let found = self.session.get(&self.key)?;
        self.arrival.complete(found.unwrap_or_default());
        let read_ns = self.common.clock.now();
        let tally = &mut self.tallies[operation as usize];
        self.value.clear();
        match found {
            Some(found) if tally.check(self.common, number, found, 0) => self.value.extend_from_slice(found),
            Some(_) => {
                self.first_corrupted.get_or_insert(number);
            }
            None => tally.missing += 1,
        }
        let read_bytes = read_bytes(&self.key, found);
        self.session.release();
        if self.value.is_empty() {
            contents.add_value(number, self.generation, &mut self.value);
        } else {
            self.value[contents.field_range(field)].copy_from_slice(&self.field);
        }
        // Verification is excluded: the latency is that of both halves.
        let write_ns = self.common.clock.now();
        self.session.put(&self.key, &self.value)?;
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
        let written = (self.key.len() + self.value.len()) as u64;
        let bytes = match operation {
            Operation::ReadModifyWrite => written + read_bytes,
            _ => written,
        };
        let compared_ns = write_ns - read_ns;
        self.done(operation, bytes, begin_ns + compared_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn scan(&mut self, now_ns: u64) -> Result<u64, RunError> {
        let number = self.chooser.record(self.common.inserts);
        self.set_key(number);
        let records = self.chooser.scan_records();
        let mut sequence = Sequence::from(Some(number), self.stream.direction, self.common.complete_below);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        self.session.seek(Some(&self.key), self.stream.direction)?;
        let (mut bytes, mut compared_ns) = (0, 0);
        for seen in 0..records {
            let Some((key, value)) = self.session.next()? else {
                self.tallies[Operation::Scan as usize].missing += sequence.left().min(records - seen);
                break;
            };
            touch(value);
            bytes += (key.len() + value.len()) as u64;
            let before_ns = self.common.clock.now();
            let tally = &mut self.tallies[Operation::Scan as usize];
            check_record(
                tally,
                &mut self.first_corrupted,
                self.common,
                &mut sequence,
                (key, value),
            );
            compared_ns += self.common.clock.now() - before_ns;
        }
        self.session.release();
        let end_ns = self.common.clock.now();
        self.done(Operation::Scan, bytes, begin_ns + compared_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn iterate(&mut self, now_ns: u64) -> Result<u64, RunError> {
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let mut found = None;
        // The second attempt starts at the first record: if it fails too, the database is empty.
        for _ in 0..2 {
            if !self.iterating {
                self.session.seek(None, self.stream.direction)?;
                self.sequence = Sequence::from(None, self.stream.direction, self.common.complete_below);
                self.iterating = true;
            }
            if let Some((key, value)) = self.session.next()? {
                touch(value);
                let end_ns = self.common.clock.now();
                let tally = &mut self.tallies[Operation::Read as usize];
                check_record(
                    tally,
                    &mut self.first_corrupted,
                    self.common,
                    &mut self.sequence,
                    (key, value),
                );
                found = Some(((key.len() + value.len()) as u64, end_ns));
                break;
            }
            self.tallies[Operation::Read as usize].missing += self.sequence.left();
            self.session.release();
            self.iterating = false;
        }
        let Some((bytes, end_ns)) = found else {
            return Err(empty_database());
        };
        self.done(Operation::Read, bytes, begin_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    /// Generates the records of a batch.
    fn gather(&mut self, records: u64) {
        self.batch.clear();
        for _ in 0..records {
            let operation = self.chooser.operation();
            self.add(operation);
        }
    }

    #[inline]
    fn add(&mut self, operation: KvOperation) {
        let contents = self.common.contents;
        let number = match (operation, self.inserter) {
            (KvOperation::Insert, Some(inserter)) => {
                self.inserted += 1;
                self.common.inserts.number(inserter, self.inserted - 1)
            }
            _ => self.chooser.record(self.common.inserts),
        };
        let generation = match (operation, self.common.freshness) {
            (KvOperation::Delete, _) => None,
            (_, Some(freshness)) => {
                self.turn = Some(freshness.lock(number));
                self.generation = freshness.issue();
                Some(self.generation)
            }
            (_, None) => {
                self.generation = self.generation.wrapping_add(1);
                Some(self.generation)
            }
        };
        self.batch.add(contents, operation.reported_as(), number, generation);
    }

    /// Writes the batch.
    #[inline]
    fn write(&mut self, now_ns: u64) -> Result<u64, RunError> {
        let records = self.batch.entries.len() as u64;
        let intended_ns = self.start(records, now_ns);
        let begin_ns = self.common.clock.now_early();
        for index in 0..self.batch.entries.len() {
            let (key, value) = self.batch.record(index);
            match self.batch.entries[index].operation {
                Operation::Delete => self.session.delete(key)?,
                _ => self.session.put(key, value)?,
            }
        }
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
        self.acknowledge();
        if let Some(inserter) = self.inserter {
            self.common.inserts.completed(inserter, self.inserted);
        }
        if let [entry] = &self.batch.entries[..] {
            let operation = entry.operation;
            self.done(operation, self.batch.bytes, begin_ns, end_ns, intended_ns);
            return Ok(end_ns);
        }
        self.phases.take_batch(records, self.batch.bytes);
        self.phases.started(records, now_ns, begin_ns);
        self.phases.advance_to_completion(end_ns);
        for operation in [Operation::Write, Operation::Delete] {
            let (records, bytes) = self.batch.sum(operation);
            if records > 0 {
                self.phases
                    .record_batch(operation, records, bytes, end_ns, end_ns.saturating_sub(begin_ns));
            }
        }
        Ok(end_ns)
    }

    /// Records that the write of a single record has completed, for freshness checks.
    #[inline]
    fn acknowledge(&mut self) {
        if let (Some(freshness), [entry]) = (self.common.freshness, &self.batch.entries[..]) {
            freshness.acknowledge(entry.number, self.generation);
            self.turn = None;
        }
    }

    /// Takes operations from the schedule; returns the due time of the first.
    #[inline]
    fn start(&mut self, records: u64, now_ns: u64) -> Option<u64> {
        match &mut self.pace {
            Pace::Closed => None,
            Pace::Limited { next_ns, gap_ns } => {
                // Missed operations are not caught up.
                *next_ns = now_ns.max(*next_ns) + (*gap_ns * records as f64) as u64;
                None
            }
            Pace::Open(schedule) => {
                self.phases.backlog(schedule.backlog(now_ns).saturating_sub(1));
                Some(schedule.take())
            }
        }
    }

    /// Records a completed operation.
    #[inline]
    fn done(&mut self, operation: Operation, bytes: u64, begin_ns: u64, end_ns: u64, intended_ns: Option<u64>) {
        let completed = Completed {
            operation,
            bytes,
            begin_ns,
            end_ns,
            intended_ns,
        };
        completed.record(&mut self.pace, &mut self.phases, self.found_ns);
    }
}

/// Bytes of a read: of key and value, none if the record is missing.
#[inline(always)]
fn read_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| key.len() + value.len()) as u64
}

/// A completed operation.
struct Completed {
    operation: Operation,
    bytes: u64,
    begin_ns: u64,
    end_ns: u64,
    intended_ns: Option<u64>,
}

impl Completed {
    /// Records it; the job could start it from `found_ns` on.
    #[inline(always)]
    fn record(self, pace: &mut Pace, phases: &mut JobPhases<'_>, found_ns: u64) {
        let Completed { bytes, end_ns, .. } = self;
        if let (Pace::Open(schedule), Some(intended_ns)) = (pace, self.intended_ns) {
            schedule.note_start(intended_ns, self.begin_ns);
        }
        phases.started(1, found_ns, self.begin_ns);
        phases.take_batch(1, bytes);
        phases.advance_to_completion(end_ns);
        let response_ns = self.intended_ns.map(|intended_ns| end_ns.saturating_sub(intended_ns));
        let latency_ns = end_ns.saturating_sub(self.begin_ns);
        phases.record(self.operation, bytes, end_ns, latency_ns, response_ns);
    }
}

impl Tally {
    /// Counts the answer to a read, and keeps the number of the first corrupted record.
    #[inline(always)]
    fn note(
        &mut self,
        common: &Common<'_>,
        number: u64,
        value: Option<&[u8]>,
        expected: u64,
        first_corrupted: &mut Option<u64>,
    ) {
        match value {
            Some(value) => {
                if !self.check(common, number, value, expected) {
                    first_corrupted.get_or_insert(number);
                }
            }
            None => self.missing += 1,
        }
    }

    /// Counts the answer to a read, except for the number of values, if it is not known to be right.
    #[inline(never)]
    fn note_other(
        &mut self,
        common: &Common<'_>,
        number: u64,
        value: Option<&[u8]>,
        first_corrupted: &mut Option<u64>,
    ) {
        match value {
            None => self.missing += 1,
            Some(value) if common.sample.is_some() || common.contents.is_value_of(number, value) => {}
            Some(_) => {
                self.corrupted += 1;
                first_corrupted.get_or_insert(number);
            }
        }
    }

    #[inline(always)]
    fn check(&mut self, common: &Common<'_>, number: u64, value: &[u8], expected: u64) -> bool {
        if common.sample.is_some() {
            return true;
        }
        self.values += 1;
        let is_correct = common.contents.is_value_of(number, value);
        self.corrupted += u64::from(!is_correct);
        if let (Some(freshness), 1..) = (common.freshness, expected) {
            self.stale += u64::from(is_correct && freshness.is_stale(value, expected));
        }
        is_correct
    }
}

/// Position of an iterator over a database that has every record below a number: any gap is a missing record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sequence {
    /// Numbers that are still to come, forward from the first or in reverse from the last.
    first: u64,
    end: u64,
    /// Records from here on were inserted by the run: they may appear in any number.
    complete_below: u64,
    is_reverse: bool,
}

impl Sequence {
    /// Starts at a record, or at either end of the database.
    fn from(number: Option<u64>, direction: Direction, complete_below: u64) -> Sequence {
        let is_reverse = direction == Direction::Reverse;
        let (first, end) = match number {
            Some(number) if is_reverse => (0, complete_below.min(number.saturating_add(1))),
            Some(number) => (complete_below.min(number), complete_below),
            None => (0, complete_below),
        };
        Sequence {
            first,
            end,
            complete_below,
            is_reverse,
        }
    }

    /// Returns the number of records skipped before this one; `None` if it is out of order.
    #[inline]
    fn advance(&mut self, number: u64) -> Option<u64> {
        let is_inserted = number >= self.complete_below;
        let skipped = match (self.is_reverse, is_inserted) {
            (true, true) => return Some(0),
            (true, false) => self.end.checked_sub(number + 1)?,
            (false, true) => self.end - self.first,
            (false, false) => number.checked_sub(self.first)?,
        };
        match self.is_reverse {
            true => self.end = number,
            false => self.first = self.end.min(number + 1),
        }
        Some(skipped)
    }

    /// Records that are still to come.
    fn left(&self) -> u64 {
        self.end - self.first
    }
}

/// I/O that a store may not have done when it lends a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The store has read the byte before each value, but perhaps not the other pages of the value.
    FirstPageRead,
    /// The value may be in a mapped file of which no page was read yet.
    NothingRead,
}

impl Arrival {
    /// Completes the read of a value: I/O for its pages belongs to the latency.
    ///
    /// Reading a value waits for its cache lines. If no I/O is possible, they are only requested, and arrive while the
    /// read is recorded.
    #[inline]
    fn complete(self, value: &[u8]) {
        if self.may_need_io(value) {
            touch(value);
        } else {
            prefetch(value);
        }
    }

    /// Returns true if reading a value may cause I/O.
    #[inline]
    fn may_need_io(self, value: &[u8]) -> bool {
        self == Arrival::NothingRead || !is_in_page_of_byte_before(value)
    }
}

/// Returns true if a value ends in the page that has the byte before the value.
#[inline]
fn is_in_page_of_byte_before(value: &[u8]) -> bool {
    let begin = value.as_ptr().addr();
    let last = begin + value.len().saturating_sub(1);
    begin.wrapping_sub(1) / PAGE_BYTES == last / PAGE_BYTES
}

/// Reads a byte of every page of a value.
#[inline(never)]
fn touch(value: &[u8]) {
    for byte in value.iter().step_by(PAGE_BYTES).chain(value.last()) {
        std::hint::black_box(*byte);
    }
}

/// Verifies a record of an iterator: its key must be a record's, in order and without gaps, and its value the record's.
#[inline]
fn check_record(
    tally: &mut Tally,
    first_corrupted: &mut Option<u64>,
    common: &Common<'_>,
    sequence: &mut Sequence,
    (key, value): Lent<'_>,
) {
    if common.sample.is_some() {
        return;
    }
    match common.contents.number(key) {
        Some(number) => {
            let mut is_correct = tally.check(common, number, value, 0);
            if common.complete_below > 0 {
                match sequence.advance(number) {
                    Some(skipped) => tally.missing += skipped,
                    None => {
                        tally.corrupted += u64::from(is_correct);
                        is_correct = false;
                    }
                }
            }
            if !is_correct {
                first_corrupted.get_or_insert(number);
            }
        }
        None => {
            tally.values += 1;
            tally.corrupted += 1;
        }
    }
}

#[cold]
fn empty_database() -> RunError {
    RunError::new(
        Code::InvalidSpec,
        "the database is empty, so there are no records to iterate over",
        "load it first (`database` of kind `loaded`)",
    )
}

/// Records of one write.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    /// Keys and values of all entries, one after the other.
    memory: Vec<u8>,
    bytes: u64,
    key: Vec<u8>,
}

struct Entry {
    operation: Operation,
    number: u64,
    begin: usize,
    key_end: usize,
    end: usize,
}

impl Batch {
    #[inline]
    fn clear(&mut self) {
        self.entries.clear();
        self.memory.clear();
        self.bytes = 0;
    }

    fn add(&mut self, contents: &Contents, operation: Operation, number: u64, generation: Option<u64>) {
        contents.key(number, &mut self.key);
        let begin = self.memory.len();
        self.memory.extend_from_slice(&self.key);
        let key_end = self.memory.len();
        if let Some(generation) = generation {
            contents.add_value(number, generation, &mut self.memory);
        }
        let end = self.memory.len();
        self.bytes += (end - begin) as u64;
        self.entries.push(Entry {
            operation,
            number,
            begin,
            key_end,
            end,
        });
    }

    #[inline]
    fn record(&self, index: usize) -> (&[u8], &[u8]) {
        let entry = &self.entries[index];
        (
            &self.memory[entry.begin..entry.key_end],
            &self.memory[entry.key_end..entry.end],
        )
    }

    fn sum(&self, operation: Operation) -> (u64, u64) {
        let of_it = self.entries.iter().filter(|entry| entry.operation == operation);
        of_it.fold((0, 0), |(records, bytes), entry| {
            (records + 1, bytes + (entry.end - entry.begin) as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(start: Option<u64>, direction: Direction, numbers: &[u64]) -> (Vec<Option<u64>>, u64) {
        let mut sequence = Sequence::from(start, direction, 10);
        let found = numbers.iter().map(|number| sequence.advance(*number)).collect();
        (found, sequence.left())
    }

    #[test]
    fn gaps_are_missing_records_and_those_out_of_order_are_reported() {
        use Direction::{Forward, Reverse};
        let all: Vec<u64> = (0..10).collect();
        let backwards: Vec<u64> = (0..10).rev().collect();
        // Of ten records: where it starts, what it finds, the gap before each, and how many must still come.
        type Case<'a> = (Option<u64>, Direction, &'a [u64], &'a [u64], u64);
        let cases: [Case<'_>; 11] = [
            (None, Forward, &all, &[0; 10], 0),
            (None, Reverse, &backwards, &[0; 10], 0),
            (Some(4), Forward, &[4, 5], &[0, 0], 4),
            (Some(4), Reverse, &[4, 3], &[0, 0], 3),
            (None, Forward, &[1, 2, 5], &[1, 0, 2], 4),
            (None, Reverse, &[9, 5, 4], &[0, 3, 0], 4),
            (Some(4), Forward, &[6], &[2], 3),
            // Numbers from 10 on were inserted.
            (Some(8), Forward, &[8, 9, 10, 13], &[0; 4], 0),
            (Some(8), Forward, &[8, 13], &[0, 1], 0),
            (None, Reverse, &[13, 10, 9], &[0; 3], 9),
            (Some(12), Reverse, &[12, 9, 8], &[0; 3], 8),
        ];
        for (start, direction, found, gaps, left) in cases {
            let gaps = gaps.iter().map(|gap| Some(*gap)).collect();
            assert_eq!(skipped(start, direction, found), (gaps, left), "{start:?} {found:?}");
        }
        assert_eq!(skipped(None, Direction::Forward, &[3, 2]).0, [Some(3), None]);
        assert_eq!(skipped(None, Direction::Reverse, &[3, 4]).0, [Some(6), None]);
    }

    #[test]
    fn only_values_in_the_page_of_the_byte_before_them_need_no_read() {
        let mut memory = vec![0u8; 3 * PAGE_BYTES];
        let page = memory.as_ptr().align_offset(PAGE_BYTES);
        let memory = &mut memory[page..page + 2 * PAGE_BYTES];
        assert!(is_in_page_of_byte_before(&memory[1..PAGE_BYTES]));
        assert!(is_in_page_of_byte_before(&memory[PAGE_BYTES + 1..PAGE_BYTES + 101]));
        assert!(!is_in_page_of_byte_before(&memory[PAGE_BYTES..PAGE_BYTES + 100]));
        assert!(!is_in_page_of_byte_before(&memory[PAGE_BYTES - 50..PAGE_BYTES + 1]));
    }
}
