//! Threads of a load on a simulated device and a virtual clock.
//!
//! Every thread of the load is a thread here too, but only one of them runs at a time: one that waits for storage hands over to
//! the next that is ready, in a fixed order, and if none is, time moves to the next completion. So results depend on nothing but the
//! device, the load and the seed, and the code of a load is the same as on files.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use iosonde_harness::load::Io;
use iosonde_harness::{JobDone, JobPhases, LoadPlan, Measured, Place, Run, RunError, Shared, VirtualRun};
use iosonde_protocol::Backend;

use crate::ssd::SimulatedTarget;

/// Applies a load to the device of `backend`, of which the first `filled_bytes` contain data and `size_bytes` may be addressed.
/// `work` is what the thread of a place does until it, or its phases, have ended.
///
/// # Errors
/// For another backend, a model that contradicts itself, a device that is too small, and the first error of a thread.
pub fn simulate<F: Send>(
    backend: &Backend,
    (filled_bytes, size_bytes): (u64, u64),
    plan: &LoadPlan<'_>,
    places: &[Place],
    run: &mut Run<'_>,
    work: impl Fn(Place, &mut VirtualThread<'_, '_>) -> Result<F, RunError> + Sync,
) -> Result<Measured<F>, RunError> {
    let mut target = SimulatedTarget::open(backend, size_bytes, filled_bytes, run)?;
    let (layout, shared) = (target.layout, Shared::default());
    let mut intervals = VirtualRun::new(plan, &shared, plan.ramp.until_steady, target.device().usage(), run);
    let phases: Vec<_> = places.iter().map(|place| intervals.phases(*place)).collect();
    let timeline = Timeline::new(target, places.len());
    let threads = thread::scope(|scope| {
        let threads = places.iter().zip(phases).map(|(place, phases)| {
            let thread = VirtualThread {
                number: place.number,
                timeline: &timeline,
                shared: &shared,
                phases,
            };
            let work = &work;
            scope.spawn(move || thread.apply(|thread| work(*place, thread)))
        });
        let threads: Vec<_> = threads.collect();
        timeline.keep_time(&shared, plan, &mut intervals, run);
        threads.into_iter().map(|each| each.join()).collect::<Vec<_>>()
    });
    let panicked = || RunError::internal("a thread of the load panicked");
    let done = threads.into_iter().map(|joined| joined.map_err(|_| panicked())?);
    let done = done.collect::<Result<Vec<_>, _>>()?;
    let mut target = timeline.into_target();
    let device = target.device();
    let mut result = intervals.result(places, &done, &device.usage(), device.in_effect());
    result.layout = layout;
    target.keep(run.inputs.targets)?;
    let found = done.into_iter().map(|each| each.found).collect();
    Ok(Measured { result, found })
}

/// A thread of a load, which runs while no other one does.
pub struct VirtualThread<'a, 't> {
    number: usize,
    timeline: &'t Timeline,
    shared: &'a Shared,
    phases: JobPhases<'a>,
}

impl<'a> VirtualThread<'a, '_> {
    fn apply<F>(mut self, work: impl FnOnce(&mut Self) -> Result<F, RunError>) -> Result<JobDone<F>, RunError> {
        let end = EndOfThread {
            timeline: self.timeline,
            shared: self.shared,
            number: self.number,
        };
        drop(self.timeline.await_turn(self.number, self.timeline.state()));
        self.phases.begin();
        let found = work(&mut self);
        if found.is_err() {
            self.shared.stop();
        }
        let now_ns = self.now();
        self.phases.end_load(now_ns);
        drop(end);
        Ok(JobDone::new(self.phases.into_outcome(), found?))
    }

    /// Its phases.
    pub fn phases(&mut self) -> &mut JobPhases<'a> {
        &mut self.phases
    }

    /// Now, in nanoseconds of the virtual clock.
    pub fn now(&self) -> u64 {
        self.timeline.state().target.device().now()
    }

    /// Sleeps until an instant, or until its phases have something to do, which may be earlier.
    pub fn sleep(&mut self, until_ns: u64) {
        let until_ns = until_ns.min(self.phases.next_check_ns().max(self.now() + 1));
        self.pause(Doing::Asleep(until_ns));
    }

    /// Waits until another thread notifies those at a meeting, or an interval ends.
    pub fn wait_at(&mut self, meeting: usize) {
        self.pause(Doing::Waiting(meeting));
    }

    /// Has all threads that wait at a meeting go on.
    pub fn notify_at(&mut self, meeting: usize) {
        self.timeline.state().wake_waiting(|waiting| waiting == meeting);
    }

    /// Waits for requests that are in flight together.
    ///
    /// # Errors
    /// The first request that failed.
    pub fn submit(&mut self, requests: &[Io]) -> Result<(), RunError> {
        if requests.is_empty() {
            return Ok(());
        }
        let mut state = self.timeline.state();
        for (slot, io) in requests.iter().enumerate() {
            state.target.device().submit(self.number, slot as u32, io, false);
        }
        let state = self.timeline.pause(self.number, Doing::InIo(requests.len()), state);
        match state.failure {
            None => Ok(()),
            Some(result) => Err(RunError::internal(format!("a simulated device failed with {result}"))),
        }
    }

    fn pause(&self, doing: Doing) {
        drop(self.timeline.pause(self.number, doing, self.timeline.state()));
    }
}

