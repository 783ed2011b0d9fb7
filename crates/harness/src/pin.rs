//! Keeps a job's thread on one CPU.

/// Pins the calling thread; a CPU that does not exist leaves it where it is.
pub fn pin(cpus: &[u32], job: u32) {
    if cpus.is_empty() {
        return;
    }
    // SAFETY: the set is plain data, valid for the call; pid 0 is the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(
            cpus[job as usize % cpus.len()] as usize % libc::CPU_SETSIZE as usize,
            &mut set,
        );
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
