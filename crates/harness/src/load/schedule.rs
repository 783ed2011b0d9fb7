//! The state of an open loop's schedule: which operation is due next, and how many are due but not started.

use iosonde_protocol::ScheduleResult;

use crate::load::Arrivals;

/// The arrivals of one job since the start of the run.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrivals: Arrivals,
    begin_ns: u64,
    next_ns: u64,
    taken: u64,
    /// Runs ahead of `arrivals` to count what is due, once there is a backlog.
    ahead: Arrivals,
    ahead_ns: u64,
    due: u64,
    lag_ns_sum: u64,
    lag_ns_max: u64,
}

impl Schedule {
    /// Arrivals count from 0; `begin_ns` is the start of the run on its clock.
    pub fn new(mut arrivals: Arrivals, begin_ns: u64) -> Schedule {
        let next_ns = begin_ns.saturating_add(arrivals.next());
        Schedule {
            ahead: arrivals.clone(),
            arrivals,
            begin_ns,
            next_ns,
            taken: 0,
            ahead_ns: next_ns,
            due: 0,
            lag_ns_sum: 0,
            lag_ns_max: 0,
        }
    }

    /// Instant at which the next operation is due.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next operation; returns when it was due.
    #[inline]
    pub fn take(&mut self) -> u64 {
        self.taken += 1;
        std::mem::replace(&mut self.next_ns, self.begin_ns.saturating_add(self.arrivals.next()))
    }

    /// Adds how late an operation was started.
    #[inline]
    pub fn note_start(&mut self, intended_ns: u64, start_ns: u64) {
        let lag_ns = start_ns.saturating_sub(intended_ns);
        self.lag_ns_sum += lag_ns;
        self.lag_ns_max = self.lag_ns_max.max(lag_ns);
    }

    /// Adherence to the schedule until the load ended. An arrival exactly at the end is no longer due.
    pub fn into_result(mut self, end_ns: u64, spun_ns: u64) -> ScheduleResult {
        let backlog = self.backlog_before(end_ns);
        ScheduleResult {
            due: self.taken + backlog,
            started: self.taken,
            start_lag_ns_sum: self.lag_ns_sum,
            start_lag_ns_max: self.lag_ns_max,
            spun_ns,
        }
    }

    /// Number of operations that are due by now and not taken.
    pub fn backlog(&mut self, now_ns: u64) -> u64 {
        self.backlog_before(now_ns.saturating_add(1))
    }

    fn backlog_before(&mut self, instant_ns: u64) -> u64 {
        while self.ahead_ns < instant_ns {
            self.due += 1;
            self.ahead_ns = self.begin_ns.saturating_add(self.ahead.next());
        }
        self.due.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_protocol::Arrival;

    /// An arrival each 100 ns, from 1000 ns on.
    fn each_100_ns() -> Schedule {
        let arrival = Arrival::Constant { rate: 1e9 / 100.0 };
        let arrivals = Arrivals::new(&arrival, 1, 0, 0, 1, 0).expect("the loop is open");
        Schedule::new(arrivals, 1000)
    }

    #[test]
    fn what_is_due_and_not_taken_is_the_backlog_and_an_arrival_at_the_end_is_not_due() {
        let mut schedule = each_100_ns();
        assert_eq!(schedule.next_ns(), 1000);
        assert_eq!(schedule.backlog(999), 0);
        assert_eq!(schedule.backlog(1250), 3);
        assert_eq!([schedule.take(), schedule.take()], [1000, 1100]);
        assert_eq!(schedule.backlog(1250), 1);
        assert_eq!(schedule.next_ns(), 1200);
        let due = |end_ns| {
            let mut schedule = each_100_ns();
            schedule.take();
            let result = schedule.into_result(end_ns, 7);
            assert_eq!(
                (result.spun_ns, result.start_lag_ns_sum, result.start_lag_ns_max),
                (7, 0, 0)
            );
            (result.due, result.started)
        };
        assert_eq!([due(1199), due(1200), due(1201)], [(2, 1), (2, 1), (3, 1)]);
        // All that was started was due, also where nothing else is.
        assert_eq!(due(1100), (1, 1));
        let mut late = each_100_ns();
        [(1000, 1030), (1100, 1110), (1200, 1190)]
            .iter()
            .for_each(|(due, start)| late.note_start(*due, *start));
        let late = late.into_result(1300, 0);
        assert_eq!([late.start_lag_ns_sum, late.start_lag_ns_max], [40, 30]);
    }
}
