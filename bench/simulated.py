"""One measurement on a simulated drive or array: what is asked for, and the figures that come out.

The spec goes straight to the engine, so that thousands of points take minutes. Nothing here needs a quiet machine: time
is the drive's own.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from iosonde import protocol
from iosonde.features.simulated_drives.target import SimulatedDriveTarget
from iosonde.metrics.scopes import percentiles
from iosonde.storage import open_target

SECOND_NS = 10**9
TAILS = {"p50": 500_000, "p99": 990_000, "p99_999": 999_990}
"""In parts per million."""


class SimulationError(Exception):
    """The engine refused, or failed."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Closed-loop load on a drive."""

    block_bytes: int
    queue_depth: int
    jobs: int = 1
    read_fraction: float = 1.0
    access: str = "random"
    span_bytes: int | None = None
    """The whole drive, unless given."""
    split: bool = False
    """True if each job has a part of the span to itself."""
    layout: str = "missing"
    """`missing` finds every page written; `never` begins with an empty drive."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Results of the measured time."""

    seconds: float
    operations: int
    bytes_moved: int
    latency_ns: dict[str, dict[str, float | None]]
    """Operation -> `mean` and percentiles; None where fewer than ten samples lie beyond."""
    write_amplification: float | None
    result: dict[str, Any]
    intervals: list[tuple[float, int]]
    """End of each interval in seconds, and the bytes that were moved in it."""

    @property
    def iops(self) -> float:
        """I/Os per second."""
        return self.operations / self.seconds

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.bytes_moved / self.seconds


def measure(
    engine: Path,
    target: str,
    load: Load,
    *,
    seconds: float,
    ramp_seconds: float = 0.0,
    operations: int | None = None,
    state: Path | None = None,
    seed: int = 1,
    interval_seconds: float = 1.0,
) -> Figures:
    """Measure `sim:...` for so long, or until so many I/Os of each job; `state` keeps the drive for the next call."""
    spec = spec_of(target, load, seconds=seconds, ramp_seconds=ramp_seconds, operations=operations, seed=seed)
    spec["workload"]["backend"]["state_path"] = state and str(state)
    spec["workload"]["interval_ns"] = round(interval_seconds * SECOND_NS)
    return figures(run(engine, spec))


def spec_of(
    target: str,
    load: Load,
    *,
    seconds: float,
    ramp_seconds: float = 0.0,
    operations: int | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """The engine's input."""
    drive = open_target(target)
    assert isinstance(drive, SimulatedDriveTarget)
    whole = drive.free_bytes()
    jobs = load.jobs if load.split else 1
    span = (load.span_bytes or whole) // (load.block_bytes * jobs) * load.block_bytes * jobs
    uniform = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}}
    stream = {
        "name": "main",
        "jobs": load.jobs,
        "queue_depth": load.queue_depth,
        "access": uniform if load.access == "random" else {"kind": "sequential"},
        "mix": {"read_fraction": load.read_fraction, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": load.block_bytes, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": span, "sharing": "split" if load.split else "shared"},
        "io_mode": "direct",
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
        "limit_operations": operations,
    }
    workload = {
        "kind": "block",
        "target": {"kind": "virtual", "size_bytes": span},
        "backend": drive.backend(),
        "layout": load.layout,
        "page_cache": "keep",
        "ramp": {"duration_ns": round(ramp_seconds * SECOND_NS)},
        "duration_ns": round(seconds * SECOND_NS),
        "interval_ns": SECOND_NS,
        "streams": [stream],
    }
    return {"protocol": protocol.VERSION, "run_id": "bench", "seed": seed, "workload": workload}


def run(engine: Path, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The engine's events; the last is the result."""
    done = subprocess.run([engine], input=json.dumps(spec), capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if not events or events[-1]["event"] != "result":
        raise SimulationError(f"the engine says: {events[-1] if events else done.stderr.strip()}")
    return events


def figures(events: list[dict[str, Any]]) -> Figures:
    """Figures of the measured time."""
    result = events[-1]
    measured = [event for event in events if event["event"] == "interval" and event["phase"] == "measure"]
    operations = [operation for event in measured for stream in event["streams"] for operation in stream["operations"]]
    return Figures(
        seconds=(result["end_ns"] - result["begin_ns"]) / SECOND_NS,
        operations=sum(job["operations"] for job in result["jobs"]),
        bytes_moved=sum(job["bytes"] for job in result["jobs"]),
        latency_ns=_latencies(operations),
        write_amplification=_amplification(result),
        result=result,
        intervals=[_moved(event) for event in measured],
    )


def _moved(event: dict[str, Any]) -> tuple[float, int]:
    bytes_moved = sum(operation["bytes"] for stream in event["streams"] for operation in stream["operations"])
    return event["end_ns"] / SECOND_NS, bytes_moved


def _latencies(operations: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    rows = [
        {"operation": operation["operation"], "bucket": bucket, "count": count}
        for operation in operations
        for bucket, count in operation["completion_latency"]["buckets"]
    ]
    schema = {"operation": pl.String, "bucket": pl.UInt32, "count": pl.UInt64}
    frame = pl.DataFrame(rows, schema=schema)
    found: dict[str, dict[str, float | None]] = {}
    for row in percentiles(frame, by=["operation"], parts=TAILS).to_dicts():
        name = row["operation"]
        of_kind = [each["completion_latency"] for each in operations if each["operation"] == name]
        mean = sum(each["sum_ns"] for each in of_kind) / max(1, sum(each["count"] for each in of_kind))
        found[name] = {"mean": mean, **{tail: row[tail] for tail in TAILS}}
    return found


def _amplification(result: dict[str, Any]) -> float | None:
    drives = [device for device in result["devices"] if device.get("media")]
    written = sum(device["write_bytes"] for device in drives)
    return sum(device["media"]["media_write_bytes"] for device in drives) / written if written else None
