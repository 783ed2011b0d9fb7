//! The world of a simulated device and a virtual clock.
//!
//! Every thread of the load is a thread here too, but only one of them runs at a time: one that waits for storage hands over to
//! the next that is ready, in a fixed order, and if none is, time moves to the next completion. So results depend on nothing but the
//! device, the load and the seed, and the code of a load is the same as on files.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use iosonde_block::SimulatedTarget;
use iosonde_harness::load::Io;
use iosonde_harness::{JobDone, JobPhases, LoadPlan, Measured, Run, RunError, Shared, VirtualRun};
use iosonde_protocol::{Backend, Operation};

use crate::files::{Access, FileSet};
use crate::world::{Extent, Load, Mapped, PAGE_BYTES, World};

/// Applies the load to the device of `backend`.
pub(crate) fn measure<L: Load>(
    backend: &Backend,
    size_bytes: u64,
    files: &FileSet,
    plan: &LoadPlan<'_>,
    load: &L,
    run: &mut Run<'_>,
) -> Result<Measured<L::Found>, RunError> {
    if files.extent() > size_bytes {
        return Err(RunError::out_of_range("`target.size_bytes`"));
    }
    let mut target = SimulatedTarget::open(backend, size_bytes, files.extent(), run)?;
    let (layout, shared) = (target.layout, Shared::default());
    let mut intervals = VirtualRun::new(plan, &shared, plan.ramp.until_steady, target.device().usage(), run);
    let places = plan.places(|_| load.lanes());
    let phases: Vec<_> = places.iter().map(|place| intervals.phases(*place)).collect();
    let timeline = Timeline::new(target, places.len());
    let threads = thread::scope(|scope| {
        let threads: Vec<_> = places
            .iter()
            .zip(phases)
            .map(|(place, phases)| {
                let world = VirtualWorld {
                    number: place.number,
                    files,
                    timeline: &timeline,
                    shared: &shared,
                    phases,
                };
                scope.spawn(move || world.apply(load, *place))
            })
            .collect();
        timeline.keep_time(&shared, plan, &mut intervals, run);
        threads.into_iter().map(|each| each.join()).collect::<Vec<_>>()
    });
    let panicked = || RunError::internal("a thread of the load panicked");
    let done = threads.into_iter().map(|joined| joined.map_err(|_| panicked())?);
    let done = done.collect::<Result<Vec<_>, _>>()?;
    let mut target = timeline.into_target();
    let device = target.device();
    let mut result = intervals.result(&places, &done, &device.usage(), device.in_effect());
    result.layout = layout;
    target.keep(run.inputs.targets)?;
    let found = done.into_iter().map(|each| each.found).collect();
    Ok(Measured { result, found })
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
struct Timeline<'b> {
    state: Mutex<State<'b>>,
    turns: Vec<Condvar>,
}

struct State<'b> {
    target: SimulatedTarget<'b>,
    doing: Vec<Doing>,
    running: usize,
    /// Number of the next thread to become ready.
    order: u64,
    /// The first result that is an error.
    failure: Option<i32>,
}

