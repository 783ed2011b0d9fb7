"""Accounts of a run: bytes of devices that may not have been the engine's, and CPU time of threads and cores.

A device's bytes, from a record's `own_io`:

    exactly attributed    device - engine's own
    else, others present  the lesser of that, and what they wrote, plus what the engine did not dirty if that cannot be
                          the journal's
    else                  none

Reads are attributed exactly; writes if they are direct and without flushes: the kernel writes back pages and journals
for all processes. Others are present if they had files open for writing on the device. With every flush of a file the
journal of its file system writes as well, in a thread of the kernel, more than the engine dirtied.

A job is one thread, unless the backend can have only one I/O in flight in each: blocking calls in the place of
`io_uring`. Then `usage` and `cpu_wait_ns` are sums, and `pacing.threads` has the busiest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iosonde.plan import target_of
from iosonde.study.workload import described

Json = Mapping[str, Any]

COUNTED_NS = "server_counted_ns"
"""The clock of a server, read with its counters: their increase over its own is their rate."""
MOST = 0.05
"""Largest share with which a device's bytes count as the engine's."""
LEAST_BYTES = 1 << 20
"""Fewer foreign bytes are ignored: a file system writes some by itself."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Bytes of other processes on the devices of a run; None where that is not known."""

    read_bytes: int | None = None
    write_bytes: int | None = None
    read_share: float | None = None
    write_share: float | None = None
    share: float | None = None
    """Of all bytes of the devices; at least, where either of both is not known."""


def foreign(own_io: Json | None, workload: Json) -> Foreign:
    """The foreign bytes of a measurement; of the whole run with key-value stores, whose writes count until durable."""
    if not own_io:
        return Foreign()
    rows = _rows(own_io, workload)
    is_counted = own_io.get("version") is not None
    read = _unattributed(rows, "read") if is_counted else None
    is_exact = is_counted and _is_plain(workload)
    written = _unattributed(rows, "write") if is_exact else _bound(own_io, rows, is_journaled=_is_journaled(workload))
    moved = sum(row["read_bytes"] + row["write_bytes"] for row in rows)
    return Foreign(
        read_bytes=read,
        write_bytes=written,
        read_share=_share(read, rows, "read"),
        write_share=_share(written, rows, "write"),
        share=((read or 0) + (written or 0)) / moved if moved else None,
    )


def own_bytes(own_io: Json | None, workload: Json, what: str) -> tuple[int, int] | None:
    """The engine's own bytes, at most, and all bytes of the devices, in the same account; None where not counted."""
    rows = _rows(own_io, workload) if own_io and own_io.get("version") is not None else []
    return (sum(row[f"own_{what}_bytes"] for row in rows), sum(row[f"{what}_bytes"] for row in rows)) if rows else None


def _rows(own_io: Json, workload: Json) -> list[Json]:
    """The account by device; empty if a counter was reset in between, so that less was counted than before."""
    rows: list[Json] = own_io["run" if described(workload).io == "store" else "measure"]
    is_reset = any(value < 0 for row in rows for name, value in row.items() if name != "device")
    return [] if is_reset else rows


def _unattributed(rows: list[Json], what: str) -> int | None:
    """Bytes that are not those of the engine's control group."""
    if not rows:
        return None
    return int(sum(max(0, row[f"{what}_bytes"] - row[f"own_{what}_bytes"]) for row in rows))


def _bound(own_io: Json, rows: list[Json], *, is_journaled: bool) -> int | None:
    """Most bytes that others can have written."""
    unattributed, others = _unattributed(rows, "write"), own_io["others"]
    if unattributed is None or (others["unreadable"] and own_io.get("version") is None):
        return None  # Without privileges neither the group nor the processes of others are visible.
    if not others["are_present"]:
        return 0
    unexplained = 0 if is_journaled else max(0, unattributed - own_io["dirtied_bytes"])
    return int(min(unattributed, others["write_bytes"] + unexplained))


def _share(foreign_bytes: int | None, rows: list[Json], what: str) -> float | None:
    if foreign_bytes is None:
        return None
    if foreign_bytes < LEAST_BYTES:
        return 0.0
    return float(foreign_bytes / sum(row[f"{what}_bytes"] for row in rows))


def _is_plain(workload: Json) -> bool:
    """Return True if all writes are direct and without flushes."""
    return described(workload).io == "blocks" and all(
        stream["io_mode"] == "direct" and stream["durability"]["kind"] == "none" for stream in workload["streams"]
    )


def _is_journaled(workload: Json) -> bool:
    """Return True if the run flushes files, so that the journal of their file system writes for it."""
    flushes = described(workload).io != "blocks" or any(
        stream["durability"]["kind"] != "none" for stream in workload["streams"]
    )
    return flushes and target_of(workload)["kind"] != "device"


def kernel_cpu_ns(evidence: Json) -> int | None:
    """Return the CPU time of all kernel threads; None where they are not visible, as in containers."""
    kernel = evidence.get("kernel")
    return sum(each["cpu_ns"] for each in kernel["threads"]) if kernel and kernel["wall_ns"] else None


def busiest_core_share(evidence: Json) -> float | None:
    """Return the share of the measurement in which the busiest core was not idle; None where not reported."""
    cores = [(each["busy_ns"], each["busy_ns"] + each["idle_ns"]) for each in evidence.get("cores") or []]
    return max((busy / passed for busy, passed in cores if passed), default=None)


def allowed_cpus(evidence: Json) -> int:
    """Return the number of CPUs that jobs may use, by the kernel's lists such as `0-3,8`; 0 where it is not known."""
    lists = evidence.get("job_cpus")
    if not lists:
        return int((evidence.get("machine") or {}).get("cpus", 0))
    ranges = [part.partition("-") for text in lists for part in text.split(",") if part]
    return len(set().union(*(range(int(first), int(last or first) + 1) for first, _, last in ranges)))


def thread_count(job: Json) -> int:
    """Number of threads of a job."""
    threads = _threads(job)
    return 1 if threads is None else int(threads["count"])


def busiest_thread_cpu_ns(job: Json) -> int:
    """CPU time of the busiest thread."""
    threads, usage = _threads(job), job["usage"]
    return int(usage["user_ns"] + usage["system_ns"] if threads is None else threads["busiest_cpu_ns"])


def busiest_thread_wait_ns(job: Json) -> int | None:
    """Time in which it was ready to run and had no CPU; None where the kernel does not report it."""
    threads, pacing = _threads(job), job.get("pacing") or {}
    wait = pacing.get("cpu_wait_ns") if threads is None else threads.get("busiest_cpu_wait_ns")
    return None if wait is None else int(wait)


def _threads(job: Json) -> Json | None:
    """The threads of a job that has several."""
    found: Json | None = (job.get("pacing") or {}).get("threads")
    return found
