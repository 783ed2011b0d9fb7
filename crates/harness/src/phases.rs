//! The phases of one job: ramp, measurement, the end of load, and what it may still issue.
//!
//! Every job goes through its phases by itself, from the same instants, so that no job depends on another. What costs more
//! than two comparisons happens only when an interval or a phase ends.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::metrics::usage::ThreadMeter;
use iosonde_protocol::{Active, Operation, Pacing, Phase, Usage};

use crate::recorder::Recorder;

/// Interval at which a job checks for an early end of the ramp.
const RAMP_POLL_NS: u64 = 200_000;
/// Longest wait of an idle job before it checks for a stop.
const IDLE_POLL_NS: u64 = 100_000_000;

/// State that all jobs of a run read, and that the controller rarely writes.
pub struct Shared {
    /// The run's first operation may start now.
    begin_ns: AtomicU64,
    /// When the measurement begins; `u64::MAX` until it is known.
    measure_begin_ns: AtomicU64,
    stop: AtomicBool,
    /// Changes whenever one of the above does, so that the loop checks one value.
    attention: AtomicU32,
    /// Jobs that have issued their share of the ramp.
    waiting: AtomicU32,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            begin_ns: AtomicU64::new(u64::MAX),
            measure_begin_ns: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
            attention: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }
}

impl Shared {
    /// Sets the run's first instant and that of the measurement.
    pub fn set_begin(&self, begin_ns: u64, measure_begin_ns: u64) {
        self.begin_ns.store(begin_ns, Ordering::Release);
        self.set_measure_begin(measure_begin_ns);
    }

    /// Sets, or brings forward, the instant at which the measurement begins.
    pub fn set_measure_begin(&self, at_ns: u64) {
        self.measure_begin_ns.store(at_ns, Ordering::Release);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// When the run begins.
    pub fn begin(&self) -> u64 {
        self.begin_ns.load(Ordering::Acquire)
    }

    /// When the measurement begins.
    #[inline]
    pub fn measure_begin(&self) -> u64 {
        self.measure_begin_ns.load(Ordering::Acquire)
    }

    /// Ends all jobs' load.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Returns true if the load was stopped before its own end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Jobs that have nothing left to do before the measurement begins.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }
}

/// Bytes and operations that a job may issue in a phase.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub bytes: u64,
    pub operations: u64,
}

impl Budget {
    /// Until something else ends the phase.
    pub const UNLIMITED: Budget = Budget {
        bytes: u64::MAX,
        operations: u64::MAX,
    };

    fn holds(&self, bytes: u64) -> bool {
        self.operations > 0 && self.bytes >= bytes
    }
}

/// The limits of a job's phases.
#[derive(Debug, Clone, Copy)]
pub struct PhasePlan {
    /// Budget of the ramp; none without a ramp.
    pub ramp: Option<Budget>,
    /// Budget of the measurement.
    pub measure: Budget,
    /// Length of the measurement at most, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// When in the measurement load is applied; none means always, and in the ramp too.
    pub active: Option<Active>,
    /// Bytes of the largest operation: with less than that left, the budget is used up.
    pub largest_bytes: u64,
}

/// The phase that a job is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Load is applied, and recorded as ramp.
    Ramp,
    /// Load is applied and measured.
    Measure,
    /// Nothing is issued or counted any more; what is in flight is awaited.
    Drain,
}

/// Totals of a job in the measurement.
#[derive(Debug, Clone, Default)]
pub struct JobTotals {
    /// Operations completed.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// When its load ended, in nanoseconds since the run's 0.
    pub end_ns: u64,
    /// When its last counted operation completed.
    pub last_completion_ns: u64,
    /// Usage of its thread.
    pub usage: Usage,
    /// Limits of its I/Os in flight.
    pub pacing: Pacing,
}

/// Operations of one kind that followed each other, of which the last completed before the next event of the job's phases.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Kind of these operations.
    pub operation: Operation,
    /// From begin to completion, in nanoseconds, of each.
    pub latencies: &'a [u64],
    /// Bytes moved by all.
    pub bytes: u64,
    /// Sum of the times between the completion of one and the start of the next.
    pub turnaround_ns: u64,
    /// When the first began.
    pub begin_ns: u64,
    /// When the last completed.
    pub end_ns: u64,
}

