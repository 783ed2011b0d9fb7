"""Cost of measuring: the harness, its memory, and the accuracy and speed of the simulated device.

    python bench/engine_cost.py [--repeats 5] [--seconds 2] [--cpu 1] [--directory DIR] [--output FILE.json]

Everything here runs without storage (backends `null` and `simulated`), but for the memory of many I/Os in flight, which
needs a file. Prints Markdown (docs/performance.md holds it).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pairs import provenance, table
from runs import (
    SECOND_NS,
    MeasurementError,
    block_spec,
    engine_percentiles,
    random_read_spec,
    random_stream,
    run_events,
)

from iosonde.execution.engine import find_engine
from iosonde.execution.environment import capture
from iosonde.features.key_value_stores.workload import KV
from iosonde.storage import open_target

SPAN_BYTES = 1 << 30
QUEUE_DEPTHS = (1, 32, 128)
RATES = (100_000, 1_000_000)
SERVERS, SERVICE_NS = 8, 100_000
SIMULATED_SECONDS = 20
JOBS, JOB_QUEUE_DEPTH = 64, 256
STORE_RECORDS = 10_000_000

HARNESS_HEAD = ("load", "queue depth", "CPU per I/O (ns)")
OPEN_LOOP_HEAD = ("schedule", "rate wanted", "rate kept", "starts late by, p50 (ns)", "p99", "p99.9", "CPU used")
SIMULATED_HEAD = ("in flight", "IOPS, closed form", "IOPS", "error", "latency (ns), closed form", "latency", "error")
STORE_HEAD = ("phase", "value", "CPU per operation (ns)")
FIGURE_HEAD = ("quantity", "value")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by all benchmarks; keeps every result for the JSON file."""

    engine: Path
    cpu: int
    seconds: float
    repeats: int
    directory: Path
    kept: list[dict[str, Any]]

    def events(self, spec: dict[str, Any]) -> list[dict[str, Any]]:
        """Carry out a spec."""
        events = run_events(self.engine, spec, cpu=self.cpu)
        self.kept.append({"spec": spec, "result": events[-1]})
        return events

    def median(self, spec: dict[str, Any], figure: Callable[[list[dict[str, Any]]], float]) -> float:
        """Of a figure over the repeats."""
        return median(figure(self.events(spec)) for _ in range(self.repeats))


