"""Verdict on a paging run: device-limited, harness-limited (CPU), cache-served, or undetermined.

A thread that waits for a major fault waits for the device and for the kernel's work around it. If threads spent most of
their time so, the device is the limit; without any major fault, memory served every access.
"""

from __future__ import annotations

from collections.abc import Sequence

from iosonde.metrics.verdict.evidence import Total, share_of
from iosonde.metrics.verdict.verdict import (
    BUSY,
    Verdict,
    device_busy_share,
    first,
    mean_job_cpu_share,
    wall_ns,
    whole_percent,
)
from iosonde.results.schema import Record


def judge(record: Record, totals: Sequence[Total], cpus: int) -> Verdict:
    """Return the verdict on a run that has a result."""
    result = record.result or {}
    threads_ns = wall_ns(result) * max(1, len(result["jobs"]))
    major, minor = ([each for each in totals if each.operation == f"{kind}_fault"] for kind in ("major", "minor"))
    in_major, in_minor = (
        share_of(sum(each.completion_latency_ns_sum for each in faults), threads_ns) or 0.0 for faults in (major, minor)
    )
    count, used = sum(each.count for each in major), mean_job_cpu_share(result)
    faulting = f"the threads spent {whole_percent(in_major)} of their time in major faults"
    busy = f"the threads used {whole_percent(used)} of a CPU each, and {faulting}"
    return first(
        [
            (not count, "cache-served", "no access caused a major fault: memory served all of them"),
            (in_major >= 0.5, "device-limited", faulting),
            (used >= BUSY, "harness-limited", busy),
        ],
        faulting,
        {
            "major_fault_share": in_major,
            "minor_fault_share": in_minor,
            "thread_cpu_share": used,
            "device_busy_share": device_busy_share(result),
            "major_faults": count,
        },
    )


JUDGES = (("faults", judge),)
