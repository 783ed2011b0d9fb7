"""What a key-value run took and left: the kernel's account of it, its database, and how often each byte was written.

A run that began with an empty database is the load, from the engine's start to its end, as `time(1)` accounts for a
benchmark; of any other only the measurement counts, since what it began with may have been loaded by the same process.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.metrics.metric import Metric, in_seconds, over
from iosonde.results.run_facts.own_io import MOST
from iosonde.workload import names_where

_ACCOUNTS = ("wall_ns", "user_ns", "system_ns", "voluntary_switches", "involuntary_switches", "fs_inputs", "fs_outputs")

ACCOUNT = tuple(f"account_{name}" for name in _ACCOUNTS)
"""Columns of the account of a run."""

SECTOR_BYTES = 512
"""What a file-system input or output is counted in (getrusage(2))."""


def own(device_bytes: str, foreign_share: str) -> pl.Expr:
    """A device's bytes without those of other processes; null if these are too many to be subtracted."""
    foreign = pl.col(foreign_share).fill_null(0.0)
    return pl.when(foreign <= MOST).then(pl.col(device_bytes) * (1 - foreign))


_HANDED_OVER = pl.col("account_fs_outputs") * SECTOR_BYTES


def _metric(
    name: str,
    title: str,
    formula: str,
    *,
    unit: str = "",
    better: Literal["higher", "lower", "neither"] = "lower",
    expression: pl.Expr | None = None,
) -> Metric:
    return Metric(
        name=name, title=title, unit=unit, formula=formula, better=better, kind="store", expression=expression
    )


LIST = (
    _metric(
        "wall_seconds",
        "Wall time",
        "wall-clock time of the account",
        unit="s",
        expression=in_seconds(pl.col("account_wall_ns")),
    ),
    _metric(
        "user_seconds",
        "User time",
        "user-mode CPU time of the account",
        unit="s",
        expression=in_seconds(pl.col("account_user_ns")),
    ),
    _metric(
        "system_seconds",
        "System time",
        "kernel-mode CPU time of the account",
        unit="s",
        expression=in_seconds(pl.col("account_system_ns")),
    ),
    _metric(
        "cpu_percent",
        "CPU %",
        "100 x (user + system time) / wall time",
        expression=over(100 * (pl.col("account_user_ns") + pl.col("account_system_ns")), "account_wall_ns"),
    ),
    _metric(
        "voluntary_switches",
        "Voluntary switches",
        "voluntary context switches of the account",
        expression=pl.col("account_voluntary_switches"),
    ),
    _metric(
        "involuntary_switches",
        "Involuntary switches",
        "involuntary context switches of the account",
        expression=pl.col("account_involuntary_switches"),
    ),
    _metric(
        "fs_inputs",
        "File-system inputs",
        "file-system inputs of the account, in units of 512 bytes",
        expression=pl.col("account_fs_inputs"),
    ),
    _metric(
        "fs_outputs",
        "File-system outputs",
        "file-system outputs of the account, in units of 512 bytes",
        expression=pl.col("account_fs_outputs"),
    ),
    _metric(
        "fs_outputs_per_write",
        "File-system outputs per record written",
        "file-system outputs / records written",
        expression=over("account_fs_outputs", "write_count"),
    ),
    _metric("database_bytes", "Database size", "bytes allocated to the database after it was closed", unit="B"),
    _metric(
        "space_amplification",
        "Space amplification",
        "database_bytes / bytes of all records",
        expression=over("database_bytes", "record_bytes"),
    ),
    _metric(
        "store_write_amplification",
        "Store writes over application writes",
        "512 x file-system outputs / bytes the application wrote",
        expression=over(_HANDED_OVER, "write_bytes"),
    ),
    _metric(
        "file_system_write_amplification",
        "Device writes over store writes",
        "bytes the block device wrote, without those of other processes / (512 x file-system outputs); withheld with "
        "more than 5 % of other processes",
        expression=over(
            pl.when(pl.col("write_bytes") > 0).then(own("device_write_bytes", "foreign_write_share")), _HANDED_OVER
        ),
    ),
    _metric(
        "cancelled_write_percent",
        "Deleted before writeback, %",
        "100 x bytes deleted or truncated before writeback / (512 x file-system outputs)",
        better="neither",
        expression=over(100 * pl.col("cancelled_write_bytes"), _HANDED_OVER),
    ),
    _metric(
        "stalled_seconds",
        "Write stalls",
        "time of write stalls reported by the store, summed over threads, at most until the end",
        unit="s",
        expression=in_seconds(pl.col("stalled_ns")),
    ),
    _metric(
        "cached_percent_at_start",
        "Database in memory, %",
        "100 x bytes of data in the page cache / bytes of data in the database's files, both at measurement start",
        better="neither",
        expression=over(100 * pl.col("cached_bytes_at_start"), "database_bytes_at_start"),
    ),
    _metric(
        "block_cache_hit_ratio",
        "Block cache hit ratio",
        "blocks (WiredTiger: pages) found in the store's own cache / look-ups in it",
        better="higher",
        expression=over("block_cache_hits", pl.col("block_cache_hits") + pl.col("block_cache_misses")),
    ),
    _metric(
        "read_cache_hit_ratio",
        "Read cache hit ratio",
        "blocks found in RocksDB's persistent read cache / look-ups in it, which follow misses of the block cache",
        better="higher",
        expression=over("read_cache_hits", pl.col("read_cache_hits") + pl.col("read_cache_misses")),
    ),
    _metric("values_checked", "Values checked", "values read and compared with the expected ones", better="neither"),
    _metric("values_missing", "Records missing", "records requested and not found"),
    _metric("values_corrupted", "Values corrupted", "values that differ from the expected ones"),
)
"""Metrics of key-value runs, in the order of docs/metrics.md."""


_DURABLE = names_where(lambda each: each.counts_until_durable)


def accounts(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the account of each run: of the whole process where it began with an empty database. Null of block I/O."""
    whole, is_store = pl.col("started_empty").fill_null(value=False), pl.col("workload").is_in(_DURABLE)
    return runs.with_columns(
        pl.when(is_store)
        .then(pl.when(whole).then(f"child_{name}").otherwise(f"process_{name}"))
        .alias(f"account_{name}")
        for name in _ACCOUNTS
    )


def over_the_run(table: pl.DataFrame) -> pl.DataFrame:
    """Count what devices took of a run until all was durable: pages may reach them long after the measurement.

    All of a run that began with an empty database. Of one that found its database there, the measurement's share by
    file-system outputs. Of one that had to load it first writes are not reported: they cannot be attributed.
    """
    reported = pl.col("account_wall_ns").is_not_null() & pl.col("run_device_write_bytes").is_not_null()
    whole = reported & pl.col("started_empty").fill_null(value=False)
    share = over("account_fs_outputs", "child_fs_outputs")
    of_measurement = pl.when(pl.col("database_kept")).then(pl.col("run_device_write_bytes") * share)
    return table.with_columns(
        device_read_bytes=pl.when(whole).then("run_device_read_bytes").otherwise("device_read_bytes"),
        device_write_bytes=pl.when(whole)
        .then("run_device_write_bytes")
        .when(pl.col("store_kind") == "memcached")  # Its server writes, and does not do so for the run's end.
        .then("device_write_bytes")
        .when(reported)
        .then(of_measurement)
        .otherwise("device_write_bytes"),
    )
