//! Use of the machine's CPU time while a run measured, by any process.
//!
//! `/proc/stat` counts in ticks of 10 ms, so a share of a measurement of a second is known to about 1 %; `/proc/interrupts`
//! counts exactly. Both are long on large machines (a millisecond to read), so they are read at the two ends of the
//! measurement only, by the thread that keeps time, and interrupts only for the requested CPUs.

use iosonde_protocol::{CoreTime, CpuTime, PinnedCpu};

/// The unit of `/proc/stat`: `USER_HZ` is 100 on every architecture that Linux has today.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// CPU time and interrupts of the machine so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// All CPUs together; `None` if `/proc/stat` cannot be read.
    pub all: Option<CpuTime>,
    /// The CPUs that were asked about and exist.
    pub pinned: Vec<PinnedCpu>,
    /// Every CPU.
    pub cores: Vec<CoreTime>,
}

/// Reads what all CPUs together, and each of `cpus`, have done so far.
pub fn snapshot(cpus: &[u32]) -> Machine {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let interrupts = if cpus.is_empty() {
        String::new()
    } else {
        std::fs::read_to_string("/proc/interrupts").unwrap_or_default()
    };
    parse(&stat, &interrupts, cpus)
}

/// CPU time and interrupts between two snapshots of the same CPUs.
pub fn difference(later: &Machine, earlier: &Machine) -> Machine {
    let before = |cpu| earlier.pinned.iter().find(|one| one.cpu == cpu).copied();
    Machine {
        all: later.all.zip(earlier.all).map(|(later, earlier)| later.since(&earlier)),
        pinned: later
            .pinned
            .iter()
            .filter_map(|one| {
                let earlier = before(one.cpu)?;
                Some(PinnedCpu {
                    cpu: one.cpu,
                    time: one.time.since(&earlier.time),
                    interrupts: one.interrupts.saturating_sub(earlier.interrupts),
                })
            })
            .collect(),
        cores: later
            .cores
            .iter()
            .filter_map(|one| {
                let earlier = earlier.cores.iter().find(|other| other.cpu == one.cpu)?;
                Some(CoreTime {
                    cpu: one.cpu,
                    busy_ns: one.busy_ns.saturating_sub(earlier.busy_ns),
                    idle_ns: one.idle_ns.saturating_sub(earlier.idle_ns),
                })
            })
            .collect(),
    }
}

fn parse(stat: &str, interrupts: &str, cpus: &[u32]) -> Machine {
    let number_of_cpus = stat.lines().filter(|line| cpu_number(line).is_some()).count() as u32;
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let pinned = cpus.iter().filter_map(|&cpu| {
        let line = stat.lines().find(|line| cpu_number(line) == Some(cpu))?;
        let (_, times) = line.split_once(' ')?;
        Some(PinnedCpu {
            cpu,
            time: cpu_time(times, 1)?,
            interrupts: interrupts_of(interrupts, cpu),
        })
    });
    Machine {
        all: all.and_then(|times| cpu_time(times, number_of_cpus)),
        pinned: pinned.collect(),
        cores: stat.lines().filter_map(core).collect(),
    }
}

/// A CPU's line: busy is all that is not idle, time that the hypervisor gave to others included.
fn core(line: &str) -> Option<CoreTime> {
    let cpu = cpu_number(line)?;
    let time = cpu_time(line.split_once(' ')?.1, 1)?;
    Some(CoreTime {
        cpu,
        busy_ns: time.user_ns + time.system_ns + time.interrupt_ns + time.steal_ns,
        idle_ns: time.idle_ns + time.io_wait_ns,
    })
}

/// Of a line such as `cpu3 116 0 68 ...`.
fn cpu_number(line: &str) -> Option<u32> {
    line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()
}

/// `user nice system idle iowait irq softirq steal ...`; guests' time is in that of user and nice.
fn cpu_time(times: &str, cpus: u32) -> Option<CpuTime> {
    let ticks: Vec<u64> = times
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let time = |place: usize| ticks.get(place).copied().unwrap_or(0) * TICK_NS;
    (ticks.len() >= 4).then(|| CpuTime {
        cpus,
        user_ns: time(0) + time(1),
        system_ns: time(2),
        idle_ns: time(3),
        io_wait_ns: time(4),
        interrupt_ns: time(5) + time(6),
        steal_ns: time(7),
    })
}

/// The sum of a CPU's column. Offline CPUs have none, so the column is found by its head.
fn interrupts_of(interrupts: &str, cpu: u32) -> u64 {
    let mut lines = interrupts.lines();
    let head = lines.next().unwrap_or_default();
    let name = format!("CPU{cpu}");
    let Some(column) = head.split_ascii_whitespace().position(|title| title == name) else {
        return 0;
    };
    // Some rows (`ERR`, `MIS`) have a single number for the whole machine, which would be in the first column.
    let columns = head.split_ascii_whitespace().count();
    let count = |line: &str| {
        let numbers: Vec<u64> = line
            .split_ascii_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        (numbers.len() >= columns).then(|| numbers[column])
    };
    lines.filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  30 2 20 100 5 1 3 7 0 0\ncpu0 10 1 15 60 2 1 1 3 0 0\ncpu3 20 1 5 40 3 0 2 4 0 0\nintr 1 2\n";
    const INTERRUPTS: &str = "           CPU0       CPU3\n \
        24:          1          5  IO-APIC   5-edge      ACPI:Ged\n\
        LOC:     620127     711059   Local timer interrupts\nERR:          9\n";

    #[test]
    fn the_kernels_lines_are_taken_apart_and_each_core_is_busy_or_idle() {
        let machine = parse(STAT, INTERRUPTS, &[3, 1]);
        let all = machine.all.expect("there is a line for all CPUs");
        assert_eq!((all.cpus, all.user_ns, all.steal_ns), (2, 32 * TICK_NS, 7 * TICK_NS));
        assert_eq!(machine.pinned.len(), 1, "there is no CPU 1");
        let pinned = machine.pinned[0];
        assert_eq!((pinned.cpu, pinned.time.interrupt_ns), (3, 2 * TICK_NS));
        assert_eq!(pinned.interrupts, 711_064);
        let later = parse(&STAT.replace("cpu3 20", "cpu3 70"), INTERRUPTS, &[]);
        let cores = difference(&later, &parse(STAT, INTERRUPTS, &[])).cores;
        let used = cores.iter().map(|core| (core.cpu, core.busy_ns, core.idle_ns));
        assert!(used.eq([(0, 0, 0), (3, 50 * TICK_NS, 0)]));
        // User, nice, system, interrupts and steal; idle and waiting for I/O.
        let first = &later.cores[0];
        assert_eq!((first.busy_ns, first.idle_ns), (31 * TICK_NS, 62 * TICK_NS));
    }

    #[test]
    fn the_time_of_this_machine_passes_and_never_backwards() {
        let later = parse(&STAT.replace("100 5", "99 4"), INTERRUPTS, &[]);
        let passed = difference(&later, &parse(STAT, INTERRUPTS, &[]));
        let all = passed.all.expect("both have it");
        assert_eq!((all.idle_ns, all.io_wait_ns), (0, 0));
        assert_eq!(parse("", "", &[0]), Machine::default());
        let before = snapshot(&[0]);
        let mut passed = 0;
        while passed < 3 * TICK_NS {
            let all = difference(&snapshot(&[0]), &before).all.expect("Linux has /proc/stat");
            passed = all.user_ns + all.system_ns + all.steal_ns;
        }
    }
}