def main() -> None:
    chosen = arguments()
    engine = find_engine()
    facts: dict[str, Any] = {"command": sys.argv, "environment": capture(engine), "load_average": os.getloadavg()}
    print(provenance(facts["environment"], f"medians of {chosen.repeats} runs of {chosen.seconds:g} s"))
    with tempfile.TemporaryDirectory(dir=chosen.directory) as scratch:
        bench = Bench(
            engine=engine,
            cpu=chosen.cpu,
            seconds=chosen.seconds,
            repeats=chosen.repeats,
            directory=Path(scratch),
            kept=[],
        )
        print(f"\nThe harness, closed loop:\n\n{table(HARNESS_HEAD, closed_loop(bench))}")
        print(f"\nThe harness, open loop:\n\n{table(OPEN_LOOP_HEAD, open_loop(bench))}")
        print(f"\nThe simulated device against the closed form:\n\n{table(SIMULATED_HEAD, simulated(bench))}")
        print(
            f"\nThe harness of key-value stores, on the store that keeps nothing:\n\n{table(STORE_HEAD, stores(bench))}"
        )
        print(f"\nOthers:\n\n{table(FIGURE_HEAD, [simulation_speed(bench), memory(bench), load_memory(bench)])}")
    if chosen.output:
        chosen.output.write_text(json.dumps({**facts, "runs": bench.kept}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What measuring itself costs.")
    parser.add_argument("--repeats", type=int, default=5, help="runs behind each median")
    parser.add_argument("--seconds", type=float, default=2, help="length of each measurement, after a ramp of 0.5 s")
    parser.add_argument("--cpu", type=int, default=1, help="core that the engine is pinned to")
    parser.add_argument("--directory", type=Path, default=Path(), help="where a file of 64 MiB is made and removed")
    parser.add_argument("--output", type=Path, help="JSON file for every spec and result")
    return parser.parse_args()


def closed_loop(bench: Bench) -> list[list[str]]:
    """CPU time for an I/O that costs nothing, every latency recorded."""
    rows = []
    for queue_depth in QUEUE_DEPTHS:
        stream = random_stream(SPAN_BYTES, queue_depth=queue_depth)
        cost_ns = bench.median(null_spec(bench, stream), cpu_ns_per_io)
        rows.append(["random 4 KiB reads", str(queue_depth), f"{cost_ns:.1f}"])
    return rows


def open_loop(bench: Bench) -> list[list[str]]:
    """Accuracy of an open-loop schedule on an otherwise unloaded backend."""
    return [open_loop_row(bench, kind, rate) for kind in ("constant", "poisson") for rate in RATES]


def open_loop_row(bench: Bench, kind: str, rate: int) -> list[str]:
    stream = random_stream(SPAN_BYTES, queue_depth=128) | {"arrival": {"kind": kind, "rate": rate}}
    runs = [bench.events(null_spec(bench, stream)) for _ in range(bench.repeats)]
    late = [engine_percentiles(events, "response_latency") for events in runs]
    kept = median(operations(events) / seconds(events) for events in runs)
    used = median(cpu_ns(events) / SECOND_NS / seconds(events) for events in runs)
    lateness = (median(of[name] or 0 for of in late) for name in ("p50", "p99", "p99_9"))
    return [kind, f"{rate:,}", f"{kept:,.0f}", *(f"{ns:,.0f}" for ns in lateness), f"{used:.0%}"]


def simulated(bench: Bench) -> list[list[str]]:
    """K servers of constant service time, below, at and above k I/Os in flight."""
    return [simulated_row(bench, in_flight) for in_flight in (1, SERVERS // 2, SERVERS, 8 * SERVERS)]


def simulated_row(bench: Bench, in_flight: int) -> list[str]:
    events = bench.events(simulated_spec(in_flight, seconds=SIMULATED_SECONDS / 10))
    busy = min(in_flight, SERVERS)
    iops, latency_ns = busy / SERVICE_NS * SECOND_NS, SERVICE_NS * in_flight / busy
    found_iops, found_ns = operations(events) / seconds(events), mean_latency_ns(events)
    return [
        str(in_flight),
        f"{iops:,.0f}",
        f"{found_iops:,.0f}",
        f"{found_iops / iops - 1:+.4%}",
        f"{latency_ns:,.0f}",
        f"{found_ns:,.0f}",
        f"{found_ns / latency_ns - 1:+.4%}",
    ]


def simulation_speed(bench: Bench) -> list[str]:
    """With service times that differ, so that hardly two I/Os complete at one instant and share an event."""
    spec = simulated_spec(4 * SERVERS, seconds=SIMULATED_SECONDS, service="exponential")
    speed = bench.median(spec, lambda events: SECOND_NS / cpu_ns_per_io(events))
    device = f"{SERVERS} exponential servers, queue depth {4 * SERVERS}"
    return [f"simulated I/Os in a second of CPU time, {device}", f"{speed:,.0f}"]


def memory(bench: Bench) -> list[str]:
    """Memory of the engine besides I/O buffers with very many I/Os in flight."""
    size = 64 << 20
    path = bench.directory / "data"
    spec = random_read_spec(
        path, span_bytes=size, queue_depth=JOB_QUEUE_DEPTH, io_mode="buffered", seconds=bench.seconds
    )
    spec["workload"]["streams"][0]["jobs"] = JOBS
    result = bench.events(spec)[-1]
    beyond = (result["peak_memory_bytes"] - result["buffer_bytes"]) / 1e6
    buffers = f"{result['buffer_bytes'] / 1e6:.0f} MB of buffers"
    return [f"memory beyond {buffers}, {JOBS} jobs x queue depth {JOB_QUEUE_DEPTH} x 4 KiB", f"{beyond:.0f} MB"]


def stores(bench: Bench) -> list[list[str]]:
    """CPU time for an operation on a store that answers at once: choosing, timing, and comparing each value in full."""
    rows = []
    for phase, value_size in (("readrandom", 100), ("readrandom", 4000), ("overwrite", 100), ("overwrite", 4000)):
        spec = store_spec(phase=phase, value_size=value_size, duration=f"{bench.seconds}s", database="existing")
        rows.append([phase, f"{value_size:,} B", f"{bench.median(spec, cpu_ns_per_io):.1f}"])
    return rows


def load_memory(bench: Bench) -> list[str]:
    """Peak memory of the engine while ten million records are loaded into a store that keeps nothing."""
    result = bench.events(store_spec(phase="load"))[-1]
    return [f"memory while {STORE_RECORDS:,} records are loaded", f"{result['peak_memory_bytes'] / 1e6:.0f} MB"]


def store_spec(**parameters: Any) -> dict[str, Any]:
    """A load on the null store."""
    stream = KV.build({"records": STORE_RECORDS, **parameters})
    return KV.resolve({"main": stream}, open_target("null:1TiB"), seed=1, run_id="bench")


def null_spec(bench: Bench, stream: dict[str, Any]) -> dict[str, Any]:
    """A load on nothing."""
    return block_spec(
        {"kind": "virtual", "size_bytes": SPAN_BYTES}, {"kind": "null"}, streams=[stream], seconds=bench.seconds
    )


def simulated_spec(queue_depth: int, *, seconds: float, service: str = "constant") -> dict[str, Any]:
    """A load on a device whose truth is known."""
    backend = {
        "kind": "simulated",
        "servers": SERVERS,
        "read_service_ns": SERVICE_NS,
        "write_service_ns": SERVICE_NS,
        "service": service,
    }
    streams = [random_stream(SPAN_BYTES, queue_depth=queue_depth)]
    return block_spec({"kind": "virtual", "size_bytes": SPAN_BYTES}, backend, streams=streams, seconds=seconds)


Events = Sequence[dict[str, Any]]


def operations(events: Events) -> int:
    """I/Os of the measurement."""
    return sum(job["operations"] for job in events[-1]["jobs"])


def seconds(events: Events) -> float:
    """Length of the measurement, on the run's own clock."""
    return float(events[-1]["end_ns"] - events[-1]["begin_ns"]) / SECOND_NS


def cpu_ns(events: Events) -> int:
    """CPU time of the whole process."""
    used = events[-1]["process"]
    return int(used["user_ns"] + used["system_ns"])


def cpu_ns_per_io(events: Events) -> float:
    """CPU time of the whole process for each I/O."""
    return cpu_ns(events) / operations(events)


def mean_latency_ns(events: Events) -> float:
    """Exact, from sums and not from histograms."""
    histograms = [
        operation["completion_latency"]
        for event in events
        if event["event"] == "interval" and event["phase"] == "measure"
        for stream in event["streams"]
        for operation in stream["operations"]
    ]
    return float(sum(of["sum_ns"] for of in histograms) / sum(of["count"] for of in histograms))


if __name__ == "__main__":
    try:
        main()
    except MeasurementError as error:
        sys.exit(f"error: {error}")
