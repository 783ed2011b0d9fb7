"""The size of a graph on its target, as far as it is known before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iosonde.workload.graph.parameters import PAGE_BYTES, GraphParameters

_INDEX_BYTES = 8
_OUT_DEGREE_BYTES = 4
_EDGE_BYTES = 4
_RECORD_BYTES = 8
"""Bytes of an edge in the sort area."""

_LINE_BYTES = 8
"""Shortest line of a text list that is assumed; the engine counts and refuses what does not fit."""

_PAIR_BYTES = {"text": _LINE_BYTES, "u32": 8, "u64": 16}


@dataclass(frozen=True, kw_only=True)
class GraphSize:
    """Upper bounds for R-MAT graphs, which lose duplicates; estimates for edge lists."""

    vertices: int
    stored_edges: int
    lists: str

    @property
    def graph_bytes(self) -> int:
        """The graph itself: header, index and adjacency lists."""
        index = _pages((self.vertices + 1) * _INDEX_BYTES)
        degrees = _pages(self.vertices * _OUT_DEGREE_BYTES) if self.lists == "in" else 0
        return PAGE_BYTES + index + degrees + self.adjacency_bytes

    @property
    def adjacency_bytes(self) -> int:
        """The adjacency lists, which an iteration over all vertices reads."""
        return _pages(self.stored_edges * _EDGE_BYTES)

    def written_bytes(self, sort_memory: int) -> int:
        """The graph and the area in which its edges are sorted, which follows it until it is complete."""
        records = self.stored_edges * _RECORD_BYTES
        # Each part ends on a page. Two neighbours never fit into the memory together, so on average it is half full.
        parts = 2 * (records // sort_memory + 1)
        return self.graph_bytes + records + parts * PAGE_BYTES


def size_of(parameters: GraphParameters) -> GraphSize:
    """The size of the graph that these parameters describe."""
    if parameters.edge_list is None:
        vertices = 1 << parameters.scale
        edges = vertices * parameters.edge_factor
    else:
        edges = Path(parameters.edge_list).stat().st_size // _PAIR_BYTES[parameters.edge_format] + 1
        vertices = min(edges, 2**32 - 1)
    directions = 2 if parameters.lists == "both" else 1
    return GraphSize(vertices=vertices, stored_edges=directions * edges, lists=parameters.lists)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
