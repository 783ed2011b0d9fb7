"""The parameters of a paging load: every field of a stream with its default and description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from iosonde.units import MIB, parse_number
from iosonde.workload.reading import (
    Cpus,
    DurationOrNone,
    DurationOrZero,
    Interval,
    Size,
    SizeOrNone,
    WithRules,
)

PATTERNS = ("uniform", "zipfian", "normal", "sequential")
DEFAULTS = {"zipfian": 0.99, "normal": 0.125}
"""Skew of `zipfian`, and standard deviation of `normal` as a fraction of the mapping."""


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

    model_config = ConfigDict(extra="forbid", frozen=True)

    mapping: Literal["anonymous", "file"] = Field(
        "anonymous",
        description="`anonymous`: private memory, which the kernel swaps; `file`: a file of the target, mapped "
        "read-only through the page cache.",
    )
    size: Size = Field(256 * MIB, description="Size of the mapping.")
    memory_limit: SizeOrNone = Field(
        None,
        description="Memory of the engine, mapping and page cache together (a memory cgroup; needs root); empty: by "
        "`overcommit`, else the machine's.",
    )
    overcommit: float | None = Field(
        None, gt=0, le=64, description="Size of the mapping over the memory limit, instead of `memory_limit`."
    )
    pattern: Annotated[str, BeforeValidator(parse_pattern)] = Field(
        "uniform",
        description="Choice of pages: `uniform`, `zipfian:THETA`, `normal:DEVIATION` (around the middle; the deviation "
        "is a fraction of the mapping), `sequential`.",
    )
    read_fraction: float = Field(
        1.0, ge=0, le=1, description="Fraction of accesses that read; the others change a word."
    )
    jobs: int = Field(1, ge=1, le=1024, description="Threads; all of them access the whole mapping.")
    advice: Literal["normal", "random", "sequential"] = Field(
        "normal", description="`madvise(2)` for the mapping: how far the kernel reads ahead."
    )
    huge_pages: bool = Field(False, description="Anonymous memory may use transparent huge pages.")
    compressible_fraction: float = Field(
        0.0, ge=0, lt=1, description="Fraction of each page that is zeros: decides what compressed swap saves."
    )
    content_seed: int = Field(1, ge=0, description="Seed of the contents of pages.")
    page_cache: Literal["drop", "keep", "warm"] = Field(
        "drop", description="`file`: its pages before the measurement: dropped, left, or all read once."
    )
    verify_after: bool = Field(False, description="After the measurement, read and compare every page in full.")
    ramp: DurationOrZero = Field(0, description="Load before the measurement, so that it starts in a stable state.")
    ramp_until: Literal["time", "steady"] = Field(
        "time", description="End the ramp after its time, or once the rate is steady (`ramp` is then the maximum)."
    )
    duration: DurationOrNone = Field(
        10 * 10**9, description="Maximum length of the measurement; `none`: until `limit_operations`."
    )
    limit_operations: Annotated[int | None, BeforeValidator(_parse_count)] = Field(
        None, description="Maximum accesses of the stream in the measurement."
    )
    interval: Interval = Field(10**9, description="Length of an interval of the time series, at least 100 ms.")
    cpus: Cpus = Field(
        default_factory=list, description="CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )

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


WHOLE_WORKLOAD = (
    *("mapping", "size", "memory_limit", "overcommit", "advice", "huge_pages", "compressible_fraction"),
    *("content_seed", "page_cache", "verify_after", "ramp", "ramp_until", "interval"),
)
"""Parameters of the run: streams that run together must agree on them."""
