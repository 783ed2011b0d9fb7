"""Block I/O, the workload of studies that name none: what a run needs of its target, and what it takes.

What a study may set is in `parameters`, how values are written in `notation`, the engine's spec in `spec`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Capacity, Cost, JsonObject
from iosonde.units import MIB, compact_size, format_bytes
from iosonde.workload import operation_words as operation_words
from iosonde.workload import size_words as size_words
from iosonde.workload.block import spec
from iosonde.workload.block.backends import BACKENDS, VIRTUAL_DRIVES
from iosonde.workload.block.notation import mix_of
from iosonde.workload.block.parameters import (
    SHOWN,
    WHOLE_WORKLOAD,
    BlockParameters,
    addressed_bytes,
    broken_rule,
    journal_bytes,
)
from iosonde.workload.reading import check_agreement
from iosonde.workload.workload import Hints, Layout, Room, Workload

if TYPE_CHECKING:
    from iosonde.storage import Target

ASSUMED_OPERATIONS_PER_SECOND = 20_000
"""Speed at which small operations are assumed to go when a plan estimates time."""

SIGMAS = 8
"""Standard deviations by which the number of random arrivals does not exceed what is expected."""

DEFAULT_SERVICE_NS = 100_000


class BlockWorkload(Workload[BlockParameters]):
    """Block I/O."""

    name = "block"
    title = "block I/O"
    parameters = BlockParameters
    shown = SHOWN
    io = "blocks"
    hints = Hints(
        smaller="make the span smaller with `--set span=...`",
        less_memory="leave out the largest blocks, the deepest queues or the most jobs, with `--set block_size=...`, "
        "`--set queue_depth=...` or `--set jobs=...`",
    )
    operations = ("read", "write", "trim")
    stated = ("block_size", "access", "io_mode", "read_fraction")
    worded = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "durability")

    def fit(
        self, streams: Mapping[str, BlockParameters], target: Room, *, room_bytes: int
    ) -> dict[str, BlockParameters]:
        """The parameters with what the target decides: the backend, and bytes for a share of the room."""
        check_agreement(streams, WHOLE_WORKLOAD)
        jobs = sum(stream.jobs for stream in streams.values())
        whole = next(iter(streams.values()))
        if whole.verify != "none" and target.kind != "device":
            files = jobs if whole.files == "per_job" else 1
            room_bytes -= files * journal_bytes(streams, room_bytes // files)
        return {name: _fitted(stream, target, room_bytes, jobs) for name, stream in streams.items()}

    def resolve(self, streams: Mapping[str, BlockParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec."""
        fitted = self.fit(streams, target, room_bytes=target.free_bytes())
        return spec.resolve(fitted, target, seed=seed, run_id=run_id)

    vary, prepare = staticmethod(spec.vary), staticmethod(spec.prepare)
    addressed_bytes = staticmethod(addressed_bytes)

    def cost(self, streams: Mapping[str, BlockParameters]) -> Cost:
        """Time, and bytes written at most, without layout; streams must be fitted to the target."""
        whole = next(iter(streams.values()))
        written = [_write_limit(stream) for stream in streams.values() if stream.writes]
        return Cost(
            seconds=max(map(_ramp_s, streams.values())) + max(map(_measured_s, streams.values())),
            write_bytes=0 if whole.is_virtual else None if None in written else sum(size or 0 for size in written),
        )

    def files(self, streams: Mapping[str, BlockParameters]) -> dict[str, int]:
        """The files of a run's data, by name, with their sizes; streams must be fitted to the target."""
        if next(iter(streams.values())).is_virtual:
            return {}
        whole, size_bytes = next(iter(streams.values())), self.addressed_bytes(streams)
        if whole.files != "per_job":
            return {"data": size_bytes}
        return {f"{name}.{job}": size_bytes for name, stream in streams.items() for job in range(stream.jobs)}

    def journals(self, streams: Mapping[str, BlockParameters]) -> dict[str, int]:
        """The journals of verification, by name, with their sizes; streams must be fitted to the target."""
        if next(iter(streams.values())).verify == "none":
            return {}
        return {f"{name}.verify": journal_bytes(streams, size) for name, size in self.files(streams).items()}

    def room_by(self, files: int) -> str:
        """A clause that names the parameters which decide how much room this many files need."""
        return f"for {files} files, by the parameters `span` and `files`" if files > 1 else "by the parameter `span`"

    def buffer_bytes(self, streams: Mapping[str, BlockParameters]) -> int:
        """Memory of the blocks that are in flight together; a virtual target needs none."""
        if next(iter(streams.values())).is_virtual:
            return 0
        return sum(stream.jobs * stream.queue_depth * stream.largest_block for stream in streams.values())

    def must_align(self, stream: BlockParameters) -> dict[str, list[int]]:
        """Sizes that must be multiples of the unit of direct I/O, by parameter; empty for buffered I/O."""
        if stream.io_mode != "direct":
            return {}
        sizes = {"block_size": stream.block_sizes, "stride": [stream.stride or 0], "offset": [stream.offset_bytes]}
        return {name: [size for size in values if size] for name, values in sizes.items()}

    def layout(self, streams: Mapping[str, BlockParameters]) -> Layout:
        """Return the part of its files that a run writes before it measures."""
        return next(iter(streams.values())).layout

    def prepares(self, stream: BlockParameters) -> bool:
        """Return True if the target is to be prepared before the first run."""
        return stream.purge != "none" or stream.fill > 0 or stream.precondition is not None

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `4 KiB random buffered reads`; direct I/O is left out."""
        fraction = case.get("read_fraction")
        found = {
            "block_size": size_words(case["block_size"]) if case.get("block_size") is not None else "",
            "access": str(case.get("access") or ""),
            "io_mode": "buffered" if case.get("io_mode") == "buffered" else "",
            "read_fraction": "I/O" if fraction is None else operation_words(fraction, case.get("trim_fraction") or 0.0),
            "durability": _flush_words(str(case.get("durability") or "")),
        }
        return {name: word for name, word in found.items() if word}


BLOCK = BlockWorkload()


def _flush_words(durability: str) -> str:
    """Name the flushes of writes: `with a flush after each write`."""
    kind, _, every = durability.partition(":")
    if kind != "flush":
        return ""
    return "with a flush after each write" if every == "1" else f"with a flush after every {every} writes"


def _write_limit(stream: BlockParameters) -> int | None:
    """Bytes that a stream writes at most, ramp included; None where only time limits them."""
    due = None if stream.duration is None else _due(stream, stream.ramp + stream.duration)
    limits = [stream.byte_limit, (stream.limit_operations or 0) * stream.largest_block, due]
    ramps = [stream.ramp_bytes, _due(stream, stream.ramp)]
    measured, ramp = (min((limit for limit in each if limit), default=None) for each in (limits, ramps))
    if measured is None or (ramp is None and stream.ramp):
        return None
    return min(measured + (ramp or 0), due or measured + (ramp or 0))


def _due(stream: BlockParameters, length_ns: int) -> int | None:
    """Bytes that an open loop requires from its start to this time; of random arrivals the maximum.

    A flush takes one position of the schedule. Threads count their writes until the next flush by themselves.
    """
    if not stream.offered_rate:
        return None
    expected = stream.offered_rate * length_ns / 10**9
    chance = SIGMAS * math.sqrt(expected) if stream.arrival == "poisson" else 0
    writes = math.ceil(expected + chance)
    if every := stream.writes_per_flush:
        writes = (writes + stream.jobs * stream.queue_depth) * every // (every + 1)
    return writes * stream.largest_block


def _ramp_s(stream: BlockParameters) -> float:
    """Length of the ramp: of its time, or of its bytes if they are assumed to come first."""
    length = stream.ramp / 10**9
    return min(length, stream.ramp_bytes / _assumed_rate(stream)) if stream.ramp_bytes else length


def _measured_s(stream: BlockParameters) -> float:
    """Length of the measurement: of the limit that is assumed to be reached first."""
    limits = [] if stream.duration is None else [stream.duration / 10**9]
    for limit in (stream.byte_limit, (stream.limit_operations or 0) * stream.largest_block):
        if limit:
            limits.append(limit / _assumed_rate(stream))
    return min(limits, default=0.0)


def _assumed_rate(stream: BlockParameters) -> float:
    """Bytes per second."""
    operations = stream.offered_rate if isinstance(stream.rate, float) else ASSUMED_OPERATIONS_PER_SECOND
    return min(operations * stream.largest_block, ASSUMED_BYTES_PER_SECOND)


def _fitted(stream: BlockParameters, target: Room, room_bytes: int, jobs: int) -> BlockParameters:
    changes: dict[str, Any] = {}
    forced = target.backend()
    if forced:
        changes["backend"] = forced["kind"]
    backend = changes.get("backend", stream.backend)
    described = BACKENDS[backend]
    if backend == "simulated":
        changes |= _simulated(stream, forced or {})
    if described.is_virtual:
        changes["page_cache"] = "keep"
    if not described.stores_data:
        changes["layout"] = "never"
    if backend in VIRTUAL_DRIVES and not forced:
        raise StudyError(
            f"the backend `{backend}` is {described.title}", hint=f"name one as the target, like `{described.target}`"
        )
    if stream.start == "cold":
        changes |= {"ramp": 0, "ramp_bytes": None, "ramp_until": "time"}
        changes.setdefault("page_cache", "drop")
    changes |= _shares_in_bytes(stream, room_bytes // (jobs if stream.files == "per_job" else 1))
    if stream.unaligned == "round_up" and stream.io_mode == "direct" and described.stores_data:
        changes["block_size"] = _rounded_up(stream.block_size, target.direct_unit() or 1)
    changes |= _prepared(
        stream, target, room_bytes, own_capacity=room_bytes if backend in VIRTUAL_DRIVES else stream.capacity
    )
    if "aging" in (stream.access, stream.precondition_access) and not stream.over_provisioning:
        changes["over_provisioning"] = _over_provisioning(target)
    fitted = stream.model_copy(update=changes)
    problem = broken_rule(fitted)
    if problem:
        raise StudyError(problem)
    return fitted


def _shares_in_bytes(stream: BlockParameters, room_bytes: int) -> dict[str, int]:
    """The span and its start where they are shares of the room: a span ends with the room at the latest."""
    offset, span = (
        int(room_bytes * float(value.rstrip("%")) / 100 // MIB * MIB) if isinstance(value, str) else value
        for value in (stream.offset, stream.span)
    )
    if isinstance(stream.span, str):
        span = min(span, (room_bytes - offset) // MIB * MIB)
    return {"offset": offset, "span": span}


def _simulated(stream: BlockParameters, target: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "servers": stream.servers or target.get("servers", 1),
        "read_service": stream.read_service or target.get("read_service_ns", DEFAULT_SERVICE_NS),
        "write_service": stream.write_service or target.get("write_service_ns", DEFAULT_SERVICE_NS),
        "service": stream.service or target.get("service", "constant"),
    }


def _rounded_up(block_size: int | str, unit: int) -> int | str:
    if isinstance(block_size, int):
        return -(-block_size // unit) * unit
    return ":".join(f"{compact_size(-(-size // unit) * unit)}/{weight:g}" for size, weight in mix_of(block_size))


def _prepared(stream: BlockParameters, target: Room, room_bytes: int, *, own_capacity: int | None) -> dict[str, Any]:
    """Parameters that follow from preparation: purge method, span of `fill` in bytes, and no other layout."""
    if not BLOCK.prepares(stream):
        return {}
    changes: dict[str, Any] = {"layout": "never"}
    if stream.purge not in ("none", "unneeded"):
        changes["purge"] = _purge(stream.purge, target)
    if stream.fill:
        capacity = target.capacity() if own_capacity is None else Capacity(bytes=own_capacity)
        filled = _fill_bytes(stream.fill, capacity, room_bytes)
        changes["span"] = filled if stream.files != "per_job" else filled // stream.jobs // MIB * MIB
    return changes


def _purge(wanted: str, target: Room) -> str:
    offered = target.purges()
    if not offered:
        return "unneeded"
    if wanted == "strongest":
        return offered[0]
    if wanted not in offered:
        listed = ", ".join(f"`{each}`" for each in ("strongest", *offered))
        raise StudyError(f"the target offers no purge by `{wanted}`", hint=f"it is one of {listed}")
    return wanted


def _fill_bytes(percent: float, capacity: Capacity, room_bytes: int) -> int:
    """Bytes to write until this percentage of the capacity is in use."""
    wanted = int(percent / 100 * capacity.bytes) - capacity.used
    smaller = "set what counts as the capacity: `--set capacity=1GiB`"
    if wanted < MIB:
        raise StudyError(
            f"{percent:g} % of {format_bytes(capacity.bytes)} cannot be filled: "
            f"{format_bytes(capacity.used)} are in use already",
            hint=f"make room, choose higher levels with `--set fill=...`, or {smaller}",
        )
    if wanted > room_bytes:
        kept = f"; the file system reserves {format_bytes(capacity.reserved)}" if capacity.reserved else ""
        raise StudyError(
            f"{percent:g} % of {format_bytes(capacity.bytes)} cannot be filled: that takes {format_bytes(wanted)}, and "
            f"{format_bytes(room_bytes)} can be written{kept}",
            hint=f"choose lower levels with `--set fill=...`, or {smaller}",
        )
    return wanted // MIB * MIB


def _over_provisioning(target: Room) -> float:
    known = target.over_provisioning()
    if not known:
        raise StudyError(
            "preconditioning in one pass needs the drive's `over_provisioning`",
            where="by the parameter `precondition_access`",
            hint="set it, such as `--set over_provisioning=0.07`, or precondition with "
            "`--set precondition_access=sequential`",
        )
    return known
