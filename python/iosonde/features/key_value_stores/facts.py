"""Facts and metrics of a key-value run: the kernel's account of it, its database, caches, and write amplification.

A run that began with an empty database is the load, from the engine's start to its end, as `time(1)` accounts for a
benchmark; of any other only the measurement counts, since what it began with may have been loaded by the same process.

Below these: what memcached and Java virtual machines count, hit ratios of the tiers of a cache, and what a get costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.features.key_value_stores.notation import WRITES
from iosonde.features.key_value_stores.parameters import CACHES, STORES
from iosonde.metrics.metric import SERVER_SECONDS, Better, Metric, in_seconds, over, own
from iosonde.results.column import FLAG, TEXT, U32, U64, any_of, facts
from iosonde.results.schema import Record
from iosonde.study.workload import streams_of

Json = Mapping[str, Any]

STALLS = "rocksdb.stall.micros"


class StoreFacts:
    """The parts of a record about a store; empty without one."""

    def __init__(self, record: Record) -> None:
        self.workload: Json = record.spec["workload"]
        self.result: Json = record.result or {}
        self.store: Json = self.result.get("store") or {}

    def increase(self, statistic: str) -> int | None:
        """Growth of a counter of the store in the measurement; None where the store does not have it."""
        begin, end = self.store.get("statistics_at_start") or {}, self.store.get("statistics_at_end") or {}
        return int(end[statistic] - begin.get(statistic, 0)) if statistic in end else None

    @cached_property
    def writers(self) -> int:
        """Jobs of the streams that write."""
        return sum(
            stream["jobs"]
            for stream in streams_of(self.workload)
            if any(each["operation"] in WRITES for each in stream.get("operations", ()))
        )

    @property
    def stalled_ns(self) -> int | None:
        """Time that RocksDB stalled writes, summed over threads; no other store reports it.

        It counts a write when its stall ends, which may be long after the end: so at most the time of all writers.
        """
        stalled_us = self.increase(STALLS)
        measured_ns = (self.result.get("end_ns") or 0) - (self.result.get("begin_ns") or 0)
        return None if stalled_us is None else min(self.writers * measured_ns, 1000 * stalled_us)

    @property
    def started_empty(self) -> bool | None:
        """True if the run started with an empty database."""
        return self.workload["database"]["kind"] == "empty" if "database" in self.workload else None

    @property
    def cancelled_write_bytes(self) -> int | None:
        """Bytes that were deleted before they reached a device, in the span of the run's account."""
        found: int | None = self.store.get(f"{'' if self.started_empty else 'measured_'}cancelled_write_bytes")
        return found

    @cached_property
    def block_cache(self) -> tuple[int | None, int | None]:
        """Blocks (WiredTiger: pages) found and not found in the store's cache."""
        requested = self.increase("cache: pages requested from the cache")
        read = self.increase("cache: pages read into cache")
        if requested is None or read is None:
            return self.increase("rocksdb.block.cache.hit"), self.increase("rocksdb.block.cache.miss")
        return max(0, requested - read), read

    def checked(self, name: str) -> int | None:
        """Sum of a number of the checks of values; one that the engine did not count is 0."""
        return sum(check.get(name, 0) for check in self.store.get("checks") or []) if self.store else None


