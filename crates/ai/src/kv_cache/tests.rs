//! Caches with known decisions, times that follow from a simulated device, and blocks in files.

use std::io::Write;
use std::path::Path;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, RunInputs, carry_out};
use iosonde_protocol::{Backend, KvCacheTrace, Observe, Service};

use super::*;
use crate::kv_trace::file_of;

const KIB: u64 = 1024;
const MS: u64 = 1_000_000;

struct Given {
    file: tempfile::NamedTempFile,
    workload: AiKvCacheWorkload,
}

/// A cache of `capacity` blocks on a device with servers of 1 ms.
fn given(requests: &[(u64, &[u32])], capacity: u32, servers: u32) -> Given {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&file_of(requests)).unwrap();
    let workload = AiKvCacheWorkload {
        target: AiTarget::Virtual { size_bytes: 1 << 30 },
        backend: Some(Backend::Simulated {
            servers,
            read_service_ns: MS,
            write_service_ns: MS,
            service: Service::Constant,
            stalls: Vec::new(),
        }),
        trace: KvCacheTrace {
            path: file.path().to_str().unwrap().into(),
            rows: requests.len() as u64,
            digest: String::new(),
        },
        block_bytes: 64 * KIB,
        capacity_blocks: capacity,
        dram_blocks: 0,
        layout: KvCacheLayout::Slots,
        sync: false,
        is_direct: true,
        threads: 1,
        writers: 1,
        is_parallel: false,
        warm_requests: 0,
        speed: 1.0,
        duration_ns: None,
        interval_ns: 100 * MS,
        cpus: Vec::new(),
    };
    Given { file, workload }
}

fn run(given: &Given) -> Result<(RunResult, KvCacheResult), RunError> {
    let targets = Targets::default();
    let inputs = RunInputs {
        seed: 7,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &targets,
    };
    let result = carry_out(&AiKvCache(&given.workload), inputs, &mut Control::new().0, &mut |_| {})?;
    let found = result.ai.as_ref().unwrap().kv_cache.unwrap();
    Ok((result, found))
}

const SECOND: u64 = 1000 * MS;
/// The first block is common to all.
const REQUESTS: [(u64, &[u32]); 5] = [
    (0, &[0, 1, 2]),
    (SECOND, &[0, 1, 3]),
    (2 * SECOND, &[0, 1, 2, 4]),
    (3 * SECOND, &[0, 5, 2]),
    (4 * SECOND, &[0, 1, 2, 4]),
];

#[test]
fn hits_are_a_prefix_and_the_least_recently_used_block_leaves() {
    // Of three blocks: 0 1 2 | 1 2 ev, hits 0 1, store 3 (2 leaves) | hits 0 1, store 2 (3 leaves), store 4 (0 leaves) |
    // 0 is missing: store 0 (1 leaves), store 5 (2 leaves), store 2 (4 leaves) | hit 0, store 1, 2 is stored, store 4.
    let (_, found) = run(&given(&REQUESTS, 3, 16)).unwrap();
    assert_eq!((found.lookups, found.storage_hits, found.common_hits), (17, 5, 3));
    assert_eq!((found.stores, found.evictions, found.late_hits), (11, 8, 0));
    assert_eq!(
        (found.read_blocks, found.written_blocks, found.removed_blocks),
        (5, 11, 8)
    );
    assert_eq!(
        (found.arrived, found.requests, found.finished, found.unfinished),
        (5, 5, 5, 0)
    );
    assert_eq!(found.trace_ns, 4 * SECOND);
    // Without evictions.
    let (_, found) = run(&given(&REQUESTS, 100, 16)).unwrap();
    assert_eq!(
        (found.storage_hits, found.stores, found.evictions),
        (2 + 3 + 1 + 4, 6, 0)
    );
}

#[test]
fn hits_in_memory_cause_no_io_and_requests_may_fill_the_cache_before() {
    let mut given = given(&REQUESTS, 100, 16);
    given.workload.dram_blocks = 3;
    let (_, found) = run(&given).unwrap();
    assert_eq!(found.dram_hits + found.storage_hits, 10);
    assert_eq!(found.read_blocks, found.storage_hits);
    assert!(found.dram_hits >= 4, "{found:?}");
    given.workload.dram_blocks = 0;
    given.workload.warm_requests = 2;
    let (_, found) = run(&given).unwrap();
    assert_eq!((found.lookups, found.storage_hits, found.stores), (11, 3 + 1 + 4, 2));
    assert_eq!(found.trace_ns, 2 * SECOND);
}

