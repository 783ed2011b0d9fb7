"""Metrics of object stores: CPU of the object daemons, write amplification of BlueStore, recovery."""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.metrics.metric import Metric, over, store_metric

_IS_OBJECTS = pl.col("workload") == "objects"


def _per_written_byte(name: str, title: str, formula: str, column: str) -> Metric:
    return store_metric(
        name,
        title,
        f"{formula} / bytes that clients wrote, counted by the object daemons",
        pl.when(_IS_OBJECTS).then(over(column, "osd_client_write_bytes")),
        per_interval=False,
    )


def _seconds(name: str, title: str, formula: str) -> Metric:
    better: Literal["lower"] = "lower"
    return Metric(name=name, title=title, unit="s", formula=formula, better=better, kind="store")


METRICS = (
    store_metric(
        "osd_cpu_ns_per_op",
        "OSD CPU time per operation",
        "CPU time of all object daemons / operations of clients",
        pl.when(_IS_OBJECTS).then(over("server_cpu_ns", "count")),
        unit="ns",
    ),
    _per_written_byte(
        "objects_device_write_amplification",
        "Device bytes per written byte",
        "bytes that the object daemons wrote to devices",
        "group_write_bytes",
    ),
    _per_written_byte(
        "bluestore_wal_per_written_byte",
        "BlueStore WAL per written byte",
        "bytes of the write-ahead log of BlueStore's database",
        "bluestore_wal_bytes",
    ),
    _per_written_byte(
        "bluestore_db_per_written_byte",
        "BlueStore DB per written byte",
        "bytes of tables of BlueStore's database and of BlueFS's own log",
        "bluestore_db_bytes",
    ),
    Metric(
        name="bluestore_data_per_written_byte",
        title="BlueStore data per written byte",
        unit="",
        formula="(bytes written to devices - write-ahead log - database) / bytes that clients wrote",
        better="lower",
        kind="store",
        can_be_negative=True,  # The counters are not read at the same time.
        expression=pl.when(_IS_OBJECTS).then(
            over(
                pl.col("group_write_bytes") - pl.col("bluestore_wal_bytes") - pl.col("bluestore_db_bytes"),
                "osd_client_write_bytes",
            )
        ),
    ),
    _seconds(
        "osd_recovery_seconds", "Recovery time", "from the start of the stopped object daemon until it was "
        "active and all placement groups were `active+clean`, read every 2 s",
    ),
    Metric(
        name="objects_checked",
        title="Objects compared",
        unit="",
        formula="reads whose contents were compared in full with what was written",
        better="neither",
        kind="count",
    ),
    Metric(
        name="objects_wrong",
        title="Wrong objects",
        unit="",
        formula="reads that did not return what was written",
        better="lower",
        kind="count",
    ),
)  # fmt: skip
"""Metrics of object stores, in the order of docs/metrics.md."""
