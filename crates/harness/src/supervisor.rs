//! Keeps time over the jobs' threads: starts them together, ends ramp and run, and carries intervals out.
//!
//! The controller sleeps between interval boundaries, so on a machine with a single core it costs the jobs nothing that
//! could be seen. It never touches what the measuring loop writes, except through [`Shared`] and the exchanges.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::metrics::clock::Clock;
use crate::metrics::device::{self, DeviceWatch};
use crate::metrics::kernel_threads;
use crate::metrics::machine::{self, Machine};
use crate::metrics::usage;
use iosonde_protocol::{DeviceUsage, Event, KernelTime, Phase, Usage};
use rustix::thread::{gettid, set_current_timer_slack};

use crate::collector::Collector;
use crate::control::Control;
use crate::heartbeat::Heartbeat;
use crate::pacing::wait_until;
use crate::phases::Shared;
use crate::plan::LoadPlan;
use crate::recorder::{Exchange, Recorder};
use crate::start::{self, AgreedStart, await_instant, await_start};

/// From the last thread's readiness to the first operation.
const LEAD_NS: u64 = 500_000;
/// Before an agreed start, time at least for what the controller does before any measured time starts.
const SETUP_NS: u64 = 100_000_000;
/// Time before an agreed start at which usage is sampled for the first time, so that a late wakeup does not delay it.
const SAMPLE_LEAD_NS: u64 = 2_000_000;
/// Time after a boundary at which intervals are collected: jobs hand them over with their next completion.
const BOUNDARY_SLACK_NS: u64 = 500_000;
/// The longest sleep.
const POLL_NS: u64 = 50_000_000;
/// The longest sleep while a ramp may end early.
const RAMP_END_POLL_NS: u64 = 1_000_000;
/// Threads blocked in the kernel past the end are interrupted this often.
const KICK_NS: u64 = 20_000_000;

/// Inputs of the controller of a run.
pub(crate) struct Supervision<'a> {
    pub clock: Clock,
    /// State that the jobs read.
    pub shared: &'a Shared,
    pub plan: &'a LoadPlan<'a>,
    /// The block devices to watch.
    pub watch: DeviceWatch,
    /// The CPUs that jobs are pinned to.
    pub pinned_cpus: Vec<u32>,
}

/// Outcome of a supervised run.
pub(crate) struct Supervised<T> {
    /// Return values of the jobs, in their order.
    pub jobs: Vec<thread::Result<T>>,
    /// Usage of the process during the measurement.
    pub process: Usage,
    /// I/O of the watched devices during the measurement.
    pub devices: Vec<DeviceUsage>,
    /// Time of the machine's CPUs during the measurement, for all processes.
    pub machine: Machine,
    /// CPU time of the kernel's own threads during the measurement.
    pub kernel: Option<KernelTime>,
    /// Knows how long the engine itself did not run in a part of the run.
    pub collector: Collector,
    /// The agreed start, and when the last job started.
    pub start: Option<(AgreedStart, u64)>,
}

/// Where all jobs and the controller wait for one another.
#[derive(Default)]
struct StartLine {
    state: Mutex<Start>,
    changed: Condvar,
    /// When the last job started.
    last_job_ns: AtomicU64,
}

#[derive(Default)]
struct Start {
    ready: usize,
    go: bool,
    cancelled: bool,
}

