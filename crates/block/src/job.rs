//! One job: a generator of I/Os, its slots, and its phases through the run.
//!
//! The job is independent of threads and backends. [`drive`] runs it against a backend in real time; the
//! simulated device runs many of them in one thread. Nothing here allocates, locks, logs or formats after [`Job::begin`].

use std::io;

use iosonde_harness::load::{Arrivals, Generator, Io, Schedule};
use iosonde_harness::{JobDone, JobPhases, Stage};
use iosonde_protocol::Operation;

use crate::backend::{Backend, Wait};
use crate::buffer::Arena;
use crate::error::IoFailure;
use crate::payload::Filler;
use crate::verify::{JobVerifier, Tally};

/// Timeout of I/Os in flight after the end of a load, in nanoseconds; then they are abandoned.
const DRAIN_NS: u64 = 5_000_000_000;
/// Period at which a job checks the clock while it awaits its last I/Os, in nanoseconds.
const DRAIN_POLL_NS: u64 = 100_000_000;

/// Everything a job is made from.
pub(crate) struct JobPlan {
    pub generator: Generator,
    /// Of the generator's I/Os this job takes every `lanes`-th, from the `lane`-th.
    pub lane: u32,
    pub lanes: u32,
    pub queue_depth: u32,
    pub flush_every: Option<u64>,
    pub filler: Filler,
}

/// Results of a job besides the counts of its phases.
pub(crate) struct Found {
    pub failure: Option<IoFailure>,
    pub tally: Option<Tally>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    io: Io,
    start_ns: u64,
    intended_ns: u64,
}

/// One job; see the module.
pub(crate) struct Job<'a> {
    plan: JobPlan,
    arrivals: Option<Arrivals>,
    arena: Option<&'a Arena>,
    verifier: Option<JobVerifier<'a>>,
    phases: JobPhases<'a>,
    slots: Vec<Slot>,
    /// Stack of free slots; beyond its length lie the slots issued last.
    free: Vec<u32>,
    free_count: usize,
    schedule: Option<Schedule>,
    writes_since_flush: u64,
    skip: u32,
    failure: Option<IoFailure>,
}

