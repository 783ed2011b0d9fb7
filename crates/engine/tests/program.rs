//! The program as a parent process sees it: specs in, events out, signals, a kernel without io_uring.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use iosonde_protocol::PROTOCOL_VERSION;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn engine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iosonde-engine"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn spec(target: Value, backend: Value, seconds: u64) -> Value {
    json!({
        "protocol": PROTOCOL_VERSION, "run_id": "test", "seed": 1,
        "workload": {
            "kind": "block", "target": target, "backend": backend, "layout": "missing", "page_cache": "keep",
            "ramp": {"duration_ns": 0, "bytes": null}, "duration_ns": seconds * 1_000_000_000, "interval_ns": 100_000_000,
            "streams": [{
                "name": "main", "jobs": 1, "queue_depth": 4, "access": {"kind": "sequential"},
                "mix": {"read_fraction": 1.0, "trim_fraction": 0.0}, "block_sizes": [{"bytes": 4096, "weight": 1.0}],
                "span": {"offset_bytes": 0, "bytes": 1_048_576, "sharing": "shared"}, "io_mode": "buffered",
                "durability": {"kind": "none"}, "arrival": {"kind": "closed"}, "payload": {"kind": "random"},
                "limit_bytes": null, "limit_operations": null,
            }],
        },
    })
}

fn with_protocol(mut spec: Value, version: u32) -> Value {
    spec["protocol"] = version.into();
    spec
}

fn null_spec(seconds: u64) -> Value {
    spec(
        json!({"kind": "virtual", "size_bytes": 1_048_576}),
        json!({"kind": "null"}),
        seconds,
    )
}

fn uring_spec(directory: &tempfile::TempDir) -> Value {
    let path = directory.path().join("data").display().to_string();
    let backend = json!({"kind": "uring", "registered_files": true, "registered_buffers": true,
                         "submission_polling": false, "completion_polling": false});
    spec(
        json!({"kind": "file", "path": path, "size_bytes": 1_048_576}),
        backend,
        1,
    )
}

fn events(output: &[u8]) -> Vec<Value> {
    output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn run(mut command: Command, input: &str) -> (Vec<Value>, Option<i32>) {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (events(&output.stdout), output.status.code())
}

/// Starts a run of an hour and waits until it says hello.
fn start(arguments: &[&str]) -> Child {
    let mut command = engine();
    command.args(arguments);
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{}", null_spec(3600)).unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("hello"), "{first}");
    child
}

fn assert_stops(child: Child) {
    let output = child.wait_with_output().unwrap();
    let last = events(&output.stdout).pop().unwrap();
    assert_eq!(last["event"], "result");
    assert_eq!(last["outcome"], "stopped");
}

#[test]
fn a_run_sends_hello_intervals_and_ends_with_a_result() {
    let (events, status) = run(engine(), &null_spec(1).to_string());
    assert_eq!(status, Some(0));
    assert_eq!(events[0]["event"], "hello");
    assert_eq!(events.iter().filter(|event| event["event"] == "interval").count(), 10);
    assert_eq!(events.last().unwrap()["event"], "result");
}

#[test]
fn a_stop_command_ends_the_run() {
    let mut child = start(&[]);
    writeln!(child.stdin.as_mut().unwrap(), "\"stop\"").unwrap();
    assert_stops(child);
}

#[test]
fn a_start_is_commanded_once_everything_is_prepared() {
    let mut spec = null_spec(1);
    spec["start"] = json!({"kind": "command"});
    let mut child = engine().spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{spec}").unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap())
        .lines()
        .map(Result::unwrap);
    lines.find(|line| line.contains("\"ready\"")).unwrap();
    writeln!(input, "{}", json!({"start": {"unix_ns": 1}})).unwrap();
    // The run is not stopped by the end of input: it has its start.
    drop(input);
    let last: Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["outcome"]),
        (&json!("result"), &json!("complete"))
    );
    assert_eq!(last["start"]["requested_unix_ns"], 1);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_end_of_input_stops_a_run_that_waits_for_its_start() {
    for (start, outcome) in [
        (json!({"kind": "command"}), "stopped"),
        (json!({"kind": "at", "unix_ns": 1}), "complete"),
    ] {
        let mut spec = null_spec(1);
        spec["start"] = start;
        let (events, status) = run(engine(), &spec.to_string());
        assert_eq!((&events.last().unwrap()["outcome"], status), (&json!(outcome), Some(0)));
    }
}

