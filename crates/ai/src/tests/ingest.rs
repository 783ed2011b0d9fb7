//! Ingest of training data.

use std::collections::BTreeMap;

use iosonde_harness::load::Rng;
use iosonde_protocol::{AcceleratorResult, AiIngestWorkload, IngestLoader, IoMode};

use super::*;
use crate::AiIngest;

const LOADERS: [IngestLoader; 2] = [IngestLoader::Samples, IngestLoader::Interleaved];

/// 64 files with 4 samples of 64 KiB.
fn ingest(loader: IngestLoader, backend: Option<Backend>) -> AiIngestWorkload {
    AiIngestWorkload {
        target: AiTarget::Virtual { size_bytes: 256 * MIB },
        backend,
        files: 64,
        samples_per_file: 4,
        sample_bytes: vec![65536],
        loader,
        request_bytes: 65536,
        io_mode: IoMode::Direct,
        accelerators: 1,
        batch: 8,
        read_threads: 4,
        prefetch: 4,
        compute_ns: 10_000_000,
        barrier: true,
        page_cache: PageCache::Drop,
        ramp: Ramp {
            duration_ns: 2 * SECOND_NS,
            ..Ramp::default()
        },
        duration_ns: 10 * SECOND_NS,
        interval_ns: SECOND_NS / 10,
        cpus: Vec::new(),
    }
}

fn accelerators(workload: &AiIngestWorkload) -> Vec<AcceleratorResult> {
    run(&AiIngest(workload)).unwrap().ai.unwrap().accelerators
}

fn utilization(accelerators: &[AcceleratorResult]) -> f64 {
    let sum = |of: fn(&AcceleratorResult) -> u64| accelerators.iter().map(of).sum::<u64>() as f64;
    sum(|each| each.compute_ns) / sum(|each| each.running_ns)
}

#[test]
fn utilization_follows_from_the_bandwidth_of_the_device() {
    // An accelerator needs 8 samples of 64 KiB in 10 ms: 52.4 MB/s. The limit is 2.5 times that.
    let bytes_per_second = 2.5 * 8.0 * 65536.0 / 0.010;
    for loader in LOADERS {
        for barrier in [false, true] {
            for number in [1, 2, 3, 5] {
                let mut workload = ingest(loader, limited(bytes_per_second, 0.0));
                (workload.accelerators, workload.barrier) = (number, barrier);
                let found = accelerators(&workload);
                assert_eq!(found.len(), number as usize);
                let expected = (2.5 / f64::from(number)).min(1.0);
                let error = utilization(&found) / expected - 1.0;
                assert!(error.abs() < 0.02, "{loader:?} {barrier} {number}: {error}");
                for each in found {
                    let parts = each.compute_ns + each.data_wait_ns + each.barrier_wait_ns;
                    assert_eq!(parts, each.running_ns);
                }
            }
        }
    }
}

#[test]
fn utilization_follows_from_the_mean_of_sample_sizes() {
    for loader in LOADERS {
        let mut workload = ingest(loader, limited(3.0 * 8.0 * 65536.0 / 0.010, 0.0));
        workload.sample_bytes = vec![4096, 126_976, 32_768, 98_304];
        workload.accelerators = 4;
        workload.samples_per_file = 1;
        workload.request_bytes = 16384;
        let error = utilization(&accelerators(&workload)) / 0.75 - 1.0;
        assert!(error.abs() < 0.02, "{loader:?}: {error}");
    }
}

#[test]
fn readers_stop_at_the_number_of_batches_that_the_loader_reads_ahead() {
    // The accelerator takes one batch and computes until the end, so the rest is what was read ahead.
    let samples_read = |loader, read_threads, prefetch| {
        let mut workload = ingest(loader, servers(64, 100_000));
        workload.compute_ns = 3600 * SECOND_NS;
        workload.ramp.duration_ns = 0;
        workload.duration_ns = SECOND_NS;
        (workload.read_threads, workload.prefetch) = (read_threads, prefetch);
        let result = run(&AiIngest(&workload)).unwrap();
        assert_eq!(result.ai.unwrap().accelerators, [AcceleratorResult::default()]);
        result.jobs[0].bytes / 65536
    };
    for (read_threads, prefetch, batches) in [(4, 4, 4), (4, 2, 4), (4, 5, 8), (1, 3, 3), (2, 1, 2)] {
        let read = samples_read(IngestLoader::Samples, read_threads, prefetch);
        assert_eq!(read, 8 * (1 + batches), "{read_threads} threads, {prefetch} batches");
        // Threads that read when the queue becomes full complete their reads.
        let read = samples_read(IngestLoader::Interleaved, read_threads, prefetch);
        let full = u64::from(8 * (1 + prefetch));
        assert!((full..full + u64::from(read_threads)).contains(&read), "{read}");
    }
}

