"""Parameters of block I/O that depend on the target: the backend, and bytes for shares of its capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.errors import StudyError
from iosonde.plan import Capacity
from iosonde.units import MIB, compact_size, format_bytes
from iosonde.workload.block import rules
from iosonde.workload.block.backends import BACKENDS, VIRTUAL_DRIVES
from iosonde.workload.block.fields import WHOLE_WORKLOAD
from iosonde.workload.block.notation import mix_of
from iosonde.workload.block.parameters import BlockParameters
from iosonde.workload.block.requirements import journal_bytes, prepares
from iosonde.workload.reading import check_agreement
from iosonde.workload.workload import Room

DEFAULT_SERVICE_NS = 100_000


def fit(streams: Mapping[str, BlockParameters], target: Room, *, room_bytes: int) -> dict[str, BlockParameters]:
    """The parameters with what the target decides: the backend, and bytes for a share of the room."""
    check_agreement(streams, WHOLE_WORKLOAD)
    jobs = sum(stream.jobs for stream in streams.values())
    whole = next(iter(streams.values()))
    if whole.verify != "none" and target.kind != "device":
        files = jobs if whole.files == "per_job" else 1
        room_bytes -= files * journal_bytes(streams, room_bytes // files)
    return {name: _fitted(stream, target, room_bytes, jobs) for name, stream in streams.items()}


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
    problem = rules.problem(fitted)
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
    if not prepares(stream):
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
