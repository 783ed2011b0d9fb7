"""The parameters of block I/O: every field of a stream with its default and description.

Docs and errors are generated from this list. Each stream has a full set. Those in `WHOLE_WORKLOAD`
describe the run and not the stream, so streams that run together must agree on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from iosonde.workload.block import notation
from iosonde.workload.block.backends import BACKENDS, VIRTUAL, VIRTUAL_DRIVES
from iosonde.workload.reading import (
    BYTES,
    Cpus,
    Duration,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    none_as_empty,
)

Rate = Annotated[float | str, BeforeValidator(notation.parse_rate_or_steps)]


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


class BlockFields(BaseModel):
    """One stream: `jobs` threads, each with `queue_depth` I/Os in flight."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    access: Literal["sequential", "random", "strided", "aging"] = Field(
        "random",
        description="Order of the blocks; `aging` is the order of preconditioning in one pass (`docs/sustained.md`).",
    )
    coverage: Literal["with_replacement", "each_once"] = Field(
        "with_replacement",
        description="Random access: independent choices, or each block once before any repeats.",
    )
    distribution: Annotated[str, BeforeValidator(notation.parse_distribution)] = Field(
        "uniform",
        description="Random access: `uniform`, `zipfian:THETA` or `hot_cold:HOT_SPAN:HOT_ACCESS` (fractions).",
    )
    stride: Size | None = Field(
        None, description="Strided access: distance from the start of one I/O to the next (IOzone `-j` in blocks)."
    )
    stride_blocks: int | None = Field(
        None, ge=2, le=1 << 20, description="Strided access: the same in blocks, so that it grows with `block_size`."
    )
    block_size: Annotated[int | str, BeforeValidator(notation.parse_block_size), BYTES] = Field(
        4096, description="Size of an I/O, or a weighted mix such as `4KiB/70:64KiB/30` (weights)."
    )
    unaligned: Literal["refuse", "round_up"] = Field(
        "refuse", description="Block sizes that direct I/O of the target does not support: refused, or rounded up."
    )
    queue_depth: int = Field(1, ge=1, le=4096, description="I/Os in flight in each job (fio `iodepth`).")
    jobs: int = Field(1, ge=1, le=1024, description="Threads (fio `numjobs`).")
    read_fraction: float = Field(1.0, ge=0, le=1, description="Share of reads; the rest are writes.")
    trim_fraction: float = Field(0.0, ge=0, le=1, description="Share of trims (discard).")
    span: Annotated[int | str, BeforeValidator(notation.parse_span), BYTES] = Field(
        1 << 30,
        description="Addressed range: a size, or a share of the available space such as `80%`; with "
        '`files = "per_job"` of each job\'s file (a share is then divided among the jobs).',
    )
    offset: Annotated[int | str, BeforeValidator(notation.parse_offset), BYTES] = Field(
        0, description="Start of the span in the file: a size, or a share of the available space such as `50%`."
    )
    span_sharing: Literal["shared", "split"] = Field(
        "shared", description="All jobs address the whole span, or each an equal part of it."
    )
    files: Literal["shared", "per_job", "per_device"] = Field(
        "shared", description="One file for all jobs, one for each job, or the devices of the target, two to eight."
    )
    io_mode: Literal["direct", "buffered"] = Field(
        "direct", description="`direct` bypasses the page cache (`O_DIRECT`)."
    )
    durability: Annotated[str, BeforeValidator(notation.parse_durability)] = Field(
        "none",
        description="When writes are durable: `none`, `dsync` (each as it completes), `flush:N` (`fdatasync` after N).",
    )
    backend: BackendName = Field(
        "uring",
        description=f"I/O interface (`docs/backends.md`): {_TITLES}. {_set_by_targets()} set it themselves.",
    )
    fallback: Literal["allow", "refuse"] = Field(
        "allow",
        description="`uring`: where `io_uring` or polling is refused, continue with synchronous I/O or without "
        "polling, or record the run as unsupported.",
    )
    registered_files: bool = Field(True, description="`uring`: register the files with the ring.")
    registered_buffers: bool = Field(True, description="`uring`, `uring_nvme`: register the buffers with the ring.")
    submission_polling: bool = Field(False, description="`uring`: a kernel thread polls the submission queue.")
    completion_polling: bool = Field(False, description="`uring`, `uring_nvme`, direct I/O: poll for completions.")
    arrival: Literal["closed", "constant", "poisson"] = Field(
        "closed",
        description="Closed loop (the next I/O starts when one completes), or open loop with constant or exponential "
        "gaps.",
    )
    rate: Rate | None = Field(
        None,
        description="Open loop: I/Os per second of all jobs together; steps as `1000/10s:5000/10s`, of which the "
        "last continues to the end.",
    )
    load: float = Field(1.0, gt=0, le=10**6, description="Open loop: multiple of `rate`; 2 offers twice the rate.")
    spin: DurationOrZero = Field(
        100_000,
        description="Open loop: how long before an I/O is due its thread polls the clock instead of sleeping.",
    )
    active: Annotated[str | None, BeforeValidator(notation.parse_active)] = Field(
        None,
        description="When during the measurement the stream is active: `10s-20s`, `10s-`, or periodically, as `0s-5s "
        "every 15s`; empty: always.",
    )
    payload: Literal["random", "zeros"] = Field(
        "random",
        description="Written data: incompressible and different in every write, or zeros. `compression_ratio` and "
        "`duplicate_fraction` make random data reducible.",
    )
    compression_ratio: float = Field(
        1.0, ge=1, le=32, description="Compression ratio of written data with zstd, without duplicates; 1 to 32."
    )
    duplicate_fraction: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the written data that is a copy of other data, in units of `duplicate_size`.",
    )
    duplicate_size: Size = Field(
        4096, description="Size of a duplicate (vdbench `dedupunit`), up to 1 MiB; a smaller I/O is one duplicate."
    )
    page_cache: Literal["drop", "keep", "warm"] = Field(
        "drop", description="Pages of the target before the first I/O: dropped, kept, or all read once."
    )
    layout: Literal["missing", "always", "never"] = Field(
        "missing", description="Before the measurement, write the blocks that were never written, all blocks, or none."
    )
    verify: Literal["none", "during", "after"] = Field(
        "none",
        description="Data verification: off, of each read when it completes, or of everything after the measurement.",
    )
    purge: Literal["none", "strongest", "format", "sanitize", "trim", "overwrite", "unneeded"] = Field(
        "none",
        description="Rounds: how all data of the target is discarded first; `strongest` is the strongest method that "
        "it supports (`docs/sustained.md`).",
    )
    fill: float = Field(
        0.0,
        ge=0,
        le=100,
        description="Rounds: percentage of the capacity filled with incompressible data first; the filled part is "
        "the `span`.",
    )
    capacity: Size | None = Field(
        None, description="`fill`: the capacity; empty: the whole file system or simulated device."
    )
    precondition: Annotated[int | None, BeforeValidator(notation.parse_block_size_or_none), BYTES] = Field(
        None,
        description="Rounds: block size of the writes that precondition the span, in the order of "
        "`precondition_access`.",
    )
    precondition_access: Literal["sequential", "aging"] = Field(
        "sequential",
        description="`precondition`: twice sequentially, or once in an order that leaves the drive as long uniform "
        "random writes would.",
    )
    over_provisioning: float | None = Field(
        None,
        gt=0,
        le=10,
        description="`aging`: spare capacity of the drive as a fraction of its capacity; known for simulated drives.",
    )
    ramp: DurationOrZero = Field(
        2 * 10**9, description="Load before the measurement, so that it starts in a stable state; an upper bound."
    )
    ramp_until: Literal["time", "steady"] = Field(
        "time",
        description="End the ramp after its time, or once rate and hit ratio are steady (`ramp` is then the maximum).",
    )
    start: Literal["warm", "cold"] = Field(
        "warm",
        description="`cold`: start the measurement with an empty page cache and without a ramp, on purpose.",
    )
    ramp_bytes: Size | None = Field(None, description="Maximum bytes of each stream during the ramp.")
    duration: DurationOrNone = Field(
        10 * 10**9, description="Maximum length of the measurement; `none` where only a limit ends it."
    )
    limit_bytes: Size | None = Field(None, description="Maximum bytes of each stream in the measurement.")
    limit_spans: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(none_as_empty)] = Field(
        None,
        description="The same as a multiple of the bytes that the stream addresses (of a whole drive: its capacity); "
        "`none`: no such limit.",
    )
    limit_operations: int | None = Field(None, ge=1, description="Maximum I/Os of each stream in the measurement.")
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    round_length: DurationOrNone = Field(
        None, description="Length of the rounds by which the steady-state rule judges a run; empty: it is not judged."
    )
    tracking: Literal["iops", "bandwidth", "completion_latency_ns_mean"] = Field(
        "iops", description="Tracking variable of these rounds."
    )
    cpus: Cpus = Field(
        default_factory=list, description="CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )
    servers: int | None = Field(None, ge=1, description="Simulated device: I/Os served concurrently (1).")
    read_service: Duration | None = Field(None, description="Simulated device: time to serve a read (100us).")
    write_service: Duration | None = Field(None, description="Simulated device: time to serve a write (100us).")
    service: Literal["constant", "exponential"] | None = Field(
        None, description="Simulated device: constant service times, or exponential ones with that mean."
    )

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


WHOLE_WORKLOAD = (
    "files",
    "backend",
    "fallback",
    "registered_files",
    "registered_buffers",
    "submission_polling",
    "completion_polling",
    *OF_BACKENDS,
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
    "ramp_until",
    "start",
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

OF_HOST = (
    *("backend", "fallback", "registered_files", "registered_buffers", "submission_polling", "completion_polling"),
    *(*OF_BACKENDS, "io_mode", "page_cache"),
)
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
