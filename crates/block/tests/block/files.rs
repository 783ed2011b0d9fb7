//! The driver loop on real files of this machine.

use crate::common::*;
use iosonde_protocol::*;

#[test]
fn reads_stay_in_the_span_and_writes_change_every_block_of_it() {
    for backend in [uring(), Backend::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let mut workload = workload(file(&directory, 4 * MIB), backend.clone(), 2 * MIB);
        let stream = &mut workload.streams[0];
        stream.span.offset_bytes = MIB;
        stream.mix.read_fraction = 0.0;
        stream.access = each_once();
        stream.queue_depth = if backend == Backend::Sync { 1 } else { 16 };
        stream.limit_operations = Some(2 * MIB / 4096);
        workload.duration_ns = None;
        let mut laid_out = workload.clone();
        laid_out.streams[0].mix.read_fraction = 1.0;
        run(&laid_out).unwrap();
        let path = directory.path().join("data");
        let before = std::fs::read(&path).unwrap();
        run(&workload).unwrap();
        let after = std::fs::read(&path).unwrap();
        for (number, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
            let inside = (256..768).contains(&number);
            assert_eq!(old != new, inside, "block {number}, backend {backend:?}");
        }
    }
}

#[test]
fn every_backend_feature_and_operation_works_on_a_file() {
    let directory = tempfile::tempdir().unwrap();
    for (io_mode, durability) in [
        (IoMode::Direct, Durability::Flush { every: 4 }),
        (IoMode::Buffered, Durability::Dsync),
        (IoMode::Direct, Durability::None),
    ] {
        let mut workload = workload(file(&directory, 8 * MIB), uring(), 8 * MIB);
        let stream = &mut workload.streams[0];
        stream.io_mode = io_mode;
        stream.durability = durability;
        stream.limit_operations = Some(200);
        stream.mix = Mix {
            read_fraction: 0.5,
            trim_fraction: 0.1,
        };
        stream.block_sizes = [(4096, 3.0), (65_536, 1.0)]
            .map(|(bytes, weight)| BlockSize { bytes, weight })
            .to_vec();
        workload.duration_ns = None;
        let (result, intervals) = run(&workload).unwrap();
        assert_eq!(result.outcome, Outcome::Complete);
        assert_eq!(result.backend.kind, "uring");
        for operation in [Operation::Read, Operation::Write, Operation::Trim] {
            assert!(totals(&intervals, operation).0 > 0, "{operation:?} with {durability:?}");
        }
        let flushes = totals(&intervals, Operation::Flush).0;
        assert_eq!(flushes > 0, matches!(durability, Durability::Flush { .. }));
    }
}

#[test]
fn streams_run_together_and_jobs_can_have_files_of_their_own_from_their_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file_per_job(&directory, MIB), uring(), MIB);
    workload.streams = vec![stream("reader", MIB), stream("writer", MIB)];
    workload.streams[0].jobs = 3;
    workload.streams[1].mix.read_fraction = 0.0;
    for stream in &mut workload.streams {
        stream.limit_operations = Some(200);
    }
    workload.duration_ns = None;
    let (result, intervals) = run(&workload).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["reader.0", "reader.1", "reader.2", "writer.0"]);
    assert!(result.jobs.iter().all(|job| job.operations > 0));
    assert_eq!(result.layout.written_bytes, 4 * MIB);
    assert!(intervals.iter().all(|interval| interval.streams.len() == 2));
    let directory = tempfile::tempdir().unwrap();
    let mut workload = crate::common::workload(file_per_job(&directory, MIB), Backend::Sync, MIB);
    workload.streams[0].jobs = 2;
    workload.streams[0].queue_depth = 1;
    workload.streams[0].limit_operations = Some(2);
    run(&workload).unwrap();
    let before = std::fs::read(directory.path().join("main.1")).unwrap();
    workload.streams[0].mix.read_fraction = 0.0;
    workload.streams[0].access = Access::Sequential;
    run(&workload).unwrap();
    let after = std::fs::read(directory.path().join("main.1")).unwrap();
    assert_ne!(before[..4096], after[..4096]);
    assert_eq!(before[4096..], after[4096..]);
}

