"""CPU time of the busiest thread of a job.

A job is one thread, unless the backend can have only one I/O in flight in each: blocking calls in the place of
`io_uring`. Then `usage` and `cpu_wait_ns` are sums, and `pacing.threads` has the busiest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def count(job: Json) -> int:
    """Number of threads of a job."""
    threads = _threads(job)
    return 1 if threads is None else int(threads["count"])


def cpu_ns(job: Json) -> int:
    """CPU time of the busiest thread."""
    threads, usage = _threads(job), job["usage"]
    return int(usage["user_ns"] + usage["system_ns"] if threads is None else threads["busiest_cpu_ns"])


def cpu_wait_ns(job: Json) -> int | None:
    """Time in which it was ready to run and had no CPU; None where the kernel does not report it."""
    threads, pacing = _threads(job), job.get("pacing") or {}
    wait = pacing.get("cpu_wait_ns") if threads is None else threads.get("busiest_cpu_wait_ns")
    return None if wait is None else int(wait)


def _threads(job: Json) -> Json | None:
    """The threads of a job that has several."""
    found: Json | None = (job.get("pacing") or {}).get("threads")
    return found