impl<'a> Job<'a> {
    /// A job on real buffers, or without any (`null`, `simulated`).
    pub(crate) fn new(
        plan: JobPlan,
        phases: JobPhases<'a>,
        arrivals: Option<Arrivals>,
        arena: Option<&'a Arena>,
    ) -> Job<'a> {
        let depth = plan.queue_depth;
        let io = Io {
            operation: Operation::Read,
            offset_bytes: 0,
            bytes: 0,
        };
        Job {
            phases,
            arrivals,
            arena,
            verifier: None,
            slots: vec![
                Slot {
                    io,
                    start_ns: 0,
                    intended_ns: 0
                };
                depth as usize
            ],
            free: (0..depth).rev().collect(),
            free_count: depth as usize,
            schedule: None,
            writes_since_flush: 0,
            skip: plan.lane,
            failure: None,
            plan,
        }
    }

    /// The same, with what it writes and reads verified.
    pub(crate) fn verified(mut self, verifier: Option<JobVerifier<'a>>) -> Job<'a> {
        self.verifier = verifier;
        self
    }

    /// Begins the run, at the instant the controller has set.
    pub(crate) fn begin(&mut self) {
        self.phases.begin();
    }

    /// Returns true if nothing remains to be issued or awaited.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.phases.stage() == Stage::Drain && self.in_flight() == 0
    }

    /// Starts what may start now: in closed loop as many as slots are free, in open loop what is due.
    #[inline]
    fn issue<B: Backend>(&mut self, backend: &mut B, now_ns: u64) {
        self.begin_schedule();
        let mut free_before = self.free_count;
        while self.free_count > 0 && self.may_issue(now_ns) {
            if free_before - self.free_count >= backend.batch() {
                self.started(free_before, now_ns, backend.now());
                backend.submit();
                free_before = self.free_count;
            }
            self.free_count -= 1;
            let slot = self.free[self.free_count];
            let io = self.next_io();
            if let Some(arena) = self.arena {
                self.prepare(slot, &io, buffer(arena, slot));
            }
            let intended_ns = self.schedule.as_mut().map_or(0, Schedule::take);
            self.slots[slot as usize] = Slot {
                io,
                start_ns: 0,
                intended_ns,
            };
            backend.push(slot, &io);
        }
        if self.free_count < free_before {
            self.started(free_before, now_ns, backend.now());
        }
        if self.free_count == 0
            && let Some(schedule) = &mut self.schedule
        {
            self.phases.backlog(schedule.backlog(now_ns));
        }
    }

    /// Prepares an I/O for submission: fills the buffer of a write, and seals it under verification.
    #[inline]
    fn prepare(&mut self, slot: u32, io: &Io, buffer: &mut [u8]) {
        let data = &mut buffer[..io.bytes as usize];
        if io.operation == Operation::Write {
            self.plan.filler.fill(data);
        }
        let Some(verifier) = &mut self.verifier else { return };
        match io.operation {
            Operation::Write => verifier.begin_write(io, data),
            Operation::Read => verifier.begin_read(slot, io),
            Operation::Flush => verifier.begin_flush(slot),
            _ => {}
        }
    }

    /// Verifies an I/O that has succeeded.
    #[inline]
    fn verify(&mut self, slot: u32, io: &Io) {
        let (Some(verifier), Some(arena)) = (&mut self.verifier, self.arena) else {
            return;
        };
        match io.operation {
            Operation::Write => verifier.end_write(io),
            Operation::Read => verifier.end_read(slot, io, &buffer(arena, slot)[..io.bytes as usize]),
            Operation::Flush => verifier.end_flush(slot),
            _ => {}
        }
    }

    /// Takes note that the I/Os pushed since `free_before` slots were free are submitted. One reading of the clock for all
    /// of them, as late as possible: preparing them is our time, not the target's.
    #[inline]
    fn started(&mut self, free_before: usize, found_ns: u64, start_ns: u64) {
        self.phases
            .started((free_before - self.free_count) as u64, found_ns, start_ns);
        for &slot in &self.free[self.free_count..free_before] {
            let slot = &mut self.slots[slot as usize];
            slot.start_ns = start_ns;
            if let Some(schedule) = &mut self.schedule {
                schedule.note_start(slot.intended_ns, start_ns);
            }
        }
    }

    /// Takes note of a completion.
    #[inline]
    fn complete(&mut self, slot: u32, result: i32, now_ns: u64) {
        let Slot {
            io,
            start_ns,
            intended_ns,
        } = self.slots[slot as usize];
        self.free[self.free_count] = slot;
        self.free_count += 1;
        if !succeeded(&io, result) {
            self.fail(&io, result, now_ns);
            return;
        }
        self.verify(slot, &io);
        let response_ns = self.schedule.is_some().then(|| now_ns.saturating_sub(intended_ns));
        let completion_ns = now_ns.saturating_sub(start_ns);
        self.phases
            .record(io.operation, u64::from(io.bytes), now_ns, completion_ns, response_ns);
    }

    /// Limit of the backend's wait before the job continues.
    #[inline]
    fn wait(&self, now_ns: u64) -> Wait {
        match &self.schedule {
            _ if self.phases.stage() == Stage::Drain => Wait::Idle(now_ns + DRAIN_POLL_NS),
            Some(schedule) if self.free_count > 0 && self.phases.may_issue() => {
                let check_ns = self.phases.next_check_ns();
                if schedule.next_ns() <= check_ns {
                    Wait::Due(schedule.next_ns())
                } else {
                    Wait::Idle(check_ns)
                }
            }
            _ if self.in_flight() > 0 => Wait::One,
            _ => Wait::Idle(self.phases.idle_until(now_ns)),
        }
    }

    /// The next scheduled action of the job, for the driver of a virtual clock.
    pub(crate) fn next_instant(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if self.free_count > 0 && self.phases.may_issue() => {
                self.phases.next_check_ns().min(schedule.next_ns())
            }
            _ => self.phases.next_check_ns(),
        }
    }

    /// Counts of the job, with the time that its backend spent on watching the clock.
    pub(crate) fn into_done(mut self, spun_ns: u64) -> JobDone<Found> {
        let end_ns = self.phases.window().end.min(self.phases.ended_ns());
        let schedule = self
            .schedule
            .take()
            .map(|schedule| schedule.into_result(end_ns, spun_ns));
        JobDone {
            schedule,
            abandoned: self.in_flight(),
            found: Found {
                failure: self.failure,
                tally: self.verifier.map(JobVerifier::into_tally),
            },
            totals: self.phases.into_outcome(),
        }
    }

    /// Gives up I/Os in flight that did not come back in time after the end.
    fn gives_up(&self, now_ns: u64) -> bool {
        self.phases.stage() == Stage::Drain && now_ns >= self.phases.ended_ns() + DRAIN_NS
    }

    fn in_flight(&self) -> u64 {
        (self.slots.len() - self.free_count) as u64
    }

    /// An open loop starts with the stream's load, which may be later than the start of the run.
    #[inline]
    fn begin_schedule(&mut self) {
        if self.arrivals.is_some() && self.phases.may_issue() {
            let begin_ns = self.phases.window().start;
            self.schedule = self.arrivals.take().map(|arrivals| Schedule::new(arrivals, begin_ns));
        }
    }

    #[inline]
    fn may_issue(&self, now_ns: u64) -> bool {
        self.schedule
            .as_ref()
            .is_none_or(|schedule| schedule.next_ns() <= now_ns)
            && self.phases.may_issue()
    }

    #[inline]
    fn next_io(&mut self) -> Io {
        if self
            .plan
            .flush_every
            .is_some_and(|every| self.writes_since_flush >= every)
        {
            self.writes_since_flush = 0;
            return Io {
                operation: Operation::Flush,
                offset_bytes: 0,
                bytes: 0,
            };
        }
        for _ in 0..self.skip {
            self.plan.generator.next();
        }
        self.skip = self.plan.lanes - 1;
        let io = self.plan.generator.next();
        self.writes_since_flush += u64::from(io.operation == Operation::Write);
        self.phases.take(u64::from(io.bytes));
        io
    }

    #[cold]
    fn fail(&mut self, io: &Io, result: i32, now_ns: u64) {
        let Io {
            operation,
            offset_bytes,
            bytes,
        } = *io;
        self.failure.get_or_insert(IoFailure {
            operation,
            offset_bytes,
            bytes,
            result,
            cause: None,
        });
        self.phases.end_load(now_ns);
    }
}

