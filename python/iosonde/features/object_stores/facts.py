"""Facts and metrics of object stores: checked objects, CPU of the daemons, write amplification, recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from iosonde.metrics.metric import Metric, over
from iosonde.results.column import NUMBER, U64, facts
from iosonde.results.schema import Record


class ObjectFacts:
    """The parts of a record about objects, and about the object daemon that was stopped; empty without them."""

    def __init__(self, record: Record) -> None:
        self.objects: Mapping[str, Any] = (record.result or {}).get("objects") or {}
        self.outage: Mapping[str, Any] = (record.server or {}).get("osd_outage") or {}


COLUMNS = facts(
    ObjectFacts,
    ("objects_loaded", U64, "objects written before the load", "objects.loaded"),
    ("objects_checked", U64, "reads whose contents were compared in full", "objects.checked"),
    ("objects_wrong", U64, "reads that did not return what was written", "objects.wrong"),
    ("objects_deleted", U64, "objects deleted after the measurement", "objects.deleted"),
    ("osd_stopped_seconds", NUMBER, "time from the measurement's start to the kill of an object daemon, s",
        "outage.stopped_seconds"),
    ("osd_restarted_seconds", NUMBER, "time from the measurement's start to its restart, s",
        "outage.restarted_seconds"),
    ("osd_recovery_seconds", NUMBER, "time from its restart until all placement groups were `active+clean`, s",
        "outage.recovery_seconds"),
    words="Object store: ",
)  # fmt: skip
"""Columns of `runs` about object stores."""


_IS_OBJECTS = pl.col("workload") == "objects"
_DATA_BYTES = pl.col("group_write_bytes") - pl.col("bluestore_wal_bytes") - pl.col("bluestore_db_bytes")


METRICS = (
    Metric("osd_cpu_ns_per_op", "OSD CPU time per operation", "ns", "lower", "store",
        "CPU time of all object daemons / operations of clients",
        pl.when(_IS_OBJECTS).then(over("server_cpu_ns", "count")), per_interval=True),
    *(
        Metric(name, f"{title} per written byte", "", "lower", "store",
            f"{formula} / bytes that clients wrote, counted by the object daemons",
            pl.when(_IS_OBJECTS).then(over(column, "osd_client_write_bytes")))
        for name, title, formula, column in (
            ("objects_device_write_amplification", "Device bytes",
                "bytes that the object daemons wrote to devices", "group_write_bytes"),
            ("bluestore_wal_per_written_byte", "BlueStore WAL",
                "bytes of the write-ahead log of BlueStore's database", "bluestore_wal_bytes"),
            ("bluestore_db_per_written_byte", "BlueStore DB",
                "bytes of tables of BlueStore's database and of BlueFS's own log", "bluestore_db_bytes"),
        )
    ),
    # Its counters are not read at the same time.
    Metric("bluestore_data_per_written_byte", "BlueStore data per written byte", "", "lower", "store",
        "(bytes written to devices - write-ahead log - database) / bytes that clients wrote",
        pl.when(_IS_OBJECTS).then(over(_DATA_BYTES, "osd_client_write_bytes")), can_be_negative=True),
    Metric("osd_recovery_seconds", "Recovery time", "s", "lower", "store",
        "from the start of the stopped object daemon until it was active and all placement groups were `active+clean`, "
        "read every 2 s"),
    Metric("objects_checked", "Objects compared", "", "neither", "count",
        "reads whose contents were compared in full with what was written"),
    Metric("objects_wrong", "Wrong objects", "", "lower", "count", "reads that did not return what was written"),
)  # fmt: skip
"""Metrics of object stores, in the order of docs/metrics.md."""


COUNTERS = (
    ("osd_client_writes", "Writes of clients, counted by object daemons"),
    ("osd_client_reads", "Reads of clients, counted by object daemons"),
    ("osd_client_write_bytes", "Bytes that clients wrote, counted by object daemons"),
    ("osd_client_read_bytes", "Bytes that clients read, counted by object daemons"),
    ("osd_replica_write_bytes", "Bytes that object daemons sent each other as copies"),
    ("osd_recovery_operations", "Objects that object daemons recovered"),
    ("bluestore_wal_bytes", "Bytes of the write-ahead log of BlueStore's database"),
    ("bluestore_db_bytes", "Bytes of tables of BlueStore's database and of BlueFS's own log"),
    ("bluestore_deferred_bytes", "Bytes of data that BlueStore wrote to its log first and in place later"),
    ("ceph_control_cpu_ns", "CPU time of the monitor and the manager, ns"),
)