impl StartLine {
    fn state(&self) -> MutexGuard<'_, Start> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a job: reports that it is ready, and waits for the start; false if the run was cancelled.
    fn arrive(&self) -> bool {
        let mut state = self.state();
        state.ready += 1;
        self.changed.notify_all();
        while !state.go {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.cancelled
    }

    fn cancel(&self) {
        self.state().cancelled = true;
    }

    fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// For the controller: waits until this many jobs are ready.
    fn await_jobs(&self, jobs: usize) {
        let mut state = self.state();
        while state.ready < jobs {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For the controller: starts all jobs.
    fn open(&self) {
        self.state().go = true;
        self.changed.notify_all();
    }
}

/// Where a job waits for the others: it prepares, passes the gate, and loads.
///
/// A job that returns or panics before it has passed cancels the run, so that no job waits for it forever.
pub struct Gate<'a> {
    start: &'a StartLine,
    clock: Clock,
    shared: &'a Shared,
    passed: Cell<bool>,
}

impl Gate<'_> {
    /// Waits for all jobs and for the run's first instant; false if one of them could not prepare, and none starts.
    pub fn pass(&self) -> bool {
        self.passed.set(true);
        if !self.start.arrive() {
            return false;
        }
        loop {
            let now_ns = wait_until(self.clock, self.shared.begin());
            if now_ns >= self.shared.begin() {
                self.start.last_job_ns.fetch_max(now_ns, Ordering::Relaxed);
                return true;
            }
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if !self.passed.get() {
            self.start.cancel();
            self.start.arrive();
        }
    }
}

/// Runs jobs, each in its own thread, from a common start to the last one's end; emits the intervals between.
///
/// A job is a stream's number and a closure; the closure passes the gate once (or cancels it).
///
/// # Errors
/// When a thread cannot be created; no job has started then.
pub(crate) fn supervise<'a, T: Send>(
    supervision: Supervision<'a>,
    jobs: Vec<(usize, Job<'a, T>)>,
    control: &mut Control,
    emit: &mut dyn FnMut(Event),
) -> io::Result<Supervised<T>> {
    interruptible_by_kick();
    let start = StartLine::default();
    let thread_ids: Vec<AtomicI32> = jobs.iter().map(|_| AtomicI32::new(0)).collect();
    let Supervision {
        clock, shared, plan, ..
    } = supervision;
    let mut collector = Collector::new(plan.open_loops(), plan.interval_ns)
        .await_usage()
        .with_ramp(plan.ramp.until_steady)
        .with_heartbeat(Heartbeat::start(clock)?);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((stream, job), thread_id) in jobs.into_iter().zip(&thread_ids) {
            let exchange = Exchange::new();
            collector.add(stream, exchange.clone());
            let recorder = Recorder::new(exchange, plan.interval_ns);
            let place = (&start, clock, shared);
            let body = thread_body(job, recorder, thread_id, place, control.job_end_sender());
            match thread::Builder::new().spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    start.cancel();
                    start.open();
                    return Err(error);
                }
            }
        }
        let sampler = Sampler::new(supervision.watch, supervision.pinned_cpus, clock);
        let mut controller = Controller {
            clock,
            shared,
            plan,
            thread_ids: &thread_ids,
            collector,
            sampler,
            emit,
        };
        start.await_jobs(threads.len());
        let agreed = controller.start(control, &start);
        if control.is_stopped() {
            // Asked for before the load, for example while a database was loaded: jobs must not run to their own end.
            shared.stop();
        }
        start.open();
        controller.watch_over(&threads, control);
        let (process, devices, machine, kernel) = controller.sampler.since_measure_began();
        let collector = controller.collector;
        let jobs = threads.into_iter().map(ScopedJoinHandle::join).collect();
        let last_job_ns = start.last_job_ns.load(Ordering::Relaxed);
        Ok(Supervised {
            jobs,
            process,
            devices,
            machine,
            kernel,
            collector,
            start: agreed.map(|agreed| (agreed, last_job_ns)),
        })
    })
}

/// Body of a job's thread.
fn thread_body<'a, T: Send + 'a>(
    job: Job<'a, T>,
    recorder: Recorder,
    thread_id: &'a AtomicI32,
    (start, clock, shared): (&'a StartLine, Clock, &'a Shared),
    finished: impl Fn() + Send + 'static,
) -> impl FnOnce() -> T + Send + 'a {
    move || {
        thread_id.store(gettid().as_raw_nonzero().get(), Ordering::Release);
        wake_precisely();
        // Of this thread: a gate that is dropped where the thread could not be created would wait for the start.
        let gate = Gate {
            start,
            clock,
            shared,
            passed: Cell::new(false),
        };
        let returned = job(&gate, recorder);
        drop(gate);
        finished();
        returned
    }
}