/// The phases of one job; see the module.
pub struct JobPhases<'a> {
    plan: PhasePlan,
    shared: &'a Shared,
    recorder: Recorder,
    stage: Stage,
    seen_attention: u32,
    /// When [`JobPhases::advance`] has something to do.
    next_check_ns: u64,
    end_ns: u64,
    /// The part of the run in which load is applied.
    window: Range<u64>,
    /// True while load is applied.
    is_open: bool,
    budget: Budget,
    announced_waiting: bool,
    meter: Option<ThreadMeter>,
    outcome: JobTotals,
}

impl<'a> JobPhases<'a> {
    /// The phases of a job that has not started.
    pub fn new(plan: PhasePlan, shared: &'a Shared, recorder: Recorder) -> JobPhases<'a> {
        JobPhases {
            plan,
            shared,
            recorder,
            stage: Stage::Ramp,
            seen_attention: 0,
            next_check_ns: 0,
            end_ns: u64::MAX,
            window: 0..u64::MAX,
            is_open: plan.active.is_none(),
            budget: Budget::UNLIMITED,
            announced_waiting: false,
            meter: None,
            outcome: JobTotals::default(),
        }
    }

    /// Begins at the instant the controller has set, and returns it.
    pub fn begin(&mut self) -> u64 {
        let begin_ns = self.shared.begin();
        self.window.start = begin_ns;
        match self.plan.ramp {
            Some(budget) => {
                self.budget = budget;
                self.recorder.begin_phase(Phase::Ramp, begin_ns);
            }
            None => self.begin_measure(begin_ns),
        }
        begin_ns
    }

    /// The phase that the job is in.
    #[inline]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Ends the intervals and phases that are over at this time. Costs two comparisons when there is nothing to do.
    #[inline]
    pub fn advance(&mut self, now_ns: u64, in_flight: u64) {
        if !self.is_uneventful(now_ns) {
            self.advance_slow(now_ns, in_flight);
        }
    }

    /// Returns true if [`JobPhases::advance`] would do nothing.
    #[inline(always)]
    pub fn is_uneventful(&self, now_ns: u64) -> bool {
        now_ns < self.next_check_ns && self.shared.attention.load(Ordering::Relaxed) == self.seen_attention
    }

    /// Like [`JobPhases::advance`], before an operation that completed at this time is recorded: it belongs to the interval in
    /// which it completed, and is in flight until it is recorded. Otherwise the last of the budget would come after the end.
    #[inline]
    pub fn advance_to_completion(&mut self, end_ns: u64) {
        self.advance(end_ns, 1);
    }

    /// Like [`JobPhases::advance`], for when the last operation of the budget may have come back.
    #[inline]
    pub fn notice_exhaustion(&mut self, now_ns: u64, in_flight: u64) {
        if self.exhausted() && self.is_open && self.stage != Stage::Drain {
            self.note_exhaustion(now_ns, in_flight);
        }
    }

    #[cold]
    fn note_exhaustion(&mut self, now_ns: u64, in_flight: u64) {
        if self.stage == Stage::Measure {
            self.outcome.pacing.exhausted_ns.get_or_insert(now_ns);
        }
        if self.stage == Stage::Ramp || in_flight == 0 {
            self.advance_slow(now_ns, in_flight);
        }
    }

    /// Returns true if the phase's budget is used up.
    #[inline]
    pub fn exhausted(&self) -> bool {
        !self.budget.holds(self.plan.largest_bytes)
    }

    /// Returns true if an operation may be issued now.
    #[inline]
    pub fn may_issue(&self) -> bool {
        self.is_open && self.stage != Stage::Drain && !self.exhausted()
    }

    /// Takes an operation from the budget.
    #[inline]
    pub fn take(&mut self, bytes: u64) {
        self.budget.operations -= 1;
        self.budget.bytes -= bytes;
    }

    /// Notes that operations were submitted, in places found free at `found_ns`.
    #[inline]
    pub fn started(&mut self, count: u64, found_ns: u64, start_ns: u64) {
        if self.stage == Stage::Measure {
            let pacing = &mut self.outcome.pacing;
            pacing.turnaround_ns += count * start_ns.saturating_sub(found_ns);
            if pacing.first_start_ns.is_none() {
                pacing.first_start_ns = Some(start_ns);
            }
        }
    }

    /// Number of operations that the budget still holds.
    pub fn operations_left(&self) -> u64 {
        self.budget.operations
    }

    /// Number of operations that the budget holds in any case, whatever their sizes.
    pub fn operations_left_of_any_size(&self) -> u64 {
        let of_bytes = self.budget.bytes.checked_div(self.plan.largest_bytes);
        self.budget.operations.min(of_bytes.unwrap_or(u64::MAX))
    }

    /// Takes the operations of a batch from the budget; of bytes no more than are left.
    pub fn take_batch(&mut self, operations: u64, bytes: u64) {
        self.budget.operations -= operations;
        self.budget.bytes = self.budget.bytes.saturating_sub(bytes);
    }

    /// Counts an operation that completed now.
    #[inline]
    pub fn record(
        &mut self,
        operation: Operation,
        bytes: u64,
        now_ns: u64,
        completion_ns: u64,
        response_ns: Option<u64>,
    ) {
        if self.stage == Stage::Drain {
            return;
        }
        self.recorder.record(operation, bytes, completion_ns, response_ns);
        if self.stage == Stage::Measure {
            self.outcome.operations += 1;
            self.outcome.bytes += bytes;
            self.outcome.last_completion_ns = now_ns;
        }
    }

    /// Counts operations that began together and completed now.
    pub fn record_batch(&mut self, operation: Operation, operations: u64, bytes: u64, now_ns: u64, completion_ns: u64) {
        if self.stage == Stage::Drain {
            return;
        }
        self.recorder.record_batch(operation, operations, bytes, completion_ns);
        if self.stage == Stage::Measure {
            self.outcome.operations += operations;
            self.outcome.bytes += bytes;
            self.outcome.last_completion_ns = now_ns;
        }
    }

    /// Takes operations of a row from the budget and counts them, as if each had been recorded by itself.
    ///
    /// A loop whose code and data do not fit into the CPU's first caches next to what it calls records faster this way.
    #[inline(never)]
    pub fn record_row(&mut self, row: &Row<'_>) {
        let operations = row.latencies.len() as u64;
        if operations == 0 {
            return;
        }
        self.take_batch(operations, row.bytes);
        if self.stage == Stage::Drain {
            return;
        }
        self.recorder.record_each(row.operation, row.bytes, row.latencies);
        if self.stage == Stage::Measure {
            let pacing = &mut self.outcome.pacing;
            pacing.turnaround_ns += row.turnaround_ns;
            pacing.first_start_ns.get_or_insert(row.begin_ns);
            self.outcome.operations += operations;
            self.outcome.bytes += row.bytes;
            self.outcome.last_completion_ns = row.end_ns;
        }
    }

    /// Notes how many operations are due but not started.
    #[inline]
    pub fn backlog(&mut self, backlog: u64) {
        self.recorder.backlog(backlog);
    }

    /// When the next interval or phase ends.
    pub fn next_check_ns(&self) -> u64 {
        self.next_check_ns
    }

    /// When a job that has nothing to do should look again.
    pub fn idle_until(&self, now_ns: u64) -> u64 {
        self.next_check_ns.min(now_ns + IDLE_POLL_NS)
    }

    /// The part of the run in which load is applied, as far as it is known: without a window of its own, all of it.
    pub fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Ends the load at an instant, before its own end.
    pub fn end_load(&mut self, at_ns: u64) {
        if self.stage == Stage::Drain {
            return;
        }
        if self.stage == Stage::Measure
            && let Some(meter) = self.meter.take()
        {
            (self.outcome.usage, self.outcome.pacing.cpu_wait_ns) = meter.stop();
        }
        self.outcome.end_ns = at_ns;
        self.recorder.end_phase(at_ns);
        self.stage = Stage::Drain;
        self.next_check_ns = u64::MAX;
    }

    /// When the load ended; before that, 0.
    pub fn ended_ns(&self) -> u64 {
        self.outcome.end_ns
    }

    /// Totals of the job.
    pub fn into_outcome(self) -> JobTotals {
        self.outcome
    }

    #[cold]
    fn advance_slow(&mut self, now_ns: u64, in_flight: u64) {
        self.seen_attention = self.shared.attention.load(Ordering::Acquire);
        match self.stage {
            Stage::Ramp => self.advance_ramp(now_ns, in_flight),
            Stage::Measure => self.advance_measure(now_ns, in_flight),
            Stage::Drain => {}
        }
    }

    fn advance_ramp(&mut self, now_ns: u64, in_flight: u64) {
        let measure_begin_ns = self.shared.measure_begin();
        if self.shared.is_stopped() {
            self.end_load(now_ns);
        } else if now_ns >= measure_begin_ns {
            self.recorder.end_phase(measure_begin_ns);
            self.begin_measure(measure_begin_ns);
            self.advance_measure(now_ns, in_flight);
        } else {
            self.cross_if_due(now_ns);
            self.announce_if_waiting();
            self.next_check_ns = self.recorder.boundary_ns().min(measure_begin_ns);
            if self.exhausted() || !self.is_open {
                self.next_check_ns = self.next_check_ns.min(now_ns + RAMP_POLL_NS);
            }
        }
    }

    fn advance_measure(&mut self, now_ns: u64, in_flight: u64) {
        if now_ns >= self.end_ns {
            self.end_load(self.end_ns);
        } else if self.shared.is_stopped() {
            self.end_load(now_ns);
        } else if self.exhausted() && in_flight == 0 {
            self.end_load(self.outcome.last_completion_ns);
        } else {
            self.cross_if_due(now_ns);
            self.repeat_window(now_ns);
            self.is_open = self.window.contains(&now_ns);
            self.next_check_ns = self.next_instant(now_ns);
        }
    }

    /// The next window, where they repeat and this one is over.
    fn repeat_window(&mut self, now_ns: u64) {
        let every_ns = self.plan.active.and_then(|active| active.every_ns);
        if let Some(every_ns) = every_ns.filter(|every_ns| *every_ns > 0 && now_ns >= self.window.end) {
            let turns_ns = ((now_ns - self.window.end) / every_ns + 1) * every_ns;
            self.window = self.window.start + turns_ns..self.window.end + turns_ns;
        }
    }

    fn next_instant(&self, now_ns: u64) -> u64 {
        let edges = [self.window.start, self.window.end].into_iter();
        let edge_ns = edges.filter(|edge_ns| *edge_ns > now_ns).min().unwrap_or(u64::MAX);
        self.recorder.boundary_ns().min(self.end_ns).min(edge_ns)
    }

    fn begin_measure(&mut self, at_ns: u64) {
        self.stage = Stage::Measure;
        self.budget = self.plan.measure;
        self.end_ns = self
            .plan
            .duration_ns
            .map_or(u64::MAX, |duration_ns| at_ns + duration_ns);
        self.outcome.last_completion_ns = at_ns;
        self.meter = Some(ThreadMeter::start());
        self.recorder.begin_phase(Phase::Measure, at_ns);
        if let Some(active) = self.plan.active {
            let end_ns = active.end_ns.map_or(u64::MAX, |end_ns| at_ns + end_ns);
            self.window = at_ns + active.begin_ns..end_ns;
            self.is_open = self.window.contains(&at_ns);
        }
        self.next_check_ns = self.next_instant(at_ns);
    }

    fn cross_if_due(&mut self, now_ns: u64) {
        if now_ns >= self.recorder.boundary_ns() {
            self.recorder.cross(now_ns);
        }
    }

    fn announce_if_waiting(&mut self) {
        if (self.exhausted() || !self.is_open) && !self.announced_waiting {
            self.announced_waiting = true;
            self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Exchange;

    #[test]
    fn the_last_operation_of_the_budget_counts_where_an_interval_ends_before_its_completion() {
        const INTERVAL_NS: u64 = 100;
        let shared = Shared::default();
        shared.set_begin(0, 0);
        let plan = PhasePlan {
            ramp: None,
            measure: Budget {
                operations: 3,
                ..Budget::UNLIMITED
            },
            duration_ns: None,
            active: None,
            largest_bytes: 10,
        };
        let mut phases = JobPhases::new(plan, &shared, Recorder::new(Exchange::new(), INTERVAL_NS));
        phases.begin();
        for operation in 1..=3 {
            let end_ns = operation * (INTERVAL_NS + 1);
            phases.take_batch(1, 10);
            phases.advance_to_completion(end_ns);
            phases.record(Operation::Write, 10, end_ns, INTERVAL_NS + 1, None);
        }
        phases.notice_exhaustion(3 * (INTERVAL_NS + 1), 0);
        assert_eq!(phases.stage(), Stage::Drain);
        let done = phases.into_outcome();
        // The load ends with its last operation.
        assert_eq!((done.operations, done.bytes, done.end_ns), (3, 30, 303));
    }
}
