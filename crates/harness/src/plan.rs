//! The load of a run: its streams, their jobs, and when they end. Every workload describes its spec in these terms.

use std::collections::BTreeSet;

use crate::load::Arrivals;
use iosonde_protocol::{Active, Arrival, Ramp};

use crate::error::{RunError, require};
use crate::phases::{Budget, PhasePlan};

const JOBS_MAX: u32 = 10_000;
const INTERVAL_NS_MIN: u64 = 100_000_000;

/// The load of a run.
#[derive(Debug, Clone)]
pub struct LoadPlan<'a> {
    /// The ramp before the measurement.
    pub ramp: Ramp,
    /// Length of the measurement at most, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// The streams, which run together.
    pub streams: Vec<StreamPlan<'a>>,
}

/// One stream: `jobs` threads with the same load.
#[derive(Debug, Clone)]
pub struct StreamPlan<'a> {
    pub name: &'a str,
    pub jobs: u32,
    /// CPUs to run on: job `i` is pinned to `cpus[i % len]`; empty leaves it to the scheduler.
    pub cpus: &'a [u32],
    /// When operations start.
    pub arrival: &'a Arrival,
    /// Bytes of all jobs in the measurement at most.
    pub limit_bytes: Option<u64>,
    /// Operations of all jobs in the measurement at most.
    pub limit_operations: Option<u64>,
    /// When in the measurement load is applied; none means always, and in the ramp too.
    pub active: Option<Active>,
    /// Bytes of the largest operation: with less than that left, a limit of bytes is reached.
    pub largest_bytes: u64,
    /// True if the load ends without a duration or limit.
    pub ends_by_itself: bool,
}

impl<'a> StreamPlan<'a> {
    /// A stream in closed loop, without limits.
    pub fn closed(name: &'a str, jobs: u32, cpus: &'a [u32]) -> StreamPlan<'a> {
        StreamPlan {
            name,
            jobs,
            cpus,
            arrival: &Arrival::Closed,
            limit_bytes: None,
            limit_operations: None,
            active: None,
            largest_bytes: 0,
            ends_by_itself: false,
        }
    }

    /// True if operations start by a schedule.
    fn is_open_loop(&self) -> bool {
        *self.arrival != Arrival::Closed
    }

    /// The CPU of a job.
    fn cpu(&self, job: u32) -> Option<u32> {
        let place = (job as usize).checked_rem(self.cpus.len())?;
        Some(self.cpus[place])
    }
}

/// Which job of a run a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub stream: usize,
    /// Number of the job in its stream.
    pub job: u32,
    /// Which of the job's threads; 0 unless a job has several.
    pub lane: u32,
    /// Threads of the job.
    pub lanes: u32,
    /// Number among all threads of the run.
    pub number: usize,
}

