#!/usr/bin/env -S python3 -S
"""An engine that implements the protocol, measures nothing, and misbehaves on demand.

`FAKE_ENGINE` holds JSON: run id (or `*`) -> what to do there. Everything else goes well.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

START_NS = time.monotonic_ns()

DEVICE = (
    *("reads", "read_bytes", "read_merges", "read_wait_ns", "writes", "write_bytes", "write_merges", "write_wait_ns"),
    *("discards", "discard_bytes", "flushes", "busy_ns", "in_flight"),
)
"""Counters of a device."""


def send(event: str, **fields: object) -> None:
    os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def now_ns() -> int:
    return time.monotonic_ns() - START_NS


def usage() -> dict[str, int]:
    names = ("wall_ns", "user_ns", "system_ns", "voluntary_switches", "involuntary_switches")
    return {name: 1 for name in (*names, "minor_faults", "major_faults", "fs_inputs", "fs_outputs")}


def hello(protocol: int) -> None:
    engine = {"engine": "fake-engine", "version": "1.2.3", "build": "test", "pid": os.getpid()}
    send("hello", protocol=protocol, **engine, clock="monotonic", clock_read_ns=50.0, realtime_ns=time.time_ns())


def stop_wanted(timeout_s: float) -> bool:
    """Return True if standard input has `stop` or ends within that time."""
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable)


def interval(index: int, begin_ns: int, streams: list[dict]) -> None:
    place = {"phase": "measure", "index": index, "begin_ns": begin_ns, "end_ns": now_ns()}
    devices = [{"device": "8:0", **dict.fromkeys(DEVICE, 2)}]
    send("interval", **place, streams=streams, process=usage(), devices=devices)


def stream(count: int, buckets: int = 2) -> dict:
    total = count * buckets
    histogram = {"count": total, "sum_ns": 1000 * total, "min_ns": 900, "max_ns": 2000}
    histogram |= {"buckets": [[900 + number, count] for number in range(buckets)]}
    operation = {"operation": "read", "count": total, "bytes": 4096 * total, "errors": 0}
    operation |= {"completion_latency": histogram, "response_latency": None}
    return {"stream": "main", "backlog_max": 0, "operations": [operation]}


def measure(spec: dict, *, streams: list[dict]) -> None:
    workload = spec["workload"]
    begin = now_ns()
    send("phase", phase="measure", edge="begin", at_ns=begin, bytes=0)
    left_ns, index, outcome = workload["duration_ns"], 0, "complete"
    while left_ns > 0 and outcome == "complete":  # As many intervals on a busy machine, where each takes longer.
        since = now_ns()
        outcome = "stopped" if stop_wanted(min(workload["interval_ns"], left_ns) / 1e9) else "complete"
        interval(index, since, streams)
        left_ns -= workload["interval_ns"]
        index += 1
    send("phase", phase="measure", edge="end", at_ns=now_ns(), bytes=0)
    result(begin, outcome)


def result(begin: int, outcome: str = "complete") -> None:
    job = {"stream": "main", "job": 0, "operations": 3, "bytes": 3 * 4096, "usage": usage(), "abandoned": 0}
    found = {"begin_ns": begin, "end_ns": now_ns(), "jobs": [job | {"last_completion_ns": now_ns()}]}
    found |= {"process": usage(), "devices": [], "peak_memory_bytes": 1, "buffer_bytes": 1}
    found |= {"backend": {"kind": "null", "features": [], "fallbacks": []}}
    send("result", outcome=outcome, **found, layout={"written_bytes": 0, "kept_bytes": 0})


def misbehave(how: str, spec: dict) -> None:
    match how:
        case "exit before hello":
            sys.stderr.write("error while loading shared libraries\n")
            sys.exit(127)
        case "silent":
            time.sleep(60)
        case "wrong protocol":
            hello(protocol=99)
            time.sleep(60)
        case "no hello":
            result(0)
        case "slow start":
            time.sleep(0.5)
            hello(spec["protocol"])
            measure(spec, streams=[stream(1)])
        case _:
            hello(spec["protocol"])
            misbehave_later(how, spec)


def misbehave_later(how: str, spec: dict) -> None:
    match how:
        case "crash":
            sys.stderr.write("thread 'main' panicked\n")
            sys.stderr.flush()
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            sys.stderr.write("cannot continue\n")
            sys.exit(3)
        case "garbage":
            os.write(1, b"\x00\xff not JSON\n")
            time.sleep(60)
        case "unknown event":
            send("surprise")
            time.sleep(60)
        case "malformed interval":
            send("interval", phase="measure")
            time.sleep(60)
        case "no result":
            pass
        case "after the result":
            result(0)
            result(0)
        case "no space":
            message = "cannot write to `/data/file`: no space left on device"
            send("error", code="no_space", message=message, context="phase `layout`", hint="make room")
        case "unsupported":
            message = "the file system of `/data/file` has no polled I/O"
            send("error", code="unsupported", message=message, context="phase `measure`", hint="use another backend")
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send("phase", phase="measure", edge="begin", at_ns=now_ns(), bytes=0)
            if marker := os.environ.get("FAKE_ENGINE_MARKER"):
                Path(marker).touch()
            time.sleep(600)
        case "closed output":
            result(0)
            os.close(1)
            time.sleep(60)
        case "stalled":
            send("phase", phase="measure", edge="begin", at_ns=0, bytes=0)
            interval(0, 0, [stream(1)])
            interval(1, 100, [{"stream": "main", "backlog_max": 7, "operations": []}])
            result(0)
        case "many buckets":
            measure(spec, streams=[stream(1, buckets=5000)])
        case "fails once" if not (marker := Path(os.environ["FAKE_ENGINE_MARKER"])).exists():
            marker.touch()
            send("error", code="io_error", message="input/output error", context="", hint="")
        case "warning":
            send("warning", code="page_cache", message="reads came from memory", hint="use direct I/O")
            measure(spec, streams=[stream(1)])
        case _:
            measure(spec, streams=[stream(1)])


def main() -> None:
    stop_at_eof, *identities = sys.argv[1:]
    assert stop_at_eof == "--stop-at-eof", sys.argv
    assert all(each.startswith("--identity=") for each in identities), sys.argv
    # Byte by byte, so that what follows the spec stays in the pipe for select.
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    spec = json.loads(line)
    plans = json.loads(os.environ.get("FAKE_ENGINE", "{}"))
    misbehave(plans.get(spec["run_id"], plans.get("*", "well")), spec)


main()
