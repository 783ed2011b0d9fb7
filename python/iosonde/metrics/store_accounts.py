"""What a key-value run took and left: the kernel's account of it, its database, and how often each byte was written.

A run that began with an empty database is the load, from the engine's start to its end, as `time(1)` accounts for a
benchmark; of any other only the measurement counts, since what it began with may have been loaded by the same process.
"""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over

_ACCOUNTS = (
    *("wall_ns", "user_ns", "system_ns", "voluntary_switches", "involuntary_switches", "fs_inputs", "fs_outputs"),
)

FACTS = (
    *(f"account_{name}" for name in _ACCOUNTS),
    *(
        "database_bytes",
        "record_bytes",
        "values_checked",
        "values_missing",
        "values_corrupted",
        "cached_bytes_at_start",
        "stalled_ns",
    ),
)
"""Columns that are said once for a run, at its widest scope."""

SECTOR_BYTES = 512
"""What a file-system input or output is counted in (getrusage(2))."""

_HANDED_OVER = pl.col("account_fs_outputs") * SECTOR_BYTES

LIST = (
    Metric(
        name="wall_seconds",
        title="Wall time",
        unit="s",
        formula="real time of the account",
        better="lower",
        kind="store",
        expression=pl.col("account_wall_ns") / 1e9,
    ),
    Metric(
        name="user_seconds",
        title="User time",
        unit="s",
        formula="user-mode CPU time of the account",
        better="lower",
        kind="store",
        expression=pl.col("account_user_ns") / 1e9,
    ),
    Metric(
        name="system_seconds",
        title="System time",
        unit="s",
        formula="kernel-mode CPU time of the account",
        better="lower",
        kind="store",
        expression=pl.col("account_system_ns") / 1e9,
    ),
    Metric(
        name="cpu_percent",
        title="CPU %",
        unit="",
        formula="100 x (user + system time) / wall time",
        better="lower",
        kind="store",
        expression=over(100 * (pl.col("account_user_ns") + pl.col("account_system_ns")), "account_wall_ns"),
    ),
    Metric(
        name="voluntary_switches",
        title="Voluntary switches",
        unit="",
        formula="voluntary context switches of the account",
        better="lower",
        kind="store",
        expression=pl.col("account_voluntary_switches"),
    ),
    Metric(
        name="involuntary_switches",
        title="Involuntary switches",
        unit="",
        formula="involuntary context switches of the account",
        better="lower",
        kind="store",
        expression=pl.col("account_involuntary_switches"),
    ),
    Metric(
        name="fs_inputs",
        title="File-system inputs",
        unit="",
        formula="file-system inputs of the account, in 512 bytes",
        better="lower",
        kind="store",
        expression=pl.col("account_fs_inputs"),
    ),
    Metric(
        name="fs_outputs",
        title="File-system outputs",
        unit="",
        formula="file-system outputs of the account, in 512 bytes",
        better="lower",
        kind="store",
        expression=pl.col("account_fs_outputs"),
    ),
    Metric(
        name="fs_outputs_per_write",
        title="File-system outputs per record written",
        unit="",
        formula="file-system outputs / records written",
        better="lower",
        kind="store",
        expression=over("account_fs_outputs", "write_count"),
    ),
    Metric(
        name="database_bytes",
        title="Database size",
        unit="B",
        formula="bytes allocated to the database after it was closed",
        better="lower",
        kind="store",
    ),
    Metric(
        name="space_amplification",
        title="Space amplification",
        unit="",
        formula="database_bytes / bytes of all records",
        better="lower",
        kind="store",
        expression=over("database_bytes", "record_bytes"),
    ),
    Metric(
        name="store_write_amplification",
        title="Store writes over application writes",
        unit="",
        formula="512 x file-system outputs / bytes the application wrote",
        better="lower",
        kind="store",
        expression=over(_HANDED_OVER, "write_bytes"),
    ),
    Metric(
        name="file_system_write_amplification",
        title="Device writes over store writes",
        unit="",
        formula="bytes the block device wrote / (512 x file-system outputs)",
        better="lower",
        kind="store",
        expression=over(pl.when(pl.col("write_bytes") > 0).then("device_write_bytes"), _HANDED_OVER),
    ),
    Metric(
        name="stalled_seconds",
        title="Write stalls",
        unit="s",
        formula="time for which the store says that it held writes back, summed over threads, at most until the end",
        better="lower",
        kind="store",
        expression=pl.col("stalled_ns") / 1e9,
    ),
    Metric(
        name="cached_percent_at_start",
        title="Database in memory, %",
        unit="",
        formula="100 x bytes of the database in the page cache when the measurement began / database_bytes",
        better="neither",
        kind="store",
        expression=over(100 * pl.col("cached_bytes_at_start"), "database_bytes"),
    ),
    Metric(
        name="values_checked",
        title="Values checked",
        unit="",
        formula="values read and compared with what their keys demand",
        better="neither",
        kind="store",
    ),
    Metric(
        name="values_missing",
        title="Records missing",
        unit="",
        formula="records that were asked for and not found",
        better="lower",
        kind="store",
    ),
    Metric(
        name="values_corrupted",
        title="Values corrupted",
        unit="",
        formula="values that are not what their keys demand",
        better="lower",
        kind="store",
    ),
)
"""Metrics of key-value runs, in the order of docs/metrics.md."""


def accounts(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the account of each run: of the whole process where it began with an empty database. Null of block I/O."""
    whole, is_store = pl.col("started_empty").fill_null(value=False), pl.col("workload") == "kv"
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
    told = pl.col("account_wall_ns").is_not_null() & pl.col("run_device_write_bytes").is_not_null()
    whole = told & pl.col("started_empty").fill_null(value=False)
    share = over("account_fs_outputs", "child_fs_outputs")
    of_measurement = pl.when(pl.col("database_kept")).then(pl.col("run_device_write_bytes") * share)
    return table.with_columns(
        device_read_bytes=pl.when(whole).then("run_device_read_bytes").otherwise("device_read_bytes"),
        device_write_bytes=pl.when(whole)
        .then("run_device_write_bytes")
        .when(told)
        .then(of_measurement)
        .otherwise("device_write_bytes"),
    )
