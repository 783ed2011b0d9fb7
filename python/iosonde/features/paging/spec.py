"""The engine's spec of a paging load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError, TargetError
from iosonde.features.paging.parameters import WHOLE_WORKLOAD, PagingParameters
from iosonde.plan import JsonObject
from iosonde.workload.reading import check_agreement
from iosonde.workload.workload import Room, engine_spec, steady_ramp

if TYPE_CHECKING:
    from iosonde.storage import Target

OWN_BYTES = 32 << 20
"""Smallest memory limit: the engine's own memory, which is locked, has to fit into it."""


def fit(streams: Mapping[str, PagingParameters], target: Room, *, room_bytes: int) -> dict[str, PagingParameters]:
    """The parameters with the memory limit that the overcommit decides."""
    if target.backend() is not None:
        raise TargetError(
            "paging needs a real directory or device, and a simulated one has no pages",
            hint="name a directory or a block device as the target",
        )
    fitted = {name: _limited(stream) for name, stream in streams.items()}
    check_agreement(fitted, WHOLE_WORKLOAD)
    return fitted


def _limited(stream: PagingParameters) -> PagingParameters:
    if stream.overcommit is not None:
        limit = int(stream.size / stream.overcommit)
        stream = stream.model_copy(update={"memory_limit": limit, "overcommit": None})
    if stream.memory_limit is not None and stream.memory_limit < OWN_BYTES:
        raise StudyError(
            f"a memory limit of {stream.memory_limit >> 20} MiB is too small: the engine itself needs "
            f"{OWN_BYTES >> 20} MiB",
            where="by the parameters `memory_limit`, `overcommit` and `size`",
            hint="raise `memory_limit`, or `size` with the same `overcommit`",
        )
    return stream


def resolve(streams: Mapping[str, PagingParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec. A memory limit that cannot be set here raises now."""
    streams = fit(streams, target, room_bytes=target.free_bytes())
    whole = next(iter(streams.values()))
    if whole.memory_limit:
        from iosonde.storage.control_groups import control_group

        control_group.hierarchy()
    durations = [stream.duration for stream in streams.values()]
    workload: JsonObject = {
        "kind": "paging",
        "target": _target(whole, target),
        "advice": whole.advice,
        "huge_pages": whole.huge_pages,
        "compressible_fraction": whole.compressible_fraction,
        "content_seed": whole.content_seed,
        "page_cache": whole.page_cache,
        "streams": [_stream(name, stream) for name, stream in streams.items()],
        "ramp": steady_ramp(whole.ramp, None, until=whole.ramp_until),
        "duration_ns": None if None in durations else max(each or 0 for each in durations),
        "interval_ns": whole.interval,
        "verify_after": whole.verify_after,
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=target.block_devices())


def _target(whole: PagingParameters, target: Target) -> Any:
    if whole.mapping == "anonymous":
        return {"kind": "virtual", "size_bytes": whole.size}
    if target.kind == "device":
        raise TargetError(
            f"`{target.name}` is a block device, and only files are mapped",
            where='by the parameter `mapping = "file"`',
            hint="name a directory as the target, or add a `file_system`",
        )
    return target.spec_target("shared", whole.size)


def _stream(name: str, stream: PagingParameters) -> JsonObject:
    return {
        "name": name,
        "jobs": stream.jobs,
        "pattern": _pattern(stream.pattern),
        "read_fraction": stream.read_fraction,
        "limit_operations": stream.limit_operations,
        "cpus": stream.cpus,
    }


def _pattern(written: str) -> Any:
    kind, _, shape = written.partition(":")
    match kind:
        case "zipfian":
            return {"kind": "zipfian", "theta": float(shape)}
        case "normal":
            return {"kind": "normal", "deviation": float(shape)}
        case _:
            return {"kind": kind}
