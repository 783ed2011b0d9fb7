"""Runs that were only slowed by what disturbed them: they can pass a requirement, and cannot fail one.

CPU time that others took and I/O of others on the device lower rates and lengthen latencies. What can make storage look
faster is no such disturbance: a cache, burst credits, a load that was not the planned one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.verdict.warning_kinds import SOME, WARNINGS
from iosonde.workload import described

if TYPE_CHECKING:
    from iosonde.procedure.limits import Limit
    from iosonde.results.schema import Record, RecordVerdict

_LOST = ("stalled_share", "cpu_wait_share", "steal_share")
"""Evidence of time in which the load was not applied."""


def can_pass(record: Record, limit: Limit | None) -> bool:
    """Return True if a run that was disturbed can pass this limit.

    A response latency counts from the intended start and a rate counts what was done: both include time without a CPU.
    A completion latency does not include I/O that was not submitted in that time. It counts if the load was applied for
    nearly all of the time.
    """
    if limit is None or not _is_only_slowed(record):
        return False
    if limit.kind == "rate":
        return not limit.is_upper
    return limit.latency == "response_latency" or (record.verdict is not None and _is_load_applied(record.verdict))


def _is_only_slowed(record: Record) -> bool:
    """Return True if every warning names something that only slows, and at least one decides the verdict.

    A warning with another code, such as one of burst credits or lost hosts, is not known to be one-sided.
    """
    load = record.spec["workload"]
    if record.outcome != "complete" or record.verdict is None or described(load).rules(load) != "evidence":
        return False
    known = [WARNINGS[each.code] for each in record.warnings if each.code in WARNINGS]
    deciding = [each for each in known if each.points_to not in ("note", "network-limited", "server-limited")]
    is_slowed = record.verdict.kind in ("undetermined", "harness-limited") and len(known) == len(record.warnings)
    return is_slowed and bool(deciding) and all(each.only_slows for each in deciding)


def _is_load_applied(verdict: RecordVerdict) -> bool:
    lost = [verdict.evidence.get(name) for name in _LOST]
    is_known = all(each is not None for each in lost)
    return verdict.kind == "undetermined" and is_known and sum(each or 0.0 for each in lost) <= SOME
