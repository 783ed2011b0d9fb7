"""Metrics of graph algorithms: edges per second, what was read for them, and waiting."""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.metrics.metric import Metric, over


def _share(
    name: str, title: str, formula: str, numerator: str, denominator: str, better: Literal["higher", "lower"]
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="",
        formula=formula,
        better=better,
        kind="store",
        expression=over(numerator, denominator),
    )


def _request_bytes(part: int) -> Metric:
    return Metric(
        name=f"request_bytes_p{part}",
        title=f"Size of a read, p{part}",
        unit="B",
        formula=f"smallest size that {part} % of the reads of a graph algorithm do not exceed",
        better="neither",
        kind="store",
        expression=pl.col(f"graph_request_bytes_p{part}"),
    )


METRICS = (
    Metric(
        name="edges_per_sec",
        title="Edges per second",
        unit="1/s",
        formula="edges processed / seconds",
        better="higher",
        kind="store",
        expression=over("graph_traversed_edges", "seconds"),
        counted="edges/s",
        is_rate=True,
    ),
    Metric(
        name="edges_per_core_sec",
        title="Edges per second of CPU time",
        unit="1/s",
        formula="edges processed / CPU time of the jobs, over completed iterations",
        better="higher",
        kind="store",
        expression=1e9 * over("graph_iterated_edges", "graph_cpu_ns"),
        counted="edges/s",
    ),
    Metric(
        name="cached_edges_per_core_sec",
        title="Edges per second of CPU time, in memory",
        unit="1/s",
        formula="edges processed / CPU time of the jobs, over iterations that read nothing",
        better="higher",
        kind="store",
        expression=1e9 * over("graph_cached_edges", "graph_cached_cpu_ns"),
        counted="edges/s",
    ),
    Metric(
        name="read_bytes_per_edge",
        title="Bytes read per edge",
        unit="B",
        formula="bytes read / edges processed",
        better="lower",
        kind="store",
        expression=over("graph_read_bytes", "graph_traversed_edges"),
    ),
    Metric(
        name="iterations",
        title="Iterations",
        unit="",
        formula="completed iterations of a graph algorithm",
        better="neither",
        kind="count",
        expression=pl.col("graph_iterations"),
    ),
    Metric(
        name="iteration_ns",
        title="Time per iteration",
        unit="ns",
        formula="median time of the completed iterations",
        better="lower",
        kind="store",
        expression=pl.col("graph_iteration_ns_p50"),
    ),
    _share(
        "read_wait_fraction",
        "Share of time waiting for reads",
        "time in which jobs had nothing to process and waited for reads / measured time of all jobs",
        "graph_io_wait_ns",
        "graph_threads_ns",
        "lower",
    ),
    _share(
        "job_wait_fraction",
        "Share of time waiting for other jobs",
        "time in which jobs waited for others at the end of an iteration / measured time of all jobs",
        "graph_job_wait_ns",
        "graph_threads_ns",
        "lower",
    ),
    _share(
        "graph_cache_hit_fraction",
        "Hit ratio of the graph's page cache",
        "bytes that the engine's page cache had / bytes of adjacency lists that were needed, in whole pages",
        "graph_cache_hit_bytes",
        "graph_needed_bytes",
        "higher",
    ),
    Metric(
        name="request_bytes_mean",
        title="Size of a read, mean",
        unit="B",
        formula="bytes read / reads, of a graph algorithm",
        better="neither",
        kind="store",
        expression=over("graph_read_bytes", "graph_requests"),
    ),
    *(_request_bytes(part) for part in (10, 50, 90)),
    Metric(
        name="rank_sum_error",
        title="Error of the sum of ranks",
        unit="",
        formula="difference of the sum of all ranks and 1",
        better="lower",
        kind="count",
        expression=(pl.col("graph_rank_sum") - 1).abs(),
    ),
    Metric(
        name="rank_residual",
        title="Residual of PageRank",
        unit="",
        formula="sum of the changes of all ranks in the last iteration",
        better="lower",
        kind="count",
        expression=pl.col("graph_residual"),
    ),
    Metric(
        name="graph_violations",
        title="Violated rules of the result",
        unit="",
        formula="rules that the result of a graph algorithm breaks, and 1 if the stored graph is damaged",
        better="lower",
        kind="count",
    ),
)
"""Metrics of graph algorithms, in the order of docs/metrics.md."""
