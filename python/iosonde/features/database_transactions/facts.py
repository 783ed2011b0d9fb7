"""Metrics of transactions: throughput, and the cost of each at client, server and device."""

from __future__ import annotations

import polars as pl

from iosonde.features.database_transactions.workload import WORKLOADS
from iosonde.metrics.metric import Metric, over

_ON_SERVER = pl.col("workload").is_in([each.name for each in WORKLOADS])


METRICS = (
    Metric("tpmc", "tpmC", "", "higher", "rate",
        "new-order transactions completed / minutes",
        pl.when(pl.col("workload") == "tpcc").then(60 * pl.col("new_order_count") / pl.col("seconds")), counted="tpmC"),
    Metric("transactions_per_sec", "Transactions per second", "1/s", "higher", "rate",
        "transactions completed / seconds, on a database server", pl.when(_ON_SERVER).then(over("count", "seconds")),
        per_interval=True, counted="transactions/s"),
    *(
        Metric(f"{name}_per_transaction", f"{title} per transaction", unit, "lower", "store",
            f"{formula} / transactions", pl.when(_ON_SERVER).then(over(column, "count")), per_interval=per_interval)
        for name, title, unit, formula, column, per_interval in (
            ("server_cpu_ns", "Server CPU time", "ns", "CPU time of the server's processes", "server_cpu_ns", True),
            ("wal_bytes", "Write-ahead log", "B", "bytes of log that the server generated", "wal_bytes", True),
            ("server_data_bytes", "Data pages written", "B",
                "bytes of data pages that the server wrote", "server_data_bytes", True),
            ("server_write_bytes", "File system writes", "B",
                "bytes that the server's control group wrote", "group_write_bytes", True),
            ("device_write_bytes", "Device writes", "B",
                "bytes the block device wrote in the measurement", "device_write_bytes", False),
            ("device_read_bytes", "Device reads", "B",
                "bytes the block device read in the measurement", "device_read_bytes", False),
            ("round_trips", "Round trips", "", "times that the clients waited for an answer", "round_trips", False),
        )
    ),
    Metric("abort_ratio", "Aborted attempts per transaction", "", "lower", "store",
        "attempts that ended in a serialization failure, deadlock or lock timeout / transactions",
        pl.when(_ON_SERVER).then(over("aborted_attempts", "count"))),
)  # fmt: skip
