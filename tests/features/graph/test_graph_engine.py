"""The engine's graph workload by itself: results against SciPy, imported lists, and lists of garbage."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import real_engine
from scipy import sparse
from scipy.sparse import csgraph

from iosonde import protocol

pytestmark = pytest.mark.engine

VERTICES = 600
PAGERANK = {"kind": "pagerank", "mode": "pull", "damping": 0.85, "tolerance": 1e-13, "iterations": 200}
RMAT = {"kind": "rmat", "scale": 10, "edge_factor": 8, "a": 0.57, "b": 0.19, "c": 0.19, "seed": 3}
SYNC = {"kind": "sync"}


def run(directory: Path, source: Any, lists: str, algorithm: Any, **changes: Any) -> dict[str, Any]:
    """The last event of a run."""
    workload = {
        "kind": "graph", "target": {"kind": "file", "path": str(directory / "graph"), "size_bytes": 1 << 30}, "backend": SYNC,
        "graph": {"source": source, "lists": lists}, "layout": "missing", "sort_memory_bytes": 1 << 20,
        "algorithm": algorithm, "jobs": 2, "duration_ns": None, "interval_ns": 100_000_000, "verify_after": True,
        "reading": {"queue_depth": 1, "request_bytes": 65536, "merge_gap_bytes": 4096, "cache_bytes": 0},
        "result_path": str(directory / "result"), **changes,
    }  # fmt: skip
    spec = {
        "protocol": protocol.VERSION, "run_id": "r", "seed": 1, "workload": workload, "observe": {"block_devices": []},
    }  # fmt: skip
    done = subprocess.run([real_engine()], input=json.dumps(spec), capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [event for event in found if event["event"] == "warning"], found
    last: dict[str, Any] = found[-1]
    return last


def some_edges() -> list[tuple[int, int]]:
    """Edges with self-loops and duplicates, vertices without edges, and vertices without outgoing ones."""
    numbers = random.Random(5)
    edges = [(numbers.randrange(400), numbers.randrange(500)) for _ in range(3000)]
    return [*edges, *edges[:50], (7, 7), (VERTICES - 1, 3)]


def edge_list(directory: Path, edges: list[tuple[int, int]], written: str) -> dict[str, Any]:
    path = directory / "edges"
    if written == "text":
        path.write_text("# from to\n" + "".join(f"{one}\t{other}\n" for one, other in edges))
    else:
        np.array(edges, dtype="<u4" if written == "u32" else "<u8").tofile(path)
    return {"kind": "edge_list", "path": str(path), "format": written}


def matrix_of(edges: set[tuple[int, int]], vertices: int) -> Any:
    """Row and column of each edge, once."""
    rows, columns = zip(*sorted(edges), strict=True)
    return sparse.csr_array((np.ones(len(edges)), (rows, columns)), shape=(vertices, vertices))


def ranks_of(matrix: Any, damping: float = 0.85) -> Any:
    """PageRank by SciPy: the solution of a linear system, without any iteration."""
    count = matrix.shape[0]
    degrees = matrix.sum(axis=1)
    shares = sparse.csr_array(
        matrix.T @ sparse.diags_array(np.divide(1, degrees, where=degrees > 0, out=np.zeros(count)))
    )
    dangling = (degrees == 0).astype(float)
    # x = (1 - d) / n + d (S x + (dangling . x) / n), and the sum of x is 1; the rank-one term is solved by Sherman and Morrison.
    system = sparse.csc_array(sparse.eye_array(count) - damping * shares)
    solve = sparse.linalg.splu(system).solve
    base, spread = solve(np.full(count, (1 - damping) / count)), solve(np.full(count, damping / count))
    return base + spread * (dangling @ base) / (1 - dangling @ spread)


def simple(edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(one, other) for one, other in edges if one != other}


def both(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return edges | {(other, one) for one, other in edges}


@pytest.mark.parametrize(
    ("lists", "mode", "written"),
    [("in", "pull", "text"), ("out", "push", "u32"), ("both", "pull", "u64"), ("both", "push", "text")],
)
def test_ranks_are_those_of_scipy_to_1e_9(tmp_path: Path, lists: str, mode: str, written: str) -> None:
    edges = some_edges()
    source = edge_list(tmp_path, edges, written)
    result = run(tmp_path, source, lists, PAGERANK | {"mode": mode})
    expected_edges = both(simple(edges)) if lists == "both" else simple(edges)
    expected = ranks_of(matrix_of(expected_edges, VERTICES))
    found = np.fromfile(tmp_path / "result", dtype="<f8")
    assert abs(expected.sum() - 1) < 1e-12
    assert np.abs(found - expected).max() < 1e-9
    facts = result["graph"]
    loops = sum(one == other for one, other in edges)
    stored = (2 if lists == "both" else 1) * (len(edges) - loops)
    assert (facts["vertices"], facts["edges"]) == (VERTICES, len(expected_edges))
    assert (facts["source_edges"], facts["self_loops"]) == (len(edges), loops)
    assert facts["duplicates"] == stored - len(expected_edges)
    assert (facts["is_complete"], facts["check"]["violations"], facts["check"]["is_intact"]) == (True, 0, True)
    assert facts["check"]["residual"] <= facts["check"]["residual_bound"]


def lists_on_disk(path: Path) -> tuple[int, set[tuple[int, int]]]:
    """The edges of a graph file, read by its description in crates/graph/src/csr.rs."""
    content = path.read_bytes()
    assert content[:16] == b"iosonde-graph-1\n"
    length = int.from_bytes(content[16:24], "little")
    header = json.loads(content[32 : 32 + length])
    vertices = header["vertices"]
    starts = np.frombuffer(content, "<u8", vertices + 1, 4096)
    at = 4096 + -(-(vertices + 1) * 8 // 4096) * 4096
    neighbours = np.frombuffer(content, "<u4", header["edges"], at)
    sources = np.repeat(np.arange(vertices), np.diff(starts).astype(np.int64))
    return vertices, set(zip(sources.tolist(), neighbours.tolist(), strict=True))


def test_ranks_of_a_generated_graph_are_those_of_scipy(tmp_path: Path) -> None:
    run(tmp_path, RMAT, "out", PAGERANK | {"mode": "push"})
    vertices, edges = lists_on_disk(tmp_path / "graph")
    found = np.fromfile(tmp_path / "result", dtype="<f8")
    assert vertices == 1024
    assert np.abs(found - ranks_of(matrix_of(edges, vertices))).max() < 1e-9


def test_components_and_levels_are_those_of_scipy(tmp_path: Path) -> None:
    run(tmp_path, RMAT, "both", {"kind": "components"})
    vertices, edges = lists_on_disk(tmp_path / "graph")
    graph = matrix_of(edges, vertices)
    count, labels = csgraph.connected_components(graph, directed=False)
    found = np.fromfile(tmp_path / "result", dtype="<u4")
    smallest = np.full(count, vertices)
    np.minimum.at(smallest, labels, np.arange(vertices))
    assert (found == smallest[labels]).all()

    result = run(tmp_path, RMAT, "both", {"kind": "bfs", "root": None})
    root = result["graph"]["root"]
    parents = np.fromfile(tmp_path / "result", dtype="<u4")
    levels = csgraph.shortest_path(graph, method="D", unweighted=True, indices=root)
    reached = np.isfinite(levels)
    assert ((parents != 2**32 - 1) == reached).all()
    children = np.flatnonzero(reached & (np.arange(vertices) != root))
    assert (levels[parents[children]] == levels[children] - 1).all()
    assert all((int(parents[child]), int(child)) in edges for child in children)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"0 1\n2 three\n", "line 2"),
        (b"\x00\xff\x1b[31m\n", "line 1"),
        (b"5 5\n", "`graph.source`"),
    ],
)
def test_garbage_in_an_edge_list_is_an_error_with_its_place_and_leaves_nothing(
    tmp_path: Path, content: bytes, place: str
) -> None:
    (tmp_path / "edges").write_bytes(content)
    source = {"kind": "edge_list", "path": str(tmp_path / "edges"), "format": "text"}
    failure = run(tmp_path, source, "both", {"kind": "components"})
    assert (failure["event"], failure["code"], failure["context"]) == ("error", "invalid_input", place)
    assert "\x1b" not in failure["message"]
    assert (tmp_path / "graph").stat().st_size == 0
    assert not (tmp_path / "result").exists()
