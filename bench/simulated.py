"""One measurement on a simulated drive or array: what is asked for, and the values that come out.

The spec goes straight to the engine, so that thousands of points take minutes. Nothing here needs a quiet machine: time
is the drive's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared import RANDOM, SECOND_NS, block_spec, latencies, mean_latency_ns, of_measurement, random_reads, run_engine

from iosonde.features.simulated_drives.storage import SimulatedDriveTarget
from iosonde.storage import open_target

TAILS = {"p50": 500_000, "p99": 990_000, "p99_999": 999_990}
"""In parts per million."""


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

    iops: float
    bandwidth: float
    """Bytes per second."""
    latency_ns: dict[str, dict[str, float | None]]
    """Operation -> `mean` and percentiles; None where fewer than ten samples lie beyond."""


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
    drive = open_target(target)
    assert isinstance(drive, SimulatedDriveTarget)
    unit = load.block_bytes * (load.jobs if load.split else 1)
    span = (load.span_bytes or drive.free_bytes()) // unit * unit
    stream = random_reads(
        span,
        queue_depth=load.queue_depth,
        jobs=load.jobs,
        access=RANDOM if load.access == "random" else {"kind": "sequential"},
        mix={"read_fraction": load.read_fraction, "trim_fraction": 0.0},
        block_sizes=[{"bytes": load.block_bytes, "weight": 1.0}],
        span={"offset_bytes": 0, "bytes": span, "sharing": "split" if load.split else "shared"},
        limit_operations=operations,
    )
    spec = block_spec(
        {"kind": "virtual", "size_bytes": span},
        stream,
        {**(drive.backend() or {}), "state_path": state and str(state)},
        seconds=seconds,
        ramp_s=ramp_seconds,
        layout=load.layout,
        interval_ns=round(interval_seconds * SECOND_NS),
    )
    events = run_engine({**spec, "seed": seed}, engine=engine)
    result, measured = events[-1], of_measurement(events)
    length = (result["end_ns"] - result["begin_ns"]) / SECOND_NS
    kinds = {each["operation"]: [of for of in measured if of["operation"] == each["operation"]] for each in measured}
    return Figures(
        iops=sum(job["operations"] for job in result["jobs"]) / length,
        bandwidth=sum(job["bytes"] for job in result["jobs"]) / length,
        latency_ns={
            kind: {"mean": mean_latency_ns(each), **latencies(each, parts=TAILS)} for kind, each in kinds.items()
        },
    )
