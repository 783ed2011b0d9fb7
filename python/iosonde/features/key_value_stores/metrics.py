"""Facts of a key-value run: the kernel's account of it, its database, and how often each byte was written.

A run that began with an empty database is the load, from the engine's start to its end, as `time(1)` accounts for a
benchmark; of any other only the measurement counts, since what it began with may have been loaded by the same process.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from iosonde.features.key_value_stores.cassandra import metrics as cassandra
from iosonde.features.key_value_stores.memcached import metrics as memcached
from iosonde.features.key_value_stores.memcached.settings import CACHES
from iosonde.metrics.metric import Metric, in_seconds, over, own, store_metric

_IS_STORE = pl.col("workload") == "kv"
_STARTED_EMPTY = pl.col("started_empty").fill_null(value=False)

SECTOR_BYTES = 512
"""Bytes of a file-system input or output (getrusage(2))."""


def _account(name: str) -> pl.Expr:
    """A resource in the account of a run: of the whole process where it began with an empty database."""
    return pl.when(_IS_STORE).then(pl.when(_STARTED_EMPTY).then(f"child_{name}").otherwise(f"process_{name}"))


_HANDED_OVER = _account("fs_outputs") * SECTOR_BYTES


_metric = partial(store_metric, per_interval=False)


def _hit_ratio(name: str, title: str, formula: str) -> Metric:
    hits, misses = pl.col(f"{name}_hits"), pl.col(f"{name}_misses")
    return _metric(f"{name}_hit_ratio", f"{title} hit ratio", formula, over(hits, hits + misses), better="higher")


_ACCOUNTS = (
    _metric("wall_seconds", "Wall time", "wall-clock time of the account", in_seconds(_account("wall_ns")), unit="s"),
    _metric(
        "user_seconds", "User time", "user-mode CPU time of the account", in_seconds(_account("user_ns")), unit="s"
    ),
    _metric(
        "system_seconds",
        "System time",
        "kernel-mode CPU time of the account",
        in_seconds(_account("system_ns")),
        unit="s",
    ),
    _metric(
        "cpu_percent",
        "CPU %",
        "100 x (user + system time) / wall time",
        over(100 * (_account("user_ns") + _account("system_ns")), _account("wall_ns")),
    ),
    *(
        _metric(
            f"{name}_switches",
            f"{name.title()} switches",
            f"{name} context switches of the account",
            _account(f"{name}_switches"),
        )
        for name in ("voluntary", "involuntary")
    ),
    *(
        _metric(
            f"fs_{name}",
            f"File-system {name}",
            f"file-system {name} of the account, in units of 512 bytes",
            _account(f"fs_{name}"),
        )
        for name in ("inputs", "outputs")
    ),
    _metric(
        "fs_outputs_per_write",
        "File-system outputs per record written",
        "file-system outputs / records written",
        over(_account("fs_outputs"), "write_count"),
    ),
    _metric("database_bytes", "Database size", "bytes allocated to the database after it was closed", unit="B"),
    _metric(
        "space_amplification",
        "Space amplification",
        "database_bytes / bytes of all records",
        over("database_bytes", "record_bytes"),
    ),
    _metric(
        "store_write_amplification",
        "Store writes over application writes",
        "512 x file-system outputs / bytes the application wrote",
        over(_HANDED_OVER, "write_bytes"),
        is_compared=True,
    ),
    _metric(
        "file_system_write_amplification",
        "Device writes over store writes",
        "bytes the block device wrote, without those of other processes / (512 x file-system outputs); withheld with "
        "more than 5 % of other processes",
        over(pl.when(pl.col("write_bytes") > 0).then(own("device_write_bytes", "foreign_write_share")), _HANDED_OVER),
        is_compared=True,
    ),
    _metric(
        "cancelled_write_percent",
        "Deleted before writeback, %",
        "100 x bytes deleted or truncated before writeback / (512 x file-system outputs)",
        over(100 * pl.col("cancelled_write_bytes"), _HANDED_OVER),
        better="neither",
    ),
    _metric(
        "stalled_seconds",
        "Write stalls",
        "time of write stalls reported by the store, summed over threads, at most until the end",
        in_seconds(pl.col("stalled_ns")),
        unit="s",
    ),
    _metric(
        "cached_percent_at_start",
        "Database in memory, %",
        "100 x bytes of data in the page cache / bytes of data in the database's files, both at measurement start",
        over(100 * pl.col("cached_bytes_at_start"), "database_bytes_at_start"),
        better="neither",
    ),
    _hit_ratio(
        "block_cache", "Block cache", "blocks (WiredTiger: pages) found in the store's own cache / look-ups in it"
    ),
    _hit_ratio(
        "read_cache",
        "Read cache",
        "blocks found in RocksDB's persistent read cache / look-ups in it, which follow misses of the block cache",
    ),
    _metric("values_checked", "Values checked", "values read and compared with the expected ones", better="neither"),
    _metric("values_missing", "Records missing", "records requested and not found"),
    _metric("values_corrupted", "Values corrupted", "values that differ from the expected ones"),
)
"""In the order of docs/metrics.md."""

METRICS = (*_ACCOUNTS, *memcached.METRICS, *cassandra.METRICS)


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
