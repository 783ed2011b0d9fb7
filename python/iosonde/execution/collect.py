"""Rows of the tables in `results/stored_tables.py`, built from interval events during a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from iosonde.protocol.event import DeviceUsage, Histogram, IntervalEvent, OperationInterval
from iosonde.results.histogram import BUCKETS
from iosonde.results.schema import HISTOGRAMS, INTERVALS, NAMED_VALUES, STORE_STATISTICS, USAGE

_TOO_LARGE = np.array([BUCKETS, 1 << 63], dtype=np.uint64)
"""Bounds of the number of a bucket and of its count."""


class Collector:
    """The intervals of one run; a histogram that cannot be stored raises `ValueError`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._intervals: list[dict[str, Any]] = []
        self._histograms: list[dict[str, Any]] = []
        self._buckets: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        self._usage: list[dict[str, Any]] = []
        self._statistics: list[dict[str, Any]] = []
        self._values: list[dict[str, Any]] = []

    def add(self, event: IntervalEvent) -> None:
        """Add an `interval` event."""
        place = {"run_id": self._run_id, "phase": event["phase"], "interval": event["index"]}
        timed = {**place, "begin_ns": event["begin_ns"], "end_ns": event["end_ns"]}
        stalled_ns = event.get("stalled_ns", 0)
        for stream in event["streams"]:
            shared = {**timed, "stream": stream["stream"], "backlog_max": stream["backlog_max"]}
            shared["engine_stalled_ns"] = stalled_ns
            # A stalled stream leaves a row without an operation; `frames` gives it those that the stream has.
            counts = [_counts(operation) for operation in stream["operations"]] or [{"operation": None}]
            self._intervals += [shared | each for each in counts]
            for operation in stream["operations"]:
                self._add_histograms({**place, "stream": stream["stream"]}, operation)
        self._usage.append({**timed, "device": "process", **event["process"]})
        self._usage += [{**timed, **_flat(device)} for device in event["devices"]]

        statistics = event.get("store", {}).items()
        if any(value >> 63 for _, value in statistics):
            raise ValueError("a statistic of the store is out of range")
        self._statistics += [
            {**place, "end_ns": event["end_ns"], "statistic": name, "value": value} for name, value in statistics
        ]

    def add_values(self, values: Iterable[Mapping[str, Any]], metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Add values of an external command, whose metrics the study defines."""
        for each in values:
            definition = {name: metrics[each["metric"]][name] for name in ("title", "unit", "better", "aggregate")}
            self._values.append({"run_id": self._run_id, **definition, **each})

    def values(self) -> pl.DataFrame:
        """The values of an external command; empty of other workloads."""
        return pl.DataFrame(self._values, schema=NAMED_VALUES)

    def store_statistics(self) -> pl.DataFrame:
        """The store's own statistics so far; empty of block I/O."""
        return pl.DataFrame(self._statistics, schema=STORE_STATISTICS)

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Intervals, histograms and usage so far."""
        intervals = _with_stalls(pl.DataFrame(self._intervals, schema=INTERVALS))
        return intervals, self._histogram_frame(), pl.DataFrame(self._usage, schema=USAGE)

    def _add_histograms(self, place: dict[str, Any], operation: OperationInterval) -> None:
        for latency, histogram in _histograms(operation):
            if histogram["buckets"]:
                self._histograms.append({**place, "operation": operation["operation"], "latency": latency})
                # NumPy holds a bucket in 16 bytes, the parsed list in ten times that.
                buckets = np.array(histogram["buckets"], dtype=np.uint64)
                if (buckets >= _TOO_LARGE).any():
                    raise ValueError("a bucket of a histogram is out of range")
                self._buckets.append(buckets)

    def _histogram_frame(self) -> pl.DataFrame:
        keys = {name: dtype for name, dtype in HISTOGRAMS.items() if name not in ("bucket", "count")}
        lengths = [len(buckets) for buckets in self._buckets]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        buckets = np.concatenate([np.empty((0, 2), dtype=np.uint64), *self._buckets])
        frame = pl.DataFrame(self._histograms, schema=keys)[rows]
        return frame.with_columns(
            pl.Series("bucket", buckets[:, 0], dtype=pl.UInt64).cast(pl.UInt32),
            pl.Series("count", buckets[:, 1], dtype=pl.UInt64),
        )


def _flat(device: DeviceUsage) -> dict[str, Any]:
    """Counters of a device, with those of its media (simulated drives)."""
    counters = {name: value for name, value in device.items() if name != "media"}
    return {**counters, **(device.get("media") or {})}


def _counts(operation: OperationInterval) -> dict[str, Any]:
    row: dict[str, Any] = {
        "operation": operation["operation"],
        "count": operation["count"],
        "bytes": operation["bytes"],
        "errors": operation["errors"],
    }
    for latency, histogram in _histograms(operation):
        row[f"{latency}_latency_ns_sum"] = histogram["sum_ns"]
        row[f"{latency}_latency_ns_min"] = histogram["min_ns"] if histogram["count"] else None
        row[f"{latency}_latency_ns_max"] = histogram["max_ns"] if histogram["count"] else None
    return row


def _histograms(operation: OperationInterval) -> Iterator[tuple[str, Histogram]]:
    """The latencies that were measured; a closed loop has no response latency."""
    yield "completion", operation["completion_latency"]
    response = operation.get("response_latency")
    if response:
        yield "response", response


def _with_stalls(intervals: pl.DataFrame) -> pl.DataFrame:
    """Add rows of 0 for operations of a stream that did not complete in an interval.

    The engine reports only operations that completed, and a time series must show stalls.
    """
    occurred = intervals.filter(pl.col("operation").is_not_null())
    place = ("run_id", "phase", "interval", "begin_ns", "end_ns", "stream", "backlog_max", "engine_stalled_ns")
    slots = intervals.select(place).unique()
    kinds = occurred.group_by("stream", "operation").agg(response=pl.col("response_latency_ns_sum").is_not_null().any())
    silent = slots.join(kinds, on="stream").join(occurred, on=["phase", "interval", "stream", "operation"], how="anti")
    zeros = silent.with_columns(
        *(pl.lit(0).alias(name) for name in ("count", "bytes", "errors", "completion_latency_ns_sum")),
        response_latency_ns_sum=pl.when("response").then(0),
    ).drop("response")
    filled = pl.concat([occurred, zeros.cast({name: INTERVALS[name] for name in zeros.columns})], how="diagonal")
    order = pl.col("begin_ns", "stream", "operation")
    return filled.select(INTERVALS.names()).sort(order)
