"""Runs of the engine, and comparisons that other work on the machine does not decide.

A comparison is pairs of runs, interleaved: what disturbs a minute disturbs both members of a pair alike and cancels in
their ratio. Which of the two goes first alternates, so that a slow drift cancels as well.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import polars as pl

from iosonde.execution.engine import drive, find_engine
from iosonde.execution.environment import capture
from iosonde.execution.stop import Stop
from iosonde.metrics.scopes import percentiles
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval
from iosonde.study.workload.workload import engine_spec

T = TypeVar("T")
Json = dict[str, Any]
SECOND_NS = 10**9
PERCENTILES = {"p50": 500_000, "p90": 900_000, "p99": 990_000, "p99_9": 999_000}
"""In parts per million."""
URING = {
    "kind": "uring",
    "registered_files": True,
    "registered_buffers": True,
    "submission_polling": False,
    "completion_polling": False,
}
RANDOM = {"kind": "random", "coverage": "with_replacement", "distribution": {"kind": "uniform"}}


class BenchError(SystemExit):
    """A program failed, or did something else than it was asked to; uncaught, its message ends the benchmark."""

    def __init__(self, message: str) -> None:
        super().__init__(f"error: {message}")


def options(document: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse the command line: an option for each default, required where that is a type; a tuple lists choices."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        match default:
            case bool():
                parser.add_argument(flag, action="store_true")
            case tuple():
                parser.add_argument(flag, choices=default, default=default[0])
            case type():
                parser.add_argument(flag, type=default, required=True)
            case _:
                parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def interleaved(ours: Callable[[], T], theirs: Callable[[], T], *, pairs: int, title: str = "") -> list[tuple[T, T]]:
    """Run both `pairs` times, as ours-theirs, theirs-ours, ours-theirs and so on."""
    if title:
        print(title, file=sys.stderr)
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            first = ours()
            found.append((first, theirs()))
        else:
            first = theirs()
            found.append((ours(), first))
    return found


def medians(pairs: Sequence[tuple[T, T]], value: Callable[[T], float]) -> tuple[float, float]:
    """Of ours, and of theirs."""
    ours, theirs = (median(map(value, side)) for side in zip(*pairs, strict=True))
    return ours, theirs


def ratio_of(pairs: Sequence[tuple[T, T]], value: Callable[[T], float | None]) -> Estimate | None:
    """The median over the pairs of ours to theirs, with its 95 % interval; None where a pair lacks a value."""
    values = [(value(ours), value(theirs)) for ours, theirs in pairs]
    complete = [(ours, theirs) for ours, theirs in values if ours is not None and theirs is not None]
    if len(complete) < len(pairs):
        return None
    return ratio([ours for ours, _ in complete], [theirs for _, theirs in complete], paired=True)


def median_ratio_of(pairs: Sequence[tuple[T, T]], value: Callable[[T], float]) -> Estimate:
    """The median over the pairs of ours to theirs, with the interval of the sign test, at least 95 %.

    It assumes nothing about the distribution: single pairs in which other work disturbed one member do not widen it.
    """
    ratios = sorted(value(ours) / value(theirs) for ours, theirs in pairs)
    count, below = len(ratios), 0
    tail = 0.5**count
    while tail <= 0.025:
        below += 1
        tail += math.comb(count, below) * 0.5**count
    if not below:
        return Estimate(median(ratios))
    return Estimate(median(ratios), ratios[below - 1], ratios[count - below])


def difference_of(pairs: Sequence[tuple[T, T]], value: Callable[[T], float]) -> Estimate:
    """The median over the pairs of ours less theirs, in the value's unit, with its 95 % interval."""
    return repeats_interval([value(ours) - value(theirs) for ours, theirs in pairs], least=-math.inf)


def compared(pairs: Sequence[tuple[T, T]], value: Callable[[T], float], form: str = ",.0f") -> list[str]:
    """The median of each side, and the ratio."""
    return [*(f"{each:{form}}" for each in medians(pairs, value)), shown(ratio_of(pairs, value))]


def shown(estimate: Estimate | None) -> str:
    """As `1.38 (1.35..1.41)`; without an interval where there are too few pairs for one."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f}..{estimate.high:.2f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, align: str = "---:") -> str:
    """A Markdown table, numbers to the right."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, [align] * len(head), *rows])


