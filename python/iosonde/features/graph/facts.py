"""Facts and metrics of a graph algorithm: the graph, its iterations, what was read for them, waiting, and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.metrics.metric import Metric, over
from iosonde.results.column import FLAG, NUMBER, U64, facts
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

    @property
    def threads_ns(self) -> int | None:
        """Measured time of all jobs together."""
        if not self.graph:
            return None
        threads_ns: int = (self.result["end_ns"] - self.result["begin_ns"]) * max(1, len(self.result["jobs"]))
        return threads_ns


def _request_bytes(part: int) -> Callable[[GraphFacts], int | None]:
    """Return a function to the size that `part` percent of the reads do not exceed."""

    def read(graph: GraphFacts) -> int | None:
        total = sum(size["count"] for size in graph.sizes)
        counted = 0
        for size in graph.sizes:
            counted += size["count"]
            if counted >= part / 100 * total:
                return int(size["bytes"])
        return None

    return read


COLUMNS = facts(
    GraphFacts,
    ("vertices", U64, "vertices", "graph.vertices"),
    ("edges", U64, "stored edges; an undirected graph stores each twice", "graph.edges"),
    ("source_edges", U64, "edges of the generator or edge list", "graph.source_edges"),
    ("self_loops", U64, "self-loops that were removed", "graph.self_loops"),
    ("duplicates", U64, "duplicates that were removed, of stored edges", "graph.duplicates"),
    ("adjacency_bytes", U64, "bytes of the adjacency lists", "graph.adjacency_bytes"),
    ("build_ns", U64, "time to write the graph, ns; 0 if it was kept", "graph.build_ns"),
    ("vertex_bytes", U64, "memory of vertex state and index, bytes", "graph.vertex_bytes"),
    ("iterations", U64, "iterations that were completed",
        lambda graph: len(graph.iterations) if graph.graph else None),
    ("iteration_ns_p50", U64, "median time of an iteration, ns",
        lambda graph: _median(each["end_ns"] - each["begin_ns"] for each in graph.iterations)),
    ("traversed_edges", U64, "edges processed in the measurement", "graph.traversed_edges"),
    ("threads_ns", U64, "measured time of all jobs together, ns"),
    ("io_wait_ns", U64, "time of all jobs in which they had nothing to process and waited for reads, ns",
        "graph.io_wait_ns"),
    ("job_wait_ns", U64, "time of all jobs in which they waited for others at the end of an iteration, ns",
        "graph.job_wait_ns"),
    ("cpu_ns", U64, "CPU time of all jobs in completed iterations, ns", lambda graph: _sum(graph.iterations, "cpu_ns")),
    ("iterated_edges", U64, "edges processed in completed iterations", lambda graph: _sum(graph.iterations, "edges")),
    ("cached_cpu_ns", U64, "CPU time of all jobs in iterations that read nothing, ns",
        lambda graph: _sum(graph.cached, "cpu_ns")),
    ("cached_edges", U64, "edges processed in these iterations", lambda graph: _sum(graph.cached, "edges")),
    ("needed_bytes", U64, "bytes of adjacency lists that were needed, in whole pages", "graph.needed_bytes"),
    ("cache_hit_bytes", U64, "bytes of these that the page cache of the engine had", "graph.cache_hit_bytes"),
    ("requests", U64, "reads", lambda graph: sum(size["count"] for size in graph.sizes) if graph.graph else None),
    ("read_bytes", U64, "bytes of these reads",
        lambda graph: sum(size["bytes"] * size["count"] for size in graph.sizes) if graph.graph else None),
    *(
        (f"request_bytes_p{part}", U64, f"size that {part} % of the reads do not exceed, bytes", _request_bytes(part))
        for part in (10, 50, 90)
    ),
    ("checked_edges", U64, "edges read by the check of the result", "check.checked_edges"),
    ("violations", U64, "rules that the result breaks, and 1 if the stored graph is damaged; null if not checked",
        lambda graph: graph.check["violations"] + (not graph.check["is_intact"]) if graph.check else None),
    ("residual", NUMBER, "sum of all changes of the last iteration", "graph.residual"),
    ("rank_sum", NUMBER, "sum of all ranks", "graph.rank_sum"),
    ("is_complete", FLAG, "whether it converged", "graph.is_complete"),
    prefix="graph_", words="Graph algorithm: ",
)  # fmt: skip
"""Columns of `runs` about graph algorithms."""


def _sum(iterations: Sequence[Json], name: str) -> int | None:
    return sum(int(each[name]) for each in iterations) if iterations else None


def _median(values: Iterable[int]) -> int | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


METRICS = (
    Metric("edges_per_sec", "Edges per second", "1/s", "higher", "store",
        "edges processed / seconds", "graph_traversed_edges / seconds", counted="edges/s", is_rate=True),
    Metric("edges_per_core_sec", "Edges per second of CPU time", "1/s", "higher", "store",
        "edges processed / CPU time of the jobs, over completed iterations",
        1e9 * over("graph_iterated_edges", "graph_cpu_ns"), counted="edges/s"),
    Metric("cached_edges_per_core_sec", "Edges per second of CPU time, in memory", "1/s", "higher", "store",
        "edges processed / CPU time of the jobs, over iterations that read nothing",
        1e9 * over("graph_cached_edges", "graph_cached_cpu_ns"), counted="edges/s"),
    Metric("read_bytes_per_edge", "Bytes read per edge", "B", "lower", "store",
        "bytes read / edges processed", "graph_read_bytes / graph_traversed_edges"),
    Metric("iterations", "Iterations", "", "neither", "count",
        "completed iterations of a graph algorithm", "graph_iterations"),
    Metric("iteration_ns", "Time per iteration", "ns", "lower", "store",
        "median time of the completed iterations", "graph_iteration_ns_p50"),
    Metric("read_wait_fraction", "Share of time waiting for reads", "", "lower", "store",
        "time in which jobs had nothing to process and waited for reads / measured time of all jobs",
        "graph_io_wait_ns / graph_threads_ns"),
    Metric("job_wait_fraction", "Share of time waiting for other jobs", "", "lower", "store",
        "time in which jobs waited for others at the end of an iteration / measured time of all jobs",
        "graph_job_wait_ns / graph_threads_ns"),
    Metric("graph_cache_hit_fraction", "Hit ratio of the graph's page cache", "", "higher", "store",
        "bytes that the engine's page cache had / bytes of adjacency lists that were needed, in whole pages",
        "graph_cache_hit_bytes / graph_needed_bytes"),
    Metric("request_bytes_mean", "Size of a read, mean", "B", "neither", "store",
        "bytes read / reads, of a graph algorithm", "graph_read_bytes / graph_requests"),
    *(
        Metric(f"request_bytes_p{part}", f"Size of a read, p{part}", "B", "neither", "store",
            f"smallest size that {part} % of the reads of a graph algorithm do not exceed",
            f"graph_request_bytes_p{part}")
        for part in (10, 50, 90)
    ),
    Metric("rank_sum_error", "Error of the sum of ranks", "", "lower", "count",
        "difference of the sum of all ranks and 1", (pl.col("graph_rank_sum") - 1).abs()),
    Metric("rank_residual", "Residual of PageRank", "", "lower", "count",
        "sum of the changes of all ranks in the last iteration", "graph_residual"),
    Metric("graph_violations", "Violated rules of the result", "", "lower", "count",
        "rules that the result of a graph algorithm breaks, and 1 if the stored graph is damaged"),
)  # fmt: skip
"""Metrics of graph algorithms, in the order of docs/metrics.md."""
