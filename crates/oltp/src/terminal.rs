//! One terminal: a thread that carries out one transaction after the other on its own connection.
//!
//! The input of a transaction is chosen before the clock is read. A transaction that fails for a reason that repeating can
//! help with is repeated with the same input; its latency is from the first attempt's start to the last one's end. In the loop
//! nothing is allocated, locked, logged or formatted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sql::{ErrorKind, SqlError, Traffic};
use iosonde_harness::load::{Arrivals, Schedule};
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{JobDone, JobPhases, RunError, Stage, wait_until, wait_until_due};
use iosonde_protocol::{OltpCounters, Operation, TransactionResult};

use crate::acknowledged::{Acknowledged, Log};

/// Outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Committed; some have an identifier that can be looked up later.
    Committed(Option<Acknowledged>),
    /// A delivery was committed.
    Delivered {
        /// Districts that had no new order.
        skipped_districts: u32,
    },
    /// Rolled back as the input rules demand.
    RolledBack,
}

/// Transactions of a workload on one connection, the work of a terminal.
pub(crate) trait Work: Send {
    /// Chooses the next transaction, and the keying and think times around it in nanoseconds.
    fn choose(&mut self) -> (Operation, u64, u64);

    /// Carries out the chosen transaction once; `at_us` is the wall clock in microseconds since 1970.
    fn attempt(&mut self, at_us: i64) -> Result<Done, SqlError>;

    /// Ends a transaction that failed.
    fn abort(&mut self) -> Result<(), SqlError>;

    /// Traffic since the connection was made.
    fn traffic(&self) -> Traffic;
}

/// By operation.
pub(crate) type Tallies = [TransactionResult; Operation::ALL.len()];

/// A terminal's counters as the reporter of intervals reads them; each has one writer.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Published {
    values: [AtomicU64; 6],
}

impl Published {
    fn store(&self, counters: &OltpCounters) {
        let values = [
            counters.statements,
            counters.round_trips,
            counters.sent_bytes,
            counters.received_bytes,
            counters.aborted_attempts,
            counters.failed_transactions,
        ];
        for (place, value) in self.values.iter().zip(values) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// The sum over all terminals.
    pub(crate) fn sum(all: &[Published]) -> OltpCounters {
        let total = |index: usize| all.iter().map(|one| one.values[index].load(Ordering::Relaxed)).sum();
        OltpCounters {
            statements: total(0),
            round_trips: total(1),
            sent_bytes: total(2),
            received_bytes: total(3),
            aborted_attempts: total(4),
            failed_transactions: total(5),
        }
    }
}

/// State shared by all terminals.
pub(crate) struct Common<'a> {
    pub clock: Clock,
    /// Attempts after the first.
    pub retries: u32,
    /// True if the load ends without an error when the server goes away.
    pub tolerates_loss: bool,
    /// Instant at which the server was first found gone; `u64::MAX` if it was not.
    pub vanished_ns: &'a AtomicU64,
}

/// A terminal that is ready to start.
pub(crate) struct Terminal<'a, W> {
    pub work: W,
    pub common: &'a Common<'a>,
    pub phases: JobPhases<'a>,
    pub arrivals: Option<Arrivals>,
    pub log: Option<Log>,
    pub published: &'a Published,
}

/// Results of a terminal.
pub(crate) struct Found {
    pub tallies: Tallies,
    pub counters: OltpCounters,
    pub acknowledged: u64,
}

/// The terminal at work.
struct Running<'a, 't, W> {
    terminal: &'t mut Terminal<'a, W>,
    schedule: Option<Schedule>,
    tallies: Tallies,
    /// Since the connection was ready, and when the measurement began.
    traffic_at_start: Traffic,
    counters: OltpCounters,
    counters_at_measure: Option<OltpCounters>,
    spun_ns: u64,
    realtime_at_zero_us: i64,
}

