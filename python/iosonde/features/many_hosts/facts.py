"""Facts about the hosts of a run; empty on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.features.many_hosts.fairness import jain_index
from iosonde.features.many_hosts.record import Hosts
from iosonde.results.column import NUMBER, U32, U64, Column
from iosonde.results.schema import Record

if TYPE_CHECKING:
    from iosonde.results.run_facts.run import RunFacts


def _hosts(record: Record) -> Hosts | None:
    return record.of(Hosts)


def _count(run: RunFacts) -> int | None:
    part = run.of(_hosts)
    return len(part.shares) if part else None


def _skew_ns(run: RunFacts) -> int | None:
    part = run.of(_hosts)
    return part.skew_ns if part else None


def _skew_bound_ns(run: RunFacts) -> int | None:
    part = run.of(_hosts)
    return part.skew_bound_ns if part else None


def _coordinator_cpu_share(run: RunFacts) -> float | None:
    part = run.of(_hosts)
    return part.coordinator_cpu_share if part else None


def _fairness(run: RunFacts) -> float | None:
    part = run.of(_hosts)
    return jain_index([share.count for share in part.shares]) if part else None


COLUMNS = (
    Column("hosts_measured", U32, "Hosts that took part in the run (`--hosts`)", _count),
    Column("hosts_start_skew_ns", U64, "From the start of the first host to the start of the last job", _skew_ns),
    Column("hosts_start_skew_bound_ns", U64, "Largest error of `hosts_start_skew_ns`", _skew_bound_ns),
    Column(
        "hosts_coordinator_cpu_share",
        NUMBER,
        "CPU time of the coordinator from the start to the end of the load, as a share of a core",
        _coordinator_cpu_share,
    ),
    Column("hosts_jain_index", NUMBER, "Jain's index of the operations of all hosts", _fairness),
)
"""Columns of `runs` about several hosts."""
