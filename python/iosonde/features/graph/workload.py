"""Graph algorithms as a workload: what a run needs, what it takes, and how its spec is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.features.graph import spec
from iosonde.features.graph.parameters import GraphParameters
from iosonde.features.graph.size import area_bytes, size_of
from iosonde.features.graph.spec import graph_name, only
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.units import format_count, format_duration
from iosonde.workload.workload import CLOSED, Hints, Layout, Spec, Workload

if TYPE_CHECKING:
    from iosonde.storage import Target

ASSUMED_EDGES_PER_SECOND = 40_000_000
"""Edges that a job processes, when a plan estimates time."""

ASSUMED_BUILD_EDGES_PER_SECOND = 4_000_000
"""Edges that are generated, sorted and written, when a plan estimates time."""

_STATE_BYTES = 24
"""Memory of a vertex, without its entry in the index."""

_FILE = re.compile(r"[0-9a-f]{8}\.graph")
_ALGORITHMS = {"bfs": "breadth-first search", "components": "connected components"}
"""Algorithms of earlier versions, whose result sets stay readable."""


class GraphWorkload(Workload[GraphParameters]):
    """Graph algorithms with adjacency lists on the target."""

    name = "graph"
    title = "graph algorithms"
    parameters = GraphParameters
    shown = ("scale", "edge_factor", "jobs", "queue_depth", "request_size", "cache_size")
    places = ("edge_list",)
    hints = Hints(
        smaller="use a smaller graph with `--set scale=...`, or a shorter `edge_list`",
        sized_by="by the parameters `scale`, `edge_factor` and `lists`, or `edge_list`",
        less_memory="use a smaller graph with `--set scale=...`, or a smaller page cache with "
        "`--set cache_fraction=...`",
    )
    subject = "edge_factor"
    worded = stated = ("mode",)
    fit = staticmethod(spec.fit)
    resolve = staticmethod(spec.resolve)

    def cost(self, streams: Mapping[str, GraphParameters]) -> Cost:
        """Time at most, of a computation that needs all its iterations; nothing is written except the graph."""
        stream = only(streams)
        size = size_of(stream)
        reading = size.adjacency_bytes / ASSUMED_BYTES_PER_SECOND
        computing = size.stored_edges / ASSUMED_EDGES_PER_SECOND
        seconds = stream.iterations * max(reading, computing / stream.jobs)
        if stream.duration is not None:
            seconds = min(seconds, stream.duration / 10**9)
        checking = max(reading, computing) if stream.verify_after else 0.0
        return Cost(seconds=seconds + checking, write_bytes=0)

    def files(self, streams: Mapping[str, GraphParameters]) -> dict[str, int]:
        """The graph, with the room in which its edges are sorted."""
        stream = only(streams)
        return {graph_name(stream): area_bytes(stream)}

    def buffer_bytes(self, streams: Mapping[str, GraphParameters]) -> int:
        """Memory that a run takes at once: vertex state, index, page cache and buffers.

        The vertices of an edge list are not known, and a plan refuses only what cannot run: the engine counts them
        while it imports the list, and refuses those for which there is no memory.
        """
        stream = only(streams)
        vertices = size_of(stream).vertices if stream.edge_list is None else 0
        state = vertices * (8 + _STATE_BYTES)
        buffers = 2 * stream.jobs * stream.queue_depth * stream.request_size
        return state + buffers + stream.cache_size

    def must_align(self, stream: GraphParameters) -> dict[str, list[int]]:
        """Reads are direct, in multiples of a page."""
        return {"request_size": [stream.request_size]}

    def layout(self, streams: Mapping[str, GraphParameters]) -> Layout:
        """A graph is written unless the target has it."""
        return "missing"

    def notes(self, streams: Mapping[str, GraphParameters]) -> list[str]:
        """The time to write the graph."""
        stream = only(streams)
        edges = size_of(stream).stored_edges
        seconds = edges / ASSUMED_BUILD_EDGES_PER_SECOND
        if seconds < 1:
            return []
        time = format_duration(seconds * 10**9)
        return [f"writing a graph of {format_count(edges)} stored edges takes about {time} of CPU time, once"]

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """The jobs of the algorithm, which read the lists."""
        return [{"name": "main", "jobs": workload["jobs"], "arrival": CLOSED, **workload["reading"]}]

    def rules(self, workload: Spec) -> str:
        """A job waits for reads, for other jobs, or computes."""
        return "iterations"

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """A graph is imported from the file of its case, and its result is not written anywhere."""
        path = workload["graph"]["source"].get("path")
        if path is not None and path != case["edge_list"]:
            return f"the spec imports `{path}`, and the case has another edge list"
        if workload.get("result_path") is not None:
            return f"the spec writes its result to `{workload['result_path']}`"
        return ""

    def file_name(self, workload: Spec) -> str:
        """Each graph has a file of its own."""
        name = Path(workload["target"]["path"]).name
        return name if _FILE.fullmatch(name) else ""

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `PageRank (pull)`."""
        if (algorithm := case.get("algorithm")) in _ALGORITHMS:
            return {self.subject: _ALGORITHMS[algorithm]}
        return {self.subject: f"PageRank ({case['mode']})" if case.get("mode") else "PageRank"}


WORKLOADS = (GraphWorkload(),)
