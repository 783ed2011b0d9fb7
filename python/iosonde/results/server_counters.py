"""Statistics of database servers that become facts of a run, by the names that `servers/*.py` give them."""

from __future__ import annotations

from collections.abc import Mapping

COUNTERS: Mapping[str, str] = {
    "server_cpu_ns": "CPU time of all its processes, ns",
    "wal_bytes": "Bytes of write-ahead log that it generated",
    "buffer_hits": "Page requests that its buffer pool answered",
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
}
"""Statistics of the server (`servers/*.py`) whose increase over the measurement is a fact of the run."""

STATES = ("sessions_active", "sessions_waiting_for_lock", "sessions_waiting_for_log", "sessions_waiting_for_io")
"""Statistics whose mean over the intervals is a fact of the run."""
