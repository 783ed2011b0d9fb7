"""Accesses to mapped memory as a workload: parameters, the spec, and what a run needs and takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from iosonde.errors import StudyError, TargetError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.study.workload.reading import (
    Cpus,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    SizeOrNone,
    WithRules,
)
from iosonde.study.workload.workload import CLOSED, Hints, Layout, Rate, Spec, Workload, steady_ramp, taken, whole_of
from iosonde.units import MIB, parse_number

if TYPE_CHECKING:
    from iosonde.storage import Target


PATTERNS = ("uniform", "zipfian", "normal", "sequential")
DEFAULTS = {"zipfian": 0.99, "normal": 0.125}
"""Skew of `zipfian`, and standard deviation of `normal` as a fraction of the mapping."""
SHAPES = {"zipfian": "theta", "normal": "deviation"}
"""The same numbers by their names in the engine's spec."""


def parse_pattern(value: Any) -> str:
    """`uniform`, `sequential`, `zipfian:THETA` or `normal:DEVIATION`, with the number written out."""
    name, _, number = str(value).partition(":")
    if name not in PATTERNS or (number and name not in DEFAULTS):
        raise ValueError(f"`{value}` is not a pattern; it is `uniform`, `zipfian:0.99`, `normal:0.125` or `sequential`")
    if name not in DEFAULTS:
        return name
    try:
        shape = parse_number(number) if number else DEFAULTS[name]
    except ValueError:
        raise ValueError(f"`{number}` is not a number; write the pattern like `{name}:{DEFAULTS[name]:g}`") from None
    if not 0 < shape <= 100:
        raise ValueError(f"the number of `{value}` must be above 0 and at most 100")
    return f"{name}:{shape:g}"


def _parse_count(value: Any) -> int | None:
    if value is None or value == "none":
        return None
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError("it is a whole number above 0, or `none`")
    return value


class PagingParameters(WithRules):
    """One stream: `jobs` threads that access pages of one mapping, each with one access at a time."""

    mapping: Literal["anonymous", "file"] = "anonymous"
    """`anonymous`: private memory, which the kernel swaps; `file`: a file of the target, mapped read-only through the
    page cache."""
    size: Size = 256 * MIB
    """Size of the mapping."""
    memory_limit: SizeOrNone = None
    """Memory of the engine, mapping and page cache together (a memory cgroup; needs root); empty: by `overcommit`, else
    the machine's."""
    overcommit: float | None = Field(None, gt=0, le=64)
    """Size of the mapping over the memory limit, instead of `memory_limit`."""
    pattern: Annotated[str, BeforeValidator(parse_pattern)] = "uniform"
    """Choice of pages: `uniform`, `zipfian:THETA`, `normal:DEVIATION` (around the middle; the deviation is a fraction
    of the mapping), `sequential`."""
    read_fraction: float = Field(1.0, ge=0, le=1)
    """Fraction of accesses that read; the others change a word."""
    jobs: int = Field(1, ge=1, le=1024)
    """Threads; all of them access the whole mapping."""
    advice: Literal["normal", "random", "sequential"] = "normal"
    """`madvise(2)` for the mapping: how far the kernel reads ahead."""
    huge_pages: bool = False
    """Anonymous memory may use transparent huge pages."""
    compressible_fraction: float = Field(0.0, ge=0, lt=1)
    """Fraction of each page that is zeros: decides what compressed swap saves."""
    content_seed: int = Field(1, ge=0)
    """Seed of the contents of pages."""
    page_cache: Literal["drop", "keep", "warm"] = "drop"
    """`file`: its pages before the measurement: dropped, left, or all read once."""
    verify_after: bool = False
    """After the measurement, read and compare every page in full."""
    ramp: DurationOrZero = 0
    """Load before the measurement, so that it starts in a stable state."""
    ramp_until: Literal["time", "steady"] = "time"
    """End the ramp after its time, or once the rate is steady (`ramp` is then the maximum)."""
    duration: DurationOrNone = 10 * 10**9
    """Maximum length of the measurement; `none`: until `limit_operations`."""
    limit_operations: Annotated[int | None, BeforeValidator(_parse_count)] = None
    """Maximum accesses of the stream in the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        is_file = self.mapping == "file"
        return [
            (is_file and self.read_fraction < 1, "a mapped file is only read: leave out `read_fraction`"),
            (is_file and self.huge_pages, "`huge_pages` are for anonymous memory"),
            (not is_file and self.page_cache != "drop", '`page_cache` is for `mapping = "file"`'),
            (
                self.memory_limit is not None and self.overcommit is not None,
                "`memory_limit` and `overcommit` decide the same: set one of them",
            ),
            (
                self.duration is None and self.limit_operations is None,
                "it would never end: set `duration` or `limit_operations`",
            ),
            (
                self.limit_operations is not None and self.limit_operations < self.jobs,
                "`limit_operations` is less than one for each job",
            ),
        ]


OWN_BYTES = 32 << 20
"""Smallest memory limit: the engine's own memory, which is locked, has to fit into it."""