impl<W: Work> Terminal<'_, W> {
    /// Carries out transactions until the load ends.
    ///
    /// # Errors
    /// When a transaction fails for a reason that repeating cannot help with.
    pub(crate) fn drive(mut self) -> Result<JobDone<Found>, RunError> {
        let begin_ns = self.phases.begin();
        let schedule = self.arrivals.take().map(|arrivals| Schedule::new(arrivals, begin_ns));
        let mut running = Running {
            schedule,
            tallies: Operation::ALL.map(TransactionResult::none),
            traffic_at_start: self.work.traffic(),
            counters: OltpCounters::default(),
            counters_at_measure: None,
            spun_ns: 0,
            realtime_at_zero_us: (self.common.clock.realtime_at_zero_ns() / 1000) as i64,
            terminal: &mut self,
        };
        let driven = running.drive();
        let (schedule, spun_ns, tallies) = (running.schedule.take(), running.spun_ns, running.tallies);
        let at_measure = running.counters_at_measure.unwrap_or(running.counters);
        let counters = running.counters.since(&at_measure);
        let now_ns = self.common.clock.now();
        self.phases.end_load(now_ns);
        driven?;
        let end_ns = self.phases.ended_ns();
        let found = Found {
            tallies,
            counters,
            acknowledged: self.log.map_or(0, |log| log.written()),
        };
        Ok(JobDone {
            schedule: schedule.map(|schedule| schedule.into_result(end_ns, spun_ns)),
            ..JobDone::new(self.phases.into_outcome(), found)
        })
    }
}

impl<W: Work> Running<'_, '_, W> {
    fn drive(&mut self) -> Result<(), RunError> {
        let clock = self.terminal.common.clock;
        let mut now_ns = clock.now();
        loop {
            self.terminal.phases.advance(now_ns, 0);
            self.note_measurement();
            if !self.terminal.phases.may_issue() {
                if self.terminal.phases.stage() == Stage::Drain {
                    return Ok(());
                }
                now_ns = wait_until(clock, self.terminal.phases.idle_until(now_ns));
                continue;
            }
            let due_ns = self.schedule.as_ref().map_or(0, Schedule::next_ns);
            if due_ns > now_ns {
                let until_ns = due_ns.min(self.terminal.phases.idle_until(now_ns));
                now_ns = wait_until_due(clock, now_ns, until_ns, &mut self.spun_ns);
                continue;
            }
            match self.step(now_ns)? {
                Some(end_ns) => now_ns = end_ns,
                None => return Ok(()),
            }
        }
    }

    /// One transaction with its pauses; returns when it ended, or none if the load is over.
    fn step(&mut self, now_ns: u64) -> Result<Option<u64>, RunError> {
        let (operation, keying_ns, think_ns) = self.terminal.work.choose();
        if keying_ns > 0 {
            self.wait_to(now_ns + keying_ns);
            if self.terminal.phases.stage() == Stage::Drain {
                return Ok(None);
            }
        }
        let intended_ns = self.schedule.as_mut().map(|schedule| {
            self.terminal.phases.backlog(schedule.backlog(now_ns).saturating_sub(1));
            schedule.take()
        });
        let begin_ns = self.terminal.common.clock.now_early();
        let done = self.attempts(operation, begin_ns);
        let end_ns = self.terminal.common.clock.now();
        self.publish();
        let Some(done) = done? else { return Ok(None) };
        if let (Some(schedule), Some(intended_ns)) = (&mut self.schedule, intended_ns) {
            schedule.note_start(intended_ns, begin_ns);
        }
        let phases = &mut self.terminal.phases;
        phases.started(1, now_ns, begin_ns);
        phases.take(0);
        phases.advance_to_completion(end_ns);
        self.note_measurement();
        self.complete(operation, done, begin_ns, end_ns, intended_ns)?;
        if think_ns > 0 {
            return Ok(Some(self.wait_to(end_ns + think_ns)));
        }
        Ok(Some(end_ns))
    }

