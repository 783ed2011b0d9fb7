"""Accesses to mapped memory as a workload: what a run needs, what it takes, and how its spec is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.features.paging import spec
from iosonde.features.paging.parameters import PagingParameters
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.workload import CLOSED, Hints, Layout, Rate, Spec, Workload

ASSUMED_OPERATIONS_PER_SECOND = 10_000
"""Speed of a run that only accesses limit, when a plan estimates time."""


class PagingWorkload(Workload[PagingParameters]):
    """Accesses to mapped memory: each is one of the operations."""

    name = "paging"
    title = "paging"
    parameters = PagingParameters
    shown = ("mapping", "pattern", "jobs", "size", "memory_limit", "read_fraction", "duration")
    hints = Hints(
        smaller="map less with `--set size=...`",
        sized_by="by the parameter `size`",
        less_memory="map less with `--set size=...`, or set a `memory_limit`",
    )
    io = "page faults"
    rate = Rate("accesses/s", counted="accesses", shows_bandwidth=False, is_ops_per_sec=True)
    operations = ("hit", "minor_fault", "major_fault")
    subject = "mapping"
    worded = ("pattern",)
    fit = staticmethod(spec.fit)
    resolve = staticmethod(spec.resolve)

    def cost(self, streams: Mapping[str, PagingParameters]) -> Cost:
        """Time and bytes written at most; what the kernel swaps out only time limits."""
        whole = _whole(streams)
        pages_out = whole.mapping == "anonymous" and whole.memory_limit is not None and whole.memory_limit < whole.size
        filling = whole.size / ASSUMED_BYTES_PER_SECOND if pages_out else 0.0
        return Cost(
            seconds=filling + whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()),
            write_bytes=None if pages_out else 0,
        )

    def files(self, streams: Mapping[str, PagingParameters]) -> dict[str, int]:
        """The mapped file. A swap area is the case's and not the workload's."""
        whole = _whole(streams)
        return {"data": whole.size} if whole.mapping == "file" else {}

    def buffer_bytes(self, streams: Mapping[str, PagingParameters]) -> int:
        """Memory that a run takes at once: all of the mapping, unless a limit makes it less."""
        whole = _whole(streams)
        resident = whole.size if whole.mapping == "anonymous" else 0
        return min(resident, whole.memory_limit) if whole.memory_limit else resident

    def layout(self, streams: Mapping[str, PagingParameters]) -> Layout:
        """A mapped file is written unless it has its contents."""
        return "missing" if _whole(streams).mapping == "file" else "never"

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """Accesses have no arrival in the spec: each follows the one before."""
        return [{**stream, "arrival": CLOSED} for stream in workload["streams"]]

    def rules(self, workload: Spec) -> str:
        """The kernel does the I/O, at page faults."""
        return "faults"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `uniform accesses to memory`."""
        memory = "a mapped file" if case["mapping"] == "file" else "memory"
        pattern = str(case.get("pattern") or case.get("pattern_level") or "").partition(":")[0]
        return {"pattern": pattern, "phase": f"accesses to {memory}"}


def _whole(streams: Mapping[str, PagingParameters]) -> PagingParameters:
    return next(iter(streams.values()))


def _seconds(stream: PagingParameters) -> float:
    if stream.duration is not None:
        return stream.duration / 10**9
    return (stream.limit_operations or 0) / ASSUMED_OPERATIONS_PER_SECOND


WORKLOADS = (PagingWorkload(),)
