"""Verdict on a run on a database server: device-, server-CPU-, lock- or client-limited.

    device-limited     sessions waited for the log or for data files, or the device was busy nearly all the time
    server-CPU-limited the server's processes used nearly all CPUs that the client left
    lock-limited       transactions waited for each other
    harness-limited    the client used its CPUs completely

Each limit has a share between 0 and 1 of its resource, or of the sessions' time. The largest one decides if it is large
enough. `judge_server` is a pure function of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iosonde.results.run_facts.server_counters import COUNTED_NS
from iosonde.results.schema import Record
from iosonde.verdict import shares
from iosonde.verdict.shares import BUSY, Limit, nearest, over, percent
from iosonde.verdict.verdict import Kind, Verdict
from iosonde.workload import streams_of

WAITING = 0.3
"""Share of the sessions' time from which waiting is a limit."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ServerEvidence(shares.Shares):
    """Shares of resources that a run used, and of its sessions' time; None where nothing was reported."""

    server_cpu_share: float | None
    """CPU time of the server over that of all CPUs."""
    client_cpu_share: float | None
    """CPU time of the client over that of all CPUs."""
    busiest_client_share: float | None
    """CPU time of the client's busiest connection over the measured time."""
    lock_wait_share: float | None
    """Sessions that waited for locks."""
    log_wait_share: float | None
    """Sessions that waited for the write-ahead log."""
    io_wait_share: float | None
    """Sessions that waited for data files."""
    device_busy_share: float | None
    """Time in which the busiest device had I/O in flight."""


def server_cpu_ns(record: Record) -> int | None:
    """CPU time of the server over the measurement; None where there is none, or none that iosonde started."""
    server: Json = record.server or {}
    return _increase("server_cpu_ns", server.get("statistics_at_start") or {}, server.get("statistics_at_end") or {})


def statistics_ns(record: Record) -> int:
    """Time between the readings of the server's counters; the measured time without any."""
    server: Json = record.server or {}
    counted = _increase(COUNTED_NS, server.get("statistics_at_start") or {}, server.get("statistics_at_end") or {})
    return counted or shares.wall_ns(record.result or {})


def evidence_of(record: Record, *, cpus: int) -> ServerEvidence:
    """The shares, from what server, kernel and client counted over the measurement."""
    result: Json = record.result or {}
    server: Json = record.server or {}
    begin, end = server.get("statistics_at_start") or {}, server.get("statistics_at_end") or {}
    means: Json = server.get("statistics_mean") or {}
    connections = sum(stream["jobs"] for stream in streams_of(record.spec["workload"]))
    client = shares.cpu_shares(result)
    counted_ns = statistics_ns(record)
    lock_ms = _increase("lock_wait_ms", begin, end)
    sampled = _mean_share("sessions_waiting_for_lock", means)
    by_time = None if lock_ms is None else shares.share(lock_ms * 1e6, counted_ns * max(1, connections))
    return ServerEvidence(
        server_cpu_share=shares.share(server_cpu_ns(record), counted_ns * cpus),
        client_cpu_share=shares.share(sum(client), cpus),
        busiest_client_share=max(client, default=0.0),
        lock_wait_share=sampled if by_time is None else by_time,
        log_wait_share=_mean_share("sessions_waiting_for_log", means),
        io_wait_share=_mean_share("sessions_waiting_for_io", means),
        device_busy_share=shares.device_busy_share(result),
    )


def judge_server(record: Record, *, cpus: int) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = evidence_of(record, cpus=cpus)
    return nearest(_limits(evidence), evidence.to_json())


def _limits(evidence: ServerEvidence) -> list[Limit]:
    """Return the use of each resource as a share of its limit."""
    server, client = evidence.server_cpu_share, evidence.client_cpu_share or 0.0
    together = (server or 0.0) + client
    found: list[tuple[float | None, Kind, str]] = [
        (
            None if server is None or server < client else together / BUSY,
            "server-CPU-limited",
            f"the server used {percent(server)} of all CPU time and the client {percent(client)}",
        ),
        (
            together / BUSY if server is None or server < client else None,
            "harness-limited",
            f"the client used {percent(client)} of all CPU time",
        ),
        (
            over(evidence.busiest_client_share, BUSY),
            "harness-limited",
            f"the client's busiest connection used {percent(evidence.busiest_client_share)} of a core",
        ),
        (
            over(evidence.lock_wait_share, WAITING),
            "lock-limited",
            f"transactions waited for locks {percent(evidence.lock_wait_share)} of the time",
        ),
        (
            over(evidence.log_wait_share, WAITING),
            "device-limited",
            f"transactions waited for the write-ahead log {percent(evidence.log_wait_share)} of the time",
        ),
        (
            over(evidence.io_wait_share, WAITING),
            "device-limited",
            f"transactions waited for data files {percent(evidence.io_wait_share)} of the time",
        ),
        (
            over(evidence.device_busy_share, BUSY),
            "device-limited",
            f"the device was busy {percent(evidence.device_busy_share)} of the time",
        ),
    ]
    return [(near, kind, text) for near, kind, text in found if near is not None]


def _mean_share(state: str, means: Json) -> float | None:
    active = means.get("sessions_active")
    return means[state] / active if active and state in means else None


def _increase(name: str, begin: Json, end: Json) -> int | None:
    return int(end[name]) - int(begin[name]) if name in begin and name in end else None
