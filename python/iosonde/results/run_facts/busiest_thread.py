"""CPU time of the busiest thread of a job.

A job is one thread, unless the backend can have only one I/O in flight in each. The engine reports the sums of such
threads in `usage`, and the busiest of them in `pacing.threads`; earlier engines report the sums alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def count(job: Json) -> int:
    """Number of threads of a job."""
    return int(_threads(job).get("count", 1))


def cpu_ns(job: Json) -> int:
    """CPU time of the busiest thread."""
    usage = job["usage"]
    return int(_threads(job).get("busiest_cpu_ns", usage["user_ns"] + usage["system_ns"]))


def cpu_wait_ns(job: Json) -> int | None:
    """Time in which it was ready to run and had no CPU; None where the kernel does not report it."""
    pacing = job.get("pacing") or {}
    wait = _threads(job).get("busiest_cpu_wait_ns", pacing.get("cpu_wait_ns"))
    return None if wait is None else int(wait)


def _threads(job: Json) -> Json:
    return (job.get("pacing") or {}).get("threads") or {}
