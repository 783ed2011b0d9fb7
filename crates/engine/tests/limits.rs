//! The engine in want of memory or CPU: it reports that, and does not die of it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iosonde_protocol::PROTOCOL_VERSION;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use serde_json::{Value, json};

fn spec(jobs: u32, queue_depth: u32, seconds: u64) -> Value {
    json!({
        "protocol": PROTOCOL_VERSION, "run_id": "test", "seed": 1,
        "workload": {
            "kind": "block", "target": {"kind": "virtual", "size_bytes": 1_048_576}, "backend": {"kind": "null"},
            "layout": "never", "page_cache": "keep", "ramp": {"duration_ns": 0, "bytes": null},
            "duration_ns": seconds * 1_000_000_000, "interval_ns": 500_000_000,
            "streams": [{
                "name": "main", "jobs": jobs, "queue_depth": queue_depth, "access": {"kind": "sequential"},
                "mix": {"read_fraction": 1.0, "trim_fraction": 0.0}, "block_sizes": [{"bytes": 4096, "weight": 1.0}],
                "span": {"offset_bytes": 0, "bytes": 1_048_576, "sharing": "shared"}, "io_mode": "direct",
                "durability": {"kind": "none"}, "arrival": {"kind": "poisson", "rate": 20_000.0},
                "payload": {"kind": "random"}, "limit_bytes": null, "limit_operations": null,
            }],
        },
    })
}

fn start(command: &mut Command, spec: &Value) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // An engine without memory may not live to read it.
    let _ = write!(child.stdin.take().unwrap(), "{spec}");
    child
}

fn engine() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iosonde-engine"))
}

fn events(child: Child) -> (Vec<Value>, Option<i32>) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (events, output.status.code())
}

#[test]
fn without_memory_the_run_fails_with_a_reason() {
    let mut reasons = Vec::new();
    for mebibytes in [64_u64, 128, 192, 256, 384, 512, 768, 1024] {
        let mut command = engine();
        // SAFETY: the limit is set in the child, between fork and exec, with one system call.
        unsafe {
            command.pre_exec(move || {
                let limit = Some(mebibytes << 20);
                let limits = Rlimit {
                    current: limit,
                    maximum: limit,
                };
                Ok(setrlimit(Resource::As, limits)?)
            });
        }
        let (events, status) = events(start(&mut command, &spec(64, 1, 1)));
        let last = events
            .last()
            .unwrap_or_else(|| panic!("{mebibytes} MiB: nothing but status {status:?}"));
        if last["event"] == "error" {
            assert_eq!(status, Some(1), "{mebibytes} MiB");
            assert!(!last["hint"].as_str().unwrap().is_empty(), "{last}");
            reasons.push(last["code"].as_str().unwrap().to_owned());
        } else {
            assert_eq!((&last["event"], status), (&json!("result"), Some(0)), "{mebibytes} MiB");
        }
    }
    assert!(reasons.iter().any(|code| code == "out_of_memory"), "{reasons:?}");
}

#[test]
fn an_aborted_engine_ends_with_an_error_event() {
    let mut child = start(&mut engine(), &spec(1, 1, 60));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It measures, so the handler is in place.
    assert!(lines.by_ref().any(|line| line.unwrap().contains("\"interval\"")));
    signal(&child, Signal::ABORT);
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["code"]), (&json!("error"), &json!("internal")));
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stalls(events: &[Value]) -> (u64, u64) {
    let result = events.last().unwrap();
    let stalls = &result["evidence"]["stalls"];
    (
        stalls["stalled_ns"].as_u64().unwrap(),
        stalls["longest_ns"].as_u64().unwrap(),
    )
}

/// Sleep of the engine's heartbeat: the stop may begin this long before the detected stall.
const BEAT_NS: u64 = 5_000_000;

/// Report of the engine, duration of its stops, and time from its start to the end of the last stop. Durations are
/// measured, because a busy machine prolongs every sleep.
struct Stopped {
    events: Vec<Value>,
    stopped_ns: u64,
    ended_ns: u64,
}

/// Runs a spec and stops the engine several times once it has measured an interval.
fn run_with_stops(spec: &Value, stops: u32, stop: Duration) -> Stopped {
    let started = Instant::now();
    let mut child = start(&mut engine(), spec);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_event = || {
        lines
            .next()
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
    };
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Value| event["event"] != "interval") {
        events.push(next_event().expect("an interval is reported before the end"));
    }
    let mut stopped_ns = 0;
    for _ in 0..stops {
        signal(&child, Signal::STOP);
        let began = Instant::now();
        std::thread::sleep(stop);
        stopped_ns += began.elapsed().as_nanos() as u64;
        signal(&child, Signal::CONT);
        std::thread::sleep(stop.min(Duration::from_millis(50)));
    }
    let ended_ns = started.elapsed().as_nanos() as u64;
    events.extend(std::iter::from_fn(next_event));
    child.wait().unwrap();
    Stopped {
        events,
        stopped_ns,
        ended_ns,
    }
}

/// Returns true if all stops were inside the measurement. If not, this test itself waited for a CPU for seconds.
fn are_inside(done: &Stopped, measured_s: u64) -> bool {
    done.ended_ns < measured_s * 1_000_000_000
}

#[test]
fn an_engine_that_was_stopped_for_a_while_reports_how_long_and_in_which_intervals() {
    for queue_depth in [1, 16] {
        let done = run_with_stops(&spec(1, queue_depth, 4), 1, Duration::from_secs(2));
        let (events, stopped_ns) = (&done.events, done.stopped_ns);
        let (stalled_ns, longest_ns) = stalls(events);
        let is_inside = are_inside(&done, 4);
        // A busy machine stops a thread some time after the signal was sent.
        assert!(
            !is_inside || longest_ns + 10 * BEAT_NS >= stopped_ns,
            "{longest_ns} of {stopped_ns} ns"
        );
        assert!((longest_ns..=4_000_000_000).contains(&stalled_ns), "{stalled_ns}");
        let intervals: Vec<u64> = events
            .iter()
            .filter(|event| event["event"] == "interval")
            .map(|interval| interval["stalled_ns"].as_u64().unwrap())
            .collect();
        let (whole, sum) = (
            intervals
                .iter()
                .filter(|stalled_ns| **stalled_ns == 500_000_000)
                .count(),
            intervals.iter().sum::<u64>(),
        );
        assert!(!is_inside || whole >= 2, "{intervals:?}");
        // A stall that is shorter than two beats at the end of an interval is not yet known when it is reported.
        assert!(
            sum.abs_diff(stalled_ns) <= 2 * BEAT_NS * intervals.len() as u64,
            "{intervals:?} and {stalled_ns}"
        );
    }
}

#[test]
fn short_stops_add_up() {
    let done = run_with_stops(&spec(1, 16, 3), 10, Duration::from_millis(50));
    let (stalled_ns, _) = stalls(&done.events);
    assert!(
        !are_inside(&done, 3) || stalled_ns as f64 > 0.8 * done.stopped_ns as f64,
        "{stalled_ns} of {} ns",
        done.stopped_ns
    );
}
