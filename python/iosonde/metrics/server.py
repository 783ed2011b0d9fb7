"""Metrics of a server: CPU time, I/O, hits of its buffer pool, waiting sessions, recovery."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric, in_seconds, over, store_metric
from iosonde.results.run_facts.server_counters import COUNTED_NS, COUNTERS, DATA_BYTES, STATES

SERVER_FACTS = (*COUNTERS, DATA_BYTES, *STATES)
"""Facts that follow from the statistics of the server, of a run and of each of its intervals."""

SERVER_SECONDS = in_seconds(pl.col(COUNTED_NS))
"""Time between the readings of the server's counters, for their rates."""


def _share(state: str, title: str, formula: str) -> Metric:
    return store_metric(
        f"{state}_share",
        title,
        f"mean number of sessions {formula} / mean number of active sessions",
        over(f"sessions_{state}", "sessions_active"),
    )


METRICS = (
    store_metric(
        "server_cores",
        "Cores used by the server",
        "CPU time of the server's processes / seconds",
        over(in_seconds(pl.col("server_cpu_ns")), SERVER_SECONDS),
        "neither",
    ),
    store_metric(
        "wal_bandwidth",
        "Write-ahead log bandwidth",
        "bytes of log that the server generated / seconds",
        over("wal_bytes", SERVER_SECONDS),
        "neither",
        unit="B/s",
    ),
    store_metric(
        "server_data_bandwidth",
        "Bandwidth of data page writes",
        "bytes of data pages that the server wrote (checkpoints, background writers, sessions) / seconds",
        over("server_data_bytes", SERVER_SECONDS),
        "neither",
        unit="B/s",
    ),
    store_metric(
        "server_write_bandwidth",
        "File system write bandwidth of the server",
        "bytes that the server's control group wrote / seconds",
        over("group_write_bytes", SERVER_SECONDS),
        "neither",
        unit="B/s",
    ),
    store_metric(
        "buffer_hit_ratio",
        "Buffer hit ratio",
        "page requests that hit the buffer pool / page requests",
        over(pl.col("buffer_hits"), pl.col("buffer_hits") + pl.col("buffer_reads")),
        "higher",
    ),
    _share("waiting_for_lock", "Share of sessions waiting for locks", "waiting for a lock"),
    _share("waiting_for_log", "Share of sessions waiting for the log", "waiting for the write-ahead log"),
    _share("waiting_for_io", "Share of sessions waiting for I/O", "waiting for reads or writes of data files"),
    store_metric(
        "checkpoints_per_minute",
        "Checkpoints per minute",
        "checkpoints in the measurement / minutes",
        over(60 * pl.col("checkpoints"), SERVER_SECONDS),
        "neither",
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
