"""Cost of measuring: the harness, its memory, and the accuracy and speed of the simulated device.

    python bench/engine_cost.py [--repeats 5] [--seconds 2] [--cpu 1] [--directory DIR]

Everything here runs without storage (backends `null` and `simulated`), but for the memory of many I/Os in flight, which
needs a file of 64 MiB in DIR. Runs are pinned to one core; values are medians of the repeats. Prints Markdown
(docs/performance.md holds it).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from shared import (
    SECOND_NS,
    block_spec,
    latencies,
    mean_latency_ns,
    measured,
    of_measurement,
    options,
    provenance,
    random_reads,
    run_engine,
    table,
)

from iosonde.features.key_value_stores.workload import KV
from iosonde.storage import open_target

SPAN_BYTES = 1 << 30
RATES = (100_000, 1_000_000)
SERVERS, SERVICE_NS = 8, 100_000
SIMULATED_SECONDS = 20
JOBS, JOB_QUEUE_DEPTH = 64, 256
STORE_RECORDS = 10_000_000

HARNESS_HEAD = ("load", "queue depth", "CPU per I/O (ns)")
OPEN_LOOP_HEAD = ("schedule", "rate wanted", "rate kept", "starts late by, p50 (ns)", "p99", "p99.9", "CPU used")
SIMULATED_HEAD = ("in flight", "IOPS, closed form", "IOPS", "error", "latency (ns), closed form", "latency", "error")
STORE_HEAD = ("phase", "value", "CPU per operation (ns)")
Spec = dict[str, Any]


def main() -> None:
    given = options(__doc__, repeats=5, seconds=2.0, cpu=1, directory=Path())
    print(provenance(f"medians of {given.repeats} runs of {given.seconds:g} s"))
    rows = [closed_loop(given, depth) for depth in (1, 32, 128)]
    print(f"\nThe harness, closed loop:\n\n{table(HARNESS_HEAD, rows)}")
    rows = [open_loop(given, kind, rate) for kind in ("constant", "poisson") for rate in RATES]
    print(f"\nThe harness, open loop:\n\n{table(OPEN_LOOP_HEAD, rows)}")
    rows = [simulated(given, in_flight) for in_flight in (1, SERVERS // 2, SERVERS, 8 * SERVERS)]
    print(f"\nThe simulated device against the closed form:\n\n{table(SIMULATED_HEAD, rows)}")
    rows = [store(given, phase, size) for phase in ("readrandom", "overwrite") for size in (100, 4000)]
    print(f"\nThe harness of key-value stores, on the store that keeps nothing:\n\n{table(STORE_HEAD, rows)}")
    rows = [simulation_speed(given), memory(given), load_memory(given)]
    print(f"\nOthers:\n\n{table(('quantity', 'value'), rows)}")


def cpu_ns(given: argparse.Namespace, spec: Spec) -> float:
    """CPU time of the whole process for each I/O."""
    return median(measured(run_engine(spec, cpu=given.cpu)[-1]).cpu_ns_each for _ in range(given.repeats))


def closed_loop(given: argparse.Namespace, queue_depth: int) -> list[str]:
    """CPU time for an I/O that costs nothing, every latency recorded."""
    spec = virtual_spec({"kind": "null"}, given.seconds, queue_depth=queue_depth)
    return ["random 4 KiB reads", str(queue_depth), f"{cpu_ns(given, spec):.1f}"]


def open_loop(given: argparse.Namespace, kind: str, rate: int) -> list[str]:
    """Accuracy of an open-loop schedule on an otherwise unloaded backend."""
    arrival = {"kind": kind, "rate": rate}
    spec = virtual_spec({"kind": "null"}, given.seconds, queue_depth=128, arrival=arrival)
    runs = [run_engine(spec, cpu=given.cpu) for _ in range(given.repeats)]
    late = [latencies(of_measurement(events), "response_latency") for events in runs]
    found = [measured(events[-1]) for events in runs]
    used = median(run.cpu_ns_each * run.rate / SECOND_NS for run in found)
    lateness = (median(of[name] or 0 for of in late) for name in ("p50", "p99", "p99_9"))
    kept = median(run.rate for run in found)
    return [kind, f"{rate:,}", f"{kept:,.0f}", *(f"{ns:,.0f}" for ns in lateness), f"{used:.0%}"]


def simulated(given: argparse.Namespace, in_flight: int) -> list[str]:
    """K servers of constant service time, below, at and above k I/Os in flight."""
    events = run_engine(servers_spec(in_flight, SIMULATED_SECONDS / 10), cpu=given.cpu)
    busy = min(in_flight, SERVERS)
    iops, latency_ns = busy / SERVICE_NS * SECOND_NS, SERVICE_NS * in_flight / busy
    found_iops, found_ns = measured(events[-1]).rate, mean_latency_ns(of_measurement(events))
    pairs = ((iops, found_iops), (latency_ns, found_ns))
    cells = (cell for truth, found in pairs for cell in (f"{truth:,.0f}", f"{found:,.0f}", f"{found / truth - 1:+.4%}"))
    return [str(in_flight), *cells]


def simulation_speed(given: argparse.Namespace) -> list[str]:
    """With service times that differ, so that hardly two I/Os complete at one instant and share an event."""
    speed = SECOND_NS / cpu_ns(given, servers_spec(4 * SERVERS, SIMULATED_SECONDS, service="exponential"))
    device = f"{SERVERS} exponential servers, queue depth {4 * SERVERS}"
    return [f"simulated I/Os in a second of CPU time, {device}", f"{speed:,.0f}"]


def memory(given: argparse.Namespace) -> list[str]:
    """Memory of the engine besides I/O buffers with very many I/Os in flight."""
    size = 64 << 20
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        target = {"kind": "file", "path": str(Path(scratch) / "data"), "size_bytes": size}
        stream = random_reads(size, queue_depth=JOB_QUEUE_DEPTH, io_mode="buffered", jobs=JOBS)
        result = run_engine(block_spec(target, stream, seconds=given.seconds), cpu=given.cpu)[-1]
    beyond = (result["peak_memory_bytes"] - result["buffer_bytes"]) / 1e6
    buffers = f"{result['buffer_bytes'] / 1e6:.0f} MB of buffers"
    return [f"memory beyond {buffers}, {JOBS} jobs x queue depth {JOB_QUEUE_DEPTH} x 4 KiB", f"{beyond:.0f} MB"]


def store(given: argparse.Namespace, phase: str, value_size: int) -> list[str]:
    """CPU time for an operation on a store that answers at once: choosing, timing, and comparing each value in full."""
    spec = store_spec(phase=phase, value_size=value_size, duration=f"{given.seconds}s", database="existing")
    return [phase, f"{value_size:,} B", f"{cpu_ns(given, spec):.1f}"]


def load_memory(given: argparse.Namespace) -> list[str]:
    """Peak memory of the engine while ten million records are loaded into a store that keeps nothing."""
    result = run_engine(store_spec(phase="load"), cpu=given.cpu)[-1]
    return [f"memory while {STORE_RECORDS:,} records are loaded", f"{result['peak_memory_bytes'] / 1e6:.0f} MB"]


def store_spec(**parameters: Any) -> Spec:
    """A load on the null store."""
    stream = KV.build({"records": STORE_RECORDS, **parameters})
    return KV.resolve({"main": stream}, open_target("null:1TiB"), seed=1, run_id="bench")


def virtual_spec(backend: Spec, seconds: float, **stream: Any) -> Spec:
    """A load on no storage."""
    target = {"kind": "virtual", "size_bytes": SPAN_BYTES}
    return block_spec(target, random_reads(SPAN_BYTES, **stream), backend, seconds=seconds)


def servers_spec(queue_depth: int, seconds: float, service: str = "constant") -> Spec:
    """A load on a device whose truth is known."""
    times = {"read_service_ns": SERVICE_NS, "write_service_ns": SERVICE_NS, "service": service}
    return virtual_spec({"kind": "simulated", "servers": SERVERS, **times}, seconds, queue_depth=queue_depth)


if __name__ == "__main__":
    main()
