//! Common parts of the integration tests: a plain workload to change, and a run that keeps its events.
#![allow(dead_code, reason = "each test file uses its part")]

use iosonde_block::Block;
use iosonde_harness::{Control, RunError, RunInputs, carry_out};
use iosonde_metrics::clock::Clock;
use iosonde_protocol::*;
use iosonde_target::Targets;

pub const MIB: u64 = 1 << 20;

/// One closed-loop stream of random 4 KiB reads at queue depth 8 for 200 ms.
pub fn workload(target: Target, backend: Backend, span_bytes: u64) -> BlockWorkload {
    BlockWorkload {
        target,
        backend,
        layout: Layout::Missing,
        page_cache: PageCache::Keep,
        streams: vec![stream("main", span_bytes)],
        ramp: Ramp::default(),
        duration_ns: Some(200_000_000),
        interval_ns: 100_000_000,
        verify: None,
    }
}

pub fn stream(name: &str, span_bytes: u64) -> Stream {
    Stream {
        name: name.into(),
        jobs: 1,
        queue_depth: 8,
        access: Access::Random {
            coverage: Coverage::WithReplacement,
            distribution: Distribution::Uniform,
        },
        mix: Mix {
            read_fraction: 1.0,
            trim_fraction: 0.0,
        },
        block_sizes: vec![BlockSize {
            bytes: 4096,
            weight: 1.0,
        }],
        span: Span {
            offset_bytes: 0,
            bytes: span_bytes,
            sharing: Sharing::Shared,
        },
        io_mode: IoMode::Buffered,
        durability: Durability::None,
        arrival: Arrival::Closed,
        payload: Payload::Random,
        limit_bytes: None,
        limit_operations: None,
        active: None,
        spin_ns: 100_000,
        cpus: Vec::new(),
    }
}

pub fn uring() -> Backend {
    Backend::Uring(UringOptions {
        registered_files: true,
        registered_buffers: true,
        submission_polling: false,
        completion_polling: false,
        required: false,
    })
}

pub fn file(directory: &tempfile::TempDir, bytes: u64) -> Target {
    Target::File {
        path: directory.path().join("data").display().to_string(),
        size_bytes: bytes,
    }
}

/// Inputs with the seed of all tests.
pub fn inputs<'a>(observe: &'a Observe, targets: &'a Targets) -> RunInputs<'a> {
    RunInputs {
        seed: 7,
        observe,
        clock: Clock::start(),
        targets,
    }
}

/// Runs a workload; returns its result and every interval.
pub fn run(workload: &BlockWorkload) -> Result<(RunResult, Vec<Interval>), RunError> {
    let (mut control, _stopper) = Control::new();
    run_with(workload, &mut control)
}

pub fn run_with(workload: &BlockWorkload, control: &mut Control) -> Result<(RunResult, Vec<Interval>), RunError> {
    let mut intervals = Vec::new();
    let mut keep = |event| {
        if let Event::Interval(interval) = event {
            intervals.push(interval);
        }
    };
    let (observe, targets) = (Observe::default(), Targets::default());
    let result = carry_out(&Block(workload), inputs(&observe, &targets), control, &mut keep)?;
    Ok((result, intervals))
}

/// Runs a workload and hands on every event.
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
