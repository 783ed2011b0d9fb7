//! One job: a thread that does one operation, or one batch, after the other on its own session of the store.
//!
//! What is written is made before the clock is read, and what was read is compared after it. In the loop nothing is
//! allocated once buffers have grown to the largest record, and nothing is logged or formatted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iosonde_harness::{JobPhases, JobTotals, Stage};
use iosonde_load::{Rng, Schedule};
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{KvOperation, KvStream, Operation, ScheduleResult};

use crate::choice::{Chooser, Inserts};
use crate::error::{Code, KvError};
use crate::records::Contents;
use crate::store::Session;

/// The longest sleep of a job that waits for its next operation: it must notice the end.
const NAP_NS: u64 = 50_000_000;
/// The smallest page that a machine maps.
const PAGE_BYTES: usize = 4096;
/// Sleeping is not exact to the microsecond; the last of the way is spun.
const SPIN_NS: u64 = 60_000;

/// What the jobs of a run share.
pub(crate) struct Common<'a> {
    pub clock: Clock,
    pub contents: &'a Contents,
    pub inserts: &'a Inserts,
    /// Jobs that have not ended and are not in the background.
    pub foreground: &'a AtomicU32,
}

/// Values read by one kind of operation, and what came of comparing them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub values: u64,
    pub missing: u64,
    pub corrupted: u64,
}

/// The tallies of a job, by operation.
pub(crate) type Tallies = [Tally; Operation::ALL.len()];

/// What a job is made from.
pub(crate) struct JobPlan<'a> {
    pub stream: &'a KvStream,
    pub chooser: Chooser,
    pub schedule: Option<iosonde_load::Arrivals>,
    /// Which of the inserting jobs this is.
    pub inserter: Option<usize>,
    pub generations: Rng,
}

/// One job; see the module.
pub(crate) struct Job<'a> {
    common: &'a Common<'a>,
    stream: &'a KvStream,
    pub(crate) phases: JobPhases<'a>,
    session: Box<dyn Session + 'a>,
    chooser: Chooser,
    pace: Pace,
    arrivals: Option<iosonde_load::Arrivals>,
    inserter: Option<usize>,
    inserted: u64,
    generation: u64,
    iterating: bool,
    /// CPU time spent watching the clock.
    spun_ns: u64,
    /// When the operation before was found to have completed.
    found_ns: u64,
    batch: Batch,
    key: Vec<u8>,
    /// A record being updated, and its new field.
    value: Vec<u8>,
    field: Vec<u8>,
    pub(crate) tallies: Tallies,
    /// Number of the first record whose value was not right.
    pub(crate) first_corrupted: Option<u64>,
}

