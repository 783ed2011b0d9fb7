"""One measurement, with the engine or with fio, on one pinned core, as figures that can be compared.

Both count their own I/Os and CPU time from the end of the ramp on. The engine's CPU time holds that of its thread that
keeps time; fio's leaves its helper threads out.
"""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from iosonde import protocol
from iosonde.metrics.scopes import percentiles

SECOND_NS = 10**9
BLOCK_BYTES = 4096
RAMP_SECONDS = 0.5

PERCENTILES = {"p50": 500_000, "p90": 900_000, "p99": 990_000, "p99_9": 999_000}
"""Those that are compared, in parts per million."""

FIO_TUNED = (
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=32",
    "--iodepth_batch_complete_min=1",
    "--iodepth_batch_complete_max=32",
)
"""fio's fastest settings at depth: 32 used the least CPU per I/O among batches of 8, 16, 32 and 64."""


class MeasurementError(Exception):
    """A program failed, or what it measured is not what it was asked to measure."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Result of one run of either program."""

    command: list[str]
    spec: dict[str, Any] | None
    """The engine's input."""
    operations: int
    seconds: float
    user_ns: float
    system_ns: float
    fs_input_bytes: int
    """Read from a file system by the process, ramp included, as the kernel accounts it."""
    latency_ns: Mapping[str, float | None]
    """From submission to completion; None where fewer than ten samples lie beyond."""

    @property
    def iops(self) -> float:
        """I/Os per second."""
        return self.operations / self.seconds

    @property
    def user_ns_per_io(self) -> float:
        """CPU time outside the kernel. The kernel samples the division, 250 to 1000 times a second."""
        return self.user_ns / self.operations

    @property
    def cpu_ns_per_io(self) -> float:
        """CPU time in all, which the kernel knows exactly."""
        return (self.user_ns + self.system_ns) / self.operations


def random_read_spec(path: Path, *, span_bytes: int, queue_depth: int, io_mode: str, seconds: float) -> dict[str, Any]:
    """The engine's side of a comparison: 4 KiB blocks at random, closed loop, one job."""
    target = {"kind": "file", "path": str(path), "size_bytes": span_bytes}
    backend = {
        "kind": "uring",
        "registered_files": True,
        "registered_buffers": True,
        "submission_polling": False,
        "completion_polling": False,
    }
    return block_spec(
        target, backend, seconds=seconds, streams=[random_stream(span_bytes, queue_depth=queue_depth, io_mode=io_mode)]
    )


def block_spec(
    target: dict[str, Any], backend: dict[str, Any], *, streams: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """A run of block I/O with intervals of a second."""
    workload = {
        "kind": "block",
        "target": target,
        "backend": backend,
        "layout": "missing",
        "page_cache": "keep",
        "ramp": {"duration_ns": round(RAMP_SECONDS * SECOND_NS)},
        "duration_ns": round(seconds * SECOND_NS),
        "interval_ns": SECOND_NS,
        "streams": streams,
    }
    return {"protocol": protocol.VERSION, "run_id": "bench", "seed": 1, "workload": workload}


def random_stream(span_bytes: int, *, queue_depth: int, io_mode: str = "direct", jobs: int = 1) -> dict[str, Any]:
    """4 KiB reads at random over the whole span, in closed loop."""
    return {
        "name": "main",
        "jobs": jobs,
        "queue_depth": queue_depth,
        "access": {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}},
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": BLOCK_BYTES, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": span_bytes, "sharing": "shared"},
        "io_mode": io_mode,
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
    }


def run_engine(engine: Path, spec: dict[str, Any], *, cpu: int) -> Measured:
    """Carry out a spec on one core."""
    before = _fs_input_bytes()
    events = run_events(engine, spec, cpu=cpu)
    result = events[-1]
    return Measured(
        command=engine_command(engine, cpu),
        spec=spec,
        operations=sum(job["operations"] for job in result["jobs"]),
        seconds=(result["end_ns"] - result["begin_ns"]) / SECOND_NS,
        user_ns=result["process"]["user_ns"],
        system_ns=result["process"]["system_ns"],
        fs_input_bytes=_fs_input_bytes() - before,
        latency_ns=engine_percentiles(events, "completion_latency"),
    )


