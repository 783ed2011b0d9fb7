"""Facts and metrics of the hosts of a run; empty on one machine."""

from __future__ import annotations

from iosonde.features.many_hosts.record import Hosts, jain_index
from iosonde.metrics.metric import Metric
from iosonde.results.column import NUMBER, U32, U64, facts

COLUMNS = facts(
    lambda record: record.of(Hosts),
    ("measured", U32, "Hosts that took part in the run (`--hosts`)", lambda hosts: len(hosts.shares)),
    ("start_skew_ns", U64, "From the start of the first host to the start of the last job", "skew_ns"),
    ("start_skew_bound_ns", U64, "Largest error of `hosts_start_skew_ns`", "skew_bound_ns"),
    ("coordinator_cpu_share", NUMBER,
        "CPU time of the coordinator from the start to the end of the load, as a share of a core"),
    ("jain_index", NUMBER, "Jain's index of the operations of all hosts",
        lambda hosts: jain_index([share.count for share in hosts.shares])),
    prefix="hosts_",
)  # fmt: skip
"""Columns of `runs` about several hosts."""


METRICS = (
    Metric("host_fairness", "Fairness between hosts", "", "higher", "rate",
        "Jain's index: square of the sum of all hosts' operations / (hosts × sum of their squares)",
        "hosts_jain_index"),
)  # fmt: skip
"""In the order of docs/metrics.md."""
