"""The size of a graph on its target, as far as it is known before it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from iosonde import text_files
from iosonde.features.graph.parameters import PAGE_BYTES, GraphParameters

_INDEX_BYTES = 8
_OUT_DEGREE_BYTES = 4
_EDGE_BYTES = 4
_RECORD_BYTES = 8
"""Bytes of an edge in the sort area."""

_PAIR_BYTES = {"u32": 8, "u64": 16}

_SAMPLE_BYTES = 1 << 18
"""Read at the start, in the middle and at the end of a text list: its lines are often shortest at the start."""

VERTICES_MAX = 2**32 - 1


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


def area_bytes(parameters: GraphParameters) -> int:
    """Bytes that the graph takes of its target while it is written; of a device those that it may take."""
    return parameters._device_bytes or size_of(parameters).written_bytes(parameters.sort_memory)


def of_any_vertices(parameters: GraphParameters) -> int:
    """The most that the graph of an edge list takes: its index has all numbers up to that of the largest vertex."""
    size = size_of(parameters)
    return replace(size, vertices=VERTICES_MAX).written_bytes(parameters.sort_memory)


def size_of(parameters: GraphParameters) -> GraphSize:
    """The size of the graph that these parameters describe."""
    if parameters.edge_list is None:
        vertices = 1 << parameters.scale
        edges = vertices * parameters.edge_factor
    else:
        edges = _edges_of_list(parameters.edge_list, parameters.edge_format)
        vertices = min(edges, VERTICES_MAX)
    directions = 2 if parameters.lists == "both" else 1
    return GraphSize(vertices=vertices, stored_edges=directions * edges, lists=parameters.lists)


def _edges_of_list(path: str, written: str) -> int:
    found = Path(path).stat()
    if written in _PAIR_BYTES:
        return found.st_size // _PAIR_BYTES[written] + 1
    return _edges_of_text(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=8)
def _edges_of_text(path: str, size_bytes: int, _changed_ns: int) -> int:
    """Lines with an edge: counted in a short list, else as many for each byte as in the samples."""
    is_short = size_bytes <= 3 * _SAMPLE_BYTES
    starts = [0] if is_short else [0, (size_bytes - _SAMPLE_BYTES) // 2, size_bytes - _SAMPLE_BYTES]
    edges = sampled = 0
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        for start in starts:
            file.seek(start)
            sample = file.read(size_bytes if is_short else _SAMPLE_BYTES)
            sampled += len(sample)
            edges += sum(not line.startswith((b"#", b"%")) for line in sample.split(b"\n") if line.strip())
    return -(-edges * size_bytes // max(sampled, 1)) + 1


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
