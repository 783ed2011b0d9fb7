"""Statistics of servers that become facts of a run, by the names that `Server.statistics` gives them."""

from __future__ import annotations

from collections.abc import Mapping

COUNTED_NS = "server_counted_ns"
"""The clock, read with the counters: their increase over its own is their rate."""

COUNTERS: Mapping[str, str] = {
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
    "cmd_get": "Gets of a cache",
    "get_hits": "Gets that found an item in memory, or its place in extstore",
    "get_extstore": "Gets that read a value from extstore",
    "miss_from_extstore": "Of these, gets of a value that was no longer there",
    "evictions": "Items that a cache removed from memory before they expired",
    "extstore_objects_read": "Values read from extstore",
    "extstore_bytes_read": "Bytes read from extstore",
    "extstore_objects_written": "Values written to extstore",
    "extstore_bytes_written": "Bytes written to extstore",
    "extstore_compact_rescues": "Values that a compaction of extstore has written again",
    "extstore_page_reclaims": "Pages of extstore that were freed",
    "extstore_page_evictions": "Of these, pages that still had values",
    "extstore_objects_evicted": "Values in these pages",
    "gc_pauses": "Pauses of the garbage collector of its Java virtual machine",
    "gc_pause_ns": "Length of these pauses, ns",
    "gc_paused_ns": "Time in pauses of the garbage collector, ns: of a pause at either end, the part between",
    "safepoint_ns": "Time in safepoints of its Java virtual machine, ns",
    "group_read_bytes": "Bytes that its control group read from block devices",
    "group_write_bytes": "Bytes that its control group wrote to block devices",
    "osd_client_writes": "Writes of clients, counted by object daemons",
    "osd_client_reads": "Reads of clients, counted by object daemons",
    "osd_client_write_bytes": "Bytes that clients wrote, counted by object daemons",
    "osd_client_read_bytes": "Bytes that clients read, counted by object daemons",
    "osd_replica_write_bytes": "Bytes that object daemons sent each other as copies",
    "osd_recovery_operations": "Objects that object daemons recovered",
    "bluestore_wal_bytes": "Bytes of the write-ahead log of BlueStore's database",
    "bluestore_db_bytes": "Bytes of tables of BlueStore's database and of BlueFS's own log",
    "bluestore_deferred_bytes": "Bytes of data that BlueStore wrote to its log first and in place later",
    "ceph_control_cpu_ns": "CPU time of the monitor and the manager, ns",
    "server_major_faults": "Major page faults of its control group",
    "server_swap_in_bytes": "Bytes that the machine read from swap, in runs with a swap area",
    "server_swap_out_bytes": "Bytes that the machine wrote to swap, in runs with a swap area",
}
"""Statistics of the server whose increase over the measurement is a fact of the run."""

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
