//! One job: a thread that keeps operations on objects in flight.
//!
//! A write's contents are made before the clock is read, a read's are compared after it. Latency is from the start of the
//! operation to its completion, as the store reports it.

use iosonde_harness::load::{Arrivals, Rng, Schedule};
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{JobDone, JobPhases, SPIN_NS, Stage};
use iosonde_protocol::{ObjectOperation, Operation};

use crate::content::Contents;
use crate::store::{Done, Session};

/// Timeout of operations in flight after the end of a load, in nanoseconds; then they are abandoned.
const DRAIN_NS: u64 = 5_000_000_000;
/// The longest wait.
const POLL_NS: u64 = 50_000_000;

/// Choice of the next object.
pub(crate) enum Choice {
    /// Every `step`-th, from the first again after the last.
    Sequential { next: u64, step: u64 },
    /// Independent and uniform.
    Random(Rng),
}

impl Choice {
    fn next(&mut self, objects: u64) -> u64 {
        match self {
            Choice::Sequential { next, step } => {
                let object = *next % objects;
                *next += *step;
                object
            }
            Choice::Random(rng) => rng.below(objects),
        }
    }
}

/// Failure that ended a job before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub object: u64,
    pub result: i32,
}

/// Results of a job: outcomes of its reads, and the objects that it used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub checked: u64,
    pub wrong: u64,
    pub first_wrong: Option<u64>,
    /// The highest number of an object that was used, plus 1.
    pub used: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    object: u64,
    start_ns: u64,
    intended_ns: u64,
}

/// One job; see the module.
pub(crate) struct Job<'a> {
    pub session: Box<dyn Session + 'a>,
    pub clock: Clock,
    pub contents: &'a Contents,
    pub object_bytes: u64,
    pub objects: u64,
    pub operation: ObjectOperation,
    pub choice: Choice,
    pub arrivals: Option<Arrivals>,
    pub phases: JobPhases<'a>,
    pub flight: Flight,
}

/// The operations of a job that are in flight, and what came of the others.
pub(crate) struct Flight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    done: Vec<Done>,
    schedule: Option<Schedule>,
    spun_ns: u64,
    failed: Option<Failed>,
    found: Found,
}

impl Flight {
    pub(crate) fn new(queue_depth: u32) -> Flight {
        Flight {
            slots: vec![Slot::default(); queue_depth as usize],
            free: (0..queue_depth).rev().collect(),
            done: Vec::with_capacity(queue_depth as usize),
            schedule: None,
            spun_ns: 0,
            failed: None,
            found: Found::default(),
        }
    }

    fn in_flight(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}

impl Job<'_> {
    /// Loads until the end of the measurement, and waits for what is in flight.
    ///
    /// # Errors
    /// The first operation that failed.
    pub(crate) fn drive(mut self) -> Result<JobDone<Found>, Failed> {
        let begin_ns = self.phases.begin();
        self.flight.schedule = self.arrivals.take().map(|arrivals| Schedule::new(arrivals, begin_ns));
        loop {
            let now_ns = self.clock.now();
            self.phases.advance(now_ns, self.flight.in_flight());
            self.reap(now_ns);
            self.phases.notice_exhaustion(now_ns, self.flight.in_flight());
            self.issue(now_ns);
            let drains = self.phases.stage() == Stage::Drain;
            let gives_up = drains && now_ns >= self.phases.ended_ns() + DRAIN_NS;
            if gives_up || (drains && self.flight.in_flight() == 0) {
                return self.into_done();
            }
            self.wait(now_ns);
        }
    }

    fn reap(&mut self, now_ns: u64) {
        let mut done = std::mem::take(&mut self.flight.done);
        done.clear();
        self.session.reap(&mut done);
        for each in &done {
            self.complete(each, now_ns);
        }
        self.flight.done = done;
    }

