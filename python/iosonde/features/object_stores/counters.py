"""Statistics of Ceph's daemons whose increase over the measurement is a fact of a run."""

from __future__ import annotations

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
