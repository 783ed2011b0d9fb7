"""Statistics of servers that become facts of a run, by the names that `Server.statistics` gives them."""

from __future__ import annotations

from collections.abc import Mapping

from iosonde.core.features import contributed

COUNTED_NS = "server_counted_ns"
"""The clock, read with the counters: their increase over its own is their rate."""

_COUNTERS: Mapping[str, str] = {
    COUNTED_NS: "Time between the two readings of these counters, ns",
    "server_cpu_ns": "CPU time of all its processes, ns",
    "wal_bytes": "Bytes of write-ahead log that it generated",
    "buffer_hits": "Page requests that hit its buffer pool",
    "buffer_reads": "Page requests that read a page from the operating system",
    "checkpoints": "Checkpoints, timed and requested",
    "checkpoint_write_ms": "Time in which checkpoints wrote, ms",
    "vacuums": "Tables vacuumed",
    "log_waits": "Waits for room in the log buffer",
    "lock_waits": "Waits for row locks",
    "lock_wait_ms": "Time that transactions waited for row locks, ms",
    "deadlocks": "Deadlocks",
    "group_read_bytes": "Bytes that its control group read from block devices",
    "group_write_bytes": "Bytes that its control group wrote to block devices",
    "server_major_faults": "Major page faults of its control group",
    "server_swap_in_bytes": "Bytes that the machine read from swap, in runs with a swap area",
    "server_swap_out_bytes": "Bytes that the machine wrote to swap, in runs with a swap area",
}
"""Those of all servers, and of database servers with SQL."""

COUNTERS: Mapping[str, str] = {**_COUNTERS, **dict(contributed("counters", "COUNTERS"))}
"""Statistics of servers whose increase over the measurement is a fact of the run."""

STATES = ("sessions_active", "sessions_waiting_for_lock", "sessions_waiting_for_log", "sessions_waiting_for_io")
"""Statistics whose mean over the intervals is a fact of the run."""

DATA_BYTES = "server_data_bytes"
"""Bytes of data pages that the server wrote, without its log."""

PAGE_BYTES = 8192
"""Page of PostgreSQL, which counts buffers."""

CHECKPOINTS = ("checkpoints_timed", "checkpoints_requested")
WRITTEN_BUFFERS = ("checkpoint_buffers", "background_buffers", "client_buffers")

SOURCES = (*COUNTERS, *CHECKPOINTS, *WRITTEN_BUFFERS, "data_written_bytes")
"""Statistics that counters are derived from."""


def counters(statistics: Mapping[str, int | None]) -> dict[str, int]:
    """Return the counters of one poll that a server has: `COUNTERS` and `DATA_BYTES`, each since the server started."""
    known = {name: int(value) for name, value in statistics.items() if value is not None}
    found = {name: known[name] for name in COUNTERS if name in known}
    for name, parts in (("checkpoints", CHECKPOINTS), (DATA_BYTES, WRITTEN_BUFFERS)):
        values = [known[part] for part in parts if part in known]
        if values:
            found[name] = sum(values) * (PAGE_BYTES if name == DATA_BYTES else 1)
    if "data_written_bytes" in known:
        found[DATA_BYTES] = known["data_written_bytes"]
    return found
