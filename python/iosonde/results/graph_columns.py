"""Columns of `runs` about graph algorithms: the numbers of `graph_facts.from_record` with their meaning."""

from __future__ import annotations

COUNTS = {
    "graph_vertices": "vertices",
    "graph_edges": "stored edges; an undirected graph stores each twice",
    "graph_source_edges": "edges of the generator or edge list",
    "graph_self_loops": "self-loops that were removed",
    "graph_duplicates": "duplicates that were removed, of stored edges",
    "graph_adjacency_bytes": "bytes of the adjacency lists",
    "graph_build_ns": "time to write the graph, ns; 0 if it was kept",
    "graph_vertex_bytes": "memory of vertex state and index, bytes",
    "graph_iterations": "iterations that were completed; of a search its levels",
    "graph_iteration_ns_p50": "median time of an iteration, ns",
    "graph_traversed_edges": "edges processed in the measurement",
    "graph_threads_ns": "measured time of all jobs together, ns",
    "graph_io_wait_ns": "time of all jobs in which they had nothing to process and waited for reads, ns",
    "graph_job_wait_ns": "time of all jobs in which they waited for others at the end of an iteration, ns",
    "graph_cpu_ns": "CPU time of all jobs in completed iterations, ns",
    "graph_iterated_edges": "edges processed in completed iterations",
    "graph_cached_cpu_ns": "CPU time of all jobs in iterations that read nothing, ns",
    "graph_cached_edges": "edges processed in these iterations",
    "graph_needed_bytes": "bytes of adjacency lists that were needed, in whole pages",
    "graph_cache_hit_bytes": "bytes of these that the page cache of the engine had",
    "graph_gap_bytes": "bytes that were read without need because ranges were merged",
    "graph_requests": "reads",
    "graph_read_bytes": "bytes of these reads",
    "graph_request_bytes_p10": "size that 10 % of the reads do not exceed, bytes",
    "graph_request_bytes_p50": "size that 50 % of the reads do not exceed, bytes",
    "graph_request_bytes_p90": "size that 90 % of the reads do not exceed, bytes",
    "graph_components": "connected components",
    "graph_reached": "vertices that a search reached",
    "graph_checked_edges": "edges read by the check of the result",
    "graph_violations": "rules that the result breaks, and 1 if the stored graph is damaged; null if not checked",
}
"""Whole numbers."""

NUMBERS = {
    "graph_residual": "PageRank: sum of all changes of the last iteration",
    "graph_rank_sum": "PageRank: sum of all ranks",
}
"""Fractions."""
