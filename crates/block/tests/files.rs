//! The driver loop on real files of this machine.

mod common;

use common::*;
use iosonde_block::Block;
use iosonde_harness::{Control, carry_out};
use iosonde_protocol::*;
use iosonde_target::Targets;

#[test]
fn reads_stay_in_the_span_and_writes_change_every_block_of_it() {
    for backend in [uring(), Backend::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let mut workload = workload(file(&directory, 4 * MIB), backend.clone(), 2 * MIB);
        let stream = &mut workload.streams[0];
        stream.span.offset_bytes = MIB;
        stream.mix.read_fraction = 0.0;
        stream.access = Access::Random {
            coverage: Coverage::EachOnce,
            distribution: Distribution::Uniform,
        };
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
        stream.block_sizes = vec![
            BlockSize {
                bytes: 4096,
                weight: 3.0,
            },
            BlockSize {
                bytes: 65_536,
                weight: 1.0,
            },
        ];
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
fn streams_run_together_and_jobs_can_have_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let target = Target::FilePerJob {
        directory: directory.path().display().to_string(),
        size_bytes: MIB,
    };
    let mut workload = workload(target, uring(), MIB);
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
}

#[test]
fn a_job_with_a_file_of_its_own_begins_at_its_start() {
    let directory = tempfile::tempdir().unwrap();
    let target = Target::FilePerJob {
        directory: directory.path().display().to_string(),
        size_bytes: MIB,
    };
    let mut workload = workload(target, Backend::Sync, MIB);
    workload.streams[0].jobs = 2;
    workload.streams[0].queue_depth = 1;
    run(&workload).unwrap();
    let before = std::fs::read(directory.path().join("main.1")).unwrap();
    workload.streams[0].mix.read_fraction = 0.0;
    workload.streams[0].access = Access::Sequential;
    workload.streams[0].limit_operations = Some(2);
    run(&workload).unwrap();
    let after = std::fs::read(directory.path().join("main.1")).unwrap();
    assert_ne!(before[..4096], after[..4096]);
    assert_eq!(before[4096..], after[4096..]);
}

#[test]
fn the_time_in_flight_never_exceeds_the_concurrency() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 4 * MIB), uring(), 4 * MIB);
    workload.streams[0].jobs = 2;
    let (result, intervals) = run(&workload).unwrap();
    let (.., sum_ns) = totals(&intervals, Operation::Read);
    let mean_in_flight = sum_ns as f64 / (result.end_ns - result.begin_ns) as f64;
    // An I/O that began before the measurement brings its whole latency: a few parts in a thousand at most.
    assert!(
        mean_in_flight <= 16.0 * 1.01,
        "{mean_in_flight} in flight with 2 jobs of depth 8"
    );
    assert!(
        mean_in_flight > 8.0,
        "{mean_in_flight} in flight: the loop keeps the queue filled"
    );
}

#[test]
fn a_stop_ends_the_run_with_a_result() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, MIB), uring(), MIB);
    workload.duration_ns = Some(3_600_000_000_000);
    let (mut control, stopper) = Control::new();
    let mut stop_at_first_reads = |event| {
        if let Event::Interval(interval) = event
            && totals(&[interval], Operation::Read).0 > 0
        {
            stopper.stop();
        }
    };
    let (observe, targets) = (Observe::default(), Targets::default());
    let inputs = inputs(&observe, &targets);
    let result = carry_out(&Block(&workload), inputs, &mut control, &mut stop_at_first_reads).unwrap();
    assert_eq!(result.outcome, Outcome::Stopped);
    assert!(
        result.end_ns < 60_000_000_000,
        "stopped after {} ns of an hour",
        result.end_ns
    );
    assert!(result.jobs[0].operations > 0);
}

#[test]
fn a_file_that_shrinks_under_the_run_is_a_failure_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 4 * MIB), uring(), 4 * MIB);
    workload.duration_ns = Some(3_600_000_000_000);
    run(&BlockWorkload {
        duration_ns: Some(1),
        ..workload.clone()
    })
    .unwrap();
    workload.layout = Layout::Never;
    let path = directory.path().join("data");
    std::thread::spawn(move || {
        // The size is checked when the run opens the file.
        while !is_open(&path) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(MIB)
            .unwrap();
    });
    let failure = run(&workload).unwrap_err().to_failure();
    assert_eq!(failure.code, "io_error");
    assert!(failure.message.contains("came back short"), "{}", failure.message);
    assert!(failure.hint.contains("became shorter"), "{}", failure.hint);
}

/// Returns true if this process has the file open.
fn is_open(path: &std::path::Path) -> bool {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok())
        .any(|opened| opened == path)
}

