"""Metrics of a server that is a host of the study."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over

_DEVICE = over(1_000_000 * pl.col("server_disk_read_ms"), "server_load_operations")


_COUNTED = (
    Metric(
        name="server_host_cpu_share",
        title="CPU of the server",
        unit="",
        formula="CPU time of the server / (time × its CPUs)",
        better="lower",
        kind="device",
        expression=pl.col("server_host_cpu_share"),
    ),
    Metric(
        name="server_thread_wait_share",
        title="Calls that found no idle thread of the server",
        unit="",
        formula="calls for which no thread of nfsd was idle / calls that arrived",
        better="lower",
        kind="device",
        expression=pl.col("server_thread_wait_share"),
    ),
    Metric(
        name="server_disk_busy_share",
        title="Utilization of the server's busiest drive",
        unit="",
        formula="time with I/O in flight / time",
        better="neither",
        kind="device",
        expression=pl.col("server_disk_busy_share"),
    ),
    Metric(
        name="server_disk_read_ratio",
        title="Bytes read from the server's drives",
        unit="",
        formula="bytes read from the server's drives / bytes that the load read in the same time",
        better="neither",
        kind="device",
        expression=over("server_disk_read_bytes", "server_load_read_bytes"),
    ),
    Metric(
        name="server_disk_write_ratio",
        title="Bytes written to the server's drives",
        unit="",
        formula="bytes written to the server's drives / bytes that the load wrote in the same time",
        better="neither",
        kind="device",
        expression=over("server_disk_write_bytes", "server_load_write_bytes"),
    ),
)
"""Metrics of its counters alone."""


def metrics(server: pl.Expr, is_divided: pl.Expr) -> tuple[Metric, ...]:
    """The metrics of the server; `server` is its part of the latency, where that is divided."""
    is_known = is_divided & (pl.col("server_is_divided") == 1)
    device = pl.min_horizontal(_DEVICE, server)
    return (
        Metric(
            name="network_path_server_device_ns_mean",
            title="Server's device",
            unit="ns",
            formula="time of the reads of the server's drives / operations, at most the part of the server",
            better="lower",
            kind="time",
            expression=pl.when(is_known).then(device),
        ),
        Metric(
            name="network_path_server_queue_ns_mean",
            title="Server's CPU and queue",
            unit="ns",
            formula="part of the server - that of its device",
            better="lower",
            kind="time",
            expression=pl.when(is_known).then(server - device),
        ),
        Metric(
            name="network_path_server_whole_ns_mean",
            title="Server, not divided",
            unit="ns",
            formula="part of the server, where it is not divided into its device and the rest",
            better="lower",
            kind="time",
            expression=pl.when(is_divided & (pl.col("server_is_divided").fill_null(0) == 0)).then(server),
        ),
        *_COUNTED,
    )
