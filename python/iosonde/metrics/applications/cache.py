"""Metrics of runs on a cache server: hit ratios of its tiers, extstore, and what a get costs."""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.metrics.applications.server import SERVER_SECONDS
from iosonde.metrics.metric import Metric, over

_HITS = pl.col("get_hits") - pl.col("miss_from_extstore").fill_null(0)
_IN_MEMORY = pl.col("get_hits") - pl.col("get_extstore").fill_null(0)
_IN_EXTSTORE = pl.col("get_extstore") - pl.col("miss_from_extstore").fill_null(0)


def _ratio(name: str, title: str, formula: str, hits: pl.Expr) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="",
        formula=f"{formula} / gets",
        better="higher",
        kind="store",
        expression=over(hits, pl.col("cmd_get")),
        per_interval=True,
    )


def _per_second(
    name: str,
    title: str,
    formula: str,
    column: str,
    *,
    unit: str = "1/s",
    better: Literal["lower", "neither"] = "neither",
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        formula=f"{formula} / seconds",
        better=better,
        kind="store",
        expression=over(column, SERVER_SECONDS),
        per_interval=True,
    )


def _per_get(name: str, title: str, unit: str, formula: str, column: str, *, per_interval: bool = False) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        formula=f"{formula} / gets",
        better="lower",
        kind="store",
        expression=over(column, "cmd_get"),
        per_interval=per_interval,
    )


LIST = (
    Metric(
        name="gets_per_sec",
        title="Gets per second",
        unit="1/s",
        formula="gets that the server counted / seconds",
        better="higher",
        kind="store",
        expression=over("cmd_get", SERVER_SECONDS),
        per_interval=True,
    ),
    _ratio("cache_hit_ratio", "Hit ratio", "gets that returned a value", _HITS),
    _ratio("memory_hit_ratio", "Hit ratio of memory", "gets that returned a value from memory", _IN_MEMORY),
    _ratio("extstore_hit_ratio", "Hit ratio of extstore", "gets that returned a value from extstore", _IN_EXTSTORE),
    _per_second(
        "evictions_per_sec",
        "Evictions per second",
        "items removed from memory before they expired",
        "evictions",
        better="lower",
    ),
    _per_second("extstore_reads_per_sec", "Reads of extstore", "values read from extstore", "extstore_objects_read"),
    _per_second(
        "extstore_writes_per_sec", "Writes to extstore", "values written to extstore", "extstore_objects_written"
    ),
    _per_second(
        "extstore_read_bandwidth",
        "Read bandwidth of extstore",
        "bytes read from extstore",
        "extstore_bytes_read",
        unit="B/s",
    ),
    _per_second(
        "extstore_write_bandwidth",
        "Write bandwidth of extstore",
        "bytes written to extstore",
        "extstore_bytes_written",
        unit="B/s",
    ),
    _per_second(
        "extstore_compactions_per_sec",
        "Values moved by compactions of extstore",
        "values that a compaction of extstore wrote again",
        "extstore_compact_rescues",
        better="lower",
    ),
    _per_second(
        "extstore_evictions_per_sec",
        "Evictions from extstore",
        "values in pages of extstore that were freed",
        "extstore_objects_evicted",
        better="lower",
    ),
    _per_get(
        "major_faults_per_get",
        "Major faults per get",
        "",
        "page faults with I/O of the server's control group",
        "server_major_faults",
        per_interval=True,
    ),
    _per_get(
        "swap_in_bytes_per_get",
        "Swap-in per get",
        "B",
        "bytes that the machine read from swap",
        "server_swap_in_bytes",
        per_interval=True,
    ),
    _per_get(
        "swap_out_bytes_per_get",
        "Swap-out per get",
        "B",
        "bytes that the machine wrote to swap",
        "server_swap_out_bytes",
        per_interval=True,
    ),
    _per_get(
        "server_cpu_ns_per_get",
        "Server CPU time per get",
        "ns",
        "CPU time of the server's processes",
        "server_cpu_ns",
        per_interval=True,
    ),
    _per_get(
        "server_read_bytes_per_get",
        "File system reads per get",
        "B",
        "bytes that the server's control group read",
        "group_read_bytes",
        per_interval=True,
    ),
    _per_get(
        "device_read_bytes_per_get",
        "Device reads per get",
        "B",
        "bytes the block device read in the measurement",
        "device_read_bytes",
    ),
    _per_get(
        "device_write_bytes_per_get",
        "Device writes per get",
        "B",
        "bytes the block device wrote in the measurement",
        "device_write_bytes",
    ),
)
"""Metrics of runs on a cache, in the order of docs/metrics.md."""