#[test]
fn a_load_takes_the_service_time_of_its_blocks_divided_by_threads() {
    let blocks: Vec<u32> = (0..10).collect();
    let trace: [(u64, &[u32]); 2] = [(0, &blocks), (SECOND, &blocks)];
    for (is_parallel, threads, servers, expected_ms) in [
        (false, 4, 16, 10),
        (true, 1, 16, 10),
        (true, 4, 16, 3),
        (true, 5, 16, 2),
        (true, 5, 1, 10),
    ] {
        let mut given = given(&trace, 100, servers);
        given.workload.is_parallel = is_parallel;
        given.workload.threads = threads;
        let (_, found) = run(&given).unwrap();
        assert_eq!(found.load_ns, expected_ms * MS, "{is_parallel} {threads} {servers}");
        assert_eq!((found.loaded_requests, found.loaded_blocks), (1, 10));
    }
}

#[test]
fn a_slow_device_delays_loads_and_blocks_not_yet_stored_are_not_loaded() {
    let blocks: Vec<u32> = (0..10).collect();
    // 5 ms after the first request, five blocks are stored.
    let late: [(u64, &[u32]); 2] = [(0, &blocks), (5 * MS + MS / 2, &blocks)];
    let (_, found) = run(&given(&late, 100, 16)).unwrap();
    assert_eq!((found.storage_hits, found.late_hits, found.read_blocks), (10, 5, 5));
    // Requests each 1 ms that take 10 ms: after 15 ms of load, one of the second kind is complete.
    let mut queued: Vec<(u64, &[u32])> = vec![(0, &blocks)];
    queued.extend((0..20).map(|number| (SECOND + number * MS, &blocks[..])));
    let mut given = given(&queued, 100, 16);
    given.workload.duration_ns = Some(SECOND + 15 * MS);
    let (_, found) = run(&given).unwrap();
    assert_eq!((found.arrived, found.finished, found.unfinished), (16, 2, 14));
    // The same at a hundredth of the speed.
    given.workload.duration_ns = None;
    given.workload.speed = 0.01;
    let (_, found) = run(&given).unwrap();
    assert_eq!((found.unfinished, found.load_ns), (0, 20 * 10 * MS));
}

#[test]
fn damaged_traces_are_refused() {
    let mut given = given(&REQUESTS, 3, 1);
    given.workload.trace.rows += 1;
    assert_eq!(run(&given).unwrap_err().to_failure().code, "invalid_spec");
    given.workload.trace.rows -= 1;
    assert!(run(&given).is_ok());
    given.file.as_file().set_len(100).unwrap();
    assert_eq!(run(&given).unwrap_err().to_failure().code, "invalid_spec");
}

fn files_below(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files_below(&entry)),
            false => found.push(entry.to_str().unwrap().to_owned()),
        }
    }
    found
}

#[test]
fn each_layout_keeps_the_blocks_that_the_cache_has() {
    let place = tempfile::tempdir().unwrap();
    let requests = REQUESTS.map(|(at_ns, blocks)| (at_ns / 100, blocks));
    for layout in [
        KvCacheLayout::Hashed,
        KvCacheLayout::Flat,
        KvCacheLayout::Slots,
        KvCacheLayout::Renamed,
    ] {
        for is_direct in [true, false] {
            let mut given = given(&requests, 3, 1);
            given.workload.target = AiTarget::Directory {
                path: place.path().to_str().unwrap().into(),
            };
            given.workload.backend = None;
            given.workload.layout = layout;
            given.workload.is_direct = is_direct;
            given.workload.sync = true;
            given.workload.is_parallel = is_direct;
            given.workload.threads = 2;
            given.workload.writers = 2;
            given.workload.warm_requests = 1;
            let (result, found) = run(&given).unwrap();
            assert_eq!((found.written_blocks, found.removed_blocks), (8, 8), "{layout:?}");
            // A slow file system stores some of them too late.
            assert_eq!((found.storage_hits, found.read_blocks + found.late_hits), (5, 5));
            assert_eq!(found.unfinished, 0);
            let files = files_below(place.path());
            let depth = files[0]
                .strip_prefix(place.path().to_str().unwrap())
                .unwrap()
                .matches('/')
                .count();
            let expected = match layout {
                KvCacheLayout::Slots => (1, 1),
                KvCacheLayout::Flat => (3, 2),
                _ => (3, 4),
            };
            assert_eq!((files.len(), depth), expected, "{layout:?}: {files:?}");
            let bytes: u64 = files.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
            assert_eq!(bytes, 3 * 64 * KIB);
            let kept = if layout == KvCacheLayout::Slots && !is_direct {
                3 * 64 * KIB
            } else {
                0
            };
            assert_eq!(result.layout.kept_bytes, kept, "{layout:?}");
        }
    }
}
