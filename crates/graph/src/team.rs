//! Meetings of a run's jobs after each step of an iteration, and the sums that they exchange there.
//!
//! Meetings take a lock, once a step and not once a read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iosonde_protocol::Iteration;

use crate::pagerank::Conclusion;

/// Longest wait of a job before it closes intervals that are over.
const TICK: Duration = Duration::from_millis(20);

/// All jobs of a run.
pub(crate) struct Team {
    jobs: usize,
    meeting: Mutex<Meeting>,
    changed: Condvar,
    /// The computation ends before its own end: the load has ended, or a job failed.
    is_cut: AtomicBool,
    sums: Sums,
    iterations: Mutex<Vec<Iteration>>,
    has_converged: AtomicBool,
}

#[derive(Default)]
struct Meeting {
    arrived: usize,
    number: u64,
    /// True if the jobs continue after the meeting that ended last.
    continues: bool,
    /// A job panicked and will not arrive.
    is_broken: bool,
}

/// Sums over the jobs in the current iteration.
#[derive(Default)]
pub(crate) struct Sums {
    pub edges: AtomicU64,
    pub read_bytes: AtomicU64,
    pub cpu_ns: AtomicU64,
    pub begin_ns: AtomicU64,
}

impl Team {
    pub(crate) fn new(jobs: usize) -> Team {
        Team {
            jobs,
            meeting: Mutex::default(),
            changed: Condvar::new(),
            is_cut: AtomicBool::new(false),
            sums: Sums::default(),
            iterations: Mutex::default(),
            has_converged: AtomicBool::new(false),
        }
    }

    /// Ends the computation before its own end.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Waits for all jobs; the last one to arrive decides whether they go on. `tick` is called while waiting.
    pub(crate) fn meet(&self, decide: impl FnOnce() -> bool, mut tick: impl FnMut()) -> bool {
        let mut meeting = self.meeting();
        meeting.arrived += 1;
        if meeting.arrived == self.jobs {
            meeting.arrived = 0;
            meeting.number += 1;
            meeting.continues = !self.is_cut() && decide();
            self.changed.notify_all();
            return meeting.continues;
        }
        let number = meeting.number;
        while meeting.number == number && !meeting.is_broken {
            let waited = self.changed.wait_timeout(meeting, TICK);
            meeting = waited.unwrap_or_else(PoisonError::into_inner).0;
            if meeting.number == number && !meeting.is_broken {
                drop(meeting);
                tick();
                meeting = self.meeting();
            }
        }
        meeting.continues && !meeting.is_broken
    }

    /// Keeps the iteration that all jobs have ended at this time; whether there is another one.
    pub(crate) fn end_iteration(&self, now_ns: u64, conclusion: Conclusion) -> bool {
        let take = |sum: &AtomicU64| sum.swap(0, Ordering::Relaxed);
        let iteration = Iteration {
            begin_ns: self.sums.begin_ns.swap(now_ns, Ordering::Relaxed),
            end_ns: now_ns,
            edges: take(&self.sums.edges),
            active_vertices: conclusion.active_vertices,
            read_bytes: take(&self.sums.read_bytes),
            cpu_ns: take(&self.sums.cpu_ns),
            residual: Some(conclusion.residual),
        };
        self.iterations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(iteration);
        if conclusion.has_converged {
            self.has_converged.store(true, Ordering::Relaxed);
        }
        !conclusion.is_last
    }

    /// The iterations that were completed, and whether the computation was.
    pub(crate) fn into_iterations(self) -> (Vec<Iteration>, bool) {
        let iterations = self.iterations.into_inner().unwrap_or_else(PoisonError::into_inner);
        (iterations, self.has_converged.into_inner())
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job's place in the team: if it panics, no job waits for it.
pub(crate) struct Place<'a>(pub &'a Team);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cut();
            self.0.meeting().is_broken = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_leave_a_meeting_with_the_same_decision_and_none_waits_for_one_that_panicked() {
        let (team, decided) = (Team::new(3), AtomicU64::new(0));
        let rounds: Vec<u64> = std::thread::scope(|scope| {
            let job = || {
                let mut rounds = 0;
                while team.meet(|| decided.fetch_add(1, Ordering::Relaxed) < 100, || {}) {
                    rounds += 1;
                }
                rounds
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(job)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((rounds, decided.into_inner()), (vec![100; 3], 101));
        let team = Team::new(2);
        let continues = std::thread::scope(|scope| {
            let panics = || {
                let _place = Place(&team);
                panic!("as in the test's name");
            };
            assert!(scope.spawn(panics).join().is_err());
            scope.spawn(|| team.meet(|| true, || {})).join().unwrap()
        });
        assert!(!continues && team.is_cut());
    }
}
