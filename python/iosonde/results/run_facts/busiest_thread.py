"""CPU time of the busiest thread of a job.

A job is one thread, unless the backend can have only one I/O in flight in each: blocking calls in the place of
`io_uring`. The engine reports the sums of such threads in `usage` and `cpu_wait_ns`. Engines that report the busiest of
them have it in `pacing.threads`; of others it is taken for their mean, since all of them do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def lanes(result: Json, streams: Sequence[Json], job: Json) -> int:
    """Number of threads of a job, as backend and queue depth require it."""
    if (result.get("backend") or {}).get("kind") != "sync":
        return 1
    return next((int(each.get("queue_depth", 1)) for each in streams if each["name"] == job["stream"]), 1)


def count(job: Json, lanes: int) -> int:
    """Number of threads of a job."""
    return int(_threads(job).get("count", lanes))


def cpu_ns(job: Json, lanes: int) -> int:
    """CPU time of the busiest thread."""
    usage = job["usage"]
    return int(_threads(job).get("busiest_cpu_ns", (usage["user_ns"] + usage["system_ns"]) // lanes))


def cpu_wait_ns(job: Json, lanes: int) -> int | None:
    """Time in which it was ready to run and had no CPU; None where the kernel does not report it."""
    total = (job.get("pacing") or {}).get("cpu_wait_ns")
    wait = _threads(job).get("busiest_cpu_wait_ns", None if total is None else total // lanes)
    return None if wait is None else int(wait)


def _threads(job: Json) -> Json:
    return (job.get("pacing") or {}).get("threads") or {}