impl LoadPlan<'_> {
    /// Refuses what no workload can carry out.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        require(self.interval_ns >= INTERVAL_NS_MIN, "`interval_ns`")?;
        require(self.duration_ns != Some(0), "`duration_ns`")?;
        require(!self.streams.is_empty(), "`streams`")?;
        let mut names = BTreeSet::new();
        self.streams.iter().try_for_each(|stream| {
            require(names.insert(stream.name), "`streams`")?;
            self.check_stream(stream)
        })
    }

    /// A stream has jobs, ends, and has work for each job.
    fn check_stream(&self, stream: &StreamPlan<'_>) -> Result<(), RunError> {
        let at = |field: &str| format!("stream `{}`, `{field}`", stream.name);
        require((1..=JOBS_MAX).contains(&stream.jobs), at("jobs"))?;
        let is_limited = stream.limit_bytes.is_some() || stream.limit_operations.is_some();
        let ends = self.duration_ns.is_some() || is_limited || stream.ends_by_itself;
        let least = u64::from(stream.jobs);
        let is_enough = stream.limit_operations.is_none_or(|operations| operations >= least);
        require(ends && is_enough, at("limit_operations"))
    }

    /// Name of each stream, and whether it is an open loop.
    pub fn open_loops(&self) -> impl Iterator<Item = (String, bool)> {
        self.streams
            .iter()
            .map(|stream| (stream.name.to_owned(), stream.is_open_loop()))
    }

    /// Every thread of the run, for streams whose jobs have `lanes(stream)` threads each.
    pub fn places(&self, lanes: impl Fn(usize) -> u32) -> Vec<Place> {
        let mut places = Vec::new();
        for (stream, plan) in self.streams.iter().enumerate() {
            let lanes = lanes(stream);
            for (job, lane) in (0..plan.jobs).flat_map(|job| (0..lanes).map(move |lane| (job, lane))) {
                let number = places.len();
                places.push(Place {
                    stream,
                    job,
                    lane,
                    lanes,
                    number,
                });
            }
        }
        places
    }

    /// The limits of a thread: its share of those of its stream.
    pub fn phases(&self, place: Place) -> PhasePlan {
        let stream = &self.streams[place.stream];
        let (threads, thread) = threads(stream, place);
        let share = |total: Option<u64>| {
            total.map_or(u64::MAX, |total| {
                total / u64::from(threads) + u64::from(u64::from(thread) < total % u64::from(threads))
            })
        };
        PhasePlan {
            ramp: (self.ramp.duration_ns > 0).then(|| Budget {
                bytes: share(self.ramp.bytes),
                ..Budget::UNLIMITED
            }),
            measure: Budget {
                bytes: share(stream.limit_bytes),
                operations: share(stream.limit_operations),
            },
            duration_ns: self.duration_ns,
            active: stream.active,
            largest_bytes: stream.largest_bytes,
        }
    }

    /// When the operations of a thread start; none in closed loop.
    pub fn arrivals(&self, place: Place, seed: u64) -> Option<Arrivals> {
        let stream = &self.streams[place.stream];
        let (threads, thread) = threads(stream, place);
        Arrivals::new(stream.arrival, threads, thread, 0, seed, place.stream as u64)
    }

    /// The CPU that a thread is pinned to.
    pub(crate) fn cpu(&self, place: Place) -> Option<u32> {
        self.streams[place.stream].cpu(place.job)
    }
}

/// Threads of a stream, and the number of a thread among them.
fn threads(stream: &StreamPlan<'_>, place: Place) -> (u32, u32) {
    (stream.jobs * place.lanes, place.job * place.lanes + place.lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan<'a>(streams: Vec<StreamPlan<'a>>) -> LoadPlan<'a> {
        LoadPlan {
            ramp: Ramp {
                duration_ns: 1,
                bytes: Some(100),
                until_steady: None,
            },
            duration_ns: None,
            interval_ns: INTERVAL_NS_MIN,
            streams,
        }
    }

    fn limited<'a>(name: &'a str, jobs: u32) -> StreamPlan<'a> {
        StreamPlan {
            limit_operations: Some(10),
            ..StreamPlan::closed(name, jobs, &[4, 5])
        }
    }

    #[test]
    fn threads_share_the_limits_of_their_stream_and_the_cpu_of_their_job() {
        let plan = plan(vec![limited("one", 1), limited("two", 3)]);
        let places = plan.places(|stream| if stream == 0 { 1 } else { 2 });
        assert!(places.iter().map(|place| place.number).eq(0..7));
        let operations = places.iter().map(|place| plan.phases(*place).measure.operations);
        assert!(operations.eq([10, 2, 2, 2, 2, 1, 1]));
        let ramps = places[1..].iter().filter_map(|place| plan.phases(*place).ramp);
        assert_eq!(ramps.map(|ramp| ramp.bytes).sum::<u64>(), 100);
        let cpus = places.iter().map(|place| plan.cpu(*place));
        assert!(cpus.eq([4, 4, 4, 5, 5, 4, 4].map(Some)));
    }

    #[test]
    fn streams_without_an_end_a_name_of_their_own_or_work_for_each_job_are_refused() {
        let endless = StreamPlan::closed("main", 1, &[]);
        for (streams, context) in [
            (vec![endless], "stream `main`, `limit_operations`"),
            (vec![limited("main", 11)], "stream `main`, `limit_operations`"),
            (vec![limited("main", 0)], "stream `main`, `jobs`"),
            (vec![limited("main", 1), limited("main", 1)], "`streams`"),
            (Vec::new(), "`streams`"),
        ] {
            assert_eq!(plan(streams).check().unwrap_err().context, context);
        }
        let mut unlimited = StreamPlan::closed("main", 1, &[]);
        unlimited.ends_by_itself = true;
        plan(vec![unlimited]).check().unwrap();
    }
}
