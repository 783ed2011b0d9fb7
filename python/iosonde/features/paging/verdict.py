"""Verdict on a paging run: device-limited, harness-limited (CPU), cache-served, or undetermined.

A thread that waits for a major fault waits for the device and for the kernel's work around it. If threads spent most of
their time so, the device is the limit; without any major fault, memory served every access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iosonde.results.schema import Record
from iosonde.verdict import shares
from iosonde.verdict.evidence import Total
from iosonde.verdict.judge import Judge
from iosonde.verdict.shares import BUSY, percent
from iosonde.verdict.verdict import Kind, Verdict

FAULTING = 0.5
"""Share of the threads' time in major faults from which the device is the limit."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PagingEvidence(shares.Shares):
    """Shares of the threads' time, and of the device's; None where nothing was reported."""

    major_fault_share: float
    """Time in accesses that caused major faults over the time of all threads."""
    minor_fault_share: float
    """Time in accesses that caused minor faults over the time of all threads."""
    thread_cpu_share: float
    """CPU time of the threads over their time."""
    device_busy_share: float | None
    """Time in which the busiest device had I/O in flight."""
    major_faults: float
    """Number of accesses that caused major faults."""


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict:
    """Return the verdict on a run that has a result."""
    evidence = evidence_of(record.result or {}, totals)
    kind, because = _decided(evidence)
    return Verdict(kind=kind, because=(because,), warnings=(), evidence=evidence.to_json())


def evidence_of(result: Json, totals: Sequence[Total]) -> PagingEvidence:
    """The shares over the measurement."""
    threads_ns = shares.wall_ns(result) * max(1, len(result["jobs"]))
    times = {name: 0 for name in ("major_fault", "minor_fault")}
    counts = dict(times)
    for total in totals:
        if total.operation in times:
            times[total.operation] += total.completion_latency_ns_sum
            counts[total.operation] += total.count
    return PagingEvidence(
        major_fault_share=shares.share(times["major_fault"], threads_ns) or 0.0,
        minor_fault_share=shares.share(times["minor_fault"], threads_ns) or 0.0,
        thread_cpu_share=shares.mean(shares.cpu_shares(result)),
        device_busy_share=shares.device_busy_share(result),
        major_faults=counts["major_fault"],
    )


def _decided(evidence: PagingEvidence) -> tuple[Kind, str]:
    in_faults = f"the threads spent {percent(evidence.major_fault_share)} of their time in major faults"
    if not evidence.major_faults:
        return "cache-served", "no access caused a major fault: memory served all of them"
    if evidence.major_fault_share >= FAULTING:
        return "device-limited", in_faults
    if evidence.thread_cpu_share >= BUSY:
        return (
            "harness-limited",
            f"the threads used {percent(evidence.thread_cpu_share)} of a CPU each, and {in_faults}",
        )
    return "undetermined", in_faults


JUDGES = (Judge("faults", judge),)