COLUMNS = facts(
    StoreFacts,
    ("store_version", TEXT, "Version of the store, as it reports it", "store.version"),
    ("store_kind", TEXT, f"Store: {any_of(STORES)}", "store.kind"),
    ("store_durability", TEXT,
        "What acknowledged writes survive: `nothing`, `process_crash` or `power_loss`; null of runs without writes",
        "store.durability"),
    ("cancelled_write_bytes", U64,
        "Bytes written to the page cache but deleted before writeback, in the span of the run's account"),
    ("started_empty", FLAG, "Whether the run started with an empty database; null for block I/O"),
    ("database_kept", FLAG, "Whether a complete database was found and reused", "store.kept"),
    ("database_bytes", U64, "Bytes allocated to the closed database, including its log", "store.database_bytes"),
    ("record_bytes", U64, "Size of keys and values of all records, counted once, bytes", "store.record_bytes"),
    ("database_bytes_at_start", U64, "Bytes of data in the database's files at measurement start",
        "store.database_bytes_at_start"),
    ("cached_bytes_at_start", U64, "Bytes of these in the page cache (cachestat)", "store.cached_bytes_at_start"),
    ("database_bytes_at_end", U64, "Bytes of data in the database's files at measurement end",
        "store.database_bytes_at_end"),
    ("cached_bytes_at_end", U64, "Bytes of these in the page cache", "store.cached_bytes_at_end"),
    ("settle_ns", U64, "Time to settle before the measurement, ns", "store.settle_ns"),
    ("settle_at_end_ns", U64, "Time to settle after the measurement, ns", "store.settle_at_end_ns"),
    ("close_ns", U64, "Time to close the database, ns", "store.close_ns"),
    ("writing_jobs", U32, "Jobs of the streams that write to the store",
        lambda facts: facts.writers if facts.store else None),
    ("stalled_ns", U64, "Time that writes were stalled, as the store reports it, summed over threads, ns"),
    ("block_cache_hits", U64, "RocksDB and WiredTiger: blocks found in the store's cache in the measurement",
        lambda facts: facts.block_cache[0]),
    ("block_cache_misses", U64, "RocksDB and WiredTiger: blocks not found in the store's cache",
        lambda facts: facts.block_cache[1]),
    ("read_cache_hits", U64, "RocksDB: blocks found in its persistent read cache in the measurement",
        lambda facts: facts.increase("rocksdb.persistent.cache.hit")),
    ("read_cache_misses", U64, "RocksDB: blocks not found in its persistent read cache",
        lambda facts: facts.increase("rocksdb.persistent.cache.miss")),
    ("values_checked", U64, "Values compared with the expected ones, ramp included",
        lambda facts: facts.checked("values")),
    ("values_missing", U64, "Records that were not found", lambda facts: facts.checked("missing")),
    ("values_corrupted", U64, "Values that differ from the expected ones", lambda facts: facts.checked("corrupted")),
    ("values_stale", U64, "Values older than the last write acknowledged before the read, where `freshness` is checked",
        lambda facts: facts.checked("stale")),
)  # fmt: skip
"""Columns of `runs` about a store."""


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


_HITS = pl.col("get_hits") - pl.col("miss_from_extstore").fill_null(0)
_IN_MEMORY = pl.col("get_hits") - pl.col("get_extstore").fill_null(0)
_IN_EXTSTORE = pl.col("get_extstore") - pl.col("miss_from_extstore").fill_null(0)


_RATES_OF_CACHES: tuple[tuple[str, str, str, Better, str, str], ...] = (
    ("evictions_per_sec", "Evictions per second", "1/s", "lower",
        "items removed from memory before they expired", "evictions"),
    ("extstore_reads_per_sec", "Reads of extstore", "1/s", "neither",
        "values read from extstore", "extstore_objects_read"),
    ("extstore_writes_per_sec", "Writes to extstore", "1/s", "neither",
        "values written to extstore", "extstore_objects_written"),
    ("extstore_read_bandwidth", "Read bandwidth of extstore", "B/s", "neither",
        "bytes read from extstore", "extstore_bytes_read"),
    ("extstore_write_bandwidth", "Write bandwidth of extstore", "B/s", "neither",
        "bytes written to extstore", "extstore_bytes_written"),
    ("extstore_compactions_per_sec", "Values moved by compactions of extstore", "1/s", "lower",
        "values that a compaction of extstore wrote again", "extstore_compact_rescues"),
    ("extstore_evictions_per_sec", "Evictions from extstore", "1/s", "lower",
        "values in pages of extstore that were freed", "extstore_objects_evicted"),
)  # fmt: skip