    fn complete(&mut self, done: &Done, now_ns: u64) {
        let slot = self.flight.slots[done.slot as usize];
        self.flight.free.push(done.slot);
        let operation = match self.operation {
            ObjectOperation::Write => Operation::Write,
            _ => Operation::Read,
        };
        if done.result < 0 {
            return self.fail(slot.object, done.result, now_ns);
        }
        let response_ns = self.flight.schedule.is_some();
        let response_ns = response_ns.then(|| done.at_ns.saturating_sub(slot.intended_ns));
        let completion_ns = done.at_ns.saturating_sub(slot.start_ns);
        self.phases
            .record(operation, self.object_bytes, now_ns, completion_ns, response_ns);
        if operation == Operation::Read {
            self.compare(done, slot.object);
        }
    }

    fn compare(&mut self, done: &Done, object: u64) {
        let read = &self.session.buffer(done.slot)[..done.result as usize];
        let found = &mut self.flight.found;
        found.checked += 1;
        if !self.contents.is_correct(object, read) {
            found.wrong += 1;
            found.first_wrong.get_or_insert(object);
        }
    }

    /// Starts what may start: in closed loop as many as slots are free, in open loop what is due.
    fn issue(&mut self, found_ns: u64) {
        while self.phases.may_issue() && self.is_due(found_ns) {
            let Some(slot) = self.flight.free.pop() else {
                if let Some(schedule) = &mut self.flight.schedule {
                    self.phases.backlog(schedule.backlog(found_ns));
                }
                return;
            };
            let object = self.choice.next(self.objects);
            self.flight.found.used = self.flight.found.used.max(object + 1);
            let intended_ns = self.flight.schedule.as_mut().map_or(0, Schedule::take);
            if self.operation == ObjectOperation::Write {
                self.contents.fill(object, self.session.buffer(slot));
            }
            let start_ns = self.clock.now();
            self.flight.slots[slot as usize] = Slot {
                object,
                start_ns,
                intended_ns,
            };
            let started = match self.operation {
                ObjectOperation::Write => self.session.write(slot, object),
                _ => self.session.read(slot, object),
            };
            self.phases.take(self.object_bytes);
            self.phases.started(1, found_ns, start_ns);
            if let Some(schedule) = &mut self.flight.schedule {
                schedule.note_start(intended_ns, start_ns);
            }
            if let Err(result) = started {
                self.flight.free.push(slot);
                return self.fail(object, result, start_ns);
            }
        }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        let schedule = self.flight.schedule.as_ref();
        schedule.is_none_or(|schedule| schedule.next_ns() <= now_ns)
    }

    fn wait(&mut self, now_ns: u64) {
        let may_issue = self.phases.may_issue() && !self.flight.free.is_empty();
        let mut until_ns = self.phases.idle_until(now_ns).min(now_ns + POLL_NS);
        if let (true, Some(schedule)) = (may_issue, &self.flight.schedule) {
            let due_ns = schedule.next_ns();
            if due_ns <= now_ns + SPIN_NS {
                self.flight.spun_ns += due_ns.saturating_sub(now_ns);
                std::hint::spin_loop();
                return;
            }
            until_ns = until_ns.min(due_ns - SPIN_NS);
        }
        self.session.wait(until_ns.saturating_sub(now_ns));
    }

    #[cold]
    fn fail(&mut self, object: u64, result: i32, now_ns: u64) {
        self.flight.failed.get_or_insert(Failed { object, result });
        self.phases.end_load(now_ns);
    }

    fn into_done(self) -> Result<JobDone<Found>, Failed> {
        let end_ns = self.phases.window().end.min(self.phases.ended_ns());
        let flight = self.flight;
        if let Some(failed) = flight.failed {
            return Err(failed);
        }
        Ok(JobDone {
            totals: self.phases.into_outcome(),
            abandoned: flight.in_flight(),
            schedule: flight
                .schedule
                .map(|schedule| schedule.into_result(end_ns, flight.spun_ns)),
            found: flight.found,
        })
    }
}
