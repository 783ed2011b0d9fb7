"""Metrics of servers in a Java virtual machine, and the cost of an operation on a key-value store that is a server."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over
from iosonde.metrics.server import SERVER_SECONDS
from iosonde.results.run_facts.server_counters import COUNTED_NS

_ON_SERVER = pl.col("store_kind") == "cassandra"


METRICS = (
    Metric(
        name="gc_pauses_per_sec",
        title="Pauses of the garbage collector",
        unit="1/s",
        formula="pauses in the log of the Java virtual machine / seconds",
        better="lower",
        kind="store",
        expression=over("gc_pauses", SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="gc_pause_percent",
        title="Time in garbage collection, %",
        unit="",
        formula="100 x time in pauses of the garbage collector / seconds",
        better="lower",
        kind="store",
        expression=over(100 * pl.col("gc_paused_ns"), COUNTED_NS),
        per_interval=True,
    ),
    Metric(
        name="gc_pause_ns_mean",
        title="Mean pause of the garbage collector",
        unit="ns",
        formula="length of the pauses of the garbage collector / pauses",
        better="lower",
        kind="store",
        expression=over("gc_pause_ns", "gc_pauses"),
        per_interval=True,
    ),
    Metric(
        name="safepoint_percent",
        title="Time in safepoints, %",
        unit="",
        formula="100 x time in safepoints, those of garbage collections included / seconds",
        better="lower",
        kind="store",
        expression=over(100 * pl.col("safepoint_ns"), COUNTED_NS),
        per_interval=True,
    ),
    Metric(
        name="server_cpu_ns_per_operation",
        title="Server CPU time per operation",
        unit="ns",
        formula="CPU time of the server's processes / operations",
        better="lower",
        kind="store",
        expression=pl.when(_ON_SERVER).then(over("server_cpu_ns", "count")),
        per_interval=True,
    ),
    Metric(
        name="server_write_bytes_per_operation",
        title="File system writes per operation",
        unit="B",
        formula="bytes that the server's control group wrote / operations",
        better="lower",
        kind="store",
        expression=pl.when(_ON_SERVER).then(over("group_write_bytes", "count")),
        per_interval=True,
    ),
)
"""In the order of docs/metrics.md."""
