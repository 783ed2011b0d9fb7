"""Queries of an index of vectors on storage: chains of reads (graph indexes) or one round of them (posting lists)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from iosonde.features.ai.load import PAGE_BYTES, AiLoad, steady
from iosonde.plan import Cost, JsonObject
from iosonde.study.workload.reading import Cpus, Duration, DurationOrZero, Interval, Size, SizeOrNone, WithRules
from iosonde.study.workload.workload import Hints, Rate, Spec, taken, whole_of


class AiVectorParameters(WithRules):
    """Queries, `concurrency` at a time, each in a thread of its own."""

    index_size: Size = 16 << 30
    """Size of the index."""
    concurrency: int = Field(1, ge=1, le=1024)
    """Queries at a time."""
    hops: int = Field(40, ge=1, le=10_000)
    """Rounds of reads in a query; each starts when the one before is complete."""
    beam_width: int = Field(4, ge=1, le=1024)
    """Reads in flight together in a round."""
    read_size: Size = PAGE_BYTES
    """Largest read."""
    smallest_read_size: SizeOrNone = None
    """Smallest read; sizes between are as likely. Empty: all reads have `read_size`."""
    cached_fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of the reads that the memory of the index serves, such as that of nodes near its entry point."""
    ramp: DurationOrZero = 10**9
    """Load before the measurement."""
    duration: Duration = 10 * 10**9
    """Length of the measurement."""
    interval: Interval = 10**9
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (thread `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        sizes = (self.read_size, self.smallest, self.index_size)
        return [
            (any(size % PAGE_BYTES for size in sizes), "sizes of reads and index must be multiples of 4 KiB"),
            (self.smallest > self.read_size, "`smallest_read_size` is larger than `read_size`"),
            (self.read_size > self.index_size, "`read_size` is larger than `index_size`"),
        ]

    @property
    def smallest(self) -> int:
        """Bytes of the smallest read."""
        return self.smallest_read_size or self.read_size


class AiVector(AiLoad[AiVectorParameters]):
    """Queries of an index of vectors; an operation is a query with all its reads."""

    name = "ai_vector"
    title = "vector search"
    stream_name = "queries"
    parameters = AiVectorParameters
    shown = ("concurrency", "hops", "beam_width", "read_size", "cached_fraction", "index_size", "duration")
    rate = Rate("queries/s", counted="queries", is_ops_per_sec=True)
    hints = Hints(
        smaller="use a smaller index with `--set index_size=...`",
        sized_by="by the parameter `index_size`",
        less_memory="use a smaller `concurrency`, `beam_width` or `read_size`",
    )
    operations = ("read",)
    counts = ("concurrency",)
    subject = "hops"

    def spec(self, stream: AiVectorParameters) -> JsonObject:
        """Queries of one index."""
        return {
            "index_bytes": stream.index_size,
            **taken(stream, "concurrency", "hops", "beam_width", "cached_fraction"),
            "read_bytes": [stream.smallest, stream.read_size],
            **steady(stream.ramp, stream.duration, stream.interval),
        }

    def cost(self, streams: Mapping[str, AiVectorParameters]) -> Cost:
        """Ramp and measurement; nothing is written."""
        whole = whole_of(streams)
        return Cost(seconds=(whole.ramp + whole.duration) / 10**9, write_bytes=0)

    def identity(self, stream: AiVectorParameters) -> str:
        """The size of the index."""
        return str(stream.index_size)

    def sizes_of_files(self, stream: AiVectorParameters) -> Sequence[int]:
        """That of the index."""
        return [stream.index_size]

    def buffer_bytes(self, streams: Mapping[str, AiVectorParameters]) -> int:
        """Memory for the reads in flight."""
        whole = whole_of(streams)
        return whole.concurrency * whole.beam_width * whole.read_size

    def must_align(self, stream: AiVectorParameters) -> dict[str, list[int]]:
        """Reads are direct."""
        return {"read_size": [stream.read_size, stream.smallest]}

    def streams(self, workload: Spec) -> Sequence[Mapping[str, Any]]:
        """The threads of the queries."""
        return [self.stream_of(jobs=workload["concurrency"], is_direct=True)]

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `vector queries of 40 hops`."""
        hops = case.get("hops")
        number = "" if hops is None else f" of {hops} {'hop' if hops == 1 else 'hops'}"
        return {"hops": f"vector queries{number}"}
