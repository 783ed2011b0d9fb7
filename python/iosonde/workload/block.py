"""Block I/O: its parameters, the engine spec they become, and what a run of it costs.

`BlockParameters` is the one list of what a study may set, with defaults and meaning; docs and errors draw on it. Each
stream has a full set. Those in `WHOLE_WORKLOAD` describe the run and not the stream, so streams that run together must
agree on them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from iosonde.errors import StudyError
from iosonde.study.plan import Capacity, Cost, JsonObject
from iosonde.target.workspace import journal_directory
from iosonde.units import compact_duration, compact_size, format_bytes, parse_duration, parse_rate, parse_size
from iosonde.workload import reading
from iosonde.workload.interface import Layout, Room
from iosonde.workload.reading import (
    Duration,
    DurationOrZero,
    Interval,
    Size,
    SizeOrZero,
    check_agreement,
    not_zero,
    parse_cpus,
    parse_duration_or_none,
)

if TYPE_CHECKING:
    from iosonde.target import Target

PROTOCOL_VERSION = 1

MIB = 1 << 20

ASSUMED_BYTES_PER_SECOND = 500 * 10**6
"""Speed at which layout, and a run that only bytes limit, are assumed to go when a plan estimates time."""

ASSUMED_OPERATIONS_PER_SECOND = 20_000
"""The same for a run that only operations limit."""

LARGEST_BLOCK_BYTES = 64 * MIB

DEFAULT_SERVICE_NS = 100_000

HIGHEST_RATE = 10**7
"""I/Os per second of a stream that the engine can time (`RATE_MAX` in crates/load)."""


def _parse_span(value: Any) -> int | str:
    """Bytes, or a share of the room as `80%`."""
    share = re.fullmatch(r"\s*([0-9.]+)\s*%\s*", value) if isinstance(value, str) else None
    if not share:
        return parse_size(value)
    percent = float(share[1])
    if not 0 < percent <= 100:
        raise ValueError(f"`{value}` is not a share; it lies above 0% and up to 100%")
    return f"{percent:g}%"


def _parse_block_size(value: Any) -> int | str:
    """Bytes, or a mix as `4KiB/70:64KiB/30`; in TOML also a list of `{size, weight}`."""
    if isinstance(value, list):
        value = ":".join(f"{part['size']}/{part['weight']}" for part in value if _is_weighted_size(part))
    if not isinstance(value, str) or "/" not in value:
        return _checked_block(parse_size(value))
    return ":".join(f"{compact_size(size)}/{weight:g}" for size, weight in mix_of(value))


def _is_weighted_size(part: Any) -> bool:
    if not isinstance(part, Mapping) or set(part) != {"size", "weight"}:
        raise ValueError(f'`{part}` is not a part of a mix; write it like `{{ size = "4KiB", weight = 70 }}`')
    return True


def _checked_block(size: int) -> int:
    if not 512 <= size <= LARGEST_BLOCK_BYTES:
        raise ValueError(f"{format_bytes(size)} is not a block; it has 512 B to 64 MiB")
    return size


def _parse_block_size_or_none(value: Any) -> int | None:
    return None if value is None or value == "none" else _checked_block(parse_size(value))


def _parse_distribution(value: Any) -> str:
    """`uniform`, `zipfian:THETA` or `hot_cold:HOT_SPAN:HOT_ACCESS`; in TOML also a table with `kind`."""
    shapes = {"uniform": (), "zipfian": ("theta",), "hot_cold": ("hot_span", "hot_access")}
    kind, numbers = _kind_and_numbers(value, shapes)
    if kind == "zipfian" and not numbers[0] > 0:
        raise ValueError("`theta` of a zipfian distribution is above 0 (YCSB: 0.99)")
    if kind == "hot_cold" and not all(0 < number < 1 for number in numbers):
        raise ValueError("`hot_span` and `hot_access` are fractions between 0 and 1")
    return ":".join([kind, *(f"{number:g}" for number in numbers)])


def _parse_durability(value: Any) -> str:
    """`none`, `dsync` or `flush:N`; in TOML also `{ kind = "flush", every = N }`."""
    kind, numbers = _kind_and_numbers(value, {"none": (), "dsync": (), "flush": ("every",)})
    if kind == "flush" and (numbers[0] < 1 or numbers[0] % 1):
        raise ValueError("`flush` comes after a whole number of writes, at least 1")
    return ":".join([kind, *(f"{number:.0f}" for number in numbers)])


def _kind_and_numbers(value: Any, shapes: Mapping[str, tuple[str, ...]]) -> tuple[str, list[float]]:
    if isinstance(value, Mapping):
        parts = dict(value)
        kind = str(parts.pop("kind", ""))
        numbers = [parts.pop(name, None) for name in shapes.get(kind, ())]
        complete = not parts and None not in numbers
    else:
        kind, *numbers = str(value).split(":")
        complete = len(numbers) == len(shapes.get(kind, ()))
    if kind not in shapes or not complete:
        forms = ", ".join(f"`{':'.join([name, *(part.upper() for part in parts)])}`" for name, parts in shapes.items())
        raise ValueError(f"`{value}` is not known; it is one of {forms}")
    try:
        return kind, [float(number) for number in numbers]
    except (TypeError, ValueError):
        raise ValueError(f"`{value}` holds what is not a number") from None


def _parse_rate(value: Any) -> float | str:
    """I/Os per second, or steps as `1000/10s:5000/10s`, a rate and how long it lasts; 0 is a pause."""
    if not isinstance(value, str) or "/" not in value.replace("/s", ""):
        return not_zero(parse_rate(value))
    steps = rate_steps(value)
    if not any(rate for rate, _ in steps):
        raise ValueError(f"`{value}` holds no rate above 0")
    return ":".join(f"{rate:g}/{compact_duration(length)}" for rate, length in steps)


def rate_steps(rate: str) -> list[tuple[float, int]]:
    """The steps of a stepped rate: I/Os per second, and for how many nanoseconds."""
    steps = [step.rpartition("/") for step in rate.split(":")]
    return [(parse_rate(number), not_zero(parse_duration(length))) for number, _, length in steps]


_ACTIVE = re.compile(r"\s*(?P<begin>[^-]+?)\s*-\s*(?P<end>[^-]*?)\s*(\severy\s+(?P<every>\S+)\s*)?")


def _parse_active(value: Any) -> str | None:
    """`FROM-TO` within the measurement, as `10s-20s`; without `TO`, to its end; `0s-5s every 15s` again and again."""
    if value is None:
        return None
    matched = _ACTIVE.fullmatch(value) if isinstance(value, str) else None
    if not matched:
        raise ValueError(
            f"`{value}` is not a part of the measurement; write it like `10s-20s`, `10s-` for the rest, or "
            "`0s-5s every 15s`"
        )
    begin, end = parse_duration(matched["begin"]), parse_duration(matched["end"]) if matched["end"] else None
    if end is not None and end <= begin:
        raise ValueError(f"`{value}` ends before it begins")
    text = f"{compact_duration(begin)}-{'' if end is None else compact_duration(end)}"
    if not matched["every"]:
        return text
    every = parse_duration(matched["every"])
    if end is None or every < end - begin:
        raise ValueError(f"`{value}` comes again before it is over; write it like `0s-5s every 15s`")
    return f"{text} every {compact_duration(every)}"


def active_window(text: str) -> JsonObject:
    """When a stream loads the target, as the engine's spec has it: `begin_ns`, `end_ns`, `every_ns` if it repeats."""
    window, _, every = text.partition(" every ")
    begin, _, end = window.partition("-")
    repeated = {"every_ns": parse_duration(every)} if every else {}
    return {"begin_ns": parse_duration(begin), "end_ns": parse_duration(end) if end else None, **repeated}


