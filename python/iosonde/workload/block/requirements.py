"""Target and memory requirements of a run of block I/O; streams must be fitted to the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iosonde.units import MIB
from iosonde.workload.block.parameters import BlockParameters
from iosonde.workload.workload import Layout


def files(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """The files of a run's data, by name, with their sizes; streams must be fitted to the target."""
    if next(iter(streams.values())).is_virtual:
        return {}
    whole, size_bytes = next(iter(streams.values())), addressed_bytes(streams)
    if whole.files != "per_job":
        return {"data": size_bytes}
    return {f"{name}.{job}": size_bytes for name, stream in streams.items() for job in range(stream.jobs)}


def journals(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """The journals of verification, by name, with their sizes; streams must be fitted to the target."""
    if next(iter(streams.values())).verify == "none":
        return {}
    return {f"{name}.verify": journal_bytes(streams, size) for name, size in files(streams).items()}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room this many files need."""
    return f"for {files} files, by the parameters `span` and `files`" if files > 1 else "by the parameter `span`"


def addressed_bytes(streams: Mapping[str, BlockParameters]) -> int:
    """Return the end of the last span; streams must be fitted to the target."""
    begin = begins(streams)
    return max(begin[name] + stream.offset_bytes + stream.extent_bytes for name, stream in streams.items())


def active_range_bytes(parameters: Mapping[str, Any]) -> int | None:
    """Return the bytes that a planned case addresses, by its parameters; None where streams have spans of their own."""
    if not isinstance(parameters.get("span"), int):
        return None
    named = {name: parameters[name] for name in ("span", "jobs", "files") if parameters.get(name) is not None}
    return BlockParameters.model_construct(**named).active_range_bytes


def begins(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """Offset of each stream's data, in bytes: on a simulated drive the files of jobs are one after the other."""
    found, at = {}, 0
    for name, stream in streams.items():
        found[name] = at
        if stream.has_files_on_drive:
            at += stream.offset_bytes + stream.extent_bytes
    return found


def journal_bytes(streams: Mapping[str, BlockParameters], size_bytes: int) -> int:
    """Return the approximate bytes that verification keeps about a file: 16 for each block.

    An offset that is still a share becomes a multiple of 1 MiB.
    """
    offsets = [stream.offset for stream in streams.values() if isinstance(stream.offset, int)]
    sizes = [*(size for stream in streams.values() for size in stream.block_sizes), *offsets]
    return 4096 + 16 * (size_bytes // math.gcd(MIB, *sizes))


def buffer_bytes(streams: Mapping[str, BlockParameters]) -> int:
    """Memory of the blocks that are in flight together; a virtual target needs none."""
    if next(iter(streams.values())).is_virtual:
        return 0
    return sum(stream.jobs * stream.queue_depth * stream.largest_block for stream in streams.values())


def must_align(stream: BlockParameters) -> dict[str, list[int]]:
    """Sizes that must be multiples of the unit of direct I/O, by parameter; empty for buffered I/O."""
    if stream.io_mode != "direct":
        return {}
    sizes = {"block_size": stream.block_sizes, "stride": [stream.stride or 0], "offset": [stream.offset_bytes]}
    return {name: [size for size in values if size] for name, values in sizes.items()}


def layout(streams: Mapping[str, BlockParameters]) -> Layout:
    """Return the part of its files that a run writes before it measures."""
    return next(iter(streams.values())).layout


def prepares(stream: BlockParameters) -> bool:
    """Return True if the target is to be prepared before the first run."""
    return stream.purge != "none" or stream.fill > 0 or stream.precondition is not None
