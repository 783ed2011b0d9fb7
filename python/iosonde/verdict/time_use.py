"""Breakdown of a run's time: device, kernel, application, locks. The reason why a faster device gains no more.

Shares are of the measurement; CPU times are in cores (CPU seconds for each second). They overlap: a device is busy
while the CPU works for another job. What a faster device can gain at most follows from its busy time alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iosonde.results.schema import Record
from iosonde.verdict.server import statistics_ns
from iosonde.verdict.shares import BUSY, counted_ns, share

Json = Mapping[str, Any]

IDLE = 0.02
"""Share of the time from which on something counts as used at all."""
SIGNIFICANT_CORES = 0.5
"""CPU time, in cores, from which on it is named as what takes the time."""
SIGNIFICANT_WAITS = 0.3
"""Share of the sessions' time from which on lock waits are."""


@dataclass(frozen=True, kw_only=True)
class TimeUse:
    """Of one run, or the mean of several; None where nothing was reported."""

    device_busy: float | None
    """Share of the time in which the busiest device below the target had I/O in flight, at most: the kernel's own busy
    time is counted in ticks and misses short I/Os, so the sum of latencies counts where it is larger."""
    application_cores: float
    """CPU time in user mode of the engine with all threads of an embedded store, and of the server or command."""
    kernel_cores: float
    """Their CPU time in kernel mode."""
    lock_waits: float | None
    """Share of the sessions' time in which they waited for locks; reported by database servers only."""

    @property
    def most_gain(self) -> float | None:
        """Upper bound of the speedup, for a device with zero latency; None if unknown or unbounded."""
        if self.device_busy is None:
            return None
        return 1 / (1 - self.device_busy) if self.device_busy < 1 - IDLE else None

    def to_json(self) -> dict[str, float | None]:
        return {**vars(self), "most_gain": self.most_gain}

    @property
    def largest(self) -> str:
        """Largest share of time: `device`, `application`, `kernel` or `locks`.

        Cores may exceed 1 and a share cannot, so a device that was busy for most of the time takes precedence.
        """
        busy = self.device_busy or 0.0
        if busy >= BUSY:
            return "device"
        shares = {
            "device": busy,
            "application": self.application_cores,
            "kernel": self.kernel_cores,
            "locks": self.lock_waits or 0.0,
        }
        return max(shares, key=lambda name: shares[name])

    @property
    def is_significant(self) -> bool:
        """True if the largest share alone explains a small gain."""
        return {
            "device": (self.device_busy or 0.0) >= BUSY,
            "application": self.application_cores >= SIGNIFICANT_CORES,
            "kernel": self.kernel_cores >= SIGNIFICANT_CORES,
            "locks": (self.lock_waits or 0.0) >= SIGNIFICANT_WAITS,
        }[self.largest]


def time_use(record: Record) -> TimeUse | None:
    """Breakdown of a run's time; None without a result on a real clock."""
    result: Json = record.result or {}
    if not result.get("devices") or record.target.get("simulated"):
        return None
    server: Json = record.server or {}
    begin, end = server.get("statistics_at_start") or {}, server.get("statistics_at_end") or {}
    of_server, of_kernel = (_increase(name, begin, end) for name in ("server_cpu_ns", "server_system_cpu_ns"))
    # The process, not its jobs: stores flush, compact and evict in threads of their own. Of a command, its processes.
    process: Json = result["process"]
    process_ns, server_ns = counted_ns(result), statistics_ns(record)
    return TimeUse(
        device_busy=share(max(_occupied_ns(each) for each in result["devices"]), process_ns),
        application_cores=process["user_ns"] / process_ns + (of_server - of_kernel) / server_ns,
        kernel_cores=process["system_ns"] / process_ns + of_kernel / server_ns,
        lock_waits=record.verdict.evidence.get("lock_wait_share") if record.verdict else None,
    )


def _occupied_ns(device: Json) -> int:
    return max(int(device["busy_ns"]), int(device["read_wait_ns"]) + int(device["write_wait_ns"]))


def _increase(name: str, begin: Json, end: Json) -> int:
    return int(end[name]) - int(begin[name]) if name in begin and name in end else 0


def mean_of(uses: Sequence[TimeUse]) -> TimeUse | None:
    """The mean of several runs."""
    if not uses:
        return None
    busy = [each.device_busy for each in uses if each.device_busy is not None]
    waits = [each.lock_waits for each in uses if each.lock_waits is not None]
    return TimeUse(
        device_busy=_mean(busy),
        application_cores=_mean([each.application_cores for each in uses]) or 0.0,
        kernel_cores=_mean([each.kernel_cores for each in uses]) or 0.0,
        lock_waits=_mean(waits),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
