"""Facts about a graph algorithm in a record: the graph, its iterations, how it was read, and what was checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iosonde.results.schema import Record

Json = Mapping[str, Any]


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about graph algorithms."""
    result: Json = record.result or {}
    graph: Json = result.get("graph") or {}
    check: Json = graph.get("check") or {}
    iterations: Sequence[Json] = graph.get("iterations") or ()
    sizes: Sequence[Json] = graph.get("request_sizes") or ()
    cached = [each for each in iterations if each["read_bytes"] == 0 and each["edges"] > 0]
    threads_ns = (result["end_ns"] - result["begin_ns"]) * max(1, len(result["jobs"])) if graph else None
    return {
        "graph_vertices": graph.get("vertices"),
        "graph_edges": graph.get("edges"),
        "graph_source_edges": graph.get("source_edges"),
        "graph_self_loops": graph.get("self_loops"),
        "graph_duplicates": graph.get("duplicates"),
        "graph_adjacency_bytes": graph.get("adjacency_bytes"),
        "graph_build_ns": graph.get("build_ns"),
        "graph_vertex_bytes": graph.get("vertex_bytes"),
        "graph_iterations": len(iterations) if graph else None,
        "graph_iteration_ns_p50": _median(each["end_ns"] - each["begin_ns"] for each in iterations),
        "graph_is_complete": graph.get("is_complete"),
        "graph_traversed_edges": graph.get("traversed_edges"),
        "graph_threads_ns": threads_ns,
        "graph_io_wait_ns": graph.get("io_wait_ns"),
        "graph_job_wait_ns": graph.get("job_wait_ns"),
        "graph_cpu_ns": _sum(iterations, "cpu_ns"),
        "graph_iterated_edges": _sum(iterations, "edges"),
        "graph_cached_cpu_ns": _sum(cached, "cpu_ns"),
        "graph_cached_edges": _sum(cached, "edges"),
        "graph_needed_bytes": graph.get("needed_bytes"),
        "graph_cache_hit_bytes": graph.get("cache_hit_bytes"),
        "graph_gap_bytes": graph.get("gap_bytes"),
        "graph_requests": sum(size["count"] for size in sizes) if graph else None,
        "graph_read_bytes": sum(size["bytes"] * size["count"] for size in sizes) if graph else None,
        "graph_request_bytes_p10": _request_bytes(sizes, 0.1),
        "graph_request_bytes_p50": _request_bytes(sizes, 0.5),
        "graph_request_bytes_p90": _request_bytes(sizes, 0.9),
        "graph_residual": graph.get("residual"),
        "graph_rank_sum": graph.get("rank_sum"),
        "graph_components": graph.get("components"),
        "graph_reached": graph.get("reached"),
        "graph_checked_edges": check.get("checked_edges"),
        "graph_violations": check["violations"] + (not check["is_intact"]) if check else None,
    }


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
