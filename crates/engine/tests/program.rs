//! The program as a parent process sees it: specs in, events out, signals, a kernel without io_uring.

mod common;

use std::os::unix::process::CommandExt;

use common::*;
use iosonde_protocol::PROTOCOL_VERSION;
use rustix::process::Signal;
use serde_json::{Value, json};

#[test]
fn a_command_a_signal_and_the_end_of_its_parent_end_the_run_with_a_result() {
    type Stop = fn(&mut Engine);
    let stops: [(&[&str], Stop); 4] = [
        (&[], |engine| engine.send(&json!("stop"))),
        (&[], |engine| engine.signal(Signal::TERM)),
        (&[], |engine| engine.signal(Signal::INT)),
        (&["--stop-at-eof"], |engine| drop(engine.child.stdin.take())),
    ];
    for (arguments, stop) in stops {
        let mut engine = Engine::start(arguments, &null_spec());
        engine.until("hello");
        stop(&mut engine);
        engine.assert_stops();
    }
}

#[test]
fn a_start_is_commanded_or_given_and_the_end_of_input_ends_the_wait_for_it() {
    let mut spec = short_spec();
    spec["start"] = json!({"kind": "command"});
    let mut engine = Engine::start(&[], &spec);
    engine.until("ready");
    engine.send(&json!({"start": {"unix_ns": 1}}));
    // The run is not stopped by the end of input: it has its start.
    drop(engine.child.stdin.take());
    let (last, status) = engine.end();
    assert_eq!((&last["outcome"], status), (&json!("complete"), Some(0)));
    assert_eq!(last["start"]["requested_unix_ns"], 1);
    for (start, outcome) in [
        (json!({"kind": "command"}), "stopped"),
        (json!({"kind": "at", "unix_ns": 1}), "complete"),
    ] {
        let mut spec = short_spec();
        spec["start"] = start;
        let (events, status) = run(common::engine(&[]), &spec.to_string());
        assert_eq!((&events.last().unwrap()["outcome"], status), (&json!(outcome), Some(0)));
    }
}

#[test]
fn what_is_not_a_spec_is_an_error_event_with_a_hint() {
    let mut newer = short_spec();
    newer["protocol"] = 99.into();
    let misspelled = short_spec().to_string().replace("queue_depth", "queue_deep");
    for (input, expected) in [
        ("", "EOF"),
        ("{\"protocol\": 2}", "missing field"),
        ("not json", "expected"),
        (&misspelled, "unknown field `queue_deep`"),
        (&newer.to_string(), "protocol 99"),
    ] {
        let (events, status) = run(engine(&[]), input);
        let error = events.last().unwrap();
        assert_eq!((status, &error["code"]), (Some(1), &json!("invalid_spec")));
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
        assert!(!error["hint"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_kernel_that_forbids_io_uring_gets_threads_and_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let target = json!({"kind": "file", "path": directory.path().join("data"), "size_bytes": MIB});
    let backend = json!({"kind": "uring", "registered_files": true, "registered_buffers": true,
                         "submission_polling": false, "completion_polling": false});
    let mut spec = block_spec(target, backend);
    spec["workload"]["streams"][0]["limit_operations"] = 1000.into();
    let mut command = engine(&[]);
    // SAFETY: the filter is installed in the child, between fork and exec, with nothing but system calls.
    unsafe { command.pre_exec(forbid_io_uring) };
    let (events, status) = run(command, &spec.to_string());
    assert_eq!(status, Some(0), "{events:?}");
    let warning = events.iter().find(|event| event["event"] == "warning");
    let warning = warning.expect("a warning");
    assert_eq!(warning["code"], "uring_unavailable");
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let (named, other) = match disabled.trim() {
        "1" | "2" => ("sysctl", "seccomp"),
        _ => ("seccomp", "sysctl"),
    };
    let hint = warning["hint"].as_str().unwrap();
    assert!(hint.contains(named) && !hint.contains(other), "{hint}");
    let result = events.last().unwrap();
    assert_eq!(result["backend"]["kind"], "sync");
    let reason = &result["backend"]["fallbacks"][0]["reason"];
    assert!(reason.as_str().unwrap().contains("not permitted"), "{reason}");
    let job = &result["jobs"][0];
    let threads = &job["pacing"]["threads"];
    assert_eq!(threads["count"], 4, "one for each I/O in flight");
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(number(&job["operations"]), 1000);
    let used_ns = number(&job["usage"]["user_ns"]) + number(&job["usage"]["system_ns"]);
    let busiest_ns = number(&threads["busiest_cpu_ns"]);
    assert!(0 < busiest_ns && busiest_ns <= used_ns, "{busiest_ns} of {used_ns} ns");
}

/// A seccomp filter as container runtimes use it: `io_uring_setup` fails with EPERM.
fn forbid_io_uring() -> std::io::Result<()> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let instruction = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let filter = [
        instruction(LOAD_NUMBER, 0, 0),
        instruction(JUMP_IF_EQUAL, 1, libc::SYS_io_uring_setup as u32),
        instruction(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let (len, filter) = (filter.len() as u16, filter.as_ptr().cast_mut());
    let program = libc::sock_fprog { len, filter };
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
fn the_program_describes_itself_and_sends_hello_intervals_and_a_result() {
    let output = engine(&["--schema"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["protocol"], PROTOCOL_VERSION);
    for part in ["spec", "event", "command"] {
        assert!(schema[part].is_object(), "{part}");
    }
    let output = engine(&["--probe"]).output().unwrap();
    let probe: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(probe["uring"].is_boolean());
    assert!(probe["clock_read_ns"].as_f64().unwrap() > 0.0);
    let (events, status) = run(engine(&[]), &short_spec().to_string());
    assert_eq!(status, Some(0));
    assert_eq!(events[0]["event"], "hello");
    assert!(
        events.iter().any(|event| event["event"] == "interval"),
        "on a busy machine one of two"
    );
    assert_eq!(events.last().unwrap()["event"], "result");
}
