"""Tables of a record that are files: one row each per interval, latency bucket, statistic or named value."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from iosonde.results.column import NUMBER, TEXT, U32, U64, Column, DType, Table
from iosonde.results.histogram import BUCKETS

RUN_ID = Column("run_id", TEXT, "Run: case number and repeat", lambda run: run.record.run_id)

_PLACE = (
    RUN_ID,
    Column("phase", TEXT, "`ramp` or `measure`"),
    Column("interval", U32, "Number of the interval in its phase, from 0"),
)
_BEGIN = Column("begin_ns", U64, "Start of the interval, ns since the run's time 0")
_END = Column("end_ns", U64, "End of the interval, ns since the run's time 0")
_STREAM = Column("stream", TEXT, "Stream")
_OPERATION = Column("operation", TEXT, "`read`, `write`, `trim` or `flush`")

RESOURCES: Mapping[str, str] = {
    "wall_ns": "Elapsed time, ns",
    "user_ns": "User CPU time, ns",
    "system_ns": "System CPU time, ns",
    "voluntary_switches": "Voluntary context switches",
    "involuntary_switches": "Involuntary context switches",
    "minor_faults": "Minor page faults",
    "major_faults": "Major page faults",
    "fs_inputs": "File system inputs, in units of 512 bytes",
    "fs_outputs": "File system outputs, in units of 512 bytes",
}
"""Resource use of a process or thread: the protocol's `Usage`."""


def stored(dtype: DType, *columns: tuple[str, str]) -> tuple[Column, ...]:
    """Return columns of the same type from names and meanings."""
    return tuple(Column(name, dtype, text) for name, text in columns)


INTERVALS = Table(
    "One row per run, phase, interval, stream and operation: counts, and exact sum and extremes of latency",
    (
        *_PLACE,
        _BEGIN,
        _END,
        _STREAM,
        _OPERATION,
        *stored(
            U64,
            ("count", "I/Os completed without error"),
            ("bytes", "Bytes that they moved"),
            ("errors", "I/Os that failed or were short"),
            ("completion_latency_ns_sum", "Sum of completion latencies (submission to completion), ns"),
            ("completion_latency_ns_min", "Smallest completion latency, ns; null where nothing completed"),
            ("completion_latency_ns_max", "Largest completion latency, ns; null where nothing completed"),
            (
                "response_latency_ns_sum",
                "Sum of response latencies (intended start to completion), ns; null in closed loop",
            ),
            ("response_latency_ns_min", "Smallest response latency, ns; null in closed loop"),
            ("response_latency_ns_max", "Largest response latency, ns; null in closed loop"),
            ("backlog_max", "Open loop: largest number of I/Os due but not started"),
        ),
        Column(
            "engine_stalled_ns",
            U64,
            "Time in the interval during which the engine itself did not run, ns",
        ),
    ),
)

HISTOGRAMS = Table(
    "One row per occupied latency bucket of a run, phase, interval, stream and operation",
    (
        *_PLACE,
        _STREAM,
        _OPERATION,
        Column("latency", TEXT, "`completion` (submission to completion) or `response` (intended start to completion)"),
        Column("bucket", U32, "Number of the bucket (docs/protocol.md, Histogram)"),
        Column("count", U64, "I/Os in the bucket"),
        Column("lower_ns", U64, "Smallest latency of the bucket, ns", computed="bucket_lower_ns(bucket)"),
        Column(
            "midpoint_ns",
            U64,
            "Representative latency, within 0.1 % of every latency in the bucket, ns",
            computed="bucket_midpoint_ns(bucket)",
        ),
    ),
)

USAGE = Table(
    "One row per interval for the engine process and for each block device under the target",
    (
        *_PLACE,
        _BEGIN,
        _END,
        Column(
            "device",
            TEXT,
            "Block device as `major:minor`; `process` for the engine; `array`, `drive0` of a simulated target",
        ),
        *stored(
            U64,
            *RESOURCES.items(),
            ("reads", "Reads completed by the device"),
            ("read_merges", "Reads merged with queued ones"),
            ("read_bytes", "Bytes read"),
            ("read_wait_ns", "Sum of read wait times, ns"),
            ("writes", "Writes completed by the device"),
            ("write_merges", "Writes merged with queued ones"),
            ("write_bytes", "Bytes written"),
            ("write_wait_ns", "Sum of write wait times, ns"),
            ("in_flight", "I/Os in flight at the end of the interval"),
            ("busy_ns", "Time with any I/O in flight, ns"),
            ("discards", "Discards completed"),
            ("discard_bytes", "Bytes discarded"),
            ("flushes", "Flushes completed"),
        ),
        *stored(
            U64,
            ("media_read_bytes", "Bytes read from the media; simulated drives only"),
            ("media_write_bytes", "Bytes programmed: host data, copies and padding; simulated drives only"),
            ("copied_bytes", "Bytes of these that garbage collection copied"),
            ("padded_bytes", "Bytes of these that padded pages incomplete at a flush"),
            ("erases", "Erased blocks, of one die each"),
            ("buffer_read_hits", "Reads (4 KiB pages) served from the write buffer"),
            ("buffer_write_hits", "Writes (4 KiB pages or parts) that replaced data still in the write buffer"),
        ),
    ),
)

STORE_STATISTICS = Table(
    "One row per statistic of a store, or counter of the kernel (swap, block caches), at the end of an interval",
    (
        *_PLACE,
        _END,
        Column("statistic", TEXT, "Name, as the store calls it"),
        Column("value", U64, "Value: a counter since the store was opened, or a state"),
    ),
)

NAMED_VALUES = Table(
    "One row per value that an external command printed: one for the run, or one for each line over time",
    (
        RUN_ID,
        Column("metric", TEXT, "Name that the study gives the value"),
        Column("title", TEXT, "Its title"),
        Column("unit", TEXT, "Unit: `1/s`, `B/s`, `B`, `ns`, `s`, or empty for counts and ratios"),
        Column("better", TEXT, "`higher`, `lower` or `neither`"),
        Column("aggregate", TEXT, "How the value of a run follows from several: `mean`, `median`, `minimum` ..."),
        Column("point", U32, "Number of the value in the run, from 0"),
        _BEGIN,
        _END,
        Column("value", NUMBER, "Value in that unit"),
    ),
)

TABLES: Mapping[str, Table] = {
    "intervals": INTERVALS,
    "histograms": HISTOGRAMS,
    "usage": USAGE,
    "store_statistics": STORE_STATISTICS,
    "named_values": NAMED_VALUES,
}
"""The stored tables by name."""

_LARGEST = (1 << 63) - 1
"""Metrics are computed with signed integers."""


def check_numbers(rows: pl.DataFrame) -> None:
    """Raise `ValueError` for numbers of a stored table that no run has and that arithmetic would stop at."""
    for name, kind in rows.schema.items():
        if kind == pl.UInt64 and (rows[name] > _LARGEST).any():
            raise ValueError(f"a number in the column `{name}` is out of range")
    if "bucket" in rows.columns and (rows["bucket"] >= BUCKETS).any():
        raise ValueError("a number in the column `bucket` is not a bucket")