Rate = Annotated[float | str, BeforeValidator(_parse_rate)]


class BlockParameters(BaseModel):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    access: Literal["sequential", "random", "strided", "aging"] = Field(
        "random",
        description="In which order blocks are visited; `aging` is what preconditioning in one pass does "
        "(`docs/sustained.md`).",
    )
    coverage: Literal["with_replacement", "each_once"] = Field(
        "with_replacement",
        description="Random access: every choice independent, or each block once before any comes again.",
    )
    distribution: Annotated[str, BeforeValidator(_parse_distribution)] = Field(
        "uniform",
        description="Random access: `uniform`, `zipfian:THETA` or `hot_cold:HOT_SPAN:HOT_ACCESS` (fractions).",
    )
    stride: Size | None = Field(
        None, description="Strided access: distance from the start of one I/O to the next (IOzone `-j` in blocks)."
    )
    stride_blocks: int | None = Field(
        None, ge=2, le=1 << 20, description="Strided access: the same in blocks, so that it grows with `block_size`."
    )
    block_size: Annotated[int | str, BeforeValidator(_parse_block_size)] = Field(
        4096, description="Size of an I/O, or a weighted mix such as `4KiB/70:64KiB/30` (weights)."
    )
    unaligned: Literal["refuse", "round_up"] = Field(
        "refuse", description="Blocks whose size direct I/O of the target cannot do: refused, or rounded up."
    )
    queue_depth: int = Field(1, ge=1, le=4096, description="I/Os in flight in each job (fio `iodepth`).")
    jobs: int = Field(1, ge=1, le=1024, description="Threads (fio `numjobs`).")
    read_fraction: float = Field(1.0, ge=0, le=1, description="Share of reads; what remains is writes.")
    trim_fraction: float = Field(0.0, ge=0, le=1, description="Share of trims (discard).")
    span: Annotated[int | str, BeforeValidator(_parse_span)] = Field(
        1 << 30,
        description="The range addressed: a size, or a share of the room such as `80%`; of each job's file with "
        '`files = "per_job"` (a share is then divided among the jobs).',
    )
    offset: SizeOrZero = Field(0, description="Where the span begins in the file.")
    span_sharing: Literal["shared", "split"] = Field(
        "shared", description="Every job addresses the whole span, or each its own equal part."
    )
    files: Literal["shared", "per_job"] = Field("shared", description="One file for all jobs, or each its own.")
    io_mode: Literal["direct", "buffered"] = Field(
        "direct", description="Past the page cache (`O_DIRECT`), or through it."
    )
    durability: Annotated[str, BeforeValidator(_parse_durability)] = Field(
        "none",
        description="When writes are durable: `none`, `dsync` (each as it completes), `flush:N` (`fdatasync` after N).",
    )
    backend: Literal["uring", "sync", "null", "simulated", "ssd"] = Field(
        "uring",
        description="How I/O is done: `io_uring`; `pread`/`pwrite`, one at a time in each job; not at all; on a "
        "simulated device; on a simulated drive. The targets `null:`, `simulated:` and `sim:` decide this themselves.",
    )
    registered_files: bool = Field(True, description="`uring`: register the files with the ring.")
    registered_buffers: bool = Field(True, description="`uring`: register the buffers with the ring.")
    submission_polling: bool = Field(False, description="`uring`: a kernel thread polls the submission queue.")
    completion_polling: bool = Field(False, description="`uring`, direct I/O: completions are polled for.")
    arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed",
        description="Closed loop (the next I/O starts when one completes), or open loop at equal or exponential gaps.",
    )
    rate: Rate | None = Field(
        None,
        description="Open loop: I/Os per second of all jobs together; in steps as `1000/10s:5000/10s`, the "
        "last of which lasts.",
    )
    load: float = Field(1.0, gt=0, le=10**6, description="Open loop: multiple of `rate`; 2 offers twice as much.")
    spin: DurationOrZero = Field(
        100_000,
        description="Open loop: how long before an I/O is due its thread watches the clock instead of sleeping.",
    )
    active: Annotated[str | None, BeforeValidator(_parse_active)] = Field(
        None,
        description="When in the measurement the stream loads the target, as `10s-20s`, `10s-`, or with pauses between "
        "as `0s-5s every 15s`; empty: always.",
    )
    payload: Literal["random", "zeros"] = Field(
        "random",
        description="What is written: incompressible and different in every write, or zeros. `compression_ratio` and "
        "`duplicate_fraction` make random data reducible.",
    )
    compression_ratio: float = Field(
        1.0, ge=1, le=32, description="How many times smaller zstd makes what is written, duplicates apart; 1 to 32."
    )
    duplicate_fraction: float = Field(
        0.0, ge=0, le=0.99, description="Share of the 4 KiB blocks written that are copies of others; 0 to 0.99."
    )
    page_cache: Literal["drop", "keep", "warm"] = Field(
        "drop", description="The target's pages before the first I/O: dropped, left, or all read once."
    )
    layout: Literal["missing", "always", "never"] = Field(
        "missing", description="Before measuring, write what was never written, everything, or nothing."
    )
    verify: Literal["none", "during", "after"] = Field(
        "none",
        description="Whether what was written comes back: not checked, each read as it completes, or everything once "
        "the measurement has ended.",
    )
    purge: Literal["none", "strongest", "format", "trim", "overwrite", "unneeded"] = Field(
        "none",
        description="Rounds: how what the target holds is given up before: by the strongest means it offers, or by "
        "that one (`docs/sustained.md`).",
    )
    fill: float = Field(
        0.0,
        ge=0,
        le=100,
        description="Rounds: percent of the capacity that hold incompressible data before; they are the `span`.",
    )
    capacity: Size | None = Field(
        None, description="`fill`: what counts as the capacity; empty: the whole file system or simulated device."
    )
    precondition: Annotated[int | None, BeforeValidator(_parse_block_size_or_none)] = Field(
        None, description="Rounds: the span is written before in blocks of this size, as `precondition_access` says."
    )
    precondition_access: Literal["sequential", "aging"] = Field(
        "sequential",
        description="`precondition`: twice over in order, or once at random so that the drive is as stale as endless "
        "uniform random writes leave it.",
    )
    over_provisioning: float | None = Field(
        None,
        gt=0,
        le=10,
        description="`aging`: spare room of the drive as a fraction of its capacity; simulated drives know their own.",
    )
    ramp: DurationOrZero = Field(
        2 * 10**9, description="Load before the measurement, so that it begins in a settled state; at most so long."
    )
    ramp_bytes: Size | None = Field(None, description="Bytes each stream issues at most during the ramp.")
    duration: Annotated[int | None, BeforeValidator(parse_duration_or_none)] = Field(
        10 * 10**9, description="Length of the measurement at most; `none` where only a limit ends it."
    )
    limit_bytes: Size | None = Field(None, description="Bytes each stream issues at most in the measurement.")
    limit_operations: int | None = Field(None, ge=1, description="I/Os each stream issues at most in the measurement.")
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    round_length: Annotated[int | None, BeforeValidator(parse_duration_or_none)] = Field(
        None, description="Length of the rounds by which a run is judged to be in steady state; empty: it is not."
    )
    tracking: Literal["iops", "bandwidth", "completion_latency_ns_mean"] = Field(
        "iops", description="What is tracked through those rounds."
    )
    cpus: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(parse_cpus)] = Field(
        default_factory=list, description="CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )
    servers: int | None = Field(None, ge=1, description="Simulated device: I/Os served at the same time (1).")
    read_service: Duration | None = Field(None, description="Simulated device: time to serve a read (100us).")
    write_service: Duration | None = Field(None, description="Simulated device: time to serve a write (100us).")
    service: Literal["constant", "exponential"] | None = Field(
        None, description="Simulated device: service times all alike (`constant`), or exponential with that mean."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problem = self.problem()
        if problem:
            raise ValueError(problem)
        return self

    def problem(self) -> str | None:
        """What keeps the parameters from fitting together, if anything does."""
        return next((text for wrong, text in self._rules() if wrong), None)

    def _rules(self) -> list[tuple[bool, str]]:
        """What no single parameter tells: a condition, and what is wrong when it holds."""
        strides = [stride for stride in (self.stride, self.stride_blocks) if stride is not None]
        is_open = self.arrival != "closed"
        return [
            ((self.access == "strided") != (len(strides) == 1),
             "strided access needs one of `stride` and `stride_blocks`, and no other access has them"),
            (self.stride is not None and self.stride < largest_block(self), "`stride` is smaller than `block_size`"),
            (self.stride_blocks is not None and is_mix(self), "`stride_blocks` cannot be told from a mix of sizes"),
            (self.access != "random" and self.distribution != "uniform", "`distribution` is for random access only"),
            (self.access != "random" and self.coverage != "with_replacement", "`coverage` is for random access only"),
            (self.coverage == "each_once" and self.distribution != "uniform",
             "`coverage = \"each_once\"` leaves no choice to `distribution`"),
            (self.coverage == "each_once" and is_mix(self), "`coverage = \"each_once\"` needs a single `block_size`"),
            (self.read_fraction + self.trim_fraction > 1, "`read_fraction` and `trim_fraction` exceed 1 together"),
            (is_open and self.rate is None, f"`arrival = \"{self.arrival}\"` needs a `rate`"),
            (not is_open and self.rate is not None,
             "`rate` is for open loop: set `arrival` to `constant` or `poisson` as well"),
            (is_open and self.active is not None and "every" in self.active,
             "an `active` that repeats is for closed loop; in open loop a step of rate 0 is a pause"),
            (not is_open and self.load != 1, "`load` is for open loop: set `arrival` and `rate` as well"),
            (offered_rate(self) > HIGHEST_RATE,
             f"a rate of {offered_rate(self):g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
            (isinstance(self.rate, float) and self.duration is not None and offered_rate(self) * self.duration < 10**9,
             f"a rate of {offered_rate(self):g} per second starts nothing within `duration`"),
            (self.backend == "sync" and self.queue_depth != 1,
             "the backend `sync` does one I/O at a time in each job: `queue_depth` must be 1 (use more `jobs`)"),
            (self.payload == "zeros" and (self.compression_ratio != 1 or self.duplicate_fraction != 0),
             "`compression_ratio` and `duplicate_fraction` are for `payload = \"random\"`: zeros are fully reducible"),
            (self.duplicate_fraction > 0 and any(size % 4096 for size in block_sizes(self)),
             "`duplicate_fraction` counts blocks of 4 KiB: `block_size` must be a multiple of that"),
            *_verification_rules(self),
            (self.completion_polling and self.io_mode != "direct", "`completion_polling` needs `io_mode = \"direct\"`"),
            (self.duration is None and self.limit_bytes is None and self.limit_operations is None,
             "it would never end: set `duration`, `limit_bytes` or `limit_operations`"),
            (self.fill > 0 and self.purge == "none",
             "`fill` needs a `purge`, so that what it leaves is truly free"),
            (self.fill > 0 and self.offset > 0, "`fill` begins at the start, so it leaves no `offset`"),
            (self.precondition_access != "sequential" and self.precondition is None,
             "`precondition_access` is for `precondition`: set that, to the block size of the load"),
            (self.capacity is not None and not self.fill, "`capacity` is what `fill` is a share of: set that"),
            (self.round_length is not None and self.round_length % self.interval != 0,
             "`round_length` must be a multiple of `interval`"),
            (self.ramp_bytes is not None and self.ramp == 0, "`ramp_bytes` needs a `ramp` above 0"),
            (self.limit_operations is not None and self.limit_operations < self.jobs,
             "`limit_operations` is less than one for each job"),
            (self.limit_bytes is not None and self.limit_bytes < self.jobs * largest_block(self),
             "`limit_bytes` is less than one block for each job"),
            (isinstance(self.span, int) and self.span < _smallest_span(self),
             f"`span` is smaller than {format_bytes(_smallest_span(self))}, one block for each job that has a part"),
        ]  # fmt: skip


def _verification_rules(stream: BlockParameters) -> list[tuple[bool, str]]:
    """What can be verified: data that is kept and known, with room for a seal in each sector."""
    if stream.verify == "none":
        return []
    sizes = [*block_sizes(stream), stream.offset]
    return [
        (_is_virtual(stream), "`verify` needs a target that keeps data, and `null:` and `simulated:` keep none"),
        (stream.trim_fraction > 0, "`verify` cannot tell what a trimmed block should hold: leave out `trim_fraction`"),
        (stream.payload == "zeros" or stream.duplicate_fraction > 0,
         "`verify` makes every sector say where it belongs, so there are no zeros and no duplicates"),
        (stream.purge != "none" or stream.fill > 0 or stream.precondition is not None,
         "`verify` knows only what layout and the load write: leave out `purge`, `fill` and `precondition`"),
        (any(size % 512 for size in sizes), "`verify` needs `block_size` and `offset` in whole sectors of 512 B"),
    ]  # fmt: skip


WHOLE_WORKLOAD = (
    "files",
    "backend",
    "registered_files",
    "registered_buffers",
    "submission_polling",
    "completion_polling",
    "page_cache",
    "layout",
    "verify",
    "purge",
    "fill",
    "capacity",
    "precondition",
    "precondition_access",
    "over_provisioning",
    "round_length",
    "tracking",
    "ramp",
    "ramp_bytes",
    "duration",
    "interval",
    "load",
    "servers",
    "read_service",
    "write_service",
    "service",
)
"""Parameters of the run: streams that run together must agree on them."""

HOW = (
    *("backend", "registered_files", "registered_buffers", "submission_polling", "completion_polling", "io_mode"),
    *("servers", "read_service", "write_service", "service", "purge", "fill", "capacity", "precondition"),
    *("precondition_access", "over_provisioning"),
)
"""Parameters that preparation shares with what it prepares for."""

SIZES: Sequence[str] = (
    "capacity",
    "precondition",
    "stride",
    "block_size",
    "span",
    "offset",
    "ramp_bytes",
    "limit_bytes",
)
"""Parameters in bytes."""

DURATIONS: Sequence[str] = ("round_length", "ramp", "duration", "interval", "spin", "read_service", "write_service")
"""Parameters in nanoseconds."""


SCALABLE = ("rate", "load", "queue_depth", "jobs")
"""Parameters that say how much load there is: what a search may look for."""

WHOLE_NUMBERS = ("queue_depth", "jobs")
"""Those of them that are counted."""


TITLE = "block I/O"

PARAMETERS: type[BaseModel] = BlockParameters

SHOWN: Sequence[str] = (
    "access",
    "block_size",
    "queue_depth",
    "jobs",
    "read_fraction",
    "span",
    "io_mode",
    "backend",
    "duration",
)
"""Parameters that a plan shows even where they are the default."""

SMALLER = "make the span smaller with `--set span=...`"

SIGMAS = 8
"""Standard deviations by which the number of random arrivals does not exceed what is expected."""


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` says what is wrong with it."""
    return reading.value(BlockParameters, TITLE, name, value)


def build(parameters: Mapping[str, Any]) -> BlockParameters:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    return reading.build(BlockParameters, TITLE, parameters)


def settle(streams: Mapping[str, BlockParameters], target: Room, *, room_bytes: int) -> dict[str, BlockParameters]:
    """The parameters with what the target decides: the backend, and bytes for a share of the room."""
    check_agreement(streams, WHOLE_WORKLOAD)
    jobs = sum(stream.jobs for stream in streams.values())
    return {name: _settled(stream, target, room_bytes, jobs) for name, stream in streams.items()}


def resolve(streams: Mapping[str, BlockParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec."""
    streams = settle(streams, target, room_bytes=target.free_bytes())
    is_virtual = _is_virtual(next(iter(streams.values())))
    devices = [] if is_virtual else target.block_devices()
    backend = _backend(next(iter(streams.values())), target.backend())
    return _spec(streams, _spec_target(streams, target), backend, devices, seed=seed, run_id=run_id)


def vary(spec: JsonObject, parameters: Mapping[str, Any], *, seed: int, run_id: str) -> JsonObject:
    """A spec like another, on the same target, with these parameters of a case (`STREAM.NAME` where streams differ)."""
    names = [stream["name"] for stream in spec["workload"]["streams"]]
    streams = {name: _of_case(parameters, name) for name in names}
    workload, devices = spec["workload"], spec["observe"]["block_devices"]
    backend = _backend(next(iter(streams.values())), workload["backend"])
    return _spec(streams, workload["target"], backend, devices, seed=seed, run_id=run_id)


def prepare(
    spec: JsonObject, parameters: Mapping[str, Any], changes: Mapping[str, Any], *, seed: int, run_id: str
) -> tuple[JsonObject, dict[str, Any]]:
    """A spec with a single stream of its own on the same target, for a step of preparation; and its parameters.

    What says how I/O is done is taken from the case's parameters, everything else from `changes` or the defaults.
    """
    kept = {name: parameters[name] for name in HOW if name in parameters}
    stream = BlockParameters.model_construct(**{**build({}).model_dump(), **kept, **changes})
    workload, devices = spec["workload"], spec["observe"]["block_devices"]
    [name, *others] = [stream["name"] for stream in workload["streams"]]
    made = _spec(
        {"main" if others else name: stream}, workload["target"], workload["backend"], devices, seed=seed, run_id=run_id
    )
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
    return {
        "protocol": PROTOCOL_VERSION,
        "run_id": run_id,
        "seed": seed,
        "workload": {
            "kind": "block",
            "target": target,
            "backend": backend,
            "layout": whole.layout,
            "page_cache": whole.page_cache,
            "streams": [_stream(name, stream, _begins(streams)[name]) for name, stream in streams.items()],
            "ramp": {"duration_ns": whole.ramp, "bytes": whole.ramp_bytes},
            "duration_ns": whole.duration,
            "interval_ns": whole.interval,
            "verify": _verification(whole, target),
        },
        "observe": {"block_devices": devices},
    }


def _verification(whole: BlockParameters, target: JsonObject) -> JsonObject | None:
    if whole.verify == "none":
        return None
    elsewhere = str(journal_directory(target["path"])) if target["kind"] == "device" else None
    return {"when": whole.verify, "journal_directory": elsewhere}


def files(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """The files that a run keeps on disk, by name, with their sizes; streams must be settled."""
    if _is_virtual(next(iter(streams.values()))):
        return {}
    whole, size_bytes = next(iter(streams.values())), addressed_bytes(streams)
    if whole.files == "shared":
        data = {"data": size_bytes}
    else:
        data = {f"{name}.{job}": size_bytes for name, stream in streams.items() for job in range(stream.jobs)}
    if whole.verify == "none":
        return data
    return data | {f"{name}.verify": _journal_bytes(streams, size) for name, size in data.items()}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room so many files need."""
    return f"for {files} files, by the parameters `span` and `files`" if files > 1 else "by the parameter `span`"


def _journal_bytes(streams: Mapping[str, BlockParameters], size_bytes: int) -> int:
    """What verification keeps beside a file, roughly: 16 bytes for each block."""
    sizes = [size for stream in streams.values() for size in (*block_sizes(stream), stream.offset)]
    return 4096 + 16 * (size_bytes // math.gcd(MIB, *sizes))


def addressed_bytes(streams: Mapping[str, BlockParameters]) -> int:
    """Where the last span ends; streams must be settled."""
    begins = _begins(streams)
    return max(begins[name] + stream.offset + _extent(stream) for name, stream in streams.items())


def _begins(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """Where each stream's data begins: on a simulated drive the files of jobs lie one after the other."""
    begins, at = {}, 0
    for name, stream in streams.items():
        begins[name] = at
        if _has_files_on_drive(stream):
            at += stream.offset + _extent(stream)
    return begins


def _extent(stream: BlockParameters) -> int:
    return int(stream.span) * (stream.jobs if _has_files_on_drive(stream) else 1)


def _has_files_on_drive(stream: BlockParameters) -> bool:
    """Whether jobs with files of their own must be given parts of a drive that knows no files."""
    return stream.backend == "ssd" and stream.files == "per_job"


def buffer_bytes(streams: Mapping[str, BlockParameters]) -> int:
    """Memory of the blocks that are in flight together; a virtual target needs none."""
    if _is_virtual(next(iter(streams.values()))):
        return 0
    return sum(stream.jobs * stream.queue_depth * largest_block(stream) for stream in streams.values())


def cost(streams: Mapping[str, BlockParameters]) -> Cost:
    """Time and bytes written at most, without layout; streams must be settled."""
    whole = next(iter(streams.values()))
    written = [_write_limit(stream) for stream in streams.values() if _writes(stream)]
    return Cost(
        seconds=(whole.ramp + max(_duration_ns(stream) for stream in streams.values())) / 10**9,
        write_bytes=0 if _is_virtual(whole) else None if None in written else sum(size or 0 for size in written),
    )


def offered_rate(stream: BlockParameters) -> float:
    """I/Os per second that a stream's schedule asks for, in its highest step; 0 in closed loop."""
    rates = [rate for rate, _ in rate_steps(stream.rate)] if isinstance(stream.rate, str) else [stream.rate or 0]
    return max(rates) * stream.load


def block_sizes(stream: BlockParameters) -> list[int]:
    """The sizes of a stream's I/Os."""
    return [size for size, _ in mix_of(stream.block_size)]


def largest_block(stream: BlockParameters) -> int:
    """The largest of a stream's I/Os."""
    return max(block_sizes(stream))


def is_mix(stream: BlockParameters) -> bool:
    """Whether a stream's I/Os differ in size."""
    return isinstance(stream.block_size, str)


def mix_of(block_size: int | str) -> list[tuple[int, float]]:
    """Sizes and weights of a block size or of a mix as `4KiB/70:64KiB/30`."""
    if isinstance(block_size, int):
        return [(block_size, 1.0)]
    parts = [part.partition("/") for part in block_size.split(":")]
    try:
        mix = [(_checked_block(parse_size(size)), float(weight)) for size, _, weight in parts]
    except ValueError:
        raise ValueError(f"`{block_size}` is not a mix; write it like `4KiB/70:64KiB/30`") from None
    if not all(weight > 0 for _, weight in mix):
        raise ValueError(f"`{block_size}` has a weight that is not above 0")
    return mix


def must_align(stream: BlockParameters) -> dict[str, list[int]]:
    """What direct I/O needs in multiples of its own unit, by parameter; nothing where I/O is buffered."""
    if stream.io_mode != "direct":
        return {}
    sizes = {"block_size": block_sizes(stream), "stride": [stream.stride or 0], "offset": [stream.offset]}
    return {name: [size for size in values if size] for name, values in sizes.items()}


def _settled(stream: BlockParameters, target: Room, room_bytes: int, jobs: int) -> BlockParameters:
    changes: dict[str, Any] = {}
    forced = target.backend()
    if forced:
        changes["backend"] = forced["kind"]
    backend = changes.get("backend", stream.backend)
    if backend == "simulated":
        changes |= _simulated(stream, forced or {})
    if backend in ("null", "simulated"):
        changes |= {"layout": "never", "page_cache": "keep"}
    if backend == "ssd":
        if not forced:
            raise StudyError("the backend `ssd` is a simulated drive", hint="name one as the target, like `sim:pm963`")
        changes["page_cache"] = "keep"
    if isinstance(stream.span, str):
        share = room_bytes * float(stream.span.rstrip("%")) / 100
        if stream.files == "per_job":
            share /= jobs
        changes["span"] = int((share - stream.offset) // MIB * MIB)
    if stream.unaligned == "round_up" and stream.io_mode == "direct" and backend not in ("null", "simulated"):
        changes["block_size"] = _rounded_up(stream.block_size, target.direct_unit() or 1)
    changes |= _prepared(stream, target, room_bytes, own_capacity=room_bytes if backend == "ssd" else stream.capacity)
    if "aging" in (stream.access, stream.precondition_access) and not stream.over_provisioning:
        changes["over_provisioning"] = _over_provisioning(target)
    settled = stream.model_copy(update=changes)
    problem = settled.problem()
    if problem:
        raise StudyError(problem)
    return settled


def _rounded_up(block_size: int | str, unit: int) -> int | str:
    if isinstance(block_size, int):
        return -(-block_size // unit) * unit
    return ":".join(f"{compact_size(-(-size // unit) * unit)}/{weight:g}" for size, weight in mix_of(block_size))


def _prepared(stream: BlockParameters, target: Room, room_bytes: int, *, own_capacity: int | None) -> dict[str, Any]:
    """What preparation decides: means of the purge, the span that `fill` comes to, and that nothing else lays out."""
    if not prepares(stream):
        return {}
    changes: dict[str, Any] = {"layout": "never"}
    if stream.purge not in ("none", "unneeded"):
        changes["purge"] = _purge(stream.purge, target)
    if stream.fill:
        capacity = target.capacity() if own_capacity is None else Capacity(bytes=own_capacity)
        filled = _fill_bytes(stream.fill, capacity, room_bytes)
        changes["span"] = filled if stream.files == "shared" else filled // stream.jobs // MIB * MIB
    return changes


def _over_provisioning(target: Room) -> float:
    """That of a simulated drive; of real ones it is not known."""
    model = (target.backend() or {}).get("model", {})
    known: float | None = model.get("translation", {}).get("over_provisioning")
    if not known:
        raise StudyError(
            "preconditioning in one pass needs the drive's `over_provisioning`",
            where="by the parameter `precondition_access`",
            hint="say it, such as `--set over_provisioning=0.07`, or precondition with "
            "`--set precondition_access=sequential`",
        )
    return known


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
    """Bytes to write so that so many percent of the capacity are in use."""
    wanted = int(percent / 100 * capacity.bytes) - capacity.used
    smaller = "set what counts as the capacity: `--set capacity=1GiB`"
    if wanted < MIB:
        raise StudyError(
            f"{percent:g} % of {format_bytes(capacity.bytes)} cannot be filled: "
            f"{format_bytes(capacity.used)} are in use already",
            hint=f"make room, choose higher levels with `--set fill=...`, or {smaller}",
        )
    if wanted > room_bytes:
        kept = f", since the file system keeps back {format_bytes(capacity.reserved)}" if capacity.reserved else ""
        raise StudyError(
            f"{percent:g} % of {format_bytes(capacity.bytes)} cannot be filled: that takes {format_bytes(wanted)}, and "
            f"{format_bytes(room_bytes)} can be written{kept}",
            hint=f"choose lower levels with `--set fill=...`, or {smaller}",
        )
    return wanted // MIB * MIB


def layout(streams: Mapping[str, BlockParameters]) -> Layout:
    """Which part of its files a run writes before it measures."""
    return next(iter(streams.values())).layout


def prepares(stream: BlockParameters) -> bool:
    """Whether the target is to be prepared before the first run."""
    return stream.purge != "none" or stream.fill > 0 or stream.precondition is not None


def _simulated(stream: BlockParameters, target: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "servers": stream.servers or target.get("servers", 1),
        "read_service": stream.read_service or target.get("read_service_ns", DEFAULT_SERVICE_NS),
        "write_service": stream.write_service or target.get("write_service_ns", DEFAULT_SERVICE_NS),
        "service": stream.service or target.get("service", "constant"),
    }


def _is_virtual(stream: BlockParameters) -> bool:
    return stream.backend in ("null", "simulated", "ssd")


def _smallest_span(stream: BlockParameters) -> int:
    parts = stream.jobs if stream.span_sharing == "split" and stream.files == "shared" else 1
    return parts * largest_block(stream)


def _spec_target(streams: Mapping[str, BlockParameters], target: Target) -> JsonObject:
    whole = next(iter(streams.values()))
    size_bytes = addressed_bytes(streams)
    if _is_virtual(whole):
        return {"kind": "virtual", "size_bytes": size_bytes}
    return target.spec_target(whole.files, size_bytes)


def _backend(whole: BlockParameters, given: JsonObject | None) -> JsonObject:
    """The spec's `backend`; `given` is what the target leaves no choice about."""
    match whole.backend:
        case "ssd":
            return given or {}
        case "uring":
            options = ("registered_files", "registered_buffers", "submission_polling", "completion_polling")
            return {"kind": "uring", **{name: getattr(whole, name) for name in options}}
        case "simulated":
            return {
                "kind": "simulated",
                "servers": whole.servers,
                "read_service_ns": whole.read_service,
                "write_service_ns": whole.write_service,
                "service": whole.service,
            }
        case kind:
            return {"kind": kind}


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
            "offset_bytes": begin + stream.offset,
            "bytes": _extent(stream),
            "sharing": "split" if _has_files_on_drive(stream) else sharing,
        },
        "io_mode": stream.io_mode,
        "durability": _durability(stream.durability),
        "arrival": _arrival(stream),
        "payload": _payload(stream),
        "limit_bytes": stream.limit_bytes,
        "limit_operations": stream.limit_operations,
        "active": active_window(stream.active) if stream.active else None,
        "spin_ns": stream.spin,
        "cpus": stream.cpus,
    }


def _arrival(stream: BlockParameters) -> JsonObject:
    match stream.rate:
        case None:
            return {"kind": stream.arrival}
        case str(text):
            steps = [{"rate": rate * stream.load, "duration_ns": length} for rate, length in rate_steps(text)]
            return {"kind": "steps", "steps": steps, "spacing": stream.arrival}
        case rate:
            return {"kind": stream.arrival, "rate": rate * stream.load}


def _payload(stream: BlockParameters) -> JsonObject:
    if stream.compression_ratio == 1 and stream.duplicate_fraction == 0:
        return {"kind": stream.payload}
    return {
        "kind": "reducible",
        "compression_ratio": stream.compression_ratio,
        "duplicate_fraction": stream.duplicate_fraction,
    }


def _access(stream: BlockParameters) -> JsonObject:
    match stream.access:
        case "strided":
            stride = stream.stride or (stream.stride_blocks or 0) * largest_block(stream)
            return {"kind": "strided", "stride_bytes": stride}
        case "random":
            distribution = _distribution(stream.distribution)
            return {"kind": "random", "coverage": stream.coverage, "distribution": distribution}
        case "aging":
            return {"kind": "aging", "over_provisioning": stream.over_provisioning}
        case kind:
            return {"kind": kind}


def _distribution(text: str) -> JsonObject:
    kind, *numbers = text.split(":")
    names = {"zipfian": ("theta",), "hot_cold": ("hot_span", "hot_access")}.get(kind, ())
    return {"kind": kind, **dict(zip(names, map(float, numbers), strict=True))}


def _durability(text: str) -> JsonObject:
    kind, *every = text.split(":")
    return {"kind": kind, **({"every": int(every[0])} if every else {})}


def _writes(stream: BlockParameters) -> bool:
    return stream.read_fraction + stream.trim_fraction < 1


def _write_limit(stream: BlockParameters) -> int | None:
    """Bytes that a stream writes at most, ramp included; None where only time limits them."""
    limits = [stream.limit_bytes, (stream.limit_operations or 0) * largest_block(stream), _due(stream, stream.duration)]
    ramps = [stream.ramp_bytes, _due(stream, stream.ramp)]
    measured, ramp = (min((limit for limit in each if limit), default=None) for each in (limits, ramps))
    return None if measured is None or (ramp is None and stream.ramp) else measured + (ramp or 0)


def _due(stream: BlockParameters, length_ns: int | None) -> int | None:
    """Bytes that an open loop asks for in some time; of random arrivals as many as ever come."""
    rate = offered_rate(stream)
    if not rate or length_ns is None:
        return None
    expected = rate * length_ns / 10**9
    chance = SIGMAS * math.sqrt(expected) if stream.arrival == "poisson" else 0
    return (math.ceil(expected + chance) + stream.jobs) * largest_block(stream)


def _duration_ns(stream: BlockParameters) -> int:
    if stream.duration is not None:
        return stream.duration
    if stream.limit_operations:
        rate = offered_rate(stream) if isinstance(stream.rate, float) else ASSUMED_OPERATIONS_PER_SECOND
        return round(stream.limit_operations / rate * 10**9)
    return round((stream.limit_bytes or 0) / ASSUMED_BYTES_PER_SECOND * 10**9)
