"""What a graph run needs of its target, and what it takes; streams must be fitted to the target."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.units import format_count, format_duration
from iosonde.workload.graph.parameters import GraphParameters
from iosonde.workload.graph.size import area_bytes, size_of
from iosonde.workload.interface import Layout

Streams = Mapping[str, GraphParameters]

ASSUMED_EDGES_PER_SECOND = 40_000_000
"""Edges that a job processes, when a plan estimates time."""

ASSUMED_BUILD_EDGES_PER_SECOND = 4_000_000
"""Edges that are generated, sorted and written, when a plan estimates time."""

_PASSES = {"bfs": 1, "components": 3}
"""Passes over all edges that a computation is assumed to need."""

_STATE_BYTES = {"pagerank": 24, "bfs": 9, "components": 9}
"""Memory of a vertex, without its entry in the index."""

_GRAPH = ("lists", "scale", "edge_factor", "graph_seed", "edge_list", "edge_format")
"""Parameters that decide which graph it is."""


def graph_name(stream: GraphParameters) -> str:
    """The file of the graph: runs on the same graph share it."""
    identity = "|".join(str(getattr(stream, name)) for name in _GRAPH)
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:8]}.graph"


def cost(streams: Streams) -> Cost:
    """Time at most, of a computation that needs all its iterations; nothing is written except the graph."""
    stream = only(streams)
    size = size_of(stream)
    passes = stream.iterations if stream.algorithm == "pagerank" else _PASSES[stream.algorithm]
    reading = size.adjacency_bytes / ASSUMED_BYTES_PER_SECOND
    computing = size.stored_edges / ASSUMED_EDGES_PER_SECOND
    seconds = passes * max(reading, computing / stream.jobs)
    if stream.duration is not None:
        seconds = min(seconds, stream.duration / 10**9)
    checking = max(reading, computing) if stream.verify_after else 0.0
    return Cost(seconds=seconds + checking, write_bytes=0)


def files(streams: Streams) -> dict[str, int]:
    """The graph, with the room in which its edges are sorted."""
    stream = only(streams)
    return {graph_name(stream): area_bytes(stream)}


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room is needed."""
    return "by the parameters `scale`, `edge_factor` and `lists`, or `edge_list`"


def addressed_bytes(streams: Streams) -> int:
    """Bytes of the target that the graph needs while it is written."""
    return sum(files(streams).values())


def buffer_bytes(streams: Streams) -> int:
    """Memory that a run takes at once: vertex state, index, page cache and buffers.

    The vertices of an edge list are not known, and a plan refuses only what cannot run: the engine counts them while it
    imports the list, and refuses those for which there is no memory.
    """
    stream = only(streams)
    vertices = size_of(stream).vertices if stream.edge_list is None else 0
    state = vertices * (8 + _STATE_BYTES[stream.algorithm])
    buffers = 2 * stream.jobs * stream.queue_depth * stream.request_size
    return state + buffers + stream.cache_size


def must_align(stream: GraphParameters) -> dict[str, list[int]]:
    """Reads are direct, in multiples of a page."""
    return {"request_size": [stream.request_size]}


def layout(streams: Streams) -> Layout:
    """A graph is written unless the target has it."""
    return "missing"


def prepares(stream: GraphParameters) -> bool:
    """Never."""
    return False


def notes(streams: Streams) -> list[str]:
    """The time to write the graph."""
    stream = only(streams)
    edges = size_of(stream).stored_edges
    seconds = edges / ASSUMED_BUILD_EDGES_PER_SECOND
    if seconds < 1:
        return []
    time = format_duration(seconds * 10**9)
    return [f"writing a graph of {format_count(edges)} stored edges takes about {time} of CPU time, once"]


def only(streams: Streams) -> GraphParameters:
    """The only stream: computations do not run together."""
    return next(iter(streams.values()))
