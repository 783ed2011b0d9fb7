"""Metrics of an array: work of its kernel threads, and time to rebuild."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, over

METRICS = (
    Metric(
        name="array_cpu_ns_per_byte",
        title="CPU time of the array's threads per byte",
        unit="ns",
        formula="CPU time of the kernel threads that work for the array / bytes",
        better="lower",
        kind="cpu",
        expression=over("array_cpu_ns", "bytes"),
    ),
    Metric(
        name="array_thread_utilisation",
        title="Utilisation of the array's thread",
        unit="",
        formula="CPU time of the array's busiest kernel thread / measured time",
        better="lower",
        kind="cpu",
        expression=pl.col("array_thread_share"),
    ),
    Metric(
        name="rebuild_seconds",
        title="Time to rebuild a member",
        unit="s",
        formula="seconds of the run / share of the member rebuilt in that time",
        better="lower",
        kind="device",
        expression=over("rebuild_share_seconds", "rebuild_share"),
    ),
)
