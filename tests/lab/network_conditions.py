"""Injected bottlenecks of storage on NFS, and the name that a run gives to its own (`network_guest.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from iosonde.features.network_storage.record import OutageReading
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.schema import Record

Bottleneck = Literal[
    "cache", "client", "network", "loss", "server", "server CPU", "server drive", "connection", "split calls"
]
DRIVE_MS = 10
"""Time of an I/O of the drive in `server_host_guest.py`."""
DISTURBED = {"engine_stalled", "cpu_contention", "steal_time", "late_counters", "slow_clock"}
"""Warnings of runs for which the machine had too little CPU time. In User Mode Linux the clock is read by a system call."""
READ, WRITE = {"read_fraction": 1.0}, {"read_fraction": 0.0}
ONE_READ, READS = {**READ, "queue_depth": 1}, {**READ, "queue_depth": 4}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A bottleneck, and the load on it."""

    name: str
    bottleneck: Bottleneck
    load: Mapping[str, Any]
    mount: str = "nconnect=1"
    forth: str = ""
    """Queueing discipline on the way to the server."""
    back: str = ""
    """On the way from it."""
    drive_ms: int = 0
    """Delay of the server's drive, ms; 0 for an export in memory."""
    server_cpu: float = 0
    """Share of the CPU that threads of the server get; 0 without a limit."""
    client_cpu: float = 0
    receive_buffer: int = 0
    """Largest receive buffer of the server's connections, bytes; 0 for the kernel's default."""


CACHED = Condition(name="cached", bottleneck="cache", load={"io_mode": "buffered", "span": "64KiB"})
ON_DEVICE = [
    CACHED,
    Condition(name="far", bottleneck="network", load=READ, forth="netem delay 100ms"),
    Condition(name="drive", bottleneck="server", load=READS, drive_ms=100),
    Condition(name="client", bottleneck="client", load=READ, client_cpu=0.1),
]
"""Conditions of a block device of a server, which has no counters of calls."""
LOST, DELAYED = "netem delay 2ms loss 10%", "netem delay 20ms"
LARGE_WRITES = {**WRITE, "block_size": "64KiB", "queue_depth": 8}
ON_NFS = [
    Condition(name="delay 0", bottleneck="client", load=READ, forth="netem delay 0ms"),
    Condition(name="delay 10", bottleneck="network", load=READ, forth="netem delay 10ms"),
    CACHED,
    Condition(name="rate", bottleneck="network", load=ONE_READ, back="tbf rate 4mbit burst 3000 latency 2s"),
    Condition(name="loss", bottleneck="loss", load=READS, forth=LOST, back=LOST),
    Condition(name="server CPU", bottleneck="server CPU", load={**READS, "duration": "5s"}, server_cpu=0.01),
    Condition(name="drive", bottleneck="server drive", load=READS, drive_ms=20),
    # More in flight than the window of one connection.
    Condition(name="connection", bottleneck="connection", load=LARGE_WRITES, forth=DELAYED, receive_buffer=65536),
    Condition(
        name="split",
        bottleneck="split calls",
        load={**READS, "block_size": "64KiB"},
        mount="nconnect=1,rsize=4096,wsize=4096",
    ),
    Condition(name="client", bottleneck="client", load=ONE_READ, client_cpu=0.2),
]


def _transports() -> list[Condition]:
    """Transports without counters of calls, with settings of `network-path`; a passthrough has no network below it."""
    reads = {"operation": "read", "queue_depth": "1", "ramp": "1s"}
    direct = {**reads, "block_size": "4KiB", "span": "16MiB", "interval": "1s", "duration": "5s"}
    buffered = {**reads, "block_size": "256KiB", "span": "1MiB", "duration": "4s", "io_mode": "buffered"}
    everywhere = {
        "cached": Condition(name="", bottleneck="cache", load=buffered),
        "client": Condition(name="", bottleneck="client", load=direct, client_cpu=0.1),
        "network": Condition(name="", bottleneck="network", load=direct, forth="netem delay 40ms"),
    }
    cpu = Condition(name="", bottleneck="server", load=direct, server_cpu=0.2)
    drive = Condition(name="", bottleneck="server", load=direct, drive_ms=100)
    return [
        replace(condition, name=f"{transport} {cell}")
        for transport, server in (("bindfs", cpu), ("sshfs", cpu), ("iscsi", drive))
        for cell, condition in {**everywhere, "server": server}.items()
        if (transport, cell) != ("bindfs", "network")
    ]


TRANSPORTS: Mapping[str, Condition] = {each.name: each for each in _transports()}
BY_NAME: Mapping[str, Condition] = {each.name: each for each in ON_NFS}


def named(record: Record) -> str:
    """The bottleneck that the verdict of a run names; `not separable` if it names none."""
    assert record.verdict, record.failure
    codes = {each.code for each in record.warnings}
    if any("packets were lost" in each for each in record.verdict.because):
        return "loss"
    for code, name in (("connection_limited", "connection"), ("packets_lost", "loss"), ("split_calls", "split calls")):
        if code in codes:
            return name
    names = {"cache-served": "cache", "harness-limited": "client", "network-limited": "network"}
    if record.verdict.kind == "server-limited":
        text = " ".join(record.verdict.because)
        return "server CPU" if "threads or CPU" in text else "server drive" if "its storage" in text else "server"
    return names.get(record.verdict.kind, "not separable")


def check_outage(results: ResultSet) -> None:
    """No acknowledged write is lost, and no I/O completes during the outage.

    A busy machine makes the unavailable time longer, not shorter; or the outage ends after the measurement, which is stated.
    """
    [record] = results.records()
    assert record.outcome == "complete", record.failure
    outage = record.of(OutageReading)
    assert outage
    assert outage.began_ns
    if any(warning.code == "outage_failed" for warning in record.warnings):
        assert outage.unavailable_ns is None
    else:
        assert outage.length_ns
        assert outage.unavailable_ns
        assert outage.resolution_ns
        assert outage.length_ns >= outage.requested_ns
        assert outage.unavailable_ns >= outage.requested_ns - outage.resolution_ns
        assert outage.backlog_max
    found = run_metrics(results).filter(run_id=record.run_id, operation="all")
    values = dict(found.select("metric", "value").iter_rows())
    assert values["verified_bytes"] >= 4 << 20
    assert values["wrong_sectors"] == 0
