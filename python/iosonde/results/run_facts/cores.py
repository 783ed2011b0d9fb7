"""CPU time of the whole machine during the measurement, of any process: the kernel's threads, and the busiest core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.column import NUMBER, U64, Column

Json = Mapping[str, Any]


def kernel_cpu_ns(evidence: Json) -> int | None:
    """Return the CPU time of all kernel threads; None where they are not visible, as in containers."""
    kernel = evidence.get("kernel")
    return sum(each["cpu_ns"] for each in kernel["threads"]) if kernel and kernel["wall_ns"] else None


def busiest_share(evidence: Json) -> float | None:
    """Return the share of the measurement in which the busiest core was not idle; None where not reported."""
    cores = [(each["busy_ns"], each["busy_ns"] + each["idle_ns"]) for each in evidence.get("cores") or []]
    return max((busy / passed for busy, passed in cores if passed), default=None)


def allowed_count(evidence: Json) -> int:
    """Return the number of CPUs that jobs may use, by the kernel's lists such as `0-3,8`; 0 where it is not known."""
    lists = evidence.get("job_cpus")
    if not lists:
        return int((evidence.get("machine") or {}).get("cpus", 0))
    ranges = [part.partition("-") for text in lists for part in text.split(",") if part]
    return len(set().union(*(range(int(first), int(last or first) + 1) for first, _, last in ranges)))


COLUMNS = (
    Column(
        "kernel_cpu_ns",
        U64,
        "CPU time of all kernel threads during the measurement, ns; null where none is visible",
        lambda run: kernel_cpu_ns(run.part("evidence")),
    ),
    Column(
        "busiest_core_share",
        NUMBER,
        "Share of the measurement in which the busiest core was not idle",
        lambda run: busiest_share(run.part("evidence")),
    ),
)
