//! Resource usage of the process and its threads, as the kernel accounts it.
//!
//! All figures come from `getrusage(2)`. Its CPU times are not counts of ticks: the kernel takes the exact run time that the
//! scheduler keeps and divides it into user and system in the proportion of the ticks it saw in each
//! (`kernel/sched/cputime.c`, `cputime_adjust`; with `CONFIG_VIRT_CPU_ACCOUNTING_GEN` in use the division is exact too). So user plus
//! system is good to a microsecond, while the division between them is a sample every 1 to 10 ms.
//!
//! One trap: for `RUSAGE_THREAD` the run time is the one of the last tick, up to 4 ms old on a 250 Hz kernel (measured
//! on Linux 6.18). Reading the thread's CPU clock first brings it up to date. `RUSAGE_SELF` is up to date for the
//! calling thread, and up to a tick old for threads that run on other CPUs at that moment.

use std::time::Instant;

use iosonde_protocol::Usage;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::ClockId;

/// Resource usage of the whole process so far; `wall_ns` is the instant given.
pub fn process(clock_now_ns: u64) -> Usage {
    from_kernel(UsageWho::RUSAGE_SELF, clock_now_ns)
}

/// Resource usage of the calling thread so far; `wall_ns` is the instant given.
pub fn thread(clock_now_ns: u64) -> Usage {
    bring_thread_time_up_to_date();
    from_kernel(UsageWho::RUSAGE_THREAD, clock_now_ns)
}

/// Counts what the calling thread uses over an interval: CPU time, waiting for a CPU, and the length of the interval.
///
/// The clock is read before the counters at the start and after them at the end. So CPU time and waiting together are never
/// longer than the interval, but for the microseconds that getrusage(2) cuts off, even if the thread loses its CPU in between.
#[derive(Debug)]
pub struct ThreadMeter {
    begin: Instant,
    usage: Usage,
    cpu_wait_ns: Option<u64>,
}

impl ThreadMeter {
    /// Starts the interval.
    pub fn start() -> ThreadMeter {
        ThreadMeter {
            begin: Instant::now(),
            usage: thread(0),
            cpu_wait_ns: thread_cpu_wait_ns(),
        }
    }

    /// Returns the usage of the thread since the start, and its time of waiting for a CPU where the kernel reports it.
    pub fn stop(&self) -> (Usage, Option<u64>) {
        let waited_ns = thread_cpu_wait_ns()
            .zip(self.cpu_wait_ns)
            .map(|(end_ns, begin_ns)| end_ns.saturating_sub(begin_ns));
        let mut used = thread(0).since(&self.usage);
        used.wall_ns = self.begin.elapsed().as_nanos() as u64;
        (used, waited_ns)
    }
}

/// Time during which the calling thread was runnable and waited for a CPU, so far, in nanoseconds.
///
/// The second number of `/proc/thread-self/schedstat` (kernel `Documentation/scheduler/sched-stats.rst`); `None` on kernels
/// built without it. Read without allocation, because jobs read it between two I/Os.
fn thread_cpu_wait_ns() -> Option<u64> {
    let mut file = std::fs::File::open("/proc/thread-self/schedstat").ok()?;
    let mut line = [0; 64];
    let length = std::io::Read::read(&mut file, &mut line).ok()?;
    let text = std::str::from_utf8(&line[..length]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The most memory that the process had resident, in bytes; 0 if `/proc` does not report it.
///
/// From `VmHWM` and not `ru_maxrss`: the latter survives `execve(2)` and would report the parent's peak.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn from_kernel(who: UsageWho, clock_now_ns: u64) -> Usage {
    let kernel = getrusage(who).expect("getrusage(2) fails only for a bad address or an unknown `who`");
    Usage {
        wall_ns: clock_now_ns,
        user_ns: nanoseconds(kernel.user_time()),
        system_ns: nanoseconds(kernel.system_time()),
        voluntary_switches: kernel.voluntary_context_switches() as u64,
        involuntary_switches: kernel.involuntary_context_switches() as u64,
        minor_faults: kernel.minor_page_faults() as u64,
        major_faults: kernel.major_page_faults() as u64,
        fs_inputs: kernel.block_reads() as u64,
        fs_outputs: kernel.block_writes() as u64,
    }
}

fn nanoseconds(time: TimeVal) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1000
}

