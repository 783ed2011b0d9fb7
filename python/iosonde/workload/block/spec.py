"""The engine's spec of block I/O, from parameters fitted to the target or from another spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iosonde.plan import JsonObject
from iosonde.storage.targets.workspace import journal_directory
from iosonde.workload.block.backends import BACKENDS, VIRTUAL_DRIVES
from iosonde.workload.block.notation import active_window, mix_of, rate_steps
from iosonde.workload.block.parameters import BlockParameters, addressed_bytes, begins
from iosonde.workload.workload import arrival_of, engine_spec, steady_ramp

if TYPE_CHECKING:
    from iosonde.storage import Target


HOW = (
    *("backend", "registered_files", "registered_buffers", "submission_polling", "completion_polling", "io_mode"),
    *("servers", "read_service", "write_service", "service", "purge", "fill", "capacity", "precondition"),
    *("precondition_access", "over_provisioning"),
)
"""Parameters that preparation shares with what it prepares for."""


def resolve(streams: Mapping[str, BlockParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec."""
    if next(iter(streams.values())).files == "per_device":
        target = target.side_by_side(addressed_bytes(streams))
    is_virtual = next(iter(streams.values())).is_virtual
    devices = [] if is_virtual else target.block_devices()
    backend = _backend(next(iter(streams.values())), target.backend())
    return _spec(streams, _spec_target(streams, target), backend, devices, seed=seed, run_id=run_id)


def vary(
    spec: JsonObject, parameters: Mapping[str, Any], *, seed: int, run_id: str, streams: Sequence[str] = ()
) -> JsonObject:
    """A spec like another, on the same target, with these parameters of a case (`STREAM.NAME` where streams differ).

    `streams` are other streams than those of the spec.
    """
    names = streams or [stream["name"] for stream in spec["workload"]["streams"]]
    varied = {name: _of_case(parameters, name) for name in names}
    workload, devices = spec["workload"], spec["observe"]["block_devices"]
    backend = _backend(next(iter(varied.values())), workload["backend"])
    return _spec(varied, workload["target"], backend, devices, seed=seed, run_id=run_id)


def prepare(
    spec: JsonObject, parameters: Mapping[str, Any], changes: Mapping[str, Any], *, seed: int, run_id: str
) -> tuple[JsonObject, dict[str, Any]]:
    """A spec with a single stream of its own on the same target, for a step of preparation; and its parameters.

    How I/O is done is taken from the case's parameters, everything else from `changes` or the defaults.
    """
    kept = {name: parameters[name] for name in HOW if name in parameters}
    stream = BlockParameters.model_construct(**{**BlockParameters.model_validate({}).model_dump(), **kept, **changes})
    workload, devices = spec["workload"], spec["observe"]["block_devices"]
    [name, *others] = [stream["name"] for stream in workload["streams"]]
    backend = _backend(stream, workload["backend"])
    made = _spec({"main" if others else name: stream}, workload["target"], backend, devices, seed=seed, run_id=run_id)
    return made, stream.model_dump()


def _of_case(parameters: Mapping[str, Any], stream: str) -> BlockParameters:
    """A stream's parameters out of a case's; they were checked when the case was made."""
    values = {
        name: parameters.get(f"{stream}.{name}", parameters.get(name))
        for name in BlockParameters.model_fields
        if name in parameters or f"{stream}.{name}" in parameters
    }
    return BlockParameters.model_construct(**values)


def _spec(
    streams: Mapping[str, BlockParameters],
    target: JsonObject,
    backend: JsonObject,
    devices: list[str],
    *,
    seed: int,
    run_id: str,
) -> JsonObject:
    whole = next(iter(streams.values()))
    workload: JsonObject = {
        "kind": "block",
        "target": target,
        "backend": backend,
        "layout": whole.layout,
        "page_cache": whole.page_cache,
        "streams": [_stream(name, stream, begins(streams)[name]) for name, stream in streams.items()],
        "ramp": steady_ramp(whole.ramp, whole.ramp_bytes, until=whole.ramp_until),
        "duration_ns": whole.duration,
        "interval_ns": whole.interval,
        "verify": _verification(whole, target),
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=devices)


