//! Counters of paging over time: the machine's (`/proc/vmstat`) and those of the engine's control group (`memory.stat`).

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Counters of the machine; those that the kernel does not have are left out.
const MACHINE: [&str; 9] = [
    "pswpin",
    "pswpout",
    "pgmajfault",
    "swap_ra",
    "swap_ra_hit",
    "zswpin",
    "zswpout",
    "swpin_zero",
    "swpout_zero",
];
/// Counters and sizes of the control group, of either version.
const GROUP: [&str; 14] = [
    "swap",
    "swapcached",
    "rss",
    "cache",
    "anon",
    "file",
    "unevictable",
    "pgfault",
    "pgmajfault",
    "pswpin",
    "pswpout",
    "zswpin",
    "zswpout",
    "workingset_refault_anon",
];

/// Reads the counters.
pub(crate) struct Statistics {
    /// `memory.stat` of the control group with the memory controller that this process is in.
    group: Option<PathBuf>,
}

impl Statistics {
    /// Finds the control group of this process.
    pub(crate) fn find() -> Statistics {
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = read_to_string("/proc/self/mounts").unwrap_or_default();
        Statistics {
            group: memory_stat(&groups, &mounts).filter(|path| path.exists()),
        }
    }

    /// All counters now, by `vmstat.NAME` and `group.NAME`.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        let machine = chosen(Path::new("/proc/vmstat"), "vmstat", &MACHINE);
        let group = self.group.as_deref().map(|path| chosen(path, "group", &GROUP));
        machine.into_iter().chain(group.into_iter().flatten()).collect()
    }
}

fn chosen(path: &Path, prefix: &str, names: &[&str]) -> Vec<(String, u64)> {
    let text = read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(name, value)| Some((format!("{prefix}.{name}"), value.trim().parse().ok()?)))
        .collect()
}

/// The file with the statistics of the process' control group, from `/proc/self/cgroup` and `/proc/self/mounts`.
fn memory_stat(groups: &str, mounts: &str) -> Option<PathBuf> {
    let mounted = |is_wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            is_wanted(kind, options).then(|| PathBuf::from(point))
        })
    };
    let of_version_1 = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|each| each == "memory").then_some(path)
    });
    let (point, path) = match of_version_1 {
        Some(path) => {
            let is_memory =
                |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|each| each == "memory");
            (mounted(&is_memory)?, path)
        }
        None => {
            let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
            (mounted(&|kind, _| kind == "cgroup2")?, path)
        }
    };
    Some(point.join(path.trim_start_matches('/')).join("memory.stat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_of_either_version_is_found_and_the_machine_counts_major_faults() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let first = memory_stat("5:cpu:/\n4:memory:/iosonde-01\n0::/", mounts).unwrap();
        assert_eq!(first, Path::new("/sys/fs/cgroup/memory/iosonde-01/memory.stat"));
        let second = memory_stat("0::/user.slice/a", "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n");
        assert_eq!(second.unwrap(), Path::new("/sys/fs/cgroup/user.slice/a/memory.stat"));
        assert_eq!(memory_stat("0::/", ""), None);
        let read = Statistics { group: None }.read();
        assert!(read.contains_key("vmstat.pgmajfault"), "{read:?}");
    }
}
