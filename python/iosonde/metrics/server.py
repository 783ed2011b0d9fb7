"""Metrics of a server: CPU time, I/O, hits of its buffer pool, waiting sessions, recovery."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, in_seconds, over
from iosonde.results.run_facts.server_counters import COUNTED_NS, COUNTERS, DATA_BYTES, STATES

SERVER_FACTS = (*COUNTERS, DATA_BYTES, *STATES)
"""Facts that follow from the statistics of the server, of a run and of each of its intervals."""

SERVER_SECONDS = in_seconds(pl.col(COUNTED_NS))
"""Time between the readings of the server's counters, for their rates."""


def _share(state: str, title: str, formula: str) -> Metric:
    return Metric(
        name=f"{state}_share",
        title=title,
        unit="",
        formula=f"mean number of sessions {formula} / mean number of active sessions",
        better="lower",
        kind="store",
        expression=over(f"sessions_{state}", "sessions_active"),
        per_interval=True,
    )


METRICS = (
    Metric(
        name="server_cores",
        title="Cores used by the server",
        unit="",
        formula="CPU time of the server's processes / seconds",
        better="neither",
        kind="store",
        expression=over(in_seconds(pl.col("server_cpu_ns")), SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="wal_bandwidth",
        title="Write-ahead log bandwidth",
        unit="B/s",
        formula="bytes of log that the server generated / seconds",
        better="neither",
        kind="store",
        expression=over("wal_bytes", SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="server_data_bandwidth",
        title="Bandwidth of data page writes",
        unit="B/s",
        formula="bytes of data pages that the server wrote (checkpoints, background writers, sessions) / seconds",
        better="neither",
        kind="store",
        expression=over("server_data_bytes", SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="server_write_bandwidth",
        title="File system write bandwidth of the server",
        unit="B/s",
        formula="bytes that the server's control group wrote / seconds",
        better="neither",
        kind="store",
        expression=over("group_write_bytes", SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="buffer_hit_ratio",
        title="Buffer hit ratio",
        unit="",
        formula="page requests that hit the buffer pool / page requests",
        better="higher",
        kind="store",
        expression=over(pl.col("buffer_hits"), pl.col("buffer_hits") + pl.col("buffer_reads")),
        per_interval=True,
    ),
    _share("waiting_for_lock", "Share of sessions waiting for locks", "waiting for a lock"),
    _share("waiting_for_log", "Share of sessions waiting for the log", "waiting for the write-ahead log"),
    _share("waiting_for_io", "Share of sessions waiting for I/O", "waiting for reads or writes of data files"),
    Metric(
        name="checkpoints_per_minute",
        title="Checkpoints per minute",
        unit="",
        formula="checkpoints in the measurement / minutes",
        better="neither",
        kind="store",
        expression=over(60 * pl.col("checkpoints"), SERVER_SECONDS),
        per_interval=True,
    ),
    Metric(
        name="lost_commits",
        title="Acknowledged commits lost",
        unit="",
        formula="acknowledged commits that the restarted server does not have",
        better="lower",
        kind="count",
    ),
    Metric(
        name="acknowledged_commits",
        title="Acknowledged commits",
        unit="",
        formula="commits that were acknowledged before the server was killed",
        better="neither",
        kind="count",
    ),
    Metric(
        name="recovery_seconds",
        title="Recovery time",
        unit="s",
        formula="first accepted connection - restart of the killed server",
        better="lower",
        kind="time",
    ),
    Metric(
        name="restore_seconds",
        title="Time to restore the database",
        unit="s",
        formula="copying the template and comparing the copy",
        better="lower",
        kind="time",
    ),
)
"""Metrics of runs on a database server, in the order of docs/metrics.md."""
