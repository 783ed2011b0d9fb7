"""Metrics of runs on a cache server: hit ratios of its tiers, extstore, and what a get costs."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Better, Metric, over, store_metric
from iosonde.metrics.server import SERVER_SECONDS

_HITS = pl.col("get_hits") - pl.col("miss_from_extstore").fill_null(0)
_IN_MEMORY = pl.col("get_hits") - pl.col("get_extstore").fill_null(0)
_IN_EXTSTORE = pl.col("get_extstore") - pl.col("miss_from_extstore").fill_null(0)


def _ratio(name: str, title: str, formula: str, hits: pl.Expr) -> Metric:
    return store_metric(name, title, f"{formula} / gets", over(hits, "cmd_get"), "higher")


def _per_second(
    name: str, title: str, formula: str, column: str, better: Better = "neither", *, unit: str = "1/s"
) -> Metric:
    return store_metric(name, title, f"{formula} / seconds", over(column, SERVER_SECONDS), better, unit=unit)


def _per_get(name: str, title: str, unit: str, formula: str, column: str, *, per_interval: bool = True) -> Metric:
    expression = over(column, "cmd_get")
    return store_metric(name, title, f"{formula} / gets", expression, "lower", unit=unit, per_interval=per_interval)


METRICS = (
    _per_second("gets_per_sec", "Gets per second", "gets that the server counted", "cmd_get", "higher"),
    _ratio("cache_hit_ratio", "Hit ratio", "gets that returned a value", _HITS),
    _ratio("memory_hit_ratio", "Hit ratio of memory", "gets that returned a value from memory", _IN_MEMORY),
    _ratio("extstore_hit_ratio", "Hit ratio of extstore", "gets that returned a value from extstore", _IN_EXTSTORE),
    _per_second(
        "evictions_per_sec",
        "Evictions per second",
        "items removed from memory before they expired",
        "evictions",
        "lower",
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
        "lower",
    ),
    _per_second(
        "extstore_evictions_per_sec",
        "Evictions from extstore",
        "values in pages of extstore that were freed",
        "extstore_objects_evicted",
        "lower",
    ),
    _per_get(
        "major_faults_per_get",
        "Major faults per get",
        "",
        "page faults with I/O of the server's control group",
        "server_major_faults",
    ),
    *(
        _per_get(
            f"swap_{way}_bytes_per_get",
            f"Swap-{way} per get",
            "B",
            f"bytes that the machine {did} swap",
            f"server_swap_{way}_bytes",
        )
        for way, did in (("in", "read from"), ("out", "wrote to"))
    ),
    _per_get(
        "server_cpu_ns_per_get", "Server CPU time per get", "ns", "CPU time of the server's processes", "server_cpu_ns"
    ),
    _per_get(
        "server_read_bytes_per_get",
        "File system reads per get",
        "B",
        "bytes that the server's control group read",
        "group_read_bytes",
    ),
    *(
        _per_get(
            f"device_{way}_bytes_per_get",
            f"Device {way}s per get",
            "B",
            f"bytes the block device {did} in the measurement",
            f"device_{way}_bytes",
            per_interval=False,
        )
        for way, did in (("read", "read"), ("write", "wrote"))
    ),
)
"""Metrics of runs on a cache, in the order of docs/metrics.md."""