def run_events(engine: Path, spec: dict[str, Any], *, cpu: int) -> list[dict[str, Any]]:
    """Carry out a spec on one core; the last event is the result."""
    events = [json.loads(line) for line in _run(engine_command(engine, cpu), json.dumps(spec)).splitlines()]
    if events[-1]["event"] != "result":
        raise MeasurementError(f"the engine says: {events[-1]}")
    return events


def engine_command(engine: Path, cpu: int) -> list[str]:
    """As one would type it."""
    return ["taskset", "-c", str(cpu), str(engine)]


def engine_percentiles(events: Sequence[dict[str, Any]], latency: str) -> dict[str, float | None]:
    """Percentiles over the intervals of the measurement."""
    buckets = [
        {"bucket": bucket, "count": count}
        for event in events
        if event["event"] == "interval" and event["phase"] == "measure"
        for stream in event["streams"]
        for operation in stream["operations"]
        for bucket, count in operation[latency]["buckets"]
    ]
    frame = pl.DataFrame(buckets, schema={"bucket": pl.UInt32, "count": pl.UInt64}).with_columns(run=0)
    (row,) = percentiles(frame, by=["run"], parts=PERCENTILES).to_dicts()
    return {name: row[name] for name in PERCENTILES}


def run_fio(
    path: Path,
    *,
    span_bytes: int,
    queue_depth: int,
    io_mode: str,
    seconds: float,
    cpu: int,
    options: Sequence[str] = (),
) -> Measured:
    """Have fio do what `random_read_spec` describes."""
    command = [
        *("taskset", "-c", str(cpu), "fio", "--name=bench", "--readonly", "--rw=randread", "--norandommap"),
        *(f"--filename={path}", f"--size={span_bytes}", f"--bs={BLOCK_BYTES}", f"--iodepth={queue_depth}"),
        *("--ioengine=io_uring", f"--direct={int(io_mode == 'direct')}", "--invalidate=0"),
        *("--time_based", f"--runtime={round(seconds * 1000)}ms", f"--ramp_time={round(RAMP_SECONDS * 1000)}ms"),
        # The engine's latency begins before the submission, as fio's `lat` does and its `clat` does not.
        *("--clat_percentiles=0", "--lat_percentiles=1", "--percentile_list=50:90:99:99.9"),
        *("--output-format=json", *options),
    ]
    before = _fs_input_bytes()
    output = _run(command)
    (job,) = json.loads(output[output.index("{") :])["jobs"]
    if job["error"]:
        raise MeasurementError(f"fio ended with error {job['error']}")
    read, runtime_ns = job["read"], job["job_runtime"] * 1e6
    return Measured(
        command=command,
        spec=None,
        operations=read["total_ios"],
        seconds=read["runtime"] / 1000,
        user_ns=job["usr_cpu"] / 100 * runtime_ns,
        system_ns=job["sys_cpu"] / 100 * runtime_ns,
        fs_input_bytes=_fs_input_bytes() - before,
        latency_ns=_fio_percentiles(read),
    )


def _fio_percentiles(read: dict[str, Any]) -> dict[str, float | None]:
    percentiles = read["lat_ns"]["percentile"]
    keys = {"p50": "50.000000", "p90": "90.000000", "p99": "99.000000", "p99_9": "99.900000"}
    beyond = {name: read["total_ios"] * (1 - part / 1e6) for name, part in PERCENTILES.items()}
    return {name: percentiles[key] if beyond[name] >= 10 else None for name, key in keys.items()}


def _run(command: list[str], text: str = "") -> str:
    """Its standard output; the engine exits with status 1 after an error that it reports there."""
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise MeasurementError(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _fs_input_bytes() -> int:
    """Bytes read from file systems by terminated children, by the kernel's account."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * 512
