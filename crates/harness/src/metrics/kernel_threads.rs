//! CPU time of the kernel's own threads: what arrays, write-back and workers do for a run outside of its process.
//!
//! From `/proc/PID/stat` (proc(5)), in ticks of 10 ms, so a share of a measurement of a second is known to about 1 %. A reading
//! looks at every process of the machine, some ten microseconds each; it is taken at the two ends of the measurement only, by
//! the thread that keeps time. Where kernel threads are not to be seen (a container with process numbers of its own)
//! there are none.
//!
//! Threads that share their work go by one name: those of each CPU (`ksoftirqd/0` and on), and workers, whose name is that of
//! the work queue that they served when they were looked at last, as far as the kernel reports it. A worker that served several
//! queues is booked on one of them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Instant;

use iosonde_protocol::{KernelThreads, KernelTime};

use crate::metrics::machine::TICK_NS;

/// `PF_KTHREAD` (`include/linux/sched.h`), in the field `flags`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Every kernel thread, and how much CPU time it has used so far.
#[derive(Debug)]
pub struct Snapshot {
    at: Instant,
    threads: HashMap<Identity, Thread>,
}

/// Process number and start: a number alone may be given again.
type Identity = (u32, u64);

#[derive(Debug, PartialEq, Eq)]
struct Thread {
    name: String,
    ticks: u64,
}

/// Reads what every kernel thread has used so far.
pub fn snapshot() -> Snapshot {
    let at = Instant::now();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = processes.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(Path::new("/proc").join(entry.file_name()).join("stat")).ok()?;
        let (start, thread) = parse(&stat)?;
        Some(((number, start), thread))
    });
    Snapshot {
        at,
        threads: threads.collect(),
    }
}

/// CPU time between two snapshots, the busiest first; `None` where no kernel thread is visible.
///
/// A thread that began in between counts in full; what one used that ended in between is lost.
pub fn difference(later: &Snapshot, earlier: &Snapshot) -> Option<KernelTime> {
    if later.threads.is_empty() {
        return None;
    }
    let mut found: BTreeMap<String, KernelThreads> = BTreeMap::new();
    for (identity, thread) in &later.threads {
        let before = earlier.threads.get(identity).map_or(0, |thread| thread.ticks);
        let cpu_ns = thread.ticks.saturating_sub(before) * TICK_NS;
        if cpu_ns > 0 {
            let name = common_name(&thread.name);
            let sum = found.entry(name.clone()).or_insert(KernelThreads {
                name,
                ..KernelThreads::default()
            });
            sum.threads += 1;
            sum.cpu_ns += cpu_ns;
            sum.busiest_cpu_ns = sum.busiest_cpu_ns.max(cpu_ns);
        }
    }
    let mut threads: Vec<KernelThreads> = found.into_values().collect();
    threads.sort_by_key(|threads| std::cmp::Reverse(threads.cpu_ns));
    Some(KernelTime {
        wall_ns: later.at.duration_since(earlier.at).as_nanos() as u64,
        threads,
    })
}

/// A kernel thread's start and time, of a line such as `41 (md0_raid5) S 2 0 ...`; a name may hold anything.
fn parse(stat: &str) -> Option<(u64, Thread)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) counts from 1, and the state, its third, is the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    (field(9)? & KERNEL_THREAD != 0).then_some(())?;
    let ticks = field(14)? + field(15)?;
    let name = name.to_owned();
    Some((field(22)?, Thread { name, ticks }))
}

/// `kworker/u4:3-btrfs-endio` is one of `kworker-btrfs-endio`, `ksoftirqd/1` of `ksoftirqd`.
fn common_name(name: &str) -> String {
    let Some((kind, place)) = name.split_once('/') else {
        return name.to_owned();
    };
    // `+` before the queue that is served at this moment, `-` before the last one.
    match place.split_once(['-', '+']) {
        Some((_, queue)) => format!("{kind}-{queue}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ARRAY: &str = "41 (md0_raid5) S 2 0 0 0 -1 2129984 0 0 0 0 0 250 0 0 20 0 1 0 700 0 0";
    const SHELL: &str = "42 (sh (x) y) S 1 42 42 0 -1 4194304 0 0 0 0 3 4 0 0 20 0 1 0 800 0 0";

    fn at(begin: Instant, seconds: u64, threads: &[(u32, &str, u64)]) -> Snapshot {
        let threads = threads.iter().map(|&(number, name, ticks)| {
            let name = name.to_owned();
            ((number, 7), Thread { name, ticks })
        });
        Snapshot {
            at: begin + Duration::from_secs(seconds),
            threads: threads.collect(),
        }
    }

    #[test]
    fn only_threads_of_the_kernel_count_and_are_seen_but_in_a_container() {
        let thread = Thread {
            name: "md0_raid5".into(),
            ticks: 250,
        };
        assert_eq!(parse(ARRAY), Some((700, thread)));
        assert_eq!(parse(SHELL), None);
        assert_eq!(parse("43 (cut"), None);
        // In a container with process numbers of its own, number 2 may be any process and no thread of the kernel's is there.
        let threads = snapshot().threads;
        let second = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
        let is_seen = second.trim_end() == "kthreadd";
        assert_eq!(threads.keys().any(|&(number, _)| number == 2), is_seen);
        assert_eq!(threads.is_empty(), !is_seen);
        assert!(!threads.keys().any(|&(number, _)| number == std::process::id()));
    }

    #[test]
    fn workers_are_summed_by_what_they_serve_and_a_reused_number_is_another_thread() {
        let begin = Instant::now();
        let earlier = at(begin, 0, &[(3, "kworker/0:1-events", 5), (41, "md0_raid5", 100)]);
        let later = [
            (3, "kworker/0:1-raid5wq", 25),
            (4, "kworker/u4:0+raid5wq", 10),
            (5, "ksoftirqd/1", 1),
            (6, "kswapd0", 0),
            (41, "md0_raid5", 298),
        ];
        let used = difference(&at(begin, 2, &later), &earlier).expect("there are kernel threads");
        assert_eq!(used.wall_ns, 2_000_000_000);
        let reported = used.threads.iter().map(|one| {
            let ticks = [one.cpu_ns, one.busiest_cpu_ns].map(|time_ns| time_ns / TICK_NS);
            (one.name.as_str(), one.threads, ticks)
        });
        assert!(reported.eq([
            ("md0_raid5", 1, [198, 198]),
            ("kworker-raid5wq", 2, [30, 20]),
            ("ksoftirqd", 1, [1, 1]),
        ]));
        assert_eq!(difference(&at(begin, 1, &[]), &at(begin, 0, &[])), None);
        let begin = Instant::now();
        let mut later = at(begin, 1, &[]);
        let name = "md1_raid5".to_owned();
        later.threads.insert((41, 8), Thread { name, ticks: 3 });
        let used = difference(&later, &at(begin, 0, &[(41, "md0_raid5", 100)])).expect("there is one");
        assert_eq!(used.threads[0].cpu_ns, 3 * TICK_NS);
    }
}