#[test]
fn termination_ends_the_run_with_a_result() {
    for signal in [Signal::TERM, Signal::INT] {
        let child = start(&[]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_stops(child);
    }
}

#[test]
fn the_death_of_the_parent_ends_the_run_when_asked_to() {
    let mut child = start(&["--stop-at-eof"]);
    drop(child.stdin.take());
    assert_stops(child);
}

#[test]
fn what_is_not_a_spec_is_an_error_event_with_a_hint() {
    for (input, expected) in [
        ("", "EOF"),
        ("{\"protocol\": 2}", "missing field"),
        ("not json", "expected"),
        (
            &null_spec(1).to_string().replace("queue_depth", "queue_deep"),
            "unknown field `queue_deep`",
        ),
        (&with_protocol(null_spec(1), 99).to_string(), "protocol 99"),
    ] {
        let (events, status) = run(engine(), input);
        assert_eq!(status, Some(1), "{input}");
        let error = events.last().unwrap();
        assert_eq!(error["code"], "invalid_spec");
        assert!(
            error["message"].as_str().unwrap().contains(expected),
            "{error} should mention `{expected}`"
        );
        assert!(!error["hint"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_kernel_that_forbids_io_uring_gets_threads_and_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = engine();
    // SAFETY: the filter is installed in the child, between fork and exec, with nothing but system calls.
    unsafe { command.pre_exec(forbid_io_uring) };
    let (events, status) = run(command, &uring_spec(&directory).to_string());
    assert_eq!(status, Some(0), "{events:?}");
    let warning = events
        .iter()
        .find(|event| event["event"] == "warning")
        .expect("a warning");
    assert_eq!(warning["code"], "uring_unavailable");
    let result = events.last().unwrap();
    assert_eq!(result["backend"]["kind"], "sync");
    assert!(
        result["backend"]["fallbacks"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("not permitted")
    );
    let job = &result["jobs"][0];
    assert!(job["operations"].as_u64().unwrap() > 0);
    let threads = &job["pacing"]["threads"];
    assert_eq!(threads["count"], 4, "one for each I/O in flight");
    let number = |value: &Value| value.as_u64().unwrap();
    let used_ns = number(&job["usage"]["user_ns"]) + number(&job["usage"]["system_ns"]);
    let busiest_ns = number(&threads["busiest_cpu_ns"]);
    assert!(0 < busiest_ns && busiest_ns <= used_ns, "{busiest_ns} of {used_ns} ns");
}

/// A seccomp filter as container runtimes use it: `io_uring_setup` fails with EPERM.
fn forbid_io_uring() -> std::io::Result<()> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let filter = [
        libc::sock_filter {
            code: LOAD_NUMBER,
            jt: 0,
            jf: 0,
            k: 0,
        },
        libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: 0,
            jf: 1,
            k: libc::SYS_io_uring_setup as u32,
        },
        libc::sock_filter {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        },
        libc::sock_filter {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        },
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: plain prctl calls on valid data; they affect this process only.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if installed {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn the_schema_describes_what_the_program_says() {
    let output = engine().arg("--schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["protocol"], PROTOCOL_VERSION);
    for part in ["spec", "event", "command"] {
        assert!(schema[part].is_object(), "{part}");
    }
}

#[test]
fn the_probe_reports_what_the_machine_offers() {
    let output = engine().arg("--probe").output().unwrap();
    let probe: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(probe["uring"].is_boolean());
    assert!(probe["clock_read_ns"].as_f64().unwrap() > 0.0);
}