#[test]
fn a_stop_ends_the_run_with_a_result() {
    let directory = tempfile::tempdir().unwrap();
    let result = run_until_stopped(&workload(file(&directory, MIB), uring(), MIB));
    assert_eq!(result.outcome, Outcome::Stopped);
    assert!(result.jobs[0].operations > 0);
    assert_eq!(result.jobs[0].pacing.unwrap().exhausted_ns, None, "it has no limit");
}

#[test]
fn a_file_that_shrinks_under_the_run_is_a_failure_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 4 * MIB), uring(), 4 * MIB);
    workload.duration_ns = Some(3_600_000_000_000);
    let path = directory.path().join("data");
    let mut shrink = |event| {
        if let Event::Interval(_) = event {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(MIB).unwrap();
        }
    };
    let result = run_with_events(&workload, &mut shrink);
    let error = assert_fails(result, "io_error", "came back short");
    assert!(error.hint.contains("became shorter"), "{}", error.hint);
}

#[test]
fn specs_that_contradict_themselves_and_targets_that_cannot_be_opened_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let sound = || workload(file(&directory, MIB), uring(), MIB);
    type Change = fn(&mut BlockWorkload);
    let cases: [(Change, &str); 17] = [
        (|w| w.streams.clear(), "`streams`"),
        (|w| w.interval_ns = 1, "`interval_ns`"),
        (|w| w.streams[0].jobs = 0, "`main`, `jobs`"),
        (|w| w.streams[0].queue_depth = 100_000, "`main`, `queue_depth`"),
        (|w| w.backend = Backend::Sync, "`main`, `queue_depth`"),
        (|w| w.backend = Backend::Null, "`target`, `backend`"),
        (|w| w.streams[0].block_sizes[0].bytes = 100, "`main`, `block_sizes`"),
        (|w| w.streams[0].span.bytes = 2 * MIB, "`main`, `span`"),
        (|w| w.target = devices(2 * MIB), "`main`, `span`"),
        (|w| w.target = devices(4 * MIB), "`main`, `span`"),
        (|w| w.duration_ns = None, "`main`, `limit_operations`"),
        (|w| w.streams[0].limit_bytes = Some(100), "`main`, `limit_bytes`"),
        (
            |w| w.streams[0].arrival = Arrival::Poisson { rate: 0.0 },
            "`main`, `arrival`",
        ),
        (|w| w.streams[0].arrival = endless(), "`main`, `arrival`"),
        (|w| w.streams[0].payload = reducible(0.9, 0.0), "`main`, `payload`"),
        (|w| w.streams[0].payload = reducible(f64::NAN, 0.0), "`main`, `payload`"),
        (|w| w.streams[0].payload = reducible(1.0, 1.1), "`main`, `payload`"),
    ];
    for (change, message) in cases {
        let mut workload = sound();
        change(&mut workload);
        if matches!(workload.target, Target::Device { .. }) {
            workload.streams[0].span.offset_bytes = 4 * MIB - 4096;
        }
        assert_fails(run(&workload), "invalid_spec", message);
    }
    let created = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(created, 0);
    let target = Target::File {
        path: "/proc/no-such-place/data".into(),
        size_bytes: MIB,
    };
    let result = run(&workload(target, uring(), MIB));
    assert_fails(result, "vanished", "/proc/no-such-place/data");
}

fn devices(size_bytes: u64) -> Target {
    Target::Device {
        path: "/dev/none".into(),
        size_bytes,
        beside: vec!["/dev/none-either".into()],
        is_claimed: true,
    }
}

fn endless() -> Arrival {
    let steps = [(0.0, u64::MAX), (10.0, 1_000_000)];
    Arrival::Steps {
        steps: steps.map(|(rate, duration_ns)| RateStep { rate, duration_ns }).to_vec(),
        spacing: Spacing::Constant,
    }
}

fn reducible(compression_ratio: f64, duplicate_fraction: f64) -> Payload {
    Payload::Reducible {
        compression_ratio,
        duplicate_fraction,
        duplicate_bytes: 4096,
    }
}

#[test]
fn each_file_is_laid_out_with_the_contents_of_the_stream_that_uses_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file_per_job(&directory, MIB), Backend::Sync, MIB);
    workload.streams[0].queue_depth = 1;
    workload.streams[0].limit_operations = Some(1);
    workload.streams.push(workload.streams[0].clone());
    workload.streams[1].name = "zeros".into();
    workload.streams[1].payload = Payload::Zeros;
    workload.duration_ns = None;
    run(&workload).unwrap();
    let is_zeros = |name| std::fs::read(directory.path().join(name)).unwrap() == vec![0; MIB as usize];
    assert_eq!(["main.0", "zeros.0"].map(is_zeros), [false, true]);
}

