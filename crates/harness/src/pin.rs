//! Keeps a job's thread on one CPU, and reports on which CPUs a thread may run.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::RunError;

/// Pins the calling thread to the CPU of a job.
pub(crate) fn pin(cpu: u32, job: u32) -> Result<(), RunError> {
    let refused = |reason: String| {
        let allowed = list_format(&allowed_cpus());
        let message =
            format!("job {job} cannot run on CPU {cpu} (`cpus`): {reason}; the engine may run on CPUs {allowed}");
        let hint = "choose `cpus` among those, or start iosonde with others (`taskset`, cpuset(7))";
        RunError::unsupported(message, hint).at("starting the jobs")
    };
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(refused(format!("CPU numbers must be below {}", CpuSet::MAX_CPU)));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|error| refused(io::Error::from(error).to_string()))
}

/// CPUs that the calling thread may run on; none where the kernel does not report them.
pub(crate) fn allowed_cpus() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_default();
    let is_in = |cpu: &u32| set.is_set(*cpu as usize);
    (0..CpuSet::MAX_CPU as u32).filter(is_in).collect()
}

/// CPUs in the list format of cpuset(7), such as `0-3,8`.
pub(crate) fn list_format(cpus: &[u32]) -> String {
    let ranges = cpus.chunk_by(|one, next| one + 1 == *next);
    let text = |range: &[u32]| match range {
        [single] => single.to_string(),
        _ => format!("{}-{}", range[0], range[range.len() - 1]),
    };
    ranges.map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_to_a_cpu_that_is_there_and_others_are_refused_with_a_list() {
        let cpu = allowed_cpus()[0];
        std::thread::spawn(move || {
            pin(cpu, 0).expect("the thread already runs on it or may");
            assert_eq!(allowed_cpus(), [cpu]);
        })
        .join()
        .unwrap();
        let allowed = list_format(&allowed_cpus());
        for (cpu, reason) in [
            (1023, "Invalid argument (os error 22)"),
            (5000, "CPU numbers must be below 1024"),
        ] {
            let refused = pin(cpu, 2).expect_err("no machine of ours has it").to_string();
            assert!(refused.contains(reason) && refused.ends_with(&allowed), "{refused}");
        }
        assert_eq!(list_format(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list_format(&[]), "");
    }
}
