//! Keeps a job's thread on one CPU.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread; a CPU that does not exist leaves it where it is.
pub fn pin(cpus: &[u32], job: u32) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    set.set(cpus[job as usize % cpus.len()] as usize % CpuSet::MAX_CPU);
    let _ = sched_setaffinity(None, &set);
}
