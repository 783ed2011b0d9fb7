"""Decisions that a run permits: an application meets the latency that it sees, whatever limited the run.

Only this machine withholds a decision, in one direction: CPU time that others took and I/O of others on the device make
storage look slower, and memory of this machine that served I/O makes it look faster. A run of the former kind can pass
a requirement that its value is clear of, and one of the latter can fail it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from iosonde.findings.support import OF_THE_SYSTEM
from iosonde.metrics.limit_test import Floats
from iosonde.results.run_facts import busiest_thread
from iosonde.verdict.evidence import SOME
from iosonde.verdict.rules import Bias, rules
from iosonde.workload import described, streams_of

if TYPE_CHECKING:
    from iosonde.procedure.limits import Limit
    from iosonde.results.schema import Record, RecordVerdict

Use = Literal["both", "pass", "fail", "neither"]
"""Outcomes that a run can lead to; `pass` only with a value that is clear of the limit."""

_LOST = ("stalled_share", "cpu_wait_share", "steal_share")
"""Evidence of time in which the load was not applied."""


def is_usable(record: Record) -> bool:
    """Return True if a run can pass and fail a requirement."""
    if record.outcome != "complete":
        return False
    return record.verdict is None or record.verdict.kind in OF_THE_SYSTEM or biases(record) == {"none"}


def use_of(record: Record, limit: Limit | None) -> Use:
    """Return the outcomes that a complete run can lead to; `limit` is the limit on blocks of time."""
    if is_usable(record):
        return "both"
    is_known = all(each.code in rules() for each in record.warnings)  # One of lost hosts or credits has any bias.
    found = biases(record) - {"none"} if is_known else set()
    if found == {"faster"}:
        return "fail"
    return "pass" if found == {"slower"} and limit and _can_pass(record, limit) else "neither"


def biases(record: Record) -> set[Bias]:
    """Return the biases of the warnings that decided the verdict; empty where other rules decided it."""
    load = record.spec["workload"]
    if record.verdict is None or described(load).rules(load) != "evidence":
        return set()
    known = [rules()[each.code] for each in record.warnings if each.code in rules()]
    found = {each.bias for each in known if each.points_to != "note"}
    if record.verdict.kind == "cache-served":
        found.add("faster")
    if "faster reads" in found:
        is_known = record.verdict.evidence.get("read_from_memory_share") is not None
        found = (found - {"faster reads"}) | {"faster" if reads(load) and not is_known else "none"}
    return found


def reads(load: dict[str, Any]) -> bool:
    """Return True if a load of block I/O has reads."""
    return any(stream["mix"]["read_fraction"] > 0 for stream in streams_of(load) if "mix" in stream)


def _can_pass(record: Record, limit: Limit) -> bool:
    """Return True if a run that was only slowed can pass this limit.

    A response latency counts from the intended start and a rate counts what was done: both include time without a CPU.
    A completion latency does not include I/O that was not submitted in that time. It counts if the load was applied for
    nearly all of the time.
    """
    if limit.kind == "rate":
        return not limit.is_upper
    return limit.latency == "response_latency" or (record.verdict is not None and _is_load_applied(record.verdict))


def _is_load_applied(verdict: RecordVerdict) -> bool:
    lost = [verdict.evidence.get(name) for name in _LOST]
    is_known = all(each is not None for each in lost)
    return verdict.kind == "undetermined" and is_known and sum(each or 0.0 for each in lost) <= SOME


@dataclass(frozen=True, kw_only=True)
class CpuWaits:
    """Waiting for a CPU that may be part of the measured latencies, at most."""

    time_share: float
    """Share of the time in which a thread that became ready may have found no CPU idle."""
    job_ns: float
    """Sum over the operations that were in flight while their job waited."""

    def explain(self, latencies_ns: Floats, counts: Floats, threshold_ns: float) -> float:
        """Return the share of operations that can be slower than a threshold because of waits alone.

        The waits of jobs are enough for those that are the least above the threshold; threads of the kernel, whose
        waits are not known, are as likely to find no CPU as `time_share`. `latencies_ns` are in ascending order.
        """
        is_slow = latencies_ns > threshold_ns
        beyond, slow = latencies_ns[is_slow] - threshold_ns, counts[is_slow]
        before = np.cumsum(beyond * slow) - beyond * slow
        explained = np.clip((self.job_ns - before) / np.maximum(beyond, 1.0), 0.0, slow).sum()
        total = float(counts.sum())
        return min(1.0, max(self.time_share, float(explained) / total if total else 0.0))


def cpu_waits_of(records: Sequence[Record]) -> CpuWaits:
    """Return the waits of some runs; none on virtual time, and where the kernel does not report them."""
    measured = [each for each in records if each.verdict is not None and each.result is not None]
    return CpuWaits(
        time_share=max((_busy_share(each) for each in measured), default=0.0),
        job_ns=float(sum(map(_job_waits_ns, measured))),
    )


def _busy_share(record: Record) -> float:
    """Return the share of time in which others used all CPUs, as if each were busy independently, or a job waited."""
    assert record.verdict and record.result, "a measured run"
    evidence = record.verdict.evidence
    cpus = ((record.result.get("evidence") or {}).get("machine") or {}).get("cpus") or 1
    taken = (evidence.get("other_cpu_share") or 0.0) + (evidence.get("steal_share") or 0.0)
    return float(min(1.0, max(taken**cpus, evidence.get("cpu_wait_share") or 0.0)))


def _job_waits_ns(record: Record) -> int:
    depths = {each["name"]: each.get("queue_depth", 1) for each in streams_of(record.spec["workload"])}
    jobs = (record.result or {}).get("jobs", ())
    return sum(depths.get(job["stream"], 1) * (busiest_thread.cpu_wait_ns(job) or 0) for job in jobs)