#[test]
fn the_read_threads_of_an_accelerator_read_in_parallel() {
    // Each thread reads 1,000 samples of 1 ms in a second; a step of 8 samples takes 2 ms with 4 threads.
    for loader in LOADERS {
        let mut workload = ingest(loader, servers(64, 1_000_000));
        (workload.compute_ns, workload.duration_ns) = (1000, SECOND_NS);
        let steps = accelerators(&workload)[0].steps;
        assert!((495..=500).contains(&steps), "{loader:?}: {steps}");
    }
}

/// Mean step of two accelerators with a barrier, of which one has a long read and the other a short one, at random. A read starts
/// when the batch before is taken.
fn mean_step_ns(long_ns: u64, short_ns: u64, compute_ns: u64) -> f64 {
    const STEPS: u32 = 100_000;
    let mut rng = Rng::new(1, &[]);
    let (mut taken, mut released) = ([0; 2], 0);
    for _ in 0..STEPS {
        let is_first = rng.below(2) == 0;
        let reads = [is_first, !is_first].map(|is_long| if is_long { long_ns } else { short_ns });
        for (taken, read_ns) in taken.iter_mut().zip(reads) {
            *taken = released.max(*taken + read_ns);
        }
        released = taken[0].max(taken[1]) + compute_ns;
    }
    released as f64 / f64::from(STEPS)
}

#[test]
fn all_accelerators_step_with_the_slowest() {
    // Two samples: in each epoch one accelerator reads for 10 ms, and the other for 1 ms.
    let mut workload = ingest(IngestLoader::Samples, servers(64, 1_000_000));
    (workload.files, workload.samples_per_file, workload.accelerators) = (2, 1, 2);
    workload.sample_bytes = vec![65536, 655_360];
    (workload.batch, workload.read_threads, workload.prefetch) = (1, 1, 1);
    workload.compute_ns = 100_000;
    let [first, second] = accelerators(&workload)[..] else {
        panic!("two accelerators");
    };
    assert_eq!((first.steps, first.running_ns), (second.steps, second.running_ns));
    let mean_ns = first.running_ns as f64 / first.steps as f64;
    let error = mean_ns / mean_step_ns(10_000_000, 1_000_000, 100_000) - 1.0;
    assert!(error.abs() < 0.03, "{error}");
    workload.barrier = false;
    for each in accelerators(&workload) {
        // 5.5 ms in the mean.
        assert!((1700..=1950).contains(&each.steps), "{}", each.steps);
        assert_eq!(each.barrier_wait_ns, 0);
    }
}

#[test]
fn a_data_set_of_files_is_written_once_and_read_with_both_loaders() {
    let place = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for (loader, io_mode) in [
        (IngestLoader::Samples, IoMode::Direct),
        (IngestLoader::Samples, IoMode::Buffered),
        (IngestLoader::Interleaved, IoMode::Direct),
        (IngestLoader::Interleaved, IoMode::Buffered),
    ] {
        let mut workload = ingest(loader, None);
        workload.target = directory(place.path());
        (workload.io_mode, workload.accelerators) = (io_mode, 2);
        // Neither samples nor files are multiples of a page.
        workload.sample_bytes = vec![10_000, 70_001, 1];
        (workload.ramp.duration_ns, workload.duration_ns) = (0, SECOND_NS / 2);
        let result = run(&AiIngest(&workload)).unwrap();
        written.push(result.layout.written_bytes);
        let facts = result.ai.unwrap();
        assert_eq!(facts.accelerators.len(), 2);
        let evidence = result.evidence.unwrap();
        assert_eq!(evidence.page_cache.unwrap().before_bytes, 0);
        assert_eq!(facts.file_bytes, 85 * 80_002 + 10_000);
    }
    assert_eq!(written, [85 * 80_002 + 10_000, 0, 0, 0]);
    let sizes = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len());
    let mut count = BTreeMap::new();
    sizes.for_each(|bytes| *count.entry(bytes).or_insert(0) += 1);
    assert_eq!(count, BTreeMap::from([(90_002, 22), (150_003, 21), (80_003, 21)]));
}

#[test]
fn impossible_ingest_is_refused() {
    type Change = fn(&mut AiIngestWorkload);
    let changes: [(Change, &str); 6] = [
        (|workload| workload.sample_bytes.clear(), "`sample_bytes`"),
        (|workload| workload.request_bytes = 1000, "`request_bytes`"),
        (|workload| workload.batch = 0, "`batch`"),
        (|workload| workload.prefetch = 0, "`prefetch`"),
        (|workload| workload.read_threads = 0, "`read_threads`"),
        (|workload| workload.accelerators = 17, "`files`"),
    ];
    for (change, context) in changes {
        let mut workload = ingest(IngestLoader::Interleaved, servers(1, 1000));
        change(&mut workload);
        let error = run(&AiIngest(&workload)).unwrap_err();
        assert!(format!("{error:?}").contains(context), "{error:?}");
    }
}
