"""Metrics of transactions: throughput, and the cost of each at client, server and device."""

from __future__ import annotations

import polars as pl

from iosonde.features.database_transactions.workload import WORKLOADS
from iosonde.metrics.metric import Metric, over, store_metric
from iosonde.metrics.server import SERVER_FACTS

_ON_SERVER = pl.col("workload").is_in([each.name for each in WORKLOADS])


def _per_transaction(name: str, title: str, unit: str, formula: str, column: str) -> Metric:
    return store_metric(
        f"{name}_per_transaction",
        f"{title} per transaction",
        f"{formula} / transactions",
        pl.when(_ON_SERVER).then(over(column, "count")),
        unit=unit,
        per_interval=column in SERVER_FACTS,
    )


METRICS = (
    Metric(
        name="tpmc",
        title="tpmC",
        unit="",
        formula="new-order transactions completed / minutes",
        better="higher",
        kind="rate",
        expression=pl.when(pl.col("workload") == "tpcc").then(60 * pl.col("new_order_count") / pl.col("seconds")),
        counted="tpmC",
    ),
    Metric(
        name="transactions_per_sec",
        title="Transactions per second",
        unit="1/s",
        formula="transactions completed / seconds, on a database server",
        better="higher",
        kind="rate",
        expression=pl.when(_ON_SERVER).then(over("count", "seconds")),
        per_interval=True,
        counted="transactions/s",
    ),
    _per_transaction("server_cpu_ns", "Server CPU time", "ns", "CPU time of the server's processes", "server_cpu_ns"),
    _per_transaction("wal_bytes", "Write-ahead log", "B", "bytes of log that the server generated", "wal_bytes"),
    _per_transaction(
        "server_data_bytes", "Data pages written", "B", "bytes of data pages that the server wrote", "server_data_bytes"
    ),
    _per_transaction(
        "server_write_bytes",
        "File system writes",
        "B",
        "bytes that the server's control group wrote",
        "group_write_bytes",
    ),
    _per_transaction(
        "device_write_bytes",
        "Device writes",
        "B",
        "bytes the block device wrote in the measurement",
        "device_write_bytes",
    ),
    _per_transaction(
        "device_read_bytes", "Device reads", "B", "bytes the block device read in the measurement", "device_read_bytes"
    ),
    _per_transaction("round_trips", "Round trips", "", "times that the clients waited for an answer", "round_trips"),
    store_metric(
        "abort_ratio",
        "Aborted attempts per transaction",
        "attempts that ended in a serialization failure, deadlock or lock timeout / transactions",
        pl.when(_ON_SERVER).then(over("aborted_attempts", "count")),
        per_interval=False,
    ),
)
