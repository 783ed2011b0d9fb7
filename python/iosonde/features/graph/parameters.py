"""The parameters of PageRank: every field of a stream with its default and description."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr

from iosonde.units import MIB
from iosonde.workload.reading import Cpus, DurationOrNone, Interval, Size, SizeOrZero, WithRules, none_as_empty

PAGE_BYTES = 4096
"""Unit in which adjacency lists are read and cached."""

REQUEST_MAX = 16 * MIB


class GraphParameters(WithRules):
    """One computation on one graph: `jobs` threads, each with `queue_depth` reads in flight."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _device_bytes: int | None = PrivateAttr(None)
    """Of an edge list on a device, once it is fitted to it: what its graph may take of the device."""

    mode: Literal["pull", "push"] = Field(
        "pull", description="A vertex sums the ranks of its neighbours (`pull`), or adds its rank to them (`push`)."
    )
    lists: Literal["both", "out", "in"] = Field(
        "both",
        description="Adjacency lists on the target: `out` (targets of edges; for `push`), `in` (sources; for `pull`), "
        "or `both` (undirected).",
    )
    scale: int = Field(20, ge=1, le=31, description="R-MAT graph: base 2 logarithm of the number of vertices.")
    edge_factor: int = Field(16, ge=1, le=4096, description="R-MAT graph: generated edges per vertex.")
    graph_seed: int = Field(1, ge=0, description="R-MAT graph: seed of edges and vertex numbers.")
    edge_list: Annotated[str | None, BeforeValidator(none_as_empty)] = Field(
        None, description="File with a list of edges to import instead of an R-MAT graph."
    )
    edge_format: Literal["text", "u32", "u64"] = Field(
        "text",
        description="Format of `edge_list`: one edge per line (`text`), or pairs of little-endian numbers (`u32`, "
        "`u64`).",
    )
    damping: float = Field(0.85, gt=0, lt=1, description="Damping factor.")
    tolerance: float = Field(
        1e-6, ge=0, lt=1, description="Converged once the sum of all changes of an iteration is below this."
    )
    iterations: int = Field(30, ge=1, le=100_000, description="Maximum number of iterations.")
    jobs: int = Field(1, ge=1, le=1024, description="Threads. The result does not depend on their number.")
    queue_depth: int = Field(16, ge=1, le=4096, description="Reads in flight in each job.")
    request_size: Size = Field(256 << 10, description="Largest read.")
    cache_size: SizeOrZero = Field(
        0, description="Page cache of the engine, of all jobs together; pages are admitted until it is full, and stay."
    )
    cache_fraction: float | None = Field(
        None, ge=0, le=1, description="Page cache as a fraction of the adjacency lists, instead of `cache_size`."
    )
    sort_memory: Size = Field(256 * MIB, description="Memory for sorting edges while the graph is written.")
    backend: Literal["uring", "sync"] = Field(
        "uring", description="`uring`: io_uring; `sync`: one blocking read at a time in each job (queue depth 1)."
    )
    verify_after: bool = Field(
        True, description="After the measurement, read the whole graph and check the result against it."
    )
    duration: DurationOrNone = Field(
        None, description="Maximum length of the measurement; `none`: until the computation is complete."
    )
    interval: Interval = Field(5 * 10**8, description="Length of an interval of the time series, at least 100 ms.")
    cpus: Cpus = Field(
        default_factory=list, description="CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."
    )

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            (self.mode == "pull" and self.lists == "out", '`pull` needs `lists = "in"` or `"both"`'),
            (self.mode == "push" and self.lists == "in", '`push` needs `lists = "out"` or `"both"`'),
            (
                self.request_size % PAGE_BYTES != 0 or self.request_size > REQUEST_MAX,
                "`request_size` must be a multiple of 4 KiB and at most 16 MiB",
            ),
            (
                self.cache_fraction is not None and self.cache_size > 0,
                "`cache_size` and `cache_fraction` decide the same: set one of them",
            ),
            (self.sort_memory < MIB, "`sort_memory` must be at least 1 MiB"),
            (
                self.backend == "sync" and self.queue_depth != 1,
                'with `backend = "sync"` a job has one read in flight: set `queue_depth = 1`',
            ),
        ]
