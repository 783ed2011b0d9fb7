//! Common parts of the tests: a block spec to change, and the program as a parent process sees it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use iosonde_protocol::PROTOCOL_VERSION;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub const MIB: u64 = 1 << 20;

pub fn spec(workload: Value) -> Value {
    json!({"protocol": PROTOCOL_VERSION, "run_id": "test", "seed": 1, "workload": workload})
}

/// Sequential buffered reads of 1 MiB by one job in a closed loop, for an hour.
pub fn block_spec(target: Value, backend: Value) -> Value {
    spec(json!({
        "kind": "block", "target": target, "backend": backend, "layout": "missing", "page_cache": "keep",
        "ramp": {"duration_ns": 0, "bytes": null}, "duration_ns": 3_600_000_000_000_u64, "interval_ns": 100_000_000,
        "streams": [{
            "name": "main", "jobs": 1, "queue_depth": 4, "access": {"kind": "sequential"},
            "mix": {"read_fraction": 1.0, "trim_fraction": 0.0}, "block_sizes": [{"bytes": 4096, "weight": 1.0}],
            "span": {"offset_bytes": 0, "bytes": MIB, "sharing": "shared"}, "io_mode": "buffered",
            "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "payload": {"kind": "random"},
            "limit_bytes": null, "limit_operations": null,
        }],
    }))
}

pub fn null_spec() -> Value {
    block_spec(json!({"kind": "virtual", "size_bytes": MIB}), json!({"kind": "null"}))
}

/// As [`null_spec`], for two intervals.
pub fn short_spec() -> Value {
    let mut spec = null_spec();
    spec["workload"]["duration_ns"] = 200_000_000.into();
    spec
}

pub fn engine(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iosonde-engine"));
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn output(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    // An engine with wrong arguments or without memory does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn run(command: Command, input: &str) -> (Vec<Value>, Option<i32>) {
    let output = output(command, input);
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (events, output.status.code())
}

/// A running engine; its input stays open.
pub struct Engine {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Engine {
    pub fn start(arguments: &[&str], spec: &Value) -> Engine {
        let mut child = engine(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut engine = Engine { child, lines };
        engine.send(spec);
        engine
    }

    pub fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &Value| event["event"] != kind) {
            let line = self.lines.next().expect("another event");
            events.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        events
    }

    pub fn end(mut self) -> (Value, Option<i32>) {
        let last = self.lines.by_ref().last().unwrap().unwrap();
        let status = self.child.wait().unwrap();
        (serde_json::from_str(&last).unwrap(), status.code())
    }

    pub fn assert_stops(self) {
        let (last, status) = self.end();
        assert_eq!([&last["event"], &last["outcome"]], ["result", "stopped"]);
        assert_eq!(status, Some(0));
    }
}