_OF_CACHES = (
    Metric("gets_per_sec", "Gets per second", "1/s", "higher", "store",
        "gets that the server counted / seconds", over("cmd_get", SERVER_SECONDS), per_interval=True),
    *(
        Metric(name, title, "", "higher", "store", f"{formula} / gets", over(hits, "cmd_get"), per_interval=True)
        for name, title, formula, hits in (
            ("cache_hit_ratio", "Hit ratio", "gets that returned a value", _HITS),
            ("memory_hit_ratio", "Hit ratio of memory", "gets that returned a value from memory", _IN_MEMORY),
            ("extstore_hit_ratio", "Hit ratio of extstore", "gets that returned a value from extstore", _IN_EXTSTORE),
        )
    ),
    *(
        Metric(name, title, unit, better, "store",
            f"{formula} / seconds", over(column, SERVER_SECONDS), per_interval=True)
        for name, title, unit, better, formula, column in _RATES_OF_CACHES
    ),
    *(
        Metric(name, title, unit, "lower", "store",
            f"{formula} / gets", over(column, "cmd_get"), per_interval=column.startswith(("server_", "group_")))
        for name, title, unit, formula, column in (
            ("major_faults_per_get", "Major faults per get", "",
                "page faults with I/O of the server's control group", "server_major_faults"),
            ("swap_in_bytes_per_get", "Swap-in per get", "B",
                "bytes that the machine read from swap", "server_swap_in_bytes"),
            ("swap_out_bytes_per_get", "Swap-out per get", "B",
                "bytes that the machine wrote to swap", "server_swap_out_bytes"),
            ("server_cpu_ns_per_get", "Server CPU time per get", "ns",
                "CPU time of the server's processes", "server_cpu_ns"),
            ("server_read_bytes_per_get", "File system reads per get", "B",
                "bytes that the server's control group read", "group_read_bytes"),
            ("device_read_bytes_per_get", "Device reads per get", "B",
                "bytes the block device read in the measurement", "device_read_bytes"),
            ("device_write_bytes_per_get", "Device writes per get", "B",
                "bytes the block device wrote in the measurement", "device_write_bytes"),
        )
    ),
)  # fmt: skip
"""Metrics of runs on a cache, in the order of docs/metrics.md."""


_ON_SERVER = pl.col("store_kind") == "cassandra"


_OF_CASSANDRA = (
    Metric("gc_pauses_per_sec", "Pauses of the garbage collector", "1/s", "lower", "store",
        "pauses in the log of the Java virtual machine / seconds", over("gc_pauses", SERVER_SECONDS),
        per_interval=True),
    Metric("gc_pause_percent", "Time in garbage collection, %", "", "lower", "store",
        "100 x time in pauses of the garbage collector / seconds",
        over(100 * pl.col("gc_paused_ns"), "server_counted_ns"), per_interval=True),
    Metric("gc_pause_ns_mean", "Mean pause of the garbage collector", "ns", "lower", "store",
        "length of the pauses of the garbage collector / pauses", "gc_pause_ns / gc_pauses", per_interval=True),
    Metric("safepoint_percent", "Time in safepoints, %", "", "lower", "store",
        "100 x time in safepoints, those of garbage collections included / seconds",
        over(100 * pl.col("safepoint_ns"), "server_counted_ns"), per_interval=True),
    Metric("server_cpu_ns_per_operation", "Server CPU time per operation", "ns", "lower", "store",
        "CPU time of the server's processes / operations", pl.when(_ON_SERVER).then(over("server_cpu_ns", "count")),
        per_interval=True),
    Metric("server_write_bytes_per_operation", "File system writes per operation", "B", "lower", "store",
        "bytes that the server's control group wrote / operations",
        pl.when(_ON_SERVER).then(over("group_write_bytes", "count")), per_interval=True),
)  # fmt: skip
"""In the order of docs/metrics.md."""


_IS_STORE = pl.col("workload") == "kv"
_STARTED_EMPTY = pl.col("started_empty").fill_null(value=False)

SECTOR_BYTES = 512
"""Bytes of a file-system input or output (getrusage(2))."""


def _account(name: str) -> pl.Expr:
    """A resource in the account of a run: of the whole process where it began with an empty database."""
    return pl.when(_IS_STORE).then(pl.when(_STARTED_EMPTY).then(f"child_{name}").otherwise(f"process_{name}"))


_HANDED_OVER = _account("fs_outputs") * SECTOR_BYTES


