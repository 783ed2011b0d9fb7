//! One die: what it works on, and how a read gets in between.
//!
//! Programs, erasures and the reads of collection are *work*, done in order. A read of the host's goes first: it waits
//! for reads before it and for the operation at hand, or interrupts that after its suspend time, where it has one. So
//! that work is never starved, an operation that was held up for as long as it takes is not interrupted again.
//!
//! Work has its own clock, which stops while reads occupy the die: delaying all that is planned is then
//! one addition.

use std::collections::VecDeque;

/// No program: an erasure, or a read for collection.
pub(crate) const NO_PROGRAM: u32 = u32::MAX;

/// One planned operation, in work time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    begin_ns: u64,
    end_ns: u64,
    program: u32,
    /// After how long a read interrupts it; `NEVER` if it does not.
    suspend_ns: u64,
}

/// The suspend time of what cannot be interrupted.
pub(crate) const NEVER: u64 = u64::MAX;

/// A die; see the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Die {
    /// End of the planned reads.
    reads_end_ns: u64,
    /// Time that reads have taken from work: real time is work time plus this.
    stolen_ns: u64,
    /// Of that, from the operation at hand.
    held_up_ns: u64,
    work: VecDeque<Work>,
    work_end_ns: u64,
}

impl Die {
    /// Plans work that can begin at `from_ns`; returns its end in work time.
    pub(crate) fn plan(&mut self, from_ns: u64, duration_ns: u64, program: u32, suspend_ns: u64, now_ns: u64) -> u64 {
        self.forget(now_ns);
        // An idle die may still be busy with a read.
        let from_ns = if self.work.is_empty() {
            from_ns.max(self.reads_end_ns)
        } else {
            from_ns
        };
        let begin_ns = from_ns.saturating_sub(self.stolen_ns).max(self.work_end_ns);
        self.work_end_ns = begin_ns + duration_ns;
        self.work.push_back(Work {
            begin_ns,
            end_ns: self.work_end_ns,
            program,
            suspend_ns,
        });
        self.work_end_ns
    }

    /// End in real time of work that ends at an instant of work time, as far as is known now.
    #[inline]
    pub(crate) fn real_ns(&self, work_ns: u64) -> u64 {
        work_ns + self.stolen_ns
    }

    /// End of all planned work.
    pub(crate) fn idle_from_ns(&self) -> u64 {
        self.real_ns(self.work_end_ns).max(self.reads_end_ns)
    }

    /// Returns true if a program is planned or under way: its data is still in the controller.
    #[inline]
    pub(crate) fn holds(&self, program: u32) -> bool {
        self.work.iter().any(|work| work.program == program)
    }

    /// Plans a read that arrives at `at_ns`; returns when it is done.
    pub(crate) fn read(&mut self, at_ns: u64, duration_ns: u64) -> u64 {
        let mut begin_ns = at_ns.max(self.reads_end_ns);
        self.forget(begin_ns);
        if let Some(&work) = self.work.front() {
            if self.real_ns(work.begin_ns) <= begin_ns {
                begin_ns = self.interrupt(work, begin_ns, duration_ns);
            }
            self.make_way(begin_ns + duration_ns);
        }
        self.reads_end_ns = begin_ns + duration_ns;
        self.reads_end_ns
    }

    /// Earliest start of a read that finds an operation under way.
    fn interrupt(&mut self, work: Work, from_ns: u64, duration_ns: u64) -> u64 {
        let remaining_ns = self.real_ns(work.end_ns) - from_ns;
        let patience_ns = work.end_ns - work.begin_ns;
        if work.suspend_ns < remaining_ns && self.held_up_ns < patience_ns {
            let held_up_ns = work.suspend_ns + duration_ns;
            self.stolen_ns += held_up_ns;
            self.held_up_ns += held_up_ns;
            return from_ns + work.suspend_ns;
        }
        self.work.pop_front();
        self.held_up_ns = 0;
        from_ns + remaining_ns
    }

    /// Work that has not started starts after the read that ends at `end_ns`.
    fn make_way(&mut self, end_ns: u64) {
        let Some(&next) = self.work.front() else { return };
        let begin_ns = self.real_ns(next.begin_ns);
        if self.held_up_ns == 0 && begin_ns < end_ns {
            self.stolen_ns += end_ns - begin_ns;
        }
    }

    fn forget(&mut self, now_ns: u64) {
        while let Some(work) = self.work.front() {
            if self.real_ns(work.end_ns) > now_ns {
                return;
            }
            self.work.pop_front();
            self.held_up_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_the_operation_at_hand_suspends_it_or_passes_it() {
        let mut waiting = Die::default();
        waiting.plan(0, 1000, 1, NEVER, 0);
        assert_eq!(waiting.read(100, 50), 1050);
        let mut suspending = Die::default();
        let end = suspending.plan(0, 1000, 1, 20, 0);
        assert_eq!(suspending.read(100, 50), 170);
        assert_eq!(suspending.real_ns(end), 1070, "the program continues afterwards");
        let mut die = Die::default();
        let end = die.plan(500, 1000, 1, NEVER, 0);
        assert_eq!(die.read(0, 100), 100);
        assert_eq!(die.real_ns(end), 1500);
        assert_eq!(die.read(450, 100), 550);
        assert_eq!(die.real_ns(end), 1550);
    }

    #[test]
    fn reads_cannot_starve_a_program() {
        let mut die = Die::default();
        let end = die.plan(0, 1000, 1, 10, 0);
        let mut now = 0;
        for _ in 0..1000 {
            now = die.read(now, 50);
        }
        assert!(die.real_ns(end) <= 2_200, "it took {}", die.real_ns(end));
    }
}
