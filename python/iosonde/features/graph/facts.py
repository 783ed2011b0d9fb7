"""Facts about a graph algorithm in a record: the graph, its iterations, how it was read, and what was checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from iosonde.results.column import FLAG, NUMBER, U64, Column, DType
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class GraphFacts:
    """The parts of a record about a graph algorithm; empty without one."""

    def __init__(self, record: Record) -> None:
        self.result: Json = record.result or {}
        self.graph: Json = self.result.get("graph") or {}
        self.check: Json = self.graph.get("check") or {}
        self.iterations: Sequence[Json] = self.graph.get("iterations") or ()
        self.sizes: Sequence[Json] = self.graph.get("request_sizes") or ()
        self.cached = [each for each in self.iterations if each["read_bytes"] == 0 and each["edges"] > 0]

    def number(self, name: str) -> Any:
        """A number that the engine reports."""
        return self.graph.get(name)

    @property
    def threads_ns(self) -> int | None:
        """Measured time of all jobs together."""
        if not self.graph:
            return None
        threads_ns: int = (self.result["end_ns"] - self.result["begin_ns"]) * max(1, len(self.result["jobs"]))
        return threads_ns


def _row(name: str, text: str, value: Callable[[GraphFacts], Any] | None = None, *, dtype: DType = U64) -> Column:
    """Return a column: by default the engine's number of that name."""
    read = value or (lambda graph: graph.number(name))
    return Column(f"graph_{name}", dtype, f"Graph algorithm: {text}", lambda run: read(run.of(GraphFacts)))


COLUMNS = (
    _row("vertices", "vertices"),
    _row("edges", "stored edges; an undirected graph stores each twice"),
    _row("source_edges", "edges of the generator or edge list"),
    _row("self_loops", "self-loops that were removed"),
    _row("duplicates", "duplicates that were removed, of stored edges"),
    _row("adjacency_bytes", "bytes of the adjacency lists"),
    _row("build_ns", "time to write the graph, ns; 0 if it was kept"),
    _row("vertex_bytes", "memory of vertex state and index, bytes"),
    _row(
        "iterations",
        "iterations that were completed",
        lambda graph: len(graph.iterations) if graph.graph else None,
    ),
    _row(
        "iteration_ns_p50",
        "median time of an iteration, ns",
        lambda graph: _median(each["end_ns"] - each["begin_ns"] for each in graph.iterations),
    ),
    _row("traversed_edges", "edges processed in the measurement"),
    _row("threads_ns", "measured time of all jobs together, ns", lambda graph: graph.threads_ns),
    _row("io_wait_ns", "time of all jobs in which they had nothing to process and waited for reads, ns"),
    _row("job_wait_ns", "time of all jobs in which they waited for others at the end of an iteration, ns"),
    _row("cpu_ns", "CPU time of all jobs in completed iterations, ns", lambda graph: _sum(graph.iterations, "cpu_ns")),
    _row("iterated_edges", "edges processed in completed iterations", lambda graph: _sum(graph.iterations, "edges")),
    _row(
        "cached_cpu_ns",
        "CPU time of all jobs in iterations that read nothing, ns",
        lambda graph: _sum(graph.cached, "cpu_ns"),
    ),
    _row("cached_edges", "edges processed in these iterations", lambda graph: _sum(graph.cached, "edges")),
    _row("needed_bytes", "bytes of adjacency lists that were needed, in whole pages"),
    _row("cache_hit_bytes", "bytes of these that the page cache of the engine had"),
    _row("requests", "reads", lambda graph: sum(size["count"] for size in graph.sizes) if graph.graph else None),
    _row(
        "read_bytes",
        "bytes of these reads",
        lambda graph: sum(size["bytes"] * size["count"] for size in graph.sizes) if graph.graph else None,
    ),
    _row(
        "request_bytes_p10",
        "size that 10 % of the reads do not exceed, bytes",
        lambda graph: _request_bytes(graph.sizes, 0.1),
    ),
    _row(
        "request_bytes_p50",
        "size that 50 % of the reads do not exceed, bytes",
        lambda graph: _request_bytes(graph.sizes, 0.5),
    ),
    _row(
        "request_bytes_p90",
        "size that 90 % of the reads do not exceed, bytes",
        lambda graph: _request_bytes(graph.sizes, 0.9),
    ),
    _row("checked_edges", "edges read by the check of the result", lambda graph: graph.check.get("checked_edges")),
    _row(
        "violations",
        "rules that the result breaks, and 1 if the stored graph is damaged; null if not checked",
        lambda graph: graph.check["violations"] + (not graph.check["is_intact"]) if graph.check else None,
    ),
    _row("residual", "sum of all changes of the last iteration", dtype=NUMBER),
    _row("rank_sum", "sum of all ranks", dtype=NUMBER),
    _row("is_complete", "whether it converged", dtype=FLAG),
)
"""Columns of `runs` about graph algorithms."""


def _sum(iterations: Sequence[Json], name: str) -> int | None:
    return sum(int(each[name]) for each in iterations) if iterations else None


def _median(values: Iterable[int]) -> int | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _request_bytes(sizes: Sequence[Json], share: float) -> int | None:
    """Return the size that this share of the reads does not exceed."""
    total = sum(size["count"] for size in sizes)
    counted = 0
    for size in sizes:
        counted += size["count"]
        if counted >= share * total:
            return int(size["bytes"])
    return None