    /// Counts a transaction that was carried out, or given up.
    fn complete(
        &mut self,
        operation: Operation,
        done: Option<Done>,
        begin_ns: u64,
        end_ns: u64,
        intended_ns: Option<u64>,
    ) -> Result<(), RunError> {
        let is_counted = self.terminal.phases.stage() == Stage::Measure;
        let tally = &mut self.tallies[operation as usize];
        let Some(done) = done else {
            tally.failed += u64::from(is_counted);
            self.counters.failed_transactions += 1;
            return Ok(());
        };
        match done {
            Done::Committed(Some(id)) => {
                if let Some(log) = &mut self.terminal.log {
                    log.append(id)?;
                }
            }
            Done::Delivered { skipped_districts } if is_counted => {
                tally.skipped_districts += u64::from(skipped_districts);
            }
            Done::RolledBack => tally.rolled_back += u64::from(is_counted),
            Done::Committed(None) | Done::Delivered { .. } => {}
        }
        tally.completed += u64::from(is_counted);
        let response_ns = intended_ns.map(|intended_ns| end_ns.saturating_sub(intended_ns));
        self.terminal
            .phases
            .record(operation, 0, end_ns, end_ns.saturating_sub(begin_ns), response_ns);
        Ok(())
    }

    /// Repeats the transaction while that may help. The outer none: the server is gone and the load over; the inner: given up.
    fn attempts(&mut self, operation: Operation, begin_ns: u64) -> Result<Option<Option<Done>>, RunError> {
        let at_us = self.realtime_at_zero_us + (begin_ns / 1000) as i64;
        for attempt in 0..=self.terminal.common.retries {
            match self.terminal.work.attempt(at_us) {
                Ok(done) => return Ok(Some(Some(done))),
                Err(error) if error.kind == ErrorKind::Vanished => return self.lost(error),
                Err(error) if error.kind.is_retryable() => self.note_abort(operation, error.kind),
                Err(error) => return Err(RunError::from(error).at(format!("transaction {operation:?}"))),
            }
            if let Err(error) = self.terminal.work.abort() {
                return match error.kind {
                    ErrorKind::Vanished => self.lost(error),
                    _ => Err(error.into()),
                };
            }
            if attempt < self.terminal.common.retries && self.is_over() {
                return Ok(None);
            }
        }
        Ok(Some(None))
    }

    fn is_over(&mut self) -> bool {
        let now_ns = self.terminal.common.clock.now();
        self.terminal.phases.advance(now_ns, 0);
        self.terminal.phases.stage() == Stage::Drain
    }

    fn note_abort(&mut self, operation: Operation, kind: ErrorKind) {
        self.counters.aborted_attempts += 1;
        if self.terminal.phases.stage() != Stage::Measure {
            return;
        }
        let tally = &mut self.tallies[operation as usize];
        match kind {
            ErrorKind::Deadlock => tally.deadlocks += 1,
            ErrorKind::LockTimeout => tally.lock_timeouts += 1,
            _ => tally.serialization_failures += 1,
        }
    }

    #[cold]
    fn lost(&mut self, error: SqlError) -> Result<Option<Option<Done>>, RunError> {
        let now_ns = self.terminal.common.clock.now();
        self.terminal.common.vanished_ns.fetch_min(now_ns, Ordering::Relaxed);
        if !self.terminal.common.tolerates_loss {
            return Err(RunError::from(error).at("ramp and measurement"));
        }
        self.terminal.phases.end_load(now_ns);
        Ok(None)
    }

    /// Makes what was exchanged visible to the reporter of intervals.
    fn publish(&mut self) {
        let (now, start) = (self.terminal.work.traffic(), self.traffic_at_start);
        self.counters.statements = now.statements - start.statements;
        self.counters.round_trips = now.round_trips - start.round_trips;
        self.counters.sent_bytes = now.sent_bytes - start.sent_bytes;
        self.counters.received_bytes = now.received_bytes - start.received_bytes;
        self.terminal.published.store(&self.counters);
    }

    fn note_measurement(&mut self) {
        if self.counters_at_measure.is_none() && self.terminal.phases.stage() == Stage::Measure {
            self.counters_at_measure = Some(self.counters);
        }
    }

    /// Waits without missing the end of an interval or of the load.
    fn wait_to(&mut self, until_ns: u64) -> u64 {
        let clock = self.terminal.common.clock;
        let mut now_ns = clock.now();
        while now_ns < until_ns {
            now_ns = wait_until(
                clock,
                until_ns.min(self.terminal.phases.idle_until(now_ns).max(now_ns + 1)),
            );
            self.terminal.phases.advance(now_ns, 0);
            if self.terminal.phases.stage() == Stage::Drain {
                break;
            }
        }
        now_ns
    }
}
