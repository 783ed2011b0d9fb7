"""Graph algorithms as runs of a study: metrics, verdict, a raw device, and what remains."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from engines import real_engine
from loop_stacks import loop_devices
from scipy import sparse
from study_texts import study_text

from iosonde.engine import protocol
from iosonde.errors import TargetError
from iosonde.execution.admission import Admission
from iosonde.execution.session import execute
from iosonde.features.graph.facts import COLUMNS
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent

MIB = 1 << 20

STUDY = study_text("graph", 'scale = 12\ntolerance = 1e-4\ninterval = "100ms"', 'factors.mode = ["pull", "push"]')


def carried_out(
    tmp_path: Path, target: Path | None = None, *, consent: Consent | None = None, **settings: str
) -> ResultSet:
    data = tmp_path / "data"
    data.mkdir()
    plan = expand(parse(STUDY), open_target(str(target or data)), settings=settings)
    results = execute(plan, tmp_path / "results", consent=consent or Consent())
    assert journal.entries() == []
    assert list(data.iterdir()) == []
    return results


def values(results: ResultSet, case: str) -> dict[str, float]:
    rows = run_metrics(results).filter(pl.col("operation") == "all", pl.col("case_id").str.contains(case))
    return dict(rows.select("metric", "value").iter_rows())


def facts(record: Record) -> dict[str, Any]:
    assert record.result is not None, record.failure
    found: dict[str, Any] = record.result["graph"]
    return found


@pytest.mark.engine
def test_both_modes_share_one_graph_and_leave_nothing(tmp_path: Path) -> None:
    results = carried_out(tmp_path)
    records = list(results.records())
    assert [record.outcome for record in records] == ["complete"] * 2
    assert sum(facts(record)["build_ns"] > 0 for record in records) == 1, "the graph is written once"
    assert all(record.verdict for record in records)
    assert all(facts(record)["check"]["violations"] == 0 for record in records)
    assert [warning.code for record in records for warning in record.warnings if warning.code == "wrong_result"] == []

    ranks = values(results, "pull")
    [record] = [record for record in records if record.levels["mode"] == "pull"]
    graph = facts(record)
    assert ranks["iterations"] == len(graph["iterations"])
    assert ranks["edges_per_sec"] * ranks["seconds"] == pytest.approx(graph["edges"] * ranks["iterations"])
    assert ranks["read_bytes_per_edge"] == pytest.approx(4, rel=0.01), "every page is read once an iteration"
    read_bytes = sum(each["read_bytes"] for each in graph["iterations"])
    assert ranks["bandwidth"] * ranks["seconds"] == pytest.approx(read_bytes)
    assert ranks["rank_sum_error"] < 1e-12
    assert ranks["rank_residual"] < 1e-4
    assert 0 <= ranks["read_wait_fraction"] <= 1
    assert ranks["graph_violations"] == 0
    assert "graph_cache_hit_fraction" in ranks
    assert ranks["completion_latency_ns_mean"] > 0


@pytest.mark.engine
def test_an_edge_list_is_imported_what_was_removed_is_counted_and_every_column_has_a_value(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("# a path, a self-loop, a duplicate\n0 1\n1 2\n2 2\n2 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "edges.txt")
    settings = {"mode": "pull", "cache_size": "64MiB", "edge_list": str(tmp_path / "link")}
    results = carried_out(tmp_path, **settings)
    [record] = results.records()
    graph = facts(record)
    assert (graph["vertices"], graph["edges"]) == (3, 4)
    assert (graph["source_edges"], graph["self_loops"], graph["duplicates"]) == (4, 1, 2)
    [row] = Facts(results).runs().select(each.name for each in COLUMNS).rows(named=True)
    assert {name for name, value in row.items() if value is None} == set()
    assert values(results, "pull")["cached_edges_per_core_sec"] > 0


@pytest.mark.unit
@pytest.mark.parametrize(
    "change",
    [
        {"result_path": "/etc/victim"},
        {"graph": {"source": {"kind": "edge_list", "path": "/etc/shadow", "format": "text"}, "lists": "both"}},
        {"target": {"kind": "file", "path": "OWN/data", "size_bytes": 1}},
        {"target": {"kind": "file", "path": "OWN/../12345678.graph", "size_bytes": 1}},
    ],
    ids=str,
)
def test_other_paths_in_a_received_plan_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), settings={"mode": "pull"})
    [run] = plan.runs
    own = str(Path(run.spec["workload"]["target"]["path"]).parent)
    plan = plan.model_copy(update={"created_name": Path(own).name})
    Admission.for_plan(plan, tmp_path / "set").check_plan()
    changed = json.loads(json.dumps({**run.spec["workload"], **change}).replace("OWN", own))
    runs = [run.model_copy(update={"spec": {**run.spec, "workload": changed}})]
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(plan.model_copy(update={"runs": runs}), tmp_path / "set").check_plan()


@pytest.mark.system
@pytest.mark.needs("loop devices")
@pytest.mark.parametrize("largest", [1_000_000, 20_000_000])
def test_a_list_with_large_numbers_is_written_to_a_device_with_room_for_its_graph(largest: int, tmp_path: Path) -> None:
    """The size of the index follows from the numbers of the vertices, not from the size of the list.

    The plan states what of the device may be lost. A graph that is larger than the device fails the run.
    """
    edges = tmp_path / "edges.txt"
    edges.write_text(f"0 1\n1 {largest}\n")
    with loop_devices(tmp_path, 64 * MIB) as [device]:
        consent = Consent(destroy=(str(device),))
        results = carried_out(tmp_path, device, consent=consent, mode="pull", edge_list=str(edges))
        is_unchanged = not any(device.read_bytes().removeprefix(MARK))
    [record] = results.records()
    assert [each.what for each in results.plan.destroys] == [f"bytes 0 to {64 * MIB - 1} are lost (all of it)"]
    if largest == 1_000_000:
        assert facts(record)["vertices"] == largest + 1
        assert facts(record)["check"]["violations"] == 0
        assert record.result and record.result["devices"][0]["read_bytes"] >= facts(record)["adjacency_bytes"]
        return
    assert is_unchanged
    assert record.outcome == "failed" and record.failure is not None
    assert (record.failure.code, record.failure.context) == ("no_space", "phase `layout`")
    assert "the device" in record.failure.message and "smaller graph" in record.failure.hint


# Results of the engine against SciPy -----------------------------------------------------------------------------------


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
        "reading": {"queue_depth": 1, "request_bytes": 65536, "cache_bytes": 0},
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


@pytest.mark.engine
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


@pytest.mark.engine
def test_ranks_of_a_generated_graph_are_those_of_scipy(tmp_path: Path) -> None:
    run(tmp_path, RMAT, "both", PAGERANK)
    vertices, edges = lists_on_disk(tmp_path / "graph")
    assert vertices == 1024
    graph = matrix_of(edges, vertices)
    assert np.abs(np.fromfile(tmp_path / "result", dtype="<f8") - ranks_of(graph)).max() < 1e-9


@pytest.mark.engine
@pytest.mark.parametrize(
    ("content", "place"),
    [(b"0 1\n2 three\n", "line 2"), (b"\x00\xff\x1b[31m\n", "line 1"), (b"5 5\n", "`graph.source`")],
)
def test_garbage_in_an_edge_list_is_an_error_with_its_place_and_leaves_nothing(
    tmp_path: Path, content: bytes, place: str
) -> None:
    (tmp_path / "edges").write_bytes(content)
    source = {"kind": "edge_list", "path": str(tmp_path / "edges"), "format": "text"}
    failure = run(tmp_path, source, "both", PAGERANK)
    assert (failure["event"], failure["code"], failure["context"]) == ("error", "invalid_input", place)
    assert "\x1b" not in failure["message"]
    assert (tmp_path / "graph").stat().st_size == 0
    assert not (tmp_path / "result").exists()
