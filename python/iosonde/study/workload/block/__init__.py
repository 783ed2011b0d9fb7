"""Block I/O, the workload of studies that name none: what a run needs of its target, and what it takes.

What a study may set is in `parameters`, how values are written in `notation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Capacity, Cost, JsonObject
from iosonde.storage.targets.workspace import journal_directory
from iosonde.study.workload.block.backends import BACKENDS, VIRTUAL_DRIVES
from iosonde.study.workload.block.notation import active_window, mix_of, rate_steps
from iosonde.study.workload.block.parameters import (
    PREPARATION,
    SCALABLE,
    SHOWN,
    WHOLE_NUMBERS,
    WHOLE_WORKLOAD,
    BlockParameters,
    addressed_bytes,
    begins,
    journal_bytes,
)
from iosonde.study.workload.reading import check_agreement
from iosonde.study.workload.workload import (
    Hints,
    Layout,
    Spec,
    Workload,
    arrival_of,
    engine_spec,
    operation_words,
    size_words,
    steady_ramp,
)
from iosonde.units import MIB, compact_size, format_bytes

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
        sized_by="by the parameter `span`",
        sized_by_several="for {} files, by the parameters `span` and `files`",
        less_memory="leave out the largest blocks, the deepest queues or the most jobs, with `--set block_size=...`, "
        "`--set queue_depth=...` or `--set jobs=...`",
    )
    operations = ("read", "write", "trim")
    stated = ("block_size", "access", "io_mode", "read_fraction")
    scalable = SCALABLE
    whole_numbers = WHOLE_NUMBERS
    worded = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "durability")

    def fit(
        self, streams: Mapping[str, BlockParameters], target: Target, *, room_bytes: int
    ) -> dict[str, BlockParameters]:
        """The parameters with what the target decides: the backend, and bytes for a share of the room."""
        check_agreement(streams, WHOLE_WORKLOAD)
        jobs = sum(stream.jobs for stream in streams.values())
        whole = next(iter(streams.values()))
        if whole.verify != "none":
            check_agreement(streams, ("io_mode",))  # Linux does not order I/O through the page cache and past it.
        if whole.verify != "none" and target.kind != "device":
            files = jobs if whole.files == "per_job" else 1
            room_bytes -= files * journal_bytes(streams, room_bytes // files)
        return {name: _fitted(stream, target, room_bytes, jobs) for name, stream in streams.items()}

    def resolve(self, streams: Mapping[str, BlockParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
        """The engine's spec."""
        fitted = self.fit(streams, target, room_bytes=target.free_bytes())
        if next(iter(fitted.values())).files == "per_device":
            target = target.side_by_side(addressed_bytes(fitted))
        is_virtual = next(iter(fitted.values())).is_virtual
        devices = [] if is_virtual else target.block_devices()
        backend = _backend(next(iter(fitted.values())), target.backend())
        return _spec(fitted, _spec_target(fitted, target), backend, devices, seed=seed, run_id=run_id)

    def vary(
        self, spec: JsonObject, parameters: Mapping[str, Any], *, seed: int, run_id: str, streams: Sequence[str] = ()
    ) -> JsonObject:
        """A spec like another, with these parameters of a case (`STREAM.NAME` where streams differ).

        `streams` are other streams than those of the spec.
        """
        names = streams or [stream["name"] for stream in spec["workload"]["streams"]]
        varied = {name: _of_case(parameters, name) for name in names}
        return _like(spec, varied, seed=seed, run_id=run_id)

    @staticmethod
    def prepare(
        spec: JsonObject, parameters: Mapping[str, Any], changes: Mapping[str, Any], *, seed: int, run_id: str
    ) -> tuple[JsonObject, dict[str, Any]]:
        """A spec with a single stream of its own on the same target, for a step of preparation; and its parameters.

        How I/O is done is taken from the case's parameters, everything else from `changes` or the defaults.
        """
        kept = {name: parameters[name] for name in HOW if name in parameters}
        defaults = BlockParameters.model_validate({}).model_dump()
        stream = BlockParameters.model_construct(**{**defaults, **kept, **changes})
        [name, *others] = [stream["name"] for stream in spec["workload"]["streams"]]
        return _like(spec, {"main" if others else name: stream}, seed=seed, run_id=run_id), stream.model_dump()

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

    def refusal_on_hosts(self, workload: Spec, *, shares_files: bool) -> str:
        """Nothing that it does on files and devices."""
        return ""

    def of_hosts(self, workloads: Sequence[Spec]) -> JsonObject:
        """Streams with the jobs of all hosts."""
        streams = [stream | {"jobs": stream["jobs"] * len(workloads)} for stream in workloads[0]["streams"]]
        return {**workloads[0], "streams": streams}

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


def _fitted(stream: BlockParameters, target: Target, room_bytes: int, jobs: int) -> BlockParameters:
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
    if problem := fitted.broken_rule():
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


def _prepared(stream: BlockParameters, target: Target, room_bytes: int, *, own_capacity: int | None) -> dict[str, Any]:
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


def _purge(wanted: str, target: Target) -> str:
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


def _over_provisioning(target: Target) -> float:
    known = target.over_provisioning()
    if not known:
        raise StudyError(
            "preconditioning in one pass needs the drive's `over_provisioning`",
            where="by the parameter `precondition_access`",
            hint="set it, such as `--set over_provisioning=0.07`, or precondition with "
            "`--set precondition_access=sequential`",
        )
    return known


HOW = ("backend", *BACKENDS["uring"].options, "io_mode", *BACKENDS["simulated"].options, *PREPARATION)
"""Parameters that preparation shares with what it prepares for."""


def _of_case(parameters: Mapping[str, Any], stream: str) -> BlockParameters:
    """A stream's parameters out of a case's; they were checked when the case was made."""
    values = {
        name: parameters.get(f"{stream}.{name}", parameters.get(name))
        for name in BlockParameters.model_fields
        if name in parameters or f"{stream}.{name}" in parameters
    }
    return BlockParameters.model_construct(**values)


def _like(spec: JsonObject, streams: Mapping[str, BlockParameters], *, seed: int, run_id: str) -> JsonObject:
    """A spec with these streams on the target of another."""
    workload, devices = spec["workload"], spec["observe"]["block_devices"]
    backend = _backend(next(iter(streams.values())), workload["backend"])
    return _spec(streams, workload["target"], backend, devices, seed=seed, run_id=run_id)


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