/// A job's thread: it gets the gate to pass and the recorder to write to.
pub(crate) type Job<'a, T> = Box<dyn FnOnce(&Gate<'_>, Recorder) -> T + Send + 'a>;

/// Samples what process and devices did, at the boundaries of intervals.
struct Sampler {
    watch: DeviceWatch,
    clock: Clock,
    previous: Usage,
    grid: Grid,
    measure_process: Usage,
    measure_devices: Vec<DeviceUsage>,
    pinned_cpus: Vec<u32>,
    measure_machine: Machine,
    measure_kernel: kernel_threads::Snapshot,
}

/// The intervals that are sampled.
#[derive(Clone, Copy)]
struct Grid {
    phase: Phase,
    begin_ns: u64,
    /// Number of the interval that ends next.
    index: u64,
}

impl Sampler {
    fn new(watch: DeviceWatch, pinned_cpus: Vec<u32>, clock: Clock) -> Sampler {
        Sampler {
            watch,
            clock,
            previous: Usage::default(),
            grid: Grid {
                phase: Phase::Ramp,
                begin_ns: u64::MAX,
                index: 0,
            },
            measure_process: Usage::default(),
            measure_devices: Vec::new(),
            pinned_cpus,
            measure_machine: Machine::default(),
            measure_kernel: kernel_threads::snapshot(),
        }
    }

    fn begin_phase(&mut self, phase: Phase, begin_ns: u64) {
        self.grid = Grid {
            phase,
            begin_ns,
            index: 0,
        };
        if phase == Phase::Measure {
            self.measure_process = usage::process(self.clock.now());
            self.measure_devices = self.watch.snapshot();
            self.measure_machine = machine::snapshot(&self.pinned_cpus);
        }
    }

    fn sample(&mut self) -> (Usage, Vec<DeviceUsage>) {
        let now = usage::process(self.clock.now());
        let process = now.since(&self.previous);
        self.previous = now;
        (process, self.watch.sample())
    }

    /// Reads the clock last, as `begin_phase` reads it first: what devices and CPUs did is part of the time of the process.
    fn since_measure_began(&mut self) -> (Usage, Vec<DeviceUsage>, Machine, Option<KernelTime>) {
        let devices = device::difference(&self.watch.snapshot(), &self.measure_devices);
        let machine = machine::difference(&machine::snapshot(&self.pinned_cpus), &self.measure_machine);
        let process = usage::process(self.clock.now()).since(&self.measure_process);
        let kernel = kernel_threads::difference(&kernel_threads::snapshot(), &self.measure_kernel);
        (process, devices, machine, kernel)
    }
}

/// The controller's state while threads run.
struct Controller<'a, 'e> {
    clock: Clock,
    shared: &'a Shared,
    plan: &'a LoadPlan<'a>,
    thread_ids: &'e [AtomicI32],
    collector: Collector,
    sampler: Sampler,
    emit: &'e mut dyn FnMut(Event),
}

impl Controller<'_, '_> {
    /// Sets the instant at which all threads begin: the agreed one, if there is one, or it has passed, as soon as possible.
    fn start(&mut self, control: &mut Control, line: &StartLine) -> Option<AgreedStart> {
        let awaited = match line.is_cancelled() || control.start().is_none() {
            true => None,
            false => await_start(control, self.clock, self.setup_ns(), self.emit),
        };
        // Before any measured time starts: it may take milliseconds.
        self.sampler.measure_kernel = kernel_threads::snapshot();
        let awaited = awaited.and_then(|unix_ns| await_instant(control, unix_ns, start::LEAD_NS));
        let earliest_ns = self.clock.now() + LEAD_NS;
        let agreed = awaited.map(|unix_ns| AgreedStart::new(unix_ns, self.clock, earliest_ns));
        let begin_ns = agreed.map_or(earliest_ns, |agreed| agreed.started_ns());
        self.shared.set_begin(begin_ns, begin_ns + self.plan.ramp.duration_ns);
        if agreed.is_some() {
            // Each job sleeps until the instant by itself: it does not depend on when this thread wakes.
            line.open();
            self.sleep_until(begin_ns.saturating_sub(SAMPLE_LEAD_NS), control);
        }
        self.sampler.sample();
        let first = if self.plan.ramp.duration_ns > 0 {
            Phase::Ramp
        } else {
            Phase::Measure
        };
        self.sampler.begin_phase(first, begin_ns);
        agreed
    }