def _spec_target(streams: Mapping[str, BlockParameters], target: Target) -> JsonObject:
    whole = next(iter(streams.values()))
    size_bytes = addressed_bytes(streams)
    if whole.is_virtual:
        return {
            "kind": "virtual",
            "size_bytes": size_bytes * (target.device_count() if whole.files == "per_device" else 1),
        }
    return target.spec_target(whole.files, size_bytes)


def _backend(whole: BlockParameters, given: JsonObject | None) -> JsonObject:
    """The spec's `backend`; `given` is that of a target that leaves no choice."""
    if whole.backend in VIRTUAL_DRIVES:
        return given or {}
    chosen = {key: getattr(whole, name) for name, key in BACKENDS[whole.backend].options.items()}
    required = {"required": True} if whole.backend == "uring" and whole.fallback == "refuse" else {}
    return {"kind": whole.backend, **chosen, **required}


def _verification(whole: BlockParameters, target: JsonObject) -> JsonObject | None:
    if whole.verify == "none":
        return None
    elsewhere = str(journal_directory(target["path"])) if target["kind"] == "device" else None
    return {"when": whole.verify, "journal_directory": elsewhere}


def _stream(name: str, stream: BlockParameters, begin: int) -> JsonObject:
    # In files of their own the jobs share nothing, so there is nothing to split.
    sharing = "shared" if stream.files == "per_job" else stream.span_sharing
    return {
        "name": name,
        "jobs": stream.jobs,
        "queue_depth": stream.queue_depth,
        "access": _access(stream),
        "mix": {"read_fraction": stream.read_fraction, "trim_fraction": stream.trim_fraction},
        "block_sizes": [{"bytes": size, "weight": weight} for size, weight in mix_of(stream.block_size)],
        "span": {
            "offset_bytes": begin + stream.offset_bytes,
            "bytes": stream.extent_bytes,
            "sharing": "split" if stream.has_files_on_drive else sharing,
        },
        "io_mode": stream.io_mode,
        "durability": _durability(stream.durability),
        "arrival": _arrival(stream),
        "payload": _payload(stream),
        "limit_bytes": stream.byte_limit,
        "limit_operations": stream.limit_operations,
        "active": active_window(stream.active) if stream.active else None,
        "spin_ns": stream.spin,
        "cpus": stream.cpus,
    }


def _access(stream: BlockParameters) -> JsonObject:
    match stream.access:
        case "strided":
            stride = stream.stride or (stream.stride_blocks or 0) * stream.largest_block
            return {"kind": "strided", "stride_bytes": stride}
        case "random":
            distribution = _distribution(stream.distribution)
            return {"kind": "random", "coverage": stream.coverage, "distribution": distribution}
        case "aging":
            return {"kind": "aging", "over_provisioning": stream.over_provisioning}
        case "sequential":
            return {"kind": "sequential"}


def _distribution(text: str) -> JsonObject:
    kind, *numbers = text.split(":")
    names = {"zipfian": ("theta",), "hot_cold": ("hot_span", "hot_access")}.get(kind, ())
    return {"kind": kind, **{name: float(number) for name, number in zip(names, numbers, strict=True)}}


def _durability(text: str) -> JsonObject:
    kind, _, every = text.partition(":")
    return {"kind": kind, "every": int(every)} if every else {"kind": kind}


def _arrival(stream: BlockParameters) -> JsonObject:
    if stream.arrival == "closed" or stream.rate is None:
        return {"kind": "closed"}
    if not isinstance(stream.rate, str):
        return arrival_of(stream.arrival, stream.rate * stream.load)
    steps = [{"rate": rate * stream.load, "duration_ns": length} for rate, length in rate_steps(stream.rate)]
    return {"kind": "steps", "steps": steps, "spacing": stream.arrival}


def _payload(stream: BlockParameters) -> JsonObject:
    if stream.compression_ratio != 1 or stream.duplicate_fraction != 0:
        return {
            "kind": "reducible",
            "compression_ratio": stream.compression_ratio,
            "duplicate_fraction": stream.duplicate_fraction,
            "duplicate_bytes": stream.duplicate_size,
        }
    return {"kind": "zeros"} if stream.payload == "zeros" else {"kind": "random"}