impl<'b> Timeline<'b> {
    fn new(target: SimulatedTarget<'b>, threads: usize) -> Timeline<'b> {
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

    fn state(&self) -> MutexGuard<'_, State<'b>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_target(self) -> SimulatedTarget<'b> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).target
    }

    fn now(&self) -> u64 {
        self.state().target.device().now()
    }

    /// Waits for the first turn of a thread.
    fn await_turn<'s>(&'s self, number: usize, mut state: MutexGuard<'s, State<'b>>) -> MutexGuard<'s, State<'b>> {
        while state.running != number {
            state = self.turns[number].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Hands over to the next thread while this one does something else, and waits until it is its turn again.
    fn pause<'s>(
        &'s self,
        number: usize,
        doing: Doing,
        mut state: MutexGuard<'s, State<'b>>,
    ) -> MutexGuard<'s, State<'b>> {
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

impl State<'_> {
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

struct VirtualWorld<'a, 'b> {
    number: usize,
    files: &'a FileSet,
    timeline: &'a Timeline<'b>,
    shared: &'a Shared,
    phases: JobPhases<'a>,
}

impl<'a> VirtualWorld<'a, '_> {
    fn apply<L: Load>(mut self, load: &L, place: iosonde_harness::Place) -> Result<JobDone<L::Found>, RunError> {
        let end = EndOfThread {
            timeline: self.timeline,
            shared: self.shared,
            number: self.number,
        };
        drop(self.timeline.await_turn(self.number, self.timeline.state()));
        self.phases.begin();
        let found = load.work(&mut self, place);
        if found.is_err() {
            self.shared.stop();
        }
        let now_ns = self.now();
        self.phases.end_load(now_ns);
        drop(end);
        Ok(JobDone::new(self.phases.into_outcome(), found?))
    }
}

/// Hands over when a thread ends, also by a panic.
struct EndOfThread<'a, 'b> {
    timeline: &'a Timeline<'b>,
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

impl<'a> World<'a> for VirtualWorld<'a, '_> {
    fn phases(&mut self) -> &mut JobPhases<'a> {
        &mut self.phases
    }

    fn files(&self) -> &FileSet {
        self.files
    }

    fn now(&self) -> u64 {
        self.timeline.now()
    }

    fn read(&mut self, extents: &[Extent]) -> Result<(), RunError> {
        self.io(Operation::Read, extents)
    }

    fn open(&mut self, _file: usize, _access: Access, _is_direct: bool) -> Result<(), RunError> {
        Ok(())
    }

    fn close(&mut self, _file: usize) {}

    fn write(&mut self, extent: Extent) -> Result<(), RunError> {
        self.io(Operation::Write, &[extent])
    }

    fn sync(&mut self, _file: usize) -> Result<(), RunError> {
        self.submit(&[Io {
            operation: Operation::Flush,
            offset_bytes: 0,
            bytes: 0,
        }])
    }

    fn drop_pages(&mut self, _file: usize) -> Result<(), RunError> {
        Ok(())
    }

    fn cached_bytes(&self, _file: usize) -> Option<u64> {
        Some(0)
    }

    fn copy(&mut self, _bytes: u64) {}

    fn sleep_until(&mut self, at_ns: u64) {
        while self.now() < at_ns && self.continues() {
            // Not beyond the end of an interval or of the load, which is then noticed.
            let until_ns = at_ns.min(self.phases.next_check_ns().max(self.now() + 1));
            let state = self.timeline.state();
            drop(self.timeline.pause(self.number, Doing::Asleep(until_ns), state));
        }
    }

    fn wait_at(&mut self, meeting: usize, mut ready: impl FnMut() -> bool) -> bool {
        while !ready() {
            if !self.continues() {
                return false;
            }
            let state = self.timeline.state();
            drop(self.timeline.pause(self.number, Doing::Waiting(meeting), state));
        }
        true
    }

    fn notify_at(&mut self, meeting: usize) {
        self.timeline.state().wake_waiting(|waiting| waiting == meeting);
    }

    fn map(&mut self, _file: usize, how: Mapped) -> Result<(), RunError> {
        match how {
            Mapped::Random => Ok(()),
            _ => Err(RunError::unsupported(
                "a simulated device has no page cache, and mappings are simulated without read-ahead only",
                "choose the strategy `mmap-random`, `read` or `direct`, or a target with files",
            )),
        }
    }

    /// One page after the other.
    fn copy_mapped(&mut self, extent: Extent) -> Result<(), RunError> {
        let end = extent.offset + extent.bytes;
        let first = extent.offset.next_multiple_of(PAGE_BYTES);
        (first..end).step_by(PAGE_BYTES as usize).try_for_each(|offset| {
            let bytes = PAGE_BYTES.min(self.files.bytes(extent.file) - offset);
            self.read(&[Extent::new(extent.file, offset, bytes)])
        })
    }
}

impl VirtualWorld<'_, '_> {
    fn io(&mut self, operation: Operation, extents: &[Extent]) -> Result<(), RunError> {
        let requests: Vec<_> = extents
            .iter()
            .map(|extent| Io {
                operation,
                offset_bytes: self.files.base(extent.file) + extent.offset,
                bytes: extent.bytes as u32,
            })
            .collect();
        self.submit(&requests)
    }

    /// Waits for all requests.
    fn submit(&mut self, requests: &[Io]) -> Result<(), RunError> {
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
}
