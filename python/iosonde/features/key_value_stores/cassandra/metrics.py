"""Metrics of servers in a Java virtual machine, and the cost of an operation on a key-value store that is a server."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import over, store_metric
from iosonde.metrics.server import SERVER_SECONDS
from iosonde.results.run_facts.server_counters import COUNTED_NS

_ON_SERVER = pl.col("store_kind") == "cassandra"


METRICS = (
    store_metric(
        "gc_pauses_per_sec",
        "Pauses of the garbage collector",
        "pauses in the log of the Java virtual machine / seconds",
        over("gc_pauses", SERVER_SECONDS),
        unit="1/s",
    ),
    store_metric(
        "gc_pause_percent",
        "Time in garbage collection, %",
        "100 x time in pauses of the garbage collector / seconds",
        over(100 * pl.col("gc_paused_ns"), COUNTED_NS),
    ),
    store_metric(
        "gc_pause_ns_mean",
        "Mean pause of the garbage collector",
        "length of the pauses of the garbage collector / pauses",
        over("gc_pause_ns", "gc_pauses"),
        unit="ns",
    ),
    store_metric(
        "safepoint_percent",
        "Time in safepoints, %",
        "100 x time in safepoints, those of garbage collections included / seconds",
        over(100 * pl.col("safepoint_ns"), COUNTED_NS),
    ),
    store_metric(
        "server_cpu_ns_per_operation",
        "Server CPU time per operation",
        "CPU time of the server's processes / operations",
        pl.when(_ON_SERVER).then(over("server_cpu_ns", "count")),
        unit="ns",
    ),
    store_metric(
        "server_write_bytes_per_operation",
        "File system writes per operation",
        "bytes that the server's control group wrote / operations",
        pl.when(_ON_SERVER).then(over("group_write_bytes", "count")),
        unit="B",
    ),
)
"""In the order of docs/metrics.md."""