/// Reading a thread's own CPU clock makes the scheduler settle the thread's run time.
fn bring_thread_time_up_to_date() {
    let _ = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// Past the test harness, which captures `eprintln!`: `scripts/test` counts these lines.
    fn skipped(reason: &str) {
        writeln!(std::io::stderr(), "SKIPPED: {reason}").expect("stderr is open");
    }

    /// Uses CPU time without asking the kernel for it, which would settle the account.
    fn spin(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    fn thread_cpu_ns() -> u64 {
        let time = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("a thread has this clock");
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    }

    /// The bare `RUSAGE_THREAD` is up to a tick (4 ms) behind: most of ten spins of 1 ms would show nothing.
    #[test]
    fn a_threads_cpu_time_is_up_to_date_and_that_of_the_process_includes_it() {
        for _ in 0..10 {
            let outer_begin_ns = thread_cpu_ns();
            let before = thread(0);
            let inner_begin_ns = thread_cpu_ns();
            spin(Duration::from_millis(1));
            let inner_end_ns = thread_cpu_ns();
            let used = thread(0).since(&before);
            let used_ns = used.user_ns + used.system_ns;
            // User and system time are each cut off to microseconds.
            let (least, most) = (inner_end_ns - inner_begin_ns, thread_cpu_ns() - outer_begin_ns);
            let range = least - 4_000..most + 4_000;
            assert!(range.contains(&used_ns), "{used_ns}, {range:?}");
        }
        let before = process(0);
        let spinning = || {
            spin(Duration::from_millis(10));
            thread_cpu_ns()
        };
        let spun_ns = std::thread::spawn(spinning).join().expect("it only spins");
        let used = process(0).since(&before);
        assert!(used.user_ns + used.system_ns + 10_000 >= spun_ns, "{used:?} {spun_ns}");
    }

    #[test]
    fn sleeping_is_a_voluntary_switch_and_touched_memory_a_minor_fault_of_this_thread() {
        let before = thread(1_000);
        std::thread::sleep(Duration::from_millis(1));
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        let used = thread(5_000).since(&before);
        assert!(used.voluntary_switches >= 1 && used.minor_faults > 0, "{used:?}");
        assert_eq!(used.wall_ns, 4_000);
        assert!(peak_memory_bytes() >= memory.len() as u64);
    }

    /// Two threads on one CPU: each waits while the other runs.
    #[test]
    fn a_thread_that_shares_its_cpu_waits_for_it() {
        if thread_cpu_wait_ns().is_none() {
            skipped("this kernel has no /proc/thread-self/schedstat");
            return;
        }
        // Each spins until it has waited, or the other has.
        let (both, has_waited) = (Barrier::new(2), AtomicBool::new(false));
        let spins = || {
            pin_to_first_allowed_cpu();
            both.wait();
            let before = thread_cpu_wait_ns().expect("it was there");
            while !has_waited.load(Ordering::Relaxed) {
                spin(Duration::from_millis(1));
                let waited_ns = thread_cpu_wait_ns().expect("it was there") - before;
                has_waited.fetch_or(waited_ns > 1_000_000, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| [scope.spawn(spins), scope.spawn(spins)].map(|_| ()));
    }

    /// Three threads on one CPU: at either end of the interval a thread may lose it between two readings.
    #[test]
    fn cpu_time_and_waiting_fit_into_the_interval_on_a_shared_cpu() {
        /// getrusage(2) cuts off up to a microsecond of user and of system time at either end.
        const ROUNDING_NS: u64 = 4_000;
        let metered = || {
            pin_to_first_allowed_cpu();
            for _ in 0..10 {
                let meter = ThreadMeter::start();
                spin(Duration::from_millis(3));
                let (used, waited_ns) = meter.stop();
                let accounted_ns = used.user_ns + used.system_ns + waited_ns.unwrap_or(0);
                assert!(accounted_ns <= used.wall_ns + ROUNDING_NS, "{accounted_ns} {used:?}");
            }
        };
        std::thread::scope(|scope| [(); 3].map(|()| scope.spawn(metered).thread().id()));
    }

    fn pin_to_first_allowed_cpu() {
        let allowed = sched_getaffinity(None).expect("every thread has a CPU set");
        let mut chosen = CpuSet::new();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        chosen.set(first.expect("a thread runs somewhere"));
        sched_setaffinity(None, &chosen).expect("the CPU is allowed");
    }
}