    fn sleep_until(&self, instant_ns: u64, control: &mut Control) {
        loop {
            let left_ns = instant_ns.saturating_sub(self.clock.now());
            if left_ns == 0 {
                return;
            }
            control.wait(Duration::from_nanos(left_ns));
        }
    }

    /// Time to reserve for a snapshot of the kernel's threads, which reads a file of every process of the machine.
    fn setup_ns(&self) -> u64 {
        let begin_ns = self.clock.now();
        kernel_threads::snapshot();
        SETUP_NS + 2 * (self.clock.now() - begin_ns)
    }

    /// Until every thread has returned.
    fn watch_over<T>(&mut self, threads: &[ScopedJoinHandle<'_, T>], control: &mut Control) {
        let mut finished = vec![false; threads.len()];
        let mut kicked_ns = 0;
        loop {
            let now_ns = self.clock.now();
            self.end_ramp(now_ns, threads.len());
            self.sample_boundaries(now_ns);
            self.note_finished(threads, &mut finished);
            let all_finished = finished.iter().all(|finished| *finished);
            if all_finished {
                self.sample_now();
            }
            self.carry_out();
            if all_finished {
                return;
            }
            if control.is_stopped() && !self.shared.is_stopped() {
                self.shared.stop();
            }
            if self.is_over(now_ns) && now_ns >= kicked_ns + KICK_NS {
                kicked_ns = now_ns;
                self.kick_all(&finished);
            }
            control.wait(Duration::from_nanos(self.nap_ns(self.clock.now())));
        }
    }

    fn note_finished<T>(&mut self, threads: &[ScopedJoinHandle<'_, T>], finished: &mut [bool]) {
        for (number, thread) in threads.iter().enumerate() {
            if !finished[number] && thread.is_finished() {
                finished[number] = true;
                self.collector.job_finished(number);
            }
        }
    }

    fn kick_all(&self, finished: &[bool]) {
        let running = self.thread_ids.iter().zip(finished).filter(|(_, finished)| !**finished);
        running.for_each(|(thread_id, _)| kick(thread_id.load(Ordering::Acquire)));
    }

    fn end_ramp(&mut self, now_ns: u64, jobs: usize) {
        if self.shared.measure_begin() > now_ns && self.shared.waiting() as usize == jobs {
            self.shared.set_measure_begin(now_ns);
        }
        let measure_begin_ns = self.shared.measure_begin();
        if self.sampler.grid.phase == Phase::Ramp && now_ns >= measure_begin_ns {
            let (process, devices) = self.sampler.sample();
            let last = (measure_begin_ns - 1).saturating_sub(self.sampler.grid.begin_ns) / self.plan.interval_ns;
            self.collector.note_usage(Phase::Ramp, last, process, devices);
            if let Some(warning) = self.collector.end_ramp() {
                (self.emit)(Event::Warning(warning));
            }
            self.sampler.begin_phase(Phase::Measure, measure_begin_ns);
            self.sampler.measure_kernel = kernel_threads::snapshot();
        }
    }

    fn sample_boundaries(&mut self, now_ns: u64) {
        while now_ns >= self.next_boundary_ns() {
            self.sample_now();
            self.sampler.grid.index += 1;
        }
    }

    /// Of the interval that ends now, at a boundary or with its phase.
    fn sample_now(&mut self) {
        let Grid { phase, index, .. } = self.sampler.grid;
        let (process, devices) = self.sampler.sample();
        self.collector.note_usage(phase, index, process, devices);
    }

    fn carry_out(&mut self) {
        self.collector.drain();
        let ready = self.collector.ready();
        ready
            .into_iter()
            .for_each(|interval| (self.emit)(Event::Interval(interval)));
        let now_ns = self.clock.now();
        if self.collector.is_ramp_steady() && self.shared.measure_begin() > now_ns {
            self.shared.set_measure_begin(now_ns);
        }
    }

    fn next_boundary_ns(&self) -> u64 {
        let Grid { begin_ns, index, .. } = self.sampler.grid;
        begin_ns.saturating_add((index + 1) * self.plan.interval_ns)
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let begin_ns = self.shared.measure_begin();
        let end_ns = self
            .plan
            .duration_ns
            .map(|duration_ns| begin_ns.saturating_add(duration_ns));
        self.shared.is_stopped() || end_ns.is_some_and(|end_ns| now_ns > end_ns)
    }

    fn nap_ns(&self, now_ns: u64) -> u64 {
        let to_boundary = self
            .next_boundary_ns()
            .saturating_sub(now_ns)
            .saturating_add(BOUNDARY_SLACK_NS);
        let in_ramp = self.sampler.grid.phase == Phase::Ramp;
        let longest = if self.is_over(now_ns) {
            KICK_NS
        } else if in_ramp && self.plan.ramp.bytes.is_some() {
            RAMP_END_POLL_NS
        } else if in_ramp {
            let left_ns = self.shared.measure_begin().saturating_sub(now_ns);
            POLL_NS.min(left_ns.max(RAMP_END_POLL_NS))
        } else {
            POLL_NS
        };
        to_boundary.min(longest)
    }
}

/// Asks for timers without the usual 50 us of slack (prctl(2), PR_SET_TIMERSLACK).
fn wake_precisely() {
    // Without it threads wake up later, and are measured so.
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// A signal that does nothing but end a blocking system call with `EINTR`.
const KICK: libc::c_int = libc::SIGUSR1;

extern "C" fn ignore(_signal: libc::c_int) {}

fn interruptible_by_kick() {
    // SAFETY: the handler does nothing, which is safe at any instant; without SA_RESTART calls return.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(KICK, &action, std::ptr::null_mut());
    }
}

/// Interrupts a thread of this process, if it is in a system call.
fn kick(thread_id: i32) {
    // SAFETY: the call takes plain numbers; a thread that has ended meanwhile is answered with an error.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id, KICK) };
}

#[cfg(test)]
mod tests {
    use iosonde_protocol::Ramp;

    use super::*;
    use crate::plan::StreamPlan;

    fn short_plan() -> LoadPlan<'static> {
        LoadPlan {
            ramp: Ramp::default(),
            duration_ns: Some(1),
            interval_ns: 1_000_000,
            streams: vec![StreamPlan::closed("main", 1, &[])],
        }
    }

    fn supervision<'a>(shared: &'a Shared, plan: &'a LoadPlan<'a>) -> Supervision<'a> {
        Supervision {
            clock: Clock::start(),
            shared,
            plan,
            watch: DeviceWatch::open(&[]).unwrap(),
            pinned_cpus: Vec::new(),
        }
    }

    #[test]
    fn a_job_that_panics_before_the_gate_and_a_stop_before_the_load_end_the_run() {
        let (shared, plan) = (Shared::default(), short_plan());
        let (mut control, _stopper) = Control::new();
        let jobs: Vec<(usize, Job<'_, bool>)> = vec![
            (0, Box::new(|gate, _| gate.pass())),
            (0, Box::new(|_, _| panic!("cannot prepare"))),
            (0, Box::new(|_, _| true)),
        ];
        let supervised = supervise(supervision(&shared, &plan), jobs, &mut control, &mut |_| ()).unwrap();
        let returned: Vec<_> = supervised.jobs.into_iter().map(Result::ok).collect();
        assert_eq!(returned, [Some(false), None, Some(true)]);
        let (shared, plan) = (Shared::default(), short_plan());
        let (mut control, stopper) = Control::new();
        stopper.stop();
        let jobs: Vec<(usize, Job<'_, bool>)> = vec![(0, Box::new(|gate, _| gate.pass()))];
        supervise(supervision(&shared, &plan), jobs, &mut control, &mut |_| ()).unwrap();
        assert!(shared.is_stopped());
    }
}
