//! One job: a thread that accesses one page after the other.
//!
//! An access reads or changes one word of a page, between two readings of the clock. The loop allocates nothing, takes no
//! lock and makes no system call, except for the two that classify an access which took as long as a fault.

use std::sync::atomic::Ordering;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{JobDone, JobPhases, Stage, wait_until};
use iosonde_protocol::Operation;

use crate::content::Judgement;
use crate::faults::Faults;
use crate::mapping::Mapping;
use crate::pattern::Chooser;

/// One job; see the module.
pub(crate) struct Job<'a> {
    pub mapping: &'a Mapping,
    pub clock: Clock,
    pub phases: JobPhases<'a>,
    pub chooser: Chooser,
    pub threshold_ns: u64,
    /// The thread's faults when they were last read.
    pub seen: Faults,
    pub tally: Tally,
}

/// Counters of a job besides latencies.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Faults of the thread under load, by the kernel's count.
    pub faults: Faults,
    /// Accesses that were classified as faults.
    pub attributed: Faults,
    pub checked: u64,
    pub corrupted: u64,
    pub stale: u64,
    pub first_wrong_page: Option<u64>,
}

impl Tally {
    /// With what another job found.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.faults.add(other.faults);
        self.attributed.add(other.attributed);
        self.checked += other.checked;
        self.corrupted += other.corrupted;
        self.stale += other.stale;
        self.first_wrong_page = self.first_wrong_page.or(other.first_wrong_page);
    }
}

impl Job<'_> {
    /// Loads until the end of the measurement.
    pub(crate) fn drive(mut self) -> JobDone<Tally> {
        self.phases.begin();
        let mut now_ns = self.clock.now();
        let faults_at_start = Faults::of_thread();
        self.seen = faults_at_start;
        self.phases.started(1, now_ns, now_ns);
        self.phases.advance(now_ns, 0);
        loop {
            // A step ends the intervals and phases that are over when it ends.
            if self.phases.may_issue() {
                now_ns = self.step();
                continue;
            }
            self.phases.advance(now_ns, 0);
            self.phases.notice_exhaustion(now_ns, 0);
            if self.phases.stage() == Stage::Drain {
                self.tally.faults = Faults::of_thread().since(faults_at_start);
                return JobDone::new(self.phases.into_outcome(), self.tally);
            }
            now_ns = wait_until(self.clock, self.phases.idle_until(now_ns));
        }
    }

    /// One access; returns when it ended.
    #[inline]
    pub(crate) fn step(&mut self) -> u64 {
        let (page, is_read) = self.chooser.next();
        let acknowledged = self.mapping.acknowledged(page);
        let word = self.mapping.seal(page);
        let begin_ns = self.clock.now_early();
        let seal = match is_read {
            true => word.load(Ordering::Relaxed),
            false => word.fetch_add(1, Ordering::Relaxed),
        };
        let end_ns = self.clock.now();
        if !is_read {
            self.mapping.acknowledge(page);
        }
        self.tally.checked += 1;
        match self.mapping.judge(page, seal, acknowledged) {
            Judgement::Correct => {}
            wrong => self.note_wrong(page, wrong),
        }
        let latency_ns = end_ns.saturating_sub(begin_ns);
        let is_slow = latency_ns >= self.threshold_ns;
        let operation = match is_slow {
            true => self.classify(),
            false => Operation::Hit,
        };
        let check_ns = self.phases.next_check_ns();
        self.phases.take(0);
        self.phases.advance_to_completion(end_ns);
        self.phases.record(operation, 0, end_ns, latency_ns, None);
        if is_slow || end_ns >= check_ns {
            self.after_interruption(end_ns);
        }
        end_ns
    }

    /// Classifies an access that took as long as a fault by the thread's counters.
    #[cold]
    fn classify(&mut self) -> Operation {
        let found = Faults::of_thread().since(self.seen);
        if found.major > 0 {
            self.tally.attributed.major += 1;
            Operation::MajorFault
        } else if found.minor > 0 {
            self.tally.attributed.minor += 1;
            Operation::MinorFault
        } else {
            Operation::Hit
        }
    }

    /// Counting a slow access, or the end of an interval or phase, may touch memory for the first time: such a fault is none of
    /// the next access.
    #[cold]
    fn after_interruption(&mut self, end_ns: u64) {
        self.phases.started(1, end_ns, end_ns);
        self.seen = Faults::of_thread();
    }

    #[cold]
    fn note_wrong(&mut self, page: u64, judgement: Judgement) {
        match judgement {
            Judgement::Correct => return,
            Judgement::Corrupted => self.tally.corrupted += 1,
            Judgement::Stale => self.tally.stale += 1,
        }
        self.tally.first_wrong_page.get_or_insert(page);
    }
}
