//! The measuring loop allocates nothing: a run of a hundred times the I/Os makes the same allocations.

#[path = "block/common.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use iosonde_protocol::*;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// True for the thread of the test, which is also the controller of its runs. It reads `/proc`, so its
    /// allocations depend on the number of processes. Jobs run in threads of their own.
    static IS_CONTROLLER: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

impl Counting {
    fn count() {
        if !IS_CONTROLLER.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call is the system allocator's; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: MemoryLayout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: MemoryLayout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: MemoryLayout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations outside the controller in a run of so many I/Os on one file, reads and writes, with one long interval.
fn allocations(workload: &BlockWorkload, operations: u64) -> u64 {
    let mut workload = workload.clone();
    workload.streams[0].limit_operations = Some(operations);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let (result, _) = run(&workload).unwrap();
    assert_eq!(result.jobs[0].operations, operations);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_hundred_times_the_ios_need_no_further_allocation() {
    IS_CONTROLLER.set(true);
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 4 * MIB), uring(), 4 * MIB);
    workload.duration_ns = None;
    workload.interval_ns = 3_600_000_000_000;
    workload.streams[0].mix.read_fraction = 0.5;
    for arrival in [Arrival::Closed, Arrival::Poisson { rate: 1e6 }] {
        workload.streams[0].arrival = arrival;
        allocations(&workload, 1_000);
        let (few, many) = (allocations(&workload, 2_000), allocations(&workload, 200_000));
        assert!(few > 0, "allocations of the job's thread are counted");
        // The result's list of occupied histogram buckets grows a few times more; the loop would add 198,000.
        assert!(many.abs_diff(few) < 200, "{few} for 2,000 I/Os, {many} for 200,000");
    }
}