/// Reads and writes answer with the bytes they moved, trims and flushes with 0.
#[inline]
fn succeeded(io: &Io, result: i32) -> bool {
    match io.operation {
        Operation::Read | Operation::Write => result == io.bytes as i32,
        _ => result >= 0,
    }
}

/// One turn of the loop at an instant: count what came back, end what has ended, start what may start.
#[inline]
pub(crate) fn turn<B: Backend>(job: &mut Job<'_>, backend: &mut B, now_ns: u64) {
    job.phases.advance(now_ns, job.in_flight());
    backend.reap(|slot, result| job.complete(slot, result, now_ns));
    job.phases.notice_exhaustion(now_ns, job.in_flight());
    job.issue(backend, now_ns);
}

/// Runs a job in real time until it is done: the measuring loop.
pub(crate) fn drive<B: Backend>(job: &mut Job<'_>, backend: &mut B) -> io::Result<()> {
    job.begin();
    loop {
        let now_ns = backend.now();
        turn(job, backend, now_ns);
        if job.is_done() || job.gives_up(now_ns) {
            return Ok(());
        }
        backend.submit_and_wait(job.wait(now_ns))?;
    }
}

/// The slot's buffer. It is only touched while no I/O owns the slot.
#[expect(
    clippy::mut_from_ref,
    reason = "the arena hands out disjoint slots, each used by one owner at a time"
)]
fn buffer(arena: &Arena, slot: u32) -> &mut [u8] {
    // SAFETY: the slot lies in the arena, which outlives the job; the job owns a slot from its completion (or from the
    // beginning) until it pushes it to the backend, and touches it only then.
    unsafe { std::slice::from_raw_parts_mut(arena.slot(slot), arena.slot_bytes()) }
}
