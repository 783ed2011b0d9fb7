"""Parameters of graph algorithms, the spec they become, and the size of a graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from iosonde import memory
from iosonde.errors import StudyError, TargetError
from iosonde.features.graph.size import size_of
from iosonde.features.graph.spec import graph_name
from iosonde.planning import expand, load
from iosonde.storage import open_target
from iosonde.storage.targets.file_target import DirectoryTarget
from iosonde.workload import named

pytestmark = pytest.mark.unit

MIB = 1 << 20
GRAPH = named("graph")


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": GRAPH.build(parameters)}
    return GRAPH.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_defaults_are_pagerank_on_a_graph500_graph(tmp_path: Path) -> None:
    found = spec(tmp_path)
    assert found["graph"]["source"] == {
        "kind": "rmat", "scale": 20, "edge_factor": 16, "a": 0.57, "b": 0.19, "c": 0.19, "seed": 1,
    }  # fmt: skip
    assert (found["algorithm"]["kind"], found["graph"]["lists"]) == ("pagerank", "both")
    assert found["reading"] == {
        "queue_depth": 16, "request_bytes": 262144, "merge_gap_bytes": 32768, "cache_bytes": 0,
    }  # fmt: skip


def test_a_fraction_of_the_lists_becomes_the_size_of_the_cache(tmp_path: Path) -> None:
    lists = size_of(GRAPH.build({"scale": 12})).adjacency_bytes
    assert spec(tmp_path, scale=12, cache_fraction=0.5)["reading"]["cache_bytes"] == lists // 2
    assert spec(tmp_path, scale=12, cache_fraction=1)["reading"]["cache_bytes"] >= lists


def test_graphs_have_files_of_their_own_and_runs_on_one_graph_share_it(tmp_path: Path) -> None:
    one, same, other = (
        spec(tmp_path, **each)["target"]["path"] for each in ({}, {"algorithm": "bfs", "jobs": 3}, {"scale": 21})
    )
    assert Path(one).name == Path(same).name == graph_name(GRAPH.build({}))
    assert Path(one).name != Path(other).name
    assert Path(one).name != "data", "block I/O of the same study has that one"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"algorithm": "bfs", "lists": "out"}, "undirected"),
        ({"mode": "pull", "lists": "out"}, "`pull` needs"),
        ({"mode": "push", "lists": "in"}, "`push` needs"),
        ({"request_size": "6000B"}, "multiple of 4 KiB"),
        ({"request_size": "32MiB"}, "at most 16 MiB"),
        ({"backend": "sync"}, "queue_depth = 1"),
        ({"scale": 40}, "scale"),
        ({"root": -1}, "number of a vertex"),
        ({"cache_size": "1MiB", "cache_fraction": 0.5}, "decide the same"),
        ({"sort_memory": "4KiB"}, "at least 1 MiB"),
    ],
)
def test_contradictory_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        GRAPH.build(parameters)


def test_an_edge_list_that_cannot_be_read_is_refused_while_planning(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "missing", "No such file"), (tmp_path, "not a regular file")):
        with pytest.raises(StudyError, match=reason):
            spec(tmp_path, edge_list=str(path))
    (tmp_path / "edges").write_text("0 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "edges")
    source = spec(tmp_path, edge_list=str(tmp_path / "link"), edge_format="text")["graph"]["source"]
    assert source == {"kind": "edge_list", "path": str(tmp_path / "edges"), "format": "text"}


@pytest.mark.parametrize(("lines", "share"), [(1000, 0.0), (150_000, 0.02)])
def test_edges_of_a_text_are_counted_or_estimated_from_its_lines(tmp_path: Path, lines: int, share: float) -> None:
    edges = "".join(f"{number} {number * 7}\n" for number in range(lines))
    (tmp_path / "edges").write_text(f"# a comment\n\n% another one\n{edges}")
    size = size_of(GRAPH.build({"edge_list": str(tmp_path / "edges"), "lists": "out", "mode": "push"}))
    assert size.stored_edges == pytest.approx(lines + 1, rel=share)


def test_an_edge_list_is_not_refused_for_vertices_that_it_may_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 800 million edges may be of few vertices: the engine counts them before it takes memory for them."""
    monkeypatch.setattr(memory, "total_bytes", lambda: 8 << 30)
    monkeypatch.setattr(DirectoryTarget, "free_bytes", lambda _: 1 << 40)
    edges = tmp_path / "edges"
    edges.touch()
    os.truncate(edges, 6 << 30)
    settings = {"edge_list": str(edges), "edge_format": "u32", "cache_fraction": "0"}
    found = expand(load("jo2024-pagerank"), open_target(str(tmp_path)), profile="quick", settings=settings)
    assert found.runs
    assert any("1.61 G stored edges" in note for note in found.notes), found.notes
    monkeypatch.setattr(DirectoryTarget, "free_bytes", lambda _: 10 << 30)
    with pytest.raises(TargetError, match="no room on") as error:
        expand(load("jo2024-pagerank"), open_target(str(tmp_path)), profile="quick", settings=settings)
    assert "`edge_list`" in error.value.where and "a shorter `edge_list`" in str(error.value.hint)


def test_simulated_targets_store_no_graph() -> None:
    with pytest.raises(TargetError, match="real directory or device"):
        GRAPH.fit({"main": GRAPH.build({})}, open_target("null:1GiB"), room_bytes=0)


def test_the_size_while_written_includes_the_area_for_sorting() -> None:
    size = size_of(GRAPH.build({"scale": 10, "edge_factor": 16}))
    assert (size.vertices, size.stored_edges, size.adjacency_bytes) == (1024, 32768, 131072)
    assert size.graph_bytes == 4096 + 12288 + 131072
    assert size.written_bytes(MIB) >= size.graph_bytes + 32768 * 8


def test_a_graph_that_is_larger_than_the_target_is_refused_while_planning(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"needs|free") as refused:
        expand(
            load("jo2024-pagerank"),
            open_target(str(tmp_path)),
            profile="quick",
            settings={"scale": "26", "edge_factor": "4096", "cache_fraction": "0"},
        )
    assert "`scale`" in refused.value.where


def test_a_graph_larger_than_memory_is_refused_with_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "total_bytes", lambda: 8 << 30)
    with pytest.raises(StudyError, match="of memory; the limit is") as error:
        expand(load("jo2024-pagerank"), open_target(str(tmp_path)), profile="quick", settings={"scale": "30"})
    assert "--set scale=" in str(error.value.hint)


def test_a_generated_graph_that_is_larger_than_the_target_is_refused_with_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the run: the size of a generated graph is known. That of an edge list is not, so its run fails."""
    monkeypatch.setattr(memory, "total_bytes", lambda: 1 << 50)
    monkeypatch.setattr(DirectoryTarget, "free_bytes", lambda _: 64 * MIB)
    with pytest.raises(TargetError, match="no room on") as error:
        expand(load("jo2024-pagerank"), open_target(str(tmp_path)), profile="quick")
    assert "`scale`, `edge_factor` and `lists`" in error.value.where
    assert "--set scale=" in str(error.value.hint)