#[test]
fn specs_that_contradict_themselves_are_refused_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let sound = || workload(file(&directory, MIB), uring(), MIB);
    type Change = fn(&mut BlockWorkload);
    let cases: [(Change, &str); 17] = [
        (|w| w.streams.clear(), "must have a stream"),
        (|w| w.interval_ns = 1, "at least 100 ms long; got 1 ns"),
        (|w| w.streams[0].jobs = 0, "1 to 10000 jobs; got 0"),
        (|w| w.streams[0].queue_depth = 100_000, "a queue depth of 100000"),
        (|w| w.backend = Backend::Sync, "a queue depth of 8 with backend `sync`"),
        (|w| w.backend = Backend::Null, "do not go together"),
        (|w| w.streams[0].block_sizes[0].bytes = 100, "block size 100 B"),
        (|w| w.streams[0].span.bytes = 2 * MIB, "beyond the target of 1048576 B"),
        (|w| w.target = devices(2 * MIB), "beyond the target of 4194304 B"),
        (|w| w.target = devices(4 * MIB), "on more than one device"),
        (|w| w.duration_ns = None, "a stream must end"),
        (|w| w.streams[0].limit_bytes = Some(100), "less than one block"),
        (|w| w.streams[0].arrival = Arrival::Poisson { rate: 0.0 }, "`rate` is 0"),
        (
            |w| w.streams[0].arrival = steps(&[(0.0, u64::MAX), (10.0, 1_000_000)]),
            "a time of 18446744073709551615 ns",
        ),
        (
            |w| w.streams[0].payload = reducible(0.9, 0.0),
            "a compression ratio of 0.9",
        ),
        (
            |w| w.streams[0].payload = reducible(f64::NAN, 0.0),
            "a compression ratio of NaN",
        ),
        (
            |w| w.streams[0].payload = reducible(1.0, 1.0),
            "a share of duplicates of 1",
        ),
    ];
    for (change, message) in cases {
        let mut workload = sound();
        change(&mut workload);
        if matches!(workload.target, Target::Device { .. }) {
            workload.streams[0].span.offset_bytes = 4 * MIB - 4096;
        }
        let failure = run(&workload).unwrap_err().to_failure();
        assert_eq!(failure.code, "invalid_spec");
        assert!(
            failure.message.contains(message),
            "`{}` lacks `{message}`",
            failure.message
        );
        assert!(!failure.hint.is_empty() && !failure.context.is_empty());
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "nothing was created"
    );
}

/// Two devices that are never opened, side by side.
fn devices(size_bytes: u64) -> Target {
    Target::Device {
        path: "/dev/none".into(),
        size_bytes,
        beside: vec!["/dev/none-either".into()],
        is_claimed: true,
    }
}

fn steps(steps: &[(f64, u64)]) -> Arrival {
    Arrival::Steps {
        steps: steps
            .iter()
            .map(|&(rate, duration_ns)| RateStep { rate, duration_ns })
            .collect(),
        spacing: Spacing::Constant,
    }
}

fn reducible(compression_ratio: f64, duplicate_fraction: f64) -> Payload {
    Payload::Reducible {
        compression_ratio,
        duplicate_fraction,
    }
}

#[test]
fn a_target_that_cannot_be_opened_says_why() {
    let target = Target::File {
        path: "/proc/no-such-place/data".into(),
        size_bytes: MIB,
    };
    let failure = run(&workload(target, uring(), MIB)).unwrap_err().to_failure();
    assert_eq!(failure.code, "vanished");
    assert!(failure.message.contains("/proc/no-such-place/data"));
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
        assert!(
            result.end_ns - result.begin_ns > 150_000_000,
            "{backend:?}: 400 I/Os at 2,000 IOPS take 200 ms on average"
        );
        let (count, _, completion_ns) = totals(&intervals, Operation::Read);
        assert_eq!(count, OPERATIONS, "{backend:?}");
        let response_ns: u64 = measured(&intervals, Operation::Read)
            .map(|entry| entry.response_latency.as_ref().expect("the loop is open").sum_ns)
            .sum();
        assert_eq!(response_ns - completion_ns, schedule.start_lag_ns_sum, "{backend:?}");
        assert!(schedule.spun_ns > 0);
    }
}

#[test]
fn evidence_counts_holes_under_reads_and_of_pages_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 8 * MIB), uring(), 8 * MIB);
    workload.layout = Layout::Never;
    let (result, _) = run(&workload).unwrap();
    let evidence = result.evidence.unwrap();
    if let Some(extents) = evidence.extents_before {
        assert_eq!(
            (extents.addressed_bytes, extents.missing_bytes),
            (8 * MIB, 8 * MIB),
            "nothing was ever written"
        );
    }
    workload.layout = Layout::Missing;
    workload.page_cache = PageCache::Drop;
    let (result, intervals) = run(&workload).unwrap();
    let evidence = result.evidence.unwrap();
    if let Some(extents) = evidence.extents_before {
        assert_eq!(extents.missing_bytes, 0);
    }
    let pages = evidence.page_cache.unwrap();
    assert_eq!(pages.addressed_bytes, 8 * MIB);
    assert!(
        pages.before_bytes <= 4096,
        "dropped, but for what the ring was tried with"
    );
    let (reads, _, _) = totals(&intervals, Operation::Read);
    assert!(pages.after_bytes > 0, "{reads} buffered reads leave pages behind");
    let machine = evidence.machine.unwrap();
    assert!(machine.cpus > 0 && machine.user_ns + machine.system_ns + machine.idle_ns > 0);
}

#[test]
fn a_trim_under_reads_shows_in_the_extents_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = workload(file(&directory, 8 * MIB), uring(), 8 * MIB);
    workload.streams[0].mix = Mix {
        read_fraction: 0.5,
        trim_fraction: 0.5,
    };
    workload.streams[0].limit_operations = Some(200);
    workload.duration_ns = None;
    let evidence = run(&workload).unwrap().0.evidence.unwrap();
    if let (Some(before), Some(after)) = (evidence.extents_before, evidence.extents_after) {
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

#[test]
fn a_run_that_time_ends_never_exhausts_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let (result, _) = run(&workload(file(&directory, 8 * MIB), uring(), 8 * MIB)).unwrap();
    assert_eq!(result.jobs[0].pacing.unwrap().exhausted_ns, None);
}