def provenance(*others: str) -> str:
    """Date, machine, versions and load average, for the first line of a table."""
    environment = capture(find_engine())
    cpu, kernel = environment["cpu"], environment["kernel"]
    facts = [
        f"{datetime.now().astimezone():%Y-%m-%d %H:%M}",
        f"{cpu['model']}, {cpu['threads']} CPUs, {environment['machine']['virtualization'] or 'no virtualization'}",
        f"Linux {kernel['release']}",
        str(environment["software"]["engine"]),
        *others,
        f"load average {os.getloadavg()[0]:.1f}",
    ]
    return "Taken " + " · ".join(facts)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measured time of a run, without its ramp."""

    operations: int
    seconds: float
    user_ns: float
    system_ns: float
    """The kernel samples the division into user and system time; it knows the sum exactly."""
    latency_ns: Mapping[str, float | None] = field(default_factory=dict)
    """From submission to completion; None where fewer than ten samples lie beyond."""

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    @property
    def user_ns_each(self) -> float:
        """User time of an operation."""
        return self.user_ns / self.operations

    @property
    def cpu_ns_each(self) -> float:
        """CPU time of an operation, that of all threads."""
        return (self.user_ns + self.system_ns) / self.operations


def measured(result: Json, stream: str = "", **more: Any) -> Measured:
    """Values of the engine's result; operations only of one stream, if one is named."""
    return Measured(
        operations=sum(job["operations"] for job in result["jobs"] if stream in ("", job["stream"])),
        seconds=(result["end_ns"] - result["begin_ns"]) / SECOND_NS,
        user_ns=result["process"]["user_ns"],
        system_ns=result["process"]["system_ns"],
        **more,
    )


def spec_of(workload: Mapping[str, Any], seed: int = 1) -> Json:
    """A run of a workload, without counters of devices."""
    return engine_spec(workload, seed=seed, run_id="bench", devices=[])


def block_spec(
    target: Json, stream: Json, backend: Json = URING, *, seconds: float, ramp_s: float = 0.5, **changes: Any
) -> Json:
    """A run of block I/O with intervals of a second."""
    workload = {
        "kind": "block",
        "target": target,
        "backend": backend,
        "layout": "missing",
        "page_cache": "keep",
        "ramp": {"duration_ns": round(ramp_s * SECOND_NS)},
        "duration_ns": round(seconds * SECOND_NS),
        "interval_ns": SECOND_NS,
        "streams": [stream],
    }
    return spec_of(workload | changes)


def random_reads(span_bytes: int, *, queue_depth: int, **changes: Any) -> Json:
    """A stream of 4 KiB direct reads at random over the whole span, in closed loop."""
    return {
        "name": "main",
        "jobs": 1,
        "queue_depth": queue_depth,
        "access": RANDOM,
        "mix": {"read_fraction": 1.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": 4096, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": span_bytes, "sharing": "shared"},
        "io_mode": "direct",
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
    } | changes


def run_engine(spec: Json, *, cpu: int | None = None, engine: Path | None = None) -> list[Json]:
    """The engine's events; the last is the result."""
    pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
    done = subprocess.run([*pinned, engine or find_engine()], input=json.dumps(spec), capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    last = events[-1] if events else {"event": "", "message": done.stderr.strip()}
    if last["event"] != "result":
        raise BenchError(f"the engine failed: {last.get('message', last)}")
    return events


def driven(spec: Json, **settings: Any) -> Any:
    """The same through `iosonde.execution.engine.drive`, which loads shims and passes on events as they arrive."""
    stop = Stop()
    try:
        done = drive(spec, stop=stop, **settings)
    finally:
        stop.close()
    if done.result is None:
        raise BenchError(f"the engine failed: {done.failure}")
    return done


def values_checked(result: Json) -> Json:
    """The result of a key-value store, unless values were missing or wrong."""
    checks = result["store"]["checks"]
    if any(check["missing"] or check["corrupted"] for check in checks):
        raise BenchError(f"values are missing or wrong: {checks}")
    return result


def of_measurement(events: Sequence[Json]) -> list[Json]:
    """The operations of each interval and stream of the measurement."""
    intervals = (event for event in events if event["event"] == "interval" and event["phase"] == "measure")
    return [operation for each in intervals for stream in each["streams"] for operation in stream["operations"]]


def latencies(
    operations: Sequence[Json], latency: str = "completion_latency", parts: Mapping[str, int] = PERCENTILES
) -> dict[str, float | None]:
    """Percentiles over all operations."""
    buckets = [{"bucket": bucket, "count": count} for each in operations for bucket, count in each[latency]["buckets"]]
    frame = pl.DataFrame(buckets, schema={"bucket": pl.UInt32, "count": pl.UInt64}).with_columns(run=0)
    (row,) = percentiles(frame, by=["run"], parts=parts).to_dicts()
    return {name: row[name] for name in parts}


def mean_latency_ns(operations: Sequence[Json]) -> float:
    """Exact, from sums and not from histograms."""
    histograms = [each["completion_latency"] for each in operations]
    return float(sum(each["sum_ns"] for each in histograms) / max(1, sum(each["count"] for each in histograms)))
