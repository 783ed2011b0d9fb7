"""Statistics of memcached and of Java virtual machines whose increase over the measurement is a fact of a run."""

from __future__ import annotations

COUNTERS = (
    ("cmd_get", "Gets of a cache"),
    ("get_hits", "Gets that found an item in memory, or its place in extstore"),
    ("get_extstore", "Gets that read a value from extstore"),
    ("miss_from_extstore", "Of these, gets of a value that was no longer there"),
    ("evictions", "Items that a cache removed from memory before they expired"),
    ("extstore_objects_read", "Values read from extstore"),
    ("extstore_bytes_read", "Bytes read from extstore"),
    ("extstore_objects_written", "Values written to extstore"),
    ("extstore_bytes_written", "Bytes written to extstore"),
    ("extstore_compact_rescues", "Values that a compaction of extstore has written again"),
    ("extstore_page_reclaims", "Pages of extstore that were freed"),
    ("extstore_page_evictions", "Of these, pages that still had values"),
    ("extstore_objects_evicted", "Values in these pages"),
    ("gc_pauses", "Pauses of the garbage collector of its Java virtual machine"),
    ("gc_pause_ns", "Length of these pauses, ns"),
    ("gc_paused_ns", "Time in pauses of the garbage collector, ns: of a pause at either end, the part between"),
    ("safepoint_ns", "Time in safepoints of its Java virtual machine, ns"),
)
