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