_ACCOUNTS = (
    Metric("wall_seconds", "Wall time", "s", "lower", "store",
        "wall-clock time of the account", in_seconds(_account("wall_ns"))),
    Metric("user_seconds", "User time", "s", "lower", "store",
        "user-mode CPU time of the account", in_seconds(_account("user_ns"))),
    Metric("system_seconds", "System time", "s", "lower", "store",
        "kernel-mode CPU time of the account", in_seconds(_account("system_ns"))),
    Metric("cpu_percent", "CPU %", "", "lower", "store",
        "100 x (user + system time) / wall time",
        over(100 * (_account("user_ns") + _account("system_ns")), _account("wall_ns"))),
    *(
        Metric(f"{name}_switches", f"{name.title()} switches", "", "lower", "store",
            f"{name} context switches of the account", _account(f"{name}_switches"))
        for name in ("voluntary", "involuntary")
    ),
    *(
        Metric(f"fs_{name}", f"File-system {name}", "", "lower", "store",
            f"file-system {name} of the account, in units of 512 bytes", _account(f"fs_{name}"))
        for name in ("inputs", "outputs")
    ),
    Metric("fs_outputs_per_write", "File-system outputs per record written", "", "lower", "store",
        "file-system outputs / records written", over(_account("fs_outputs"), "write_count")),
    Metric("database_bytes", "Database size", "B", "lower", "store",
        "bytes allocated to the database after it was closed"),
    Metric("space_amplification", "Space amplification", "", "lower", "store",
        "database_bytes / bytes of all records", "database_bytes / record_bytes"),
    Metric("store_write_amplification", "Store writes over application writes", "", "lower", "store",
        "512 x file-system outputs / bytes the application wrote", over(_HANDED_OVER, "write_bytes"), is_compared=True),
    Metric("file_system_write_amplification", "Device writes over store writes", "", "lower", "store",
        "bytes the block device wrote, without those of other processes / (512 x file-system outputs); withheld with "
        "more than 5 % of other processes",
        over(pl.when(pl.col("write_bytes") > 0).then(own("device_write_bytes", "foreign_write_share")), _HANDED_OVER),
        is_compared=True),
    Metric("cancelled_write_percent", "Deleted before writeback, %", "", "neither", "store",
        "100 x bytes deleted or truncated before writeback / (512 x file-system outputs)",
        over(100 * pl.col("cancelled_write_bytes"), _HANDED_OVER)),
    Metric("stalled_seconds", "Write stalls", "s", "lower", "store",
        "time of write stalls reported by the store, summed over threads, at most until the end",
        in_seconds(pl.col("stalled_ns"))),
    Metric("cached_percent_at_start", "Database in memory, %", "", "neither", "store",
        "100 x bytes of data in the page cache / bytes of data in the database's files, both at measurement start",
        over(100 * pl.col("cached_bytes_at_start"), "database_bytes_at_start")),
    Metric("block_cache_hit_ratio", "Block cache hit ratio", "", "higher", "store",
        "blocks (WiredTiger: pages) found in the store's own cache / look-ups in it",
        over("block_cache_hits", pl.col("block_cache_hits") + pl.col("block_cache_misses"))),
    Metric("read_cache_hit_ratio", "Read cache hit ratio", "", "higher", "store",
        "blocks found in RocksDB's persistent read cache / look-ups in it, which follow misses of the block cache",
        over("read_cache_hits", pl.col("read_cache_hits") + pl.col("read_cache_misses"))),
    Metric("values_checked", "Values checked", "", "neither", "store",
        "values read and compared with the expected ones"),
    Metric("values_missing", "Records missing", "", "lower", "store", "records requested and not found"),
    Metric("values_corrupted", "Values corrupted", "", "lower", "store", "values that differ from the expected ones"),
)  # fmt: skip
"""In the order of docs/metrics.md."""

METRICS = (*_ACCOUNTS, *_OF_CACHES, *_OF_CASSANDRA)


def until_durable(sums: pl.DataFrame) -> pl.DataFrame:
    """Count what devices took of a run until all was durable: pages may reach them long after the measurement.

    All of a run that began with an empty database. Of one that found its database there, the measurement's share by
    file-system outputs. Of one that had to load it first writes are not reported: they cannot be attributed. The server
    of a cache writes by itself, and does not do so for the run's end.
    """
    if sums.filter(_IS_STORE).is_empty():
        return sums
    reported = _account("wall_ns").is_not_null() & pl.col("run_device_write_bytes").is_not_null()
    whole = reported & _STARTED_EMPTY
    share = over(_account("fs_outputs"), "child_fs_outputs")
    of_measurement = pl.when(pl.col("database_kept")).then(pl.col("run_device_write_bytes") * share)
    return sums.with_columns(
        device_read_bytes=pl.when(whole).then("run_device_read_bytes").otherwise("device_read_bytes"),
        device_write_bytes=pl.when(whole)
        .then("run_device_write_bytes")
        .when(pl.col("store_kind").is_in(CACHES))
        .then("device_write_bytes")
        .when(reported)
        .then(of_measurement)
        .otherwise("device_write_bytes"),
    )


ADJUSTMENTS = (until_durable,)
