"""The parameters of block I/O: every field of a stream with its default and description, and rules about several.

Docs and errors are generated from this list. Each stream has a full set. Those in `WHOLE_WORKLOAD`
describe the run and not the stream, so streams that run together must agree on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from iosonde.engine.protocol import HIGHEST_RATE
from iosonde.study.workload.block import notation
from iosonde.study.workload.block.backends import BACKENDS, VIRTUAL, VIRTUAL_DRIVES
from iosonde.study.workload.reading import (
    BYTES,
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    WithRules,
    none_as_empty,
)
from iosonde.units import MIB, format_bytes

Rate = Annotated[float | str, BeforeValidator(notation.parse_rate_or_steps)]


MOST_DUPLICATED = MIB
"""The largest `duplicate_size`, by the engine."""

OF_BACKENDS = [name for each in BACKENDS.values() if each.parameters for name in each.parameters.model_fields]
"""Parameters of backends of features."""

_TITLES = "; ".join(each.title for each in BACKENDS.values() if each.title)


def _set_by_targets() -> str:
    *targets, last = (f"`{each.target.partition(':')[0]}:`" for each in BACKENDS.values() if each.target)
    return f"The targets {', '.join(targets)} and {last}"


if TYPE_CHECKING:
    BackendName = str
else:
    BackendName = Literal[(*BACKENDS,)]


class BlockFields(WithRules):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""

    access: Literal["sequential", "random", "strided", "aging"] = "random"
    """Order of the blocks; `aging` is the order of preconditioning in one pass (`docs/sustained.md`)."""
    coverage: Literal["with_replacement", "each_once"] = "with_replacement"
    """Random access: independent choices, or each block once before any repeats."""
    distribution: Annotated[str, BeforeValidator(notation.parse_distribution)] = "uniform"
    """Random access: `uniform`, `zipfian:THETA` or `hot_cold:HOT_SPAN:HOT_ACCESS` (fractions)."""
    stride: Size | None = None
    """Strided access: distance from the start of one I/O to the next (IOzone `-j` in blocks)."""
    stride_blocks: int | None = Field(None, ge=2, le=1 << 20)
    """Strided access: the same in blocks, so that it grows with `block_size`."""
    block_size: Annotated[int | str, BeforeValidator(notation.parse_block_size), BYTES] = 4096
    """Size of an I/O, or a weighted mix such as `4KiB/70:64KiB/30` (weights)."""
    unaligned: Literal["refuse", "round_up"] = "refuse"
    """Block sizes that direct I/O of the target does not support: refused, or rounded up."""
    queue_depth: int = Field(1, ge=1, le=4096)
    """I/Os in flight in each job (fio `iodepth`)."""
    jobs: int = Field(1, ge=1, le=1024)
    """Threads (fio `numjobs`)."""
    read_fraction: float = Field(1.0, ge=0, le=1)
    """Share of reads; the rest are writes."""
    trim_fraction: float = Field(0.0, ge=0, le=1)
    """Share of trims (discard)."""
    span: Annotated[int | str, BeforeValidator(notation.parse_span), BYTES] = 1 << 30
    """Addressed range: a size, or a share of the available space such as `80%`; with `files = "per_job"` of each job's
    file (a share is then divided among the jobs)."""
    offset: Annotated[int | str, BeforeValidator(notation.parse_offset), BYTES] = 0
    """Start of the span in the file: a size, or a share of the available space such as `50%`."""
    span_sharing: Literal["shared", "split"] = "shared"
    """All jobs address the whole span, or each an equal part of it."""
    files: Literal["shared", "per_job", "per_device"] = "shared"
    """One file for all jobs, one for each job, or the devices of the target, two to eight."""
    io_mode: Literal["direct", "buffered"] = "direct"
    """`direct` bypasses the page cache (`O_DIRECT`)."""
    durability: Annotated[str, BeforeValidator(notation.parse_durability)] = "none"
    """When writes are durable: `none`, `dsync` (each as it completes), `flush:N` (`fdatasync` after N)."""
    backend: BackendName = Field(
        "uring",
        description=f"I/O interface (`docs/backends.md`): {_TITLES}. {_set_by_targets()} set it themselves.",
    )
    fallback: Literal["allow", "refuse"] = "allow"
    """`uring`: where `io_uring` or polling is refused, continue with synchronous I/O or without polling, or record the
    run as unsupported."""
    registered_files: bool = True
    """`uring`: register the files with the ring."""
    registered_buffers: bool = True
    """`uring`, `uring_nvme`: register the buffers with the ring."""
    submission_polling: bool = False
    """`uring`: a kernel thread polls the submission queue."""
    completion_polling: bool = False
    """`uring`, `uring_nvme`, direct I/O: poll for completions."""
    arrival: Literal["closed", "constant", "poisson"] = "closed"
    """Closed loop (the next I/O starts when one completes), or open loop with constant or exponential gaps."""
    rate: Rate | None = None
    """Open loop: I/Os per second of all jobs together; steps as `1000/10s:5000/10s`, of which the last continues to the
    end."""
    load: float = Field(1.0, gt=0, le=10**6)
    """Open loop: multiple of `rate`; 2 offers twice the rate."""
    spin: DurationOrZero = 100_000
    """Open loop: how long before an I/O is due its thread polls the clock instead of sleeping."""
    active: Annotated[str | None, BeforeValidator(notation.parse_active)] = None
    """When during the measurement the stream is active: `10s-20s`, `10s-`, or periodically, as `0s-5s every 15s`;
    empty: always."""
    payload: Literal["random", "zeros"] = "random"
    """Written data: incompressible and different in every write, or zeros. `compression_ratio` and `duplicate_fraction`
    make random data reducible."""
    compression_ratio: float = Field(1.0, ge=1, le=32)
    """Compression ratio of written data with zstd, without duplicates; 1 to 32."""
    duplicate_fraction: float = Field(0.0, ge=0, le=1)
    """Share of the written data that is a copy of other data, in units of `duplicate_size`."""
    duplicate_size: Size = 4096
    """Size of a duplicate (vdbench `dedupunit`), up to 1 MiB; a smaller I/O is one duplicate."""
    page_cache: Literal["drop", "keep", "warm"] = "drop"
    """Pages of the target before the first I/O: dropped, kept, or all read once."""
    layout: Literal["missing", "always", "never"] = "missing"
    """Before the measurement, write the blocks that were never written, all blocks, or none."""
    verify: Literal["none", "during", "after"] = "none"
    """Data verification: off, of each read when it completes, or of everything after the measurement."""
    purge: Literal["none", "strongest", "format", "sanitize", "trim", "overwrite", "unneeded"] = "none"
    """Rounds: how all data of the target is discarded first; `strongest` is the strongest method that it supports
    (`docs/sustained.md`)."""
    fill: float = Field(0.0, ge=0, le=100)
    """Rounds: percentage of the capacity filled with incompressible data first; the filled part is the `span`."""
    capacity: Size | None = None
    """`fill`: the capacity; empty: the whole file system or simulated device."""
    precondition: Annotated[int | None, BeforeValidator(notation.parse_block_size_or_none), BYTES] = None
    """Rounds: block size of the writes that precondition the span, in the order of `precondition_access`."""
    precondition_access: Literal["sequential", "aging"] = "sequential"
    """`precondition`: twice sequentially, or once in an order that leaves the drive as long uniform random writes
    would."""
    over_provisioning: float | None = Field(None, gt=0, le=10)
    """`aging`: spare capacity of the drive as a fraction of its capacity; known for simulated drives."""
    ramp: DurationOrZero = 2 * 10**9
    """Load before the measurement, so that it starts in a stable state; an upper bound."""
    ramp_until: Literal["time", "steady"] = "time"
    """End the ramp after its time, or once rate and hit ratio are steady (`ramp` is then the maximum)."""
    start: Literal["warm", "cold"] = "warm"
    """`cold`: start the measurement with an empty page cache and without a ramp, on purpose."""
    ramp_bytes: Size | None = None
    """Maximum bytes of each stream during the ramp."""
    duration: DurationOrNone = 10 * 10**9
    """Maximum length of the measurement; `none` where only a limit ends it."""
    limit_bytes: Size | None = None
    """Maximum bytes of each stream in the measurement."""
    limit_spans: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(none_as_empty)] = None
    """The same as a multiple of the bytes that the stream addresses (of a whole drive: its capacity); `none`: no such
    limit."""
    limit_operations: int | None = Field(None, ge=1)
    """Maximum I/Os of each stream in the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    round_length: DurationOrNone = None
    """Length of the rounds by which the steady-state rule judges a run; empty: it is not judged."""
    tracking: Literal["iops", "bandwidth", "completion_latency_ns_mean"] = "iops"
    """Tracking variable of these rounds."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."""
    servers: int | None = Field(None, ge=1)
    """Simulated device: I/Os served concurrently (1)."""
    read_service: Duration | None = None
    """Simulated device: time to serve a read (100us)."""
    write_service: Duration | None = None
    """Simulated device: time to serve a write (100us)."""
    service: Literal["constant", "exponential"] | None = None
    """Simulated device: constant service times, or exponential ones with that mean."""

    @property
    def block_sizes(self) -> list[int]:
        """The sizes of its I/Os."""
        return [size for size, _ in notation.mix_of(self.block_size)]

    @property
    def largest_block(self) -> int:
        """The largest of its I/Os."""
        return max(self.block_sizes)

    @property
    def has_mixed_blocks(self) -> bool:
        """Return True if its I/Os differ in size."""
        return isinstance(self.block_size, str)

    @property
    def offered_rate(self) -> float:
        """I/Os per second that its schedule requires, in its highest step; 0 in closed loop."""
        steps = notation.rate_steps(self.rate) if isinstance(self.rate, str) else [(self.rate or 0.0, 0)]
        return max(rate for rate, _ in steps) * self.load

    @property
    def stops_early(self) -> bool:
        """Return True if its schedule stops issuing I/O before a limit may be reached."""
        window = notation.active_window(self.active) if self.active else None
        has_end = window is not None and window["end_ns"] is not None and window.get("every_ns") is None
        return has_end or (isinstance(self.rate, str) and notation.rate_steps(self.rate)[-1][0] == 0)

    @property
    def writes_per_flush(self) -> int:
        """Writes of a thread after which it flushes; 0 if it does not."""
        return int(self.durability.partition(":")[2] or 0)

    @property
    def writes(self) -> bool:
        """Return True if any of its I/Os is a write."""
        return self.read_fraction + self.trim_fraction < 1

    @property
    def is_virtual(self) -> bool:
        """Return True if its target exists in memory only, or not at all."""
        return self.backend in VIRTUAL

    @property
    def has_files_on_drive(self) -> bool:
        """Return True if jobs with files of their own must be given parts of a drive, which has no files."""
        return self.backend in VIRTUAL_DRIVES and self.files == "per_job"

    @property
    def smallest_span(self) -> int:
        """Bytes of one block for each job that has a part of the span."""
        parts = self.jobs if self.span_sharing == "split" and self.files != "per_job" else 1
        return parts * self.largest_block

    @property
    def active_range_bytes(self) -> int:
        """Bytes that its jobs address together, once it is fitted to a target: what SNIA calls the active range."""
        return int(self.span) * (self.jobs if self.files == "per_job" else 1)

    @property
    def byte_limit(self) -> int | None:
        """Bytes that it issues at most in the measurement, once it is fitted to a target; None without such a limit."""
        if self.limit_spans is None:
            return self.limit_bytes
        return max(round(self.limit_spans * self.active_range_bytes), self.jobs * self.largest_block)

    @property
    def extent_bytes(self) -> int:
        """Bytes of the file or drive that its jobs address together, once it is fitted to a target."""
        return int(self.span) * (self.jobs if self.has_files_on_drive else 1)

    @property
    def offset_bytes(self) -> int:
        """Start of the span in bytes, once it is fitted to a target."""
        return int(self.offset)

    def _rules(self) -> list[tuple[bool, str]]:
        backend = BACKENDS[self.backend]
        strides = [stride for stride in (self.stride, self.stride_blocks) if stride is not None]
        is_open = self.arrival != "closed"
        return [
            (backend.one_at_a_time and self.queue_depth != 1,
             f"the backend `{self.backend}` does one I/O at a time in each job: `queue_depth` must be 1 (use more "
             "`jobs`)"),
            (backend.direct_only and self.io_mode != "direct",
             f'the backend `{self.backend}` needs `io_mode = "direct"`'),
            (not backend.trims and self.trim_fraction > 0,
             f"the backend `{self.backend}` cannot trim: `trim_fraction` must be 0"),
            ((self.access == "strided") != (len(strides) == 1),
             "strided access needs one of `stride` and `stride_blocks`, and no other access has them"),
            (self.stride is not None and self.stride < self.largest_block, "`stride` is smaller than `block_size`"),
            (self.stride is not None and self.stride % min(self.block_sizes) != 0,
             "`stride` is not a multiple of the smallest `block_size`"),
            (self.stride_blocks is not None and self.has_mixed_blocks,
             "`stride_blocks` is undefined for a mix of sizes"),
            (self.access != "random" and self.distribution != "uniform", "`distribution` is for random access only"),
            (self.access != "random" and self.coverage != "with_replacement", "`coverage` is for random access only"),
            (self.coverage == "each_once" and self.distribution != "uniform",
             "`coverage = \"each_once\"` leaves no choice to `distribution`"),
            (self.coverage == "each_once" and self.has_mixed_blocks,
             "`coverage = \"each_once\"` needs a single `block_size`"),
            (self.read_fraction + self.trim_fraction > 1, "`read_fraction` and `trim_fraction` exceed 1 together"),
            (is_open and self.rate is None, f"`arrival = \"{self.arrival}\"` needs a `rate`"),
            (not is_open and self.rate is not None,
             "`rate` is for open loop: set `arrival` to `constant` or `poisson` as well"),
            (is_open and self.active is not None and "every" in self.active,
             "an `active` that repeats is for closed loop; in open loop a step of rate 0 is a pause"),
            (not is_open and self.load != 1, "`load` is for open loop: set `arrival` and `rate` as well"),
            (self.offered_rate > HIGHEST_RATE,
             f"a rate of {self.offered_rate:g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
            (isinstance(self.rate, float) and self.duration is not None
             and self.offered_rate * self.duration < 10**9,
             f"a rate of {self.offered_rate:g} per second starts nothing within `duration`"),
            *self._payload_rules(),
            *self._verification_rules(),
            (self.completion_polling and self.io_mode != "direct", "`completion_polling` needs `io_mode = \"direct\"`"),
            (self.duration is None
             and self.limit_bytes is None and self.limit_operations is None and self.limit_spans is None,
             "it would never end: set `duration`, `limit_bytes`, `limit_spans` or `limit_operations`"),
            (self.duration is None and self.stops_early,
             "it may stop before its limit: set a `duration`, or leave out the end of `active` and a last step of rate "
             "0"),
            (self.limit_bytes is not None and self.limit_spans is not None,
             "`limit_bytes` and `limit_spans` limit the same: set one of them"),
            (self.fill > 0 and self.purge == "none",
             "`fill` needs a `purge`, so that the unfilled part is erased"),
            (self.fill > 0 and self.offset != 0, "`fill` starts at offset 0: leave out `offset`"),
            (self.precondition_access != "sequential" and self.precondition is None,
             "`precondition_access` is for `precondition`: set that, to the block size of the load"),
            (self.capacity is not None and not self.fill, "`capacity` applies to `fill` only: set `fill`"),
            (self.round_length is not None and self.round_length % self.interval != 0,
             "`round_length` must be a multiple of `interval`"),
            (self.ramp_bytes is not None and self.ramp == 0,
             "`ramp_bytes` ends a `ramp` early: set a `ramp` above 0, or leave out `ramp_bytes`"),
            (self.limit_operations is not None and self.limit_operations < self.jobs,
             "`limit_operations` is less than one for each job"),
            (self.limit_bytes is not None and self.limit_bytes < self.jobs * self.largest_block,
             "`limit_bytes` is less than one block for each job"),
            (isinstance(self.span, int) and self.span < self.smallest_span,
             f"`span` is smaller than {format_bytes(self.smallest_span)}, one block for each job that has a part"),
        ]  # fmt: skip

    def _payload_rules(self) -> list[tuple[bool, str]]:
        return [
            (self.payload == "zeros" and (self.compression_ratio != 1 or self.duplicate_fraction != 0),
             "`compression_ratio` and `duplicate_fraction` are for `payload = \"random\"`: zeros are fully reducible"),
            (self.duplicate_fraction > 0 and any(size % 4096 for size in self.block_sizes),
             "`duplicate_fraction` counts blocks of 4 KiB: `block_size` must be a multiple of that"),
            (self.duplicate_size % 4096 != 0 or self.duplicate_size > MOST_DUPLICATED,
             f"`duplicate_size` must be a multiple of 4 KiB, at most {format_bytes(MOST_DUPLICATED)}"),
        ]  # fmt: skip

    def _verification_rules(self) -> list[tuple[bool, str]]:
        """Data verification requires stored data of known contents, with space for a seal in each sector."""
        if self.verify == "none":
            return []
        # A share becomes a multiple of 1 MiB.
        sizes = [*self.block_sizes, self.offset if isinstance(self.offset, int) else 0]
        return [
            (self.is_virtual, "`verify` needs a target that keeps data, and `null:` and `simulated:` keep none"),
            (self.trim_fraction > 0,
             "`verify` does not know the contents of trimmed blocks: leave out `trim_fraction`"),
            (self.payload == "zeros" or self.duplicate_fraction > 0,
             "`verify` writes each sector's address into it, so there are no zeros and no duplicates"),
            (self.purge != "none" or self.fill > 0 or self.precondition is not None,
             "`verify` checks only what layout and the load write: leave out `purge`, `fill` and `precondition`"),
            (any(size % 512 for size in sizes), "`verify` needs `block_size` and `offset` in whole sectors of 512 B"),
        ]  # fmt: skip


if TYPE_CHECKING:
    _Fields = BlockFields
else:
    _OF_BACKENDS = [each.parameters for each in BACKENDS.values() if each.parameters]
    _Fields = create_model("_Fields", __base__=(*_OF_BACKENDS, BlockFields))


class BlockParameters(_Fields):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""


OPTIONS = tuple(dict.fromkeys(name for each in BACKENDS.values() for name in each.options))
"""Parameters of backends that are options in the engine's spec."""

PREPARATION = ("purge", "fill", "capacity", "precondition", "precondition_access", "over_provisioning")
"""Parameters of the preparation of a target."""

WHOLE_WORKLOAD = (
    *("files", "backend", "fallback", *OPTIONS, "page_cache", "layout", "verify", *PREPARATION),
    *("round_length", "tracking", "ramp", "ramp_until", "start", "ramp_bytes", "duration", "interval", "load"),
)
"""Parameters of the run: streams that run together must agree on them."""

OF_HOST = ("backend", "fallback", *BACKENDS["uring"].options, *OF_BACKENDS, "io_mode", "page_cache")
"""Parameters of the host's path to a device, which a simulated target does not have: they change nothing there."""

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

SCALABLE = ("rate", "load", "queue_depth", "jobs")
"""Parameters that determine the load: what a search may look for."""

WHOLE_NUMBERS = ("queue_depth", "jobs")
"""Those of them that are counted."""


# Places of the data of streams ----------------------------------------------------------------------------------------


def addressed_bytes(streams: Mapping[str, BlockParameters]) -> int:
    """Return the end of the last span; streams must be fitted to the target."""
    begin = begins(streams)
    return max(begin[name] + stream.offset_bytes + stream.extent_bytes for name, stream in streams.items())


def begins(streams: Mapping[str, BlockParameters]) -> dict[str, int]:
    """Offset of each stream's data, in bytes: on a simulated drive the files of jobs are one after the other."""
    found, at = {}, 0
    for name, stream in streams.items():
        found[name] = at
        if stream.has_files_on_drive:
            at += stream.offset_bytes + stream.extent_bytes
    return found


def active_range_bytes(parameters: Mapping[str, Any]) -> int | None:
    """Return the bytes that a planned case addresses, by its parameters; None where streams have spans of their own."""
    if not isinstance(parameters.get("span"), int):
        return None
    named = {name: parameters[name] for name in ("span", "jobs", "files") if parameters.get(name) is not None}
    return BlockParameters.model_construct(**named).active_range_bytes


def journal_bytes(streams: Mapping[str, BlockParameters], size_bytes: int) -> int:
    """Return the approximate bytes that verification keeps about a file: 16 for each block.

    An offset that is still a share becomes a multiple of 1 MiB.
    """
    offsets = [stream.offset for stream in streams.values() if isinstance(stream.offset, int)]
    sizes = [*(size for stream in streams.values() for size in stream.block_sizes), *offsets]
    return 4096 + 16 * (size_bytes // math.gcd(MIB, *sizes))
