//! The engine in want of memory or CPU: it reports that, and does not die of it.

mod common;

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use common::*;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde_json::{Value, json};

#[test]
fn an_engine_without_memory_or_aborted_ends_with_a_reason() {
    let mut reasons = Vec::new();
    let mut spec = short_spec();
    spec["workload"]["streams"][0]["jobs"] = 64.into();
    for mebibytes in [64_u64, 128, 192, 256, 384, 512, 768, 1024] {
        let mut command = engine(&[]);
        // SAFETY: the limit is set in the child, between fork and exec, with one system call.
        unsafe {
            command.pre_exec(move || {
                let (current, maximum) = (Some(mebibytes << 20), Some(mebibytes << 20));
                Ok(setrlimit(Resource::As, Rlimit { current, maximum })?)
            });
        }
        let (events, status) = run(command, &spec.to_string());
        let last = events
            .last()
            .unwrap_or_else(|| panic!("{mebibytes} MiB: nothing but {status:?}"));
        if last["event"] == "error" {
            assert_eq!(status, Some(1), "{mebibytes} MiB");
            assert!(!last["hint"].as_str().unwrap().is_empty(), "{last}");
            reasons.push(last["code"].as_str().unwrap().to_owned());
        } else {
            assert_eq!((&last["event"], status), (&json!("result"), Some(0)), "{mebibytes} MiB");
        }
    }
    assert!(reasons.iter().any(|code| code == "out_of_memory"), "{reasons:?}");
    let mut engine = Engine::start(&[], &null_spec());
    // It measures, so the handler is in place.
    engine.until("interval");
    engine.signal(Signal::ABORT);
    let (last, status) = engine.end();
    assert_eq!((&last["event"], &last["code"]), (&json!("error"), &json!("internal")));
    assert_eq!(status, Some(1));
}

/// Sleep of the engine's heartbeat: a stop may begin this long before the detected stall.
const BEAT_NS: u64 = 5_000_000;

/// Stops all threads of the engine for a while; how long they certainly did not run.
fn stop_for(engine: &Engine, duration: Duration) -> u64 {
    engine.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", engine.child.id());
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        let state = stat.rsplit(") ").next().unwrap();
        assert!(!state.starts_with(['Z', 'X']), "the engine has ended: {stat}");
        state.starts_with('T')
    };
    while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    std::thread::sleep(duration);
    let stopped_ns = began.elapsed().as_nanos() as u64;
    engine.signal(Signal::CONT);
    stopped_ns
}

#[test]
fn an_engine_that_was_stopped_for_a_while_reports_how_long_and_in_which_intervals() {
    for queue_depth in [1, 16] {
        let mut spec = null_spec();
        spec["workload"]["streams"][0]["queue_depth"] = queue_depth.into();
        spec["workload"]["streams"][0]["arrival"] = json!({"kind": "poisson", "rate": 20_000.0});
        let mut engine = Engine::start(&[], &spec);
        engine.until("interval");
        let long_ns = stop_for(&engine, Duration::from_millis(400));
        let mut intervals = engine.until("interval");
        let mut stopped_ns = long_ns - BEAT_NS;
        for _ in 0..5 {
            stopped_ns += stop_for(&engine, Duration::from_millis(50)) - BEAT_NS;
            intervals.extend(engine.until("interval"));
        }
        engine.send(&json!("stop"));
        intervals.extend(engine.until("result"));
        let stalls = intervals.pop().unwrap()["evidence"]["stalls"].clone();
        let number = |value: &Value| value.as_u64().unwrap();
        let (stalled_ns, longest_ns) = (number(&stalls["stalled_ns"]), number(&stalls["longest_ns"]));
        assert!(longest_ns + BEAT_NS >= long_ns, "{longest_ns} of {long_ns} ns");
        assert!(stalled_ns >= stopped_ns.max(longest_ns), "{stalled_ns} {stopped_ns}");
        intervals.retain(|event| event["event"] == "interval" && event["phase"] == "measure");
        let stalled: Vec<u64> = intervals.iter().map(|one| number(&one["stalled_ns"])).collect();
        let whole = stalled.iter().filter(|stalled_ns| **stalled_ns == 100_000_000);
        assert!(whole.count() >= 2, "{stalled:?}");
    }
}
