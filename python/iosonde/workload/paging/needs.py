"""What a paging run needs of its target, and what it takes; streams must be fitted to the target."""

from __future__ import annotations

from collections.abc import Mapping

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.interface import Layout
from iosonde.workload.paging.parameters import PagingParameters

Streams = Mapping[str, PagingParameters]

ASSUMED_OPERATIONS_PER_SECOND = 10_000
"""Speed of a run that only accesses limit, when a plan estimates time."""


def cost(streams: Streams) -> Cost:
    """Time and bytes written at most; what the kernel swaps out only time limits."""
    whole = _whole(streams)
    pages_out = whole.mapping == "anonymous" and whole.memory_limit is not None and whole.memory_limit < whole.size
    filling = whole.size / ASSUMED_BYTES_PER_SECOND if pages_out else 0.0
    return Cost(
        seconds=filling + whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()),
        write_bytes=None if pages_out else 0,
    )


def files(streams: Streams) -> dict[str, int]:
    """The mapped file. A swap area is the case's and not the workload's."""
    whole = _whole(streams)
    return {"data": whole.size} if whole.mapping == "file" else {}


def room_by(files: int) -> str:
    """A clause that names the parameter which decides how much room is needed."""
    return "by the parameter `size`"


def addressed_bytes(streams: Streams) -> int:
    """Bytes of the target that are mapped."""
    return sum(files(streams).values())


def buffer_bytes(streams: Streams) -> int:
    """Memory that a run takes at once: all of the mapping, unless a limit makes it less."""
    whole = _whole(streams)
    resident = whole.size if whole.mapping == "anonymous" else 0
    return min(resident, whole.memory_limit) if whole.memory_limit else resident


def must_align(stream: PagingParameters) -> dict[str, list[int]]:
    """Nothing: the kernel reads and writes whole pages."""
    return {}


def layout(streams: Streams) -> Layout:
    """A mapped file is written unless it has its contents."""
    return "missing" if _whole(streams).mapping == "file" else "never"


def prepares(stream: PagingParameters) -> bool:
    """Never."""
    return False


def notes(streams: Streams) -> list[str]:
    """None."""
    return []


def _whole(streams: Streams) -> PagingParameters:
    return next(iter(streams.values()))


def _seconds(stream: PagingParameters) -> float:
    if stream.duration is not None:
        return stream.duration / 10**9
    return (stream.limit_operations or 0) / ASSUMED_OPERATIONS_PER_SECOND
