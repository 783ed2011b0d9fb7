//! Common parts of the integration tests: a plain workload to change, and a run that keeps its events.
#![allow(dead_code, reason = "each test file uses its part")]

use iosonde_block::Block;
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Control, RunError, RunInputs, carry_out};
use iosonde_protocol::*;
use serde_json::json;

pub const MIB: u64 = 1 << 20;

/// One closed-loop stream of random 4 KiB reads at queue depth 8 for 200 ms.
pub fn workload(target: Target, backend: Backend, span_bytes: u64) -> BlockWorkload {
    let value = json!({
        "target": target, "backend": backend, "layout": "missing", "page_cache": "keep",
        "streams": [stream("main", span_bytes)], "ramp": {"duration_ns": 0, "bytes": null},
        "duration_ns": 200_000_000, "interval_ns": 100_000_000,
    });
    serde_json::from_value(value).unwrap()
}

pub fn stream(name: &str, span_bytes: u64) -> Stream {
    let value = json!({
        "name": name, "jobs": 1, "queue_depth": 8,
        "access": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0}, "block_sizes": [{"bytes": 4096, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": span_bytes, "sharing": "shared"}, "io_mode": "buffered",
        "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "payload": {"kind": "random"},
        "limit_bytes": null, "limit_operations": null, "spin_ns": 100_000,
    });
    serde_json::from_value(value).unwrap()
}

pub fn uring() -> Backend {
    let value = json!({
        "kind": "uring", "registered_files": true, "registered_buffers": true,
        "submission_polling": false, "completion_polling": false,
    });
    serde_json::from_value(value).unwrap()
}

pub fn file(directory: &tempfile::TempDir, bytes: u64) -> Target {
    Target::File {
        path: directory.path().join("data").display().to_string(),
        size_bytes: bytes,
    }
}

/// Inputs with the seed of all tests, and a clock that needs no calibration.
pub fn inputs<'a>(observe: &'a Observe, targets: &'a Targets) -> RunInputs<'a> {
    RunInputs {
        seed: 7,
        observe,
        clock: Clock::monotonic(),
        targets,
    }
}

pub fn run(workload: &BlockWorkload) -> Result<(RunResult, Vec<Interval>), RunError> {
    let mut intervals = Vec::new();
    let result = run_with_events(workload, &mut |event| {
        if let Event::Interval(interval) = event {
            intervals.push(interval);
        }
    })?;
    Ok((result, intervals))
}

/// Runs a workload for an hour, and stops it in its first interval with an operation.
pub fn run_until_stopped(workload: &BlockWorkload) -> RunResult {
    let mut workload = workload.clone();
    workload.streams[0].limit_operations = None;
    workload.duration_ns = Some(3_600_000_000_000);
    let (mut control, stopper) = Control::new();
    let (observe, targets) = (Observe::default(), Targets::default());
    let mut stop = |event| {
        if matches!(&event, Event::Interval(interval) if !interval.streams[0].operations.is_empty()) {
            stopper.stop();
        }
    };
    carry_out(&Block(&workload), inputs(&observe, &targets), &mut control, &mut stop).unwrap()
}

/// The run is refused with this code, a message with this part, and a hint.
#[track_caller]
pub fn assert_fails<T: std::fmt::Debug>(result: Result<T, RunError>, code: &str, message: &str) -> RunError {
    let error = result.unwrap_err();
    let failure = error.to_failure();
    assert!(failure.code == code && failure.message.contains(message), "{failure:?}");
    assert!(!failure.hint.is_empty() && !failure.context.is_empty(), "{failure:?}");
    error
}

pub fn file_per_job(directory: &tempfile::TempDir, size_bytes: u64) -> Target {
    Target::FilePerJob {
        directory: directory.path().display().to_string(),
        size_bytes,
    }
}

pub fn each_once() -> Access {
    Access::Random {
        coverage: Coverage::EachOnce,
        distribution: Distribution::Uniform,
    }
}

pub fn run_with_events(workload: &BlockWorkload, emit: &mut dyn FnMut(Event)) -> Result<RunResult, RunError> {
    let (mut control, _stopper) = Control::new();
    let (observe, targets) = (Observe::default(), Targets::default());
    carry_out(&Block(workload), inputs(&observe, &targets), &mut control, emit)
}

/// Records of an operation in the intervals of the measurement.
pub fn measured(intervals: &[Interval], operation: Operation) -> impl Iterator<Item = &OperationInterval> {
    intervals
        .iter()
        .filter(|interval| interval.phase == Phase::Measure)
        .flat_map(|interval| &interval.streams)
        .flat_map(|stream| &stream.operations)
        .filter(move |entry| entry.operation == operation)
}

/// Sum over the intervals of the measurement: (count, bytes, sum of completion latencies in ns) of an operation.
pub fn totals(intervals: &[Interval], operation: Operation) -> (u64, u64, u64) {
    measured(intervals, operation).fold((0, 0, 0), |(count, bytes, sum), entry| {
        (
            count + entry.count,
            bytes + entry.bytes,
            sum + entry.completion_latency.sum_ns,
        )
    })
}
