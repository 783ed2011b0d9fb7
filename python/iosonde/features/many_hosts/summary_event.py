"""The measurement of all hosts as one `interval` event, for the progress display."""

from __future__ import annotations

from typing import Any, cast

import polars as pl

from iosonde.execution.engine import EngineRun
from iosonde.protocol.event import IntervalEvent


def summary_event(done: EngineRun) -> IntervalEvent:
    """Return the sums over a measurement, which has at least one interval."""
    streams = [
        {
            "stream": stream,
            "operations": [_operation(row, done.histograms) for row in rows.iter_rows(named=True)],
            "backlog_max": 0,
        }
        for (stream,), rows in _sums(done.intervals).group_by("stream", maintain_order=True)
    ]
    times = {"begin_ns": done.intervals["begin_ns"].min(), "end_ns": done.intervals["end_ns"].max()}
    event = {"event": "interval", "phase": "measure", "index": 0, "streams": streams, "devices": [], **times}
    return cast("IntervalEvent", event)


def _sums(intervals: pl.DataFrame) -> pl.DataFrame:
    return intervals.group_by("stream", "operation", maintain_order=True).agg(
        pl.col("count", "bytes", "errors", "completion_latency_ns_sum", "response_latency_ns_sum").sum(),
        has_response=pl.col("response_latency_ns_sum").is_not_null().any(),
    )


def _operation(row: dict[str, Any], histograms: pl.DataFrame) -> dict[str, Any]:
    has_response = row.pop("has_response")
    own = histograms.filter(pl.col("stream") == row.pop("stream"), pl.col("operation") == row["operation"])
    sums = {name: row.pop(f"{name}_latency_ns_sum") for name in ("completion", "response")}
    latencies = {
        f"{name}_latency": {**_histogram(own, name), "sum_ns": sums[name]}
        for name in ("completion", "response")[: 1 + has_response]
    }
    return {**row, **latencies}


def _histogram(rows: pl.DataFrame, latency: str) -> dict[str, Any]:
    buckets = rows.filter(pl.col("latency") == latency).group_by("bucket").agg(pl.col("count").sum()).sort("bucket")
    return {"count": int(buckets["count"].sum()), "buckets": buckets.rows()}