/// Hands over when a thread ends, also by a panic.
struct EndOfThread<'a, 't> {
    timeline: &'t Timeline,
    shared: &'a Shared,
    number: usize,
}

impl Drop for EndOfThread<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.stop();
        }
        self.timeline.finish(self.number);
    }
}

/// State of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It may run; the thread that became so first runs first.
    Ready(u64),
    /// It waits until an instant.
    Asleep(u64),
    /// It waits for this many I/Os.
    InIo(usize),
    /// It waits for another thread, at a meeting.
    Waiting(usize),
    Done,
}

/// Time, which the threads of a load share; the last of them is the one that keeps time.
struct Timeline {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

struct State {
    target: SimulatedTarget,
    doing: Vec<Doing>,
    running: usize,
    /// Number of the next thread to become ready.
    order: u64,
    /// The first result that is an error.
    failure: Option<i32>,
}

impl Timeline {
    fn new(target: SimulatedTarget, threads: usize) -> Timeline {
        let order = threads as u64 + 1;
        Timeline {
            state: Mutex::new(State {
                target,
                doing: (0..order).map(Doing::Ready).collect(),
                running: 0,
                order,
                failure: None,
            }),
            turns: (0..order).map(|_| Condvar::new()).collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_target(self) -> SimulatedTarget {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).target
    }

    /// Waits for the first turn of a thread.
    fn await_turn<'s>(&'s self, number: usize, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        while state.running != number {
            state = self.turns[number].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Hands over to the next thread while this one does something else, and waits until it is its turn again.
    fn pause<'s>(&'s self, number: usize, doing: Doing, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.doing[number] = doing;
        self.turns[state.hand_over()].notify_one();
        self.await_turn(number, state)
    }

    fn finish(&self, number: usize) {
        let mut state = self.state();
        state.doing[number] = Doing::Done;
        let keeper = state.doing.len() - 1;
        if state.doing[..keeper].iter().all(|doing| *doing == Doing::Done) {
            state.ready(keeper);
        }
        self.turns[state.hand_over()].notify_one();
    }

    /// Ends intervals and carries requests to stop to the threads, until all have ended.
    fn keep_time(&self, shared: &Shared, plan: &LoadPlan<'_>, intervals: &mut VirtualRun<'_>, run: &mut Run<'_>) {
        let keeper = self.turns.len() - 1;
        let mut is_finished = vec![false; keeper];
        let mut state = self.await_turn(keeper, self.state());
        loop {
            let device = state.target.device();
            let (now_ns, usage) = (device.now(), device.usage());
            intervals.tick(now_ns, &|| usage.clone());
            for (number, doing) in state.doing[..keeper].iter().enumerate() {
                if *doing == Doing::Done && !std::mem::replace(&mut is_finished[number], true) {
                    intervals.job_finished(number, usage.clone());
                }
            }
            if intervals.look(now_ns, run) {
                shared.set_measure_begin(now_ns);
            }
            if run.is_stopped() && !shared.is_stopped() {
                shared.stop();
            }
            if is_finished.iter().all(|finished| *finished) {
                return;
            }
            // Those whose phases have ended meanwhile wait no longer.
            state.wake_waiting(|_| true);
            let until_ns = next_boundary_ns(now_ns, shared.measure_begin(), plan.interval_ns);
            state = self.pause(keeper, Doing::Asleep(until_ns), state);
        }
    }
}

/// The next end of an interval, or of the ramp, after an instant.
fn next_boundary_ns(now_ns: u64, measure_begin_ns: u64, interval_ns: u64) -> u64 {
    match now_ns < measure_begin_ns {
        true => ((now_ns / interval_ns + 1) * interval_ns).min(measure_begin_ns),
        false => measure_begin_ns + ((now_ns - measure_begin_ns) / interval_ns + 1) * interval_ns,
    }
}

impl State {
    fn ready(&mut self, number: usize) {
        self.doing[number] = Doing::Ready(self.order);
        self.order += 1;
    }

    fn wake_waiting(&mut self, is_woken: impl Fn(usize) -> bool) {
        for number in 0..self.doing.len() {
            if matches!(self.doing[number], Doing::Waiting(meeting) if is_woken(meeting)) {
                self.ready(number);
            }
        }
    }

    /// Chooses the thread that runs next, and moves time if none is ready.
    fn hand_over(&mut self) -> usize {
        loop {
            let ready = self.doing.iter().enumerate().filter_map(|(number, doing)| match doing {
                Doing::Ready(order) => Some((*order, number)),
                _ => None,
            });
            if let Some((_, number)) = ready.min() {
                self.running = number;
                return number;
            }
            self.move_on();
        }
    }

    fn move_on(&mut self) {
        let wakes = self.doing.iter().filter_map(|doing| match doing {
            Doing::Asleep(until_ns) => Some(*until_ns),
            _ => None,
        });
        let limit_ns = wakes.min().unwrap_or(u64::MAX);
        self.target.device().advance(limit_ns);
        while let Some((number, _, result)) = self.target.device().completed() {
            if result < 0 {
                self.failure.get_or_insert(result);
            }
            match &mut self.doing[number] {
                Doing::InIo(1) => self.ready(number),
                Doing::InIo(pending) => *pending -= 1,
                _ => {}
            }
        }
        let now_ns = self.target.device().now();
        for number in 0..self.doing.len() {
            if matches!(self.doing[number], Doing::Asleep(until_ns) if until_ns <= now_ns) {
                self.ready(number);
            }
        }
    }
}