/// On a busy machine I/Os start late, but none is skipped, none starts early, and the recorded lag is exact.
#[test]
fn an_open_loop_starts_all_its_ios_on_every_backend_and_never_early() {
    const OPERATIONS: u64 = 400;
    let directory = tempfile::tempdir().unwrap();
    for (backend, target) in [
        (Backend::Null, Target::Virtual { size_bytes: MIB }),
        (uring(), file(&directory, MIB)),
        (Backend::Sync, file(&directory, MIB)),
    ] {
        let mut workload = workload(target, backend.clone(), MIB);
        workload.streams[0].arrival = Arrival::Poisson { rate: 2_000.0 };
        workload.streams[0].queue_depth = if backend == Backend::Sync { 1 } else { 64 };
        workload.streams[0].limit_operations = Some(OPERATIONS);
        workload.duration_ns = None;
        let (result, intervals) = run(&workload).unwrap();
        let schedule = result.jobs[0].schedule.expect("an open loop has a schedule");
        assert_eq!(schedule.started, OPERATIONS, "{backend:?}");
        assert!(schedule.due >= OPERATIONS, "{backend:?}: {schedule:?}");
        // 400 I/Os at 2,000 a second take 200 ms on average.
        assert!(result.end_ns - result.begin_ns > 150_000_000, "{backend:?}");
        let (count, _, completion_ns) = totals(&intervals, Operation::Read);
        assert_eq!(count, OPERATIONS, "{backend:?}");
        let response_ns: u64 = measured(&intervals, Operation::Read)
            .map(|entry| entry.response_latency.as_ref().expect("the loop is open").sum_ns)
            .sum();
        assert_eq!(response_ns - completion_ns, schedule.start_lag_ns_sum, "{backend:?}");
    }
}

#[test]
fn evidence_counts_holes_under_reads_trims_and_pages_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 8 * MIB), uring(), 8 * MIB);
    workload.streams[0].limit_operations = Some(200);
    workload.duration_ns = None;
    workload.layout = Layout::Never;
    let evidence = |workload: &BlockWorkload| run(workload).unwrap().0.evidence.unwrap();
    // Nothing was ever written.
    if let Some(extents) = evidence(&workload).extents_before {
        assert_eq!((extents.addressed_bytes, extents.missing_bytes), (8 * MIB, 8 * MIB));
    }
    workload.layout = Layout::Missing;
    workload.page_cache = PageCache::Drop;
    let found = evidence(&workload);
    let pages = found.page_cache.unwrap();
    assert_eq!(pages.addressed_bytes, 8 * MIB);
    assert!(pages.before_bytes <= 4096, "but for what the ring was tried with");
    assert!(pages.after_bytes > 0, "buffered reads leave pages behind");
    assert!(found.machine.unwrap().cpus > 0);
    workload.streams[0].mix = Mix {
        read_fraction: 0.5,
        trim_fraction: 0.5,
    };
    let trimmed = evidence(&workload);
    if let (Some(before), Some(after)) = (trimmed.extents_before, trimmed.extents_after) {
        assert_eq!(before.missing_bytes, 0);
        assert!(after.missing_bytes > 0, "trims punch holes into a file");
    }
}

#[test]
fn a_limit_reports_when_it_was_reached_and_what_the_tool_took() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 8 * MIB), uring(), 8 * MIB);
    workload.streams[0].limit_operations = Some(2000);
    workload.duration_ns = None;
    let (result, _) = run(&workload).unwrap();
    let pacing = result.jobs[0].pacing.unwrap();
    let first_start_ns = pacing.first_start_ns.unwrap();
    let exhausted_ns = pacing.exhausted_ns.unwrap();
    assert!(first_start_ns < exhausted_ns && exhausted_ns <= result.end_ns);
    assert!(pacing.turnaround_ns > 0);
    // No place in the queue can have been free for longer than the run lasted.
    assert!(pacing.turnaround_ns <= 8 * (result.end_ns - result.begin_ns));
}
