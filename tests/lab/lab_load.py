"""One load on one block device, with our engine and nothing but the standard library: quick to start, even emulated."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde import protocol

URING = {
    "kind": "uring",
    "registered_files": False,
    "registered_buffers": False,
    "submission_polling": False,
    "completion_polling": False,
}
RANDOM = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}}
SEQUENTIAL = {"kind": "sequential"}
STREAM_BYTES = 512 << 10
"""Block size of streams."""


@dataclass(frozen=True)
class Measured:
    iops: float
    bandwidth: float
    latency_s: float
    """Mean completion latency."""
    turnaround_s: float
    """Mean time between a completion and the next submission: more where the engine waited for a CPU."""


def measure(
    engine: Path | str,
    device: Path | str,
    *,
    access: dict[str, Any] = RANDOM,
    block_bytes: int = 4096,
    queue_depth: int = 1,
    read_fraction: float = 1.0,
    span_bytes: int = 64 << 20,
    operations: int,
    layout: str = "never",
    verify: dict[str, Any] | None = None,
) -> Measured:
    """Direct closed-loop I/O that ends with its last operation."""
    stream = {
        "name": "main",
        "jobs": 1,
        "queue_depth": queue_depth,
        "access": access,
        "mix": {"read_fraction": read_fraction, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": block_bytes, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": span_bytes, "sharing": "split" if access == SEQUENTIAL else "shared"},
        "io_mode": "direct",
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
        "limit_operations": operations,
    }
    workload = {
        "kind": "block",
        "target": {"kind": "device", "path": str(device), "size_bytes": span_bytes},
        "backend": URING,
        "layout": layout,
        "page_cache": "keep",
        "ramp": {"duration_ns": 0},
        "duration_ns": 600 * 10**9,
        "interval_ns": 1_000_000_000,
        "streams": [stream],
        "verify": verify,
    }
    spec = {"protocol": protocol.VERSION, "run_id": "lab", "seed": 1, "workload": workload}
    done = subprocess.run([str(engine)], input=json.dumps(spec), capture_output=True, text=True, timeout=800)
    assert done.stdout, f"the engine printed nothing: {done.stderr}"
    return _measured([json.loads(line) for line in done.stdout.splitlines()])


def _measured(events: list[dict[str, Any]]) -> Measured:
    result = events[-1]
    assert result["event"] == "result", result
    assert not result["verification"] or not any(result["verification"]["faults"].values()), result["verification"]
    intervals = [event for event in events if event["event"] == "interval" and event["phase"] == "measure"]
    operations = [each for event in intervals for stream in event["streams"] for each in stream["operations"]]
    assert not sum(each["errors"] for each in operations), operations
    seconds = (intervals[-1]["end_ns"] - intervals[0]["begin_ns"]) / 1e9
    count = sum(each["count"] for each in operations)
    waited_ns = sum(each["completion_latency"]["sum_ns"] for each in operations)
    return Measured(
        iops=count / seconds,
        bandwidth=sum(each["bytes"] for each in operations) / seconds,
        latency_s=waited_ns / 1e9 / count,
        turnaround_s=sum((job["pacing"] or {}).get("turnaround_ns", 0) for job in result["jobs"]) / 1e9 / count,
    )