/// When the next operation may start.
enum Pace {
    /// At once.
    Closed,
    /// Not before this instant, and then not before `gap_ns` for each record later.
    Limited { next_ns: u64, gap_ns: f64 },
    /// When it is due.
    Open(Box<Schedule>),
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        plan: JobPlan<'a>,
        common: &'a Common<'a>,
        phases: JobPhases<'a>,
        session: Box<dyn Session + 'a>,
    ) -> Job<'a> {
        let mut generations = plan.generations;
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
            arrivals: plan.schedule,
            inserter: plan.inserter,
            inserted: 0,
            // Apart from those of other jobs and runs, and never the generation that records are loaded in.
            generation: generations.next_u64() | 1 << 63,
            iterating: false,
            spun_ns: 0,
            found_ns: 0,
            batch: Batch::default(),
            key: Vec::new(),
            value: Vec::new(),
            field: Vec::new(),
            tallies: Tallies::default(),
            first_corrupted: None,
        }
    }

    /// Runs until the load ends: the measuring loop.
    pub(crate) fn drive(&mut self) -> Result<(), KvError> {
        let begin_ns = self.phases.begin();
        if let Some(arrivals) = self.arrivals.take() {
            self.pace = Pace::Open(Box::new(Schedule::new(arrivals, begin_ns)));
        }
        let mut now_ns = wait_until(self.common.clock, begin_ns);
        while now_ns < begin_ns {
            now_ns = wait_until(self.common.clock, begin_ns);
        }
        loop {
            self.phases.advance(now_ns, 0);
            if self.stream.background && self.common.foreground.load(Ordering::Relaxed) == 0 {
                self.phases.end_load(now_ns);
            }
            if !self.phases.may_issue() {
                self.phases.notice_exhaustion(now_ns, 0);
                if self.phases.stage() == Stage::Drain {
                    return Ok(());
                }
                now_ns = wait_until(self.common.clock, self.phases.idle_until(now_ns));
                continue;
            }
            let due_ns = self.due_ns();
            if due_ns > now_ns {
                let woken_ns = wait_until(self.common.clock, due_ns);
                self.spun_ns += if due_ns - now_ns <= SPIN_NS {
                    woken_ns - now_ns
                } else {
                    0
                };
                now_ns = woken_ns;
            } else {
                now_ns = self.step(now_ns)?;
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

    /// What the job did, and how it kept its schedule.
    pub(crate) fn into_outcome(self) -> (JobTotals, Option<ScheduleResult>) {
        let end_ns = self.phases.ended_ns();
        let schedule = match self.pace {
            Pace::Open(schedule) => Some(schedule.into_result(end_ns, self.spun_ns)),
            Pace::Closed | Pace::Limited { .. } => None,
        };
        (self.phases.into_outcome(), schedule)
    }

    /// One operation or batch; returns the instant of its completion.
    #[inline]
    fn step(&mut self, now_ns: u64) -> Result<u64, KvError> {
        self.found_ns = now_ns;
        if self.stream.batch > 1 {
            let records = u64::from(self.stream.batch).min(self.phases.operations_left());
            self.gather(records);
            return self.write(now_ns);
        }
        let operation = self.chooser.operation();
        match operation {
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

    fn read(&mut self, now_ns: u64) -> Result<u64, KvError> {
        let number = self.chooser.record(self.common.inserts);
        self.common.contents.key(number, &mut self.key);
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let value = self.session.get(&self.key)?;
        touch(value.unwrap_or_default());
        let end_ns = self.common.clock.now();
        let tally = &mut self.tallies[Operation::Read as usize];
        let value_bytes = match value {
            Some(value) => {
                if !tally.check(self.common.contents, number, value) {
                    self.first_corrupted.get_or_insert(number);
                }
                value.len()
            }
            None => {
                tally.missing += 1;
                0
            }
        };
        self.session.release();
        let bytes = (self.key.len() + value_bytes) as u64;
        self.done(Operation::Read, bytes, begin_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn read_modify_write(&mut self, now_ns: u64) -> Result<u64, KvError> {
        self.batch.clear();
        self.add(KvOperation::Update);
        let number = self.batch.entries[0].number;
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let (key, new) = self.batch.record(0);
        let value = self.session.get(key)?;
        touch(value.unwrap_or_default());
        let read_ns = self.common.clock.now();
        let tally = &mut self.tallies[Operation::ReadModifyWrite as usize];
        let mut bytes = self.batch.bytes;
        match value {
            Some(value) => {
                bytes += (key.len() + value.len()) as u64;
                if !tally.check(self.common.contents, number, value) {
                    self.first_corrupted.get_or_insert(number);
                }
            }
            None => tally.missing += 1,
        }
        self.session.release();
        // Comparing is our time, not the store's: the latency is that of both halves.
        let write_ns = self.common.clock.now();
        self.session.put(key, new)?;
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
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
    fn update_field(&mut self, now_ns: u64, operation: Operation) -> Result<u64, KvError> {
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
        touch(found.unwrap_or_default());
        let read_ns = self.common.clock.now();
        let tally = &mut self.tallies[operation as usize];
        self.value.clear();
        match found {
            Some(found) if tally.check(contents, number, found) => self.value.extend_from_slice(found),
            Some(_) => {
                self.first_corrupted.get_or_insert(number);
            }
            None => tally.missing += 1,
        }
        let read_bytes = found.map_or(0, <[u8]>::len);
        self.session.release();
        if self.value.is_empty() {
            contents.add_value(number, self.generation, &mut self.value);
        } else {
            self.value[contents.field_range(field)].copy_from_slice(&self.field);
        }
        // Comparing is our time, not the store's: the latency is that of both halves.
        let write_ns = self.common.clock.now();
        self.session.put(&self.key, &self.value)?;
        self.session.commit(self.stream.sync)?;
        let end_ns = self.common.clock.now();
        let written = self.key.len() + self.value.len();
        let bytes = match operation {
            Operation::ReadModifyWrite => written + self.key.len() + read_bytes,
            _ => written,
        };
        let compared_ns = write_ns - read_ns;
        self.done(operation, bytes as u64, begin_ns + compared_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn scan(&mut self, now_ns: u64) -> Result<u64, KvError> {
        let number = self.chooser.record(self.common.inserts);
        self.common.contents.key(number, &mut self.key);
        let records = self.chooser.scan_records();
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        self.session.seek(Some(&self.key), self.stream.direction)?;
        let (mut bytes, mut compared_ns) = (0, 0);
        for _ in 0..records {
            let Some((key, value)) = self.session.next()? else {
                break;
            };
            touch(value);
            bytes += (key.len() + value.len()) as u64;
            let before_ns = self.common.clock.now();
            let tally = &mut self.tallies[Operation::Scan as usize];
            check_record(tally, &mut self.first_corrupted, self.common.contents, key, value);
            compared_ns += self.common.clock.now() - before_ns;
        }
        self.session.release();
        let end_ns = self.common.clock.now();
        self.done(Operation::Scan, bytes, begin_ns + compared_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    fn iterate(&mut self, now_ns: u64) -> Result<u64, KvError> {
        let intended_ns = self.start(1, now_ns);
        let begin_ns = self.common.clock.now_early();
        let mut found = None;
        // The second time from the beginning: then there is none at all.
        for _ in 0..2 {
            if !self.iterating {
                self.session.seek(None, self.stream.direction)?;
                self.iterating = true;
            }
            if let Some((key, value)) = self.session.next()? {
                touch(value);
                let end_ns = self.common.clock.now();
                let tally = &mut self.tallies[Operation::Read as usize];
                check_record(tally, &mut self.first_corrupted, self.common.contents, key, value);
                found = Some(((key.len() + value.len()) as u64, end_ns));
                break;
            }
            self.session.release();
            self.iterating = false;
        }
        let Some((bytes, end_ns)) = found else {
            return Err(empty_database());
        };
        self.done(Operation::Read, bytes, begin_ns, end_ns, intended_ns);
        Ok(end_ns)
    }

    /// Makes the records of a batch.
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
        let generation = (operation != KvOperation::Delete).then(|| {
            self.generation = self.generation.wrapping_add(1);
            self.generation
        });
        self.batch.add(contents, operation.told_as(), number, generation);
    }

    /// Writes the batch.
    #[inline]
    fn write(&mut self, now_ns: u64) -> Result<u64, KvError> {
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
        self.phases.advance(end_ns, 0);
        for operation in [Operation::Write, Operation::Delete] {
            let (records, bytes) = self.batch.sum(operation);
            if records > 0 {
                self.phases
                    .record_batch(operation, records, bytes, end_ns, end_ns.saturating_sub(begin_ns));
            }
        }
        Ok(end_ns)
    }

    /// Takes so many operations from the schedule; returns when the first was due.
    #[inline]
    fn start(&mut self, records: u64, now_ns: u64) -> Option<u64> {
        match &mut self.pace {
            Pace::Closed => None,
            Pace::Limited { next_ns, gap_ns } => {
                // What was missed is not made up for.
                *next_ns = now_ns.max(*next_ns) + (*gap_ns * records as f64) as u64;
                None
            }
            Pace::Open(schedule) => {
                self.phases.backlog(schedule.backlog(now_ns).saturating_sub(1));
                Some(schedule.take())
            }
        }
    }

    /// Takes note of an operation that has completed.
    #[inline]
    fn done(&mut self, operation: Operation, bytes: u64, begin_ns: u64, end_ns: u64, intended_ns: Option<u64>) {
        if let (Pace::Open(schedule), Some(intended_ns)) = (&mut self.pace, intended_ns) {
            schedule.note_start(intended_ns, begin_ns);
        }
        self.phases.started(1, self.found_ns, begin_ns);
        self.phases.take_batch(1, bytes);
        // It belongs to the interval in which it completed.
        self.phases.advance(end_ns, 0);
        let response_ns = intended_ns.map(|intended_ns| end_ns.saturating_sub(intended_ns));
        self.phases
            .record(operation, bytes, end_ns, end_ns.saturating_sub(begin_ns), response_ns);
    }
}

impl Tally {
    #[inline]
    fn check(&mut self, contents: &Contents, number: u64, value: &[u8]) -> bool {
        self.values += 1;
        let is_right = contents.is_value_of(number, value);
        self.corrupted += u64::from(!is_right);
        is_right
    }
}

/// Reads a byte of every page of a value. A store that lends its mapped file has not read it until somebody does, and that is
/// part of its answer.
#[inline]
fn touch(value: &[u8]) {
    for byte in value.iter().step_by(PAGE_BYTES).chain(value.last()) {
        std::hint::black_box(*byte);
    }
}

/// A record that an iterator gave: its key must be one of ours, and its value the key's.
#[inline]
fn check_record(tally: &mut Tally, first_corrupted: &mut Option<u64>, contents: &Contents, key: &[u8], value: &[u8]) {
    match contents.number(key) {
        Some(number) => {
            if !tally.check(contents, number, value) {
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
fn empty_database() -> KvError {
    KvError::new(
        Code::InvalidSpec,
        "there is nothing to iterate over: the database is empty",
        "load it first (`database` of kind `loaded`)",
    )
}

/// Sleeps, at most for [`NAP_NS`], and spins the last of the way; returns the time.
fn wait_until(clock: Clock, instant_ns: u64) -> u64 {
    let now_ns = clock.now();
    let left_ns = instant_ns.saturating_sub(now_ns);
    if left_ns > SPIN_NS {
        std::thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(NAP_NS)));
    } else {
        std::hint::spin_loop();
    }
    clock.now()
}

/// Records made for one write.
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