ASSUMED_OPERATIONS_PER_SECOND = 10_000
"""Speed of a run that only accesses limit, when a plan estimates time."""


class PagingWorkload(Workload[PagingParameters]):
    """Accesses to mapped memory: each is one of the operations."""

    name = "paging"
    title = "paging"
    parameters = PagingParameters
    shown = ("mapping", "pattern", "jobs", "size", "memory_limit", "read_fraction", "duration")
    hints = Hints(
        smaller="map less with `--set size=...`",
        sized_by="by the parameter `size`",
        less_memory="map less with `--set size=...`, or set a `memory_limit`",
    )
    io = "page faults"
    judge = "faults"
    simulated = (
        "paging needs a real directory or device, and a simulated one has no pages",
        "name a directory or a block device as the target",
    )
    of_run = (
        *("mapping", "size", "memory_limit", "overcommit", "advice", "huge_pages", "compressible_fraction"),
        *("content_seed", "page_cache", "verify_after", "ramp", "ramp_until", "interval"),
    )
    rate = Rate("accesses/s", counted="accesses", shows_bandwidth=False, is_ops_per_sec=True)
    operations = ("hit", "minor_fault", "major_fault")
    subject = "mapping"
    worded = ("pattern",)

    def fit(
        self, streams: Mapping[str, PagingParameters], target: Target, *, room_bytes: int
    ) -> Mapping[str, PagingParameters]:
        """The parameters with the memory limit that the overcommit decides."""
        fitted = {name: _limited(stream) for name, stream in streams.items()}
        return super().fit(fitted, target, room_bytes=room_bytes)

    def load(self, streams: Mapping[str, PagingParameters], target: Target, *, seed: int) -> JsonObject:
        """A memory limit that cannot be set here raises now."""
        whole = whole_of(streams)
        if whole.memory_limit:
            from iosonde.storage import control_groups

            control_groups.hierarchy()
        durations = [stream.duration for stream in streams.values()]
        return {
            "target": _target(whole, target),
            **taken(whole, "advice", "huge_pages", "compressible_fraction", "content_seed", "page_cache"),
            "streams": [
                {"name": name, "jobs": stream.jobs, "pattern": _pattern(stream.pattern)}
                | taken(stream, "read_fraction", "limit_operations", "cpus")
                for name, stream in streams.items()
            ],
            "ramp": steady_ramp(whole.ramp, None, until=whole.ramp_until),
            "duration_ns": None if None in durations else max(each or 0 for each in durations),
            "interval_ns": whole.interval,
            "verify_after": whole.verify_after,
        }

    def cost(self, streams: Mapping[str, PagingParameters]) -> Cost:
        """Time and bytes written at most; what the kernel swaps out only time limits."""
        whole = whole_of(streams)
        pages_out = whole.mapping == "anonymous" and whole.memory_limit is not None and whole.memory_limit < whole.size
        filling = whole.size / ASSUMED_BYTES_PER_SECOND if pages_out else 0.0
        return Cost(
            seconds=filling + whole.ramp / 10**9 + max(_seconds(stream) for stream in streams.values()),
            write_bytes=None if pages_out else 0,
        )

    def files(self, streams: Mapping[str, PagingParameters]) -> dict[str, int]:
        """The mapped file. A swap area is the case's and not the workload's."""
        whole = whole_of(streams)
        return {"data": whole.size} if whole.mapping == "file" else {}

    def buffer_bytes(self, streams: Mapping[str, PagingParameters]) -> int:
        """Memory that a run takes at once: all of the mapping, unless a limit makes it less."""
        whole = whole_of(streams)
        resident = whole.size if whole.mapping == "anonymous" else 0
        return min(resident, whole.memory_limit) if whole.memory_limit else resident

    def layout(self, streams: Mapping[str, PagingParameters]) -> Layout:
        """A mapped file is written unless it has its contents."""
        return "missing" if whole_of(streams).mapping == "file" else "never"

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """Accesses have no arrival in the spec: each follows the one before."""
        return [{**stream, "arrival": CLOSED} for stream in workload["streams"]]

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `uniform accesses to memory`."""
        memory = "a mapped file" if case["mapping"] == "file" else "memory"
        pattern = str(case.get("pattern") or case.get("pattern_level") or "").partition(":")[0]
        return {"pattern": pattern, "phase": f"accesses to {memory}"}


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


def _pattern(written: str) -> JsonObject:
    kind, _, shape = written.partition(":")
    return {"kind": kind, **({SHAPES[kind]: float(shape)} if shape else {})}


def _seconds(stream: PagingParameters) -> float:
    if stream.duration is not None:
        return stream.duration / 10**9
    return (stream.limit_operations or 0) / ASSUMED_OPERATIONS_PER_SECOND


WORKLOADS = (PagingWorkload(),)
