"""Graph algorithms: parameters, the spec they become, verdicts, and the share of the device's bandwidth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hand_made import results
from measured import record
from stores import command, small_file_system

from iosonde.base import memory
from iosonde.engine.protocol.validation import mismatch_of_spec
from iosonde.errors import StudyError, TargetError
from iosonde.execution.attempt import judged
from iosonde.features.graph.questions import DeviceShare, find
from iosonde.features.graph.verdict import judge
from iosonde.features.graph.workload import graph_name, size_of
from iosonde.findings.finding import Support
from iosonde.findings.question import Question
from iosonde.planning import expand, load
from iosonde.results.schema import INTERVALS
from iosonde.storage import open_target
from iosonde.study.workload import named

MIB = 1 << 20
GRAPH = named("graph")


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": GRAPH.build(parameters)}
    return GRAPH.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_a_fraction_of_the_lists_becomes_the_size_of_the_cache(tmp_path: Path) -> None:
    lists = size_of(GRAPH.build({"scale": 12})).adjacency_bytes
    assert spec(tmp_path, scale=12, cache_fraction=0.5)["reading"]["cache_bytes"] == lists // 2
    assert spec(tmp_path, scale=12, cache_fraction=1)["reading"]["cache_bytes"] >= lists


def test_graphs_have_files_of_their_own_and_runs_on_one_graph_share_it(tmp_path: Path) -> None:
    one, same, other = (
        spec(tmp_path, **each)["target"]["path"] for each in ({}, {"mode": "push", "jobs": 3}, {"scale": 21})
    )
    assert Path(one).name == Path(same).name == graph_name(GRAPH.build({}))
    assert Path(one).name != Path(other).name
    rmat = spec(tmp_path)["graph"]["source"]
    assert (rmat["a"], rmat["b"], rmat["c"], rmat["edge_factor"]) == (0.57, 0.19, 0.19, 16), "as Graph500 has it"
    assert Path(one).name != "data", "block I/O of the same study has that one"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "pull", "lists": "out"}, "`pull` needs"),
        ({"request_size": "6000B"}, "multiple of 4 KiB"),
        ({"backend": "sync"}, "queue_depth = 1"),
        ({"scale": 40}, "scale"),
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


def test_the_size_while_written_includes_the_area_for_sorting() -> None:
    size = size_of(GRAPH.build({"scale": 10, "edge_factor": 16}))
    assert (size.vertices, size.stored_edges, size.adjacency_bytes) == (1024, 32768, 131072)
    assert size.graph_bytes == 4096 + 12288 + 131072
    assert size.written_bytes(MIB) >= size.graph_bytes + 32768 * 8


def test_specs_of_algorithms_of_earlier_versions_stay_readable(tmp_path: Path) -> None:
    whole = GRAPH.resolve({"main": GRAPH.build({})}, open_target(str(tmp_path)), seed=1, run_id="r")
    for kind, found in (("bfs", ""), ("components", ""), ("dijkstra", "in a spec: ")):
        reading = {**whole["workload"]["reading"], "merge_gap_bytes": 32768}
        workload = {**whole["workload"], "algorithm": {"kind": kind}, "reading": reading}
        assert mismatch_of_spec({**whole, "workload": workload})[: len("in a spec: ")] == found


@pytest.mark.needs("root")
@pytest.mark.system
def test_a_graph_that_is_larger_than_the_target_or_memory_is_refused_with_its_parameters(tmp_path: Path) -> None:
    """An edge list is not, for vertices that it may not have: the engine counts them before it takes memory for them."""
    edges = tmp_path / "edges"
    edges.touch()
    os.truncate(edges, memory.total_bytes())
    listed = {"edge_list": str(edges), "edge_format": "u32", "cache_fraction": "0"}
    generated = {"scale": "22", "cache_fraction": "0"}
    study = load("jo2024-pagerank")
    with small_file_system(tmp_path / "small", 64 << 20) as directory:
        found = expand(study, open_target(str(directory)), profile="quick", settings=listed)
        assert any("stored edges" in note for note in found.notes), found.notes
        command("mount", "-o", "remount,size=100m", directory)
        for settings, named in ((listed, "`edge_list`"), (generated, "`scale`, `edge_factor` and `lists`")):
            with pytest.raises(TargetError, match="no room on") as error:
                expand(study, open_target(str(directory)), profile="quick", settings=settings)
            assert named in error.value.where
        with pytest.raises((StudyError, TargetError), match=r"of memory; the limit is|no room on") as refused:
            expand(study, open_target(str(directory)), profile="quick", settings={"scale": "31"})
        assert "--set scale=" in str(refused.value.hint)


# Verdicts -------------------------------------------------------------------------------------------------------------


SECOND = 10**9


@pytest.mark.parametrize(
    ("wait_s", "cached", "client_s", "kind"),
    [
        (25.0, 0.0, 10.0, "device-limited"),
        (0.1, 1.0, 39.0, "cache-served"),
        (2.0, 0.2, 36.0, "harness-limited"),
        (10.0, 0.2, 20.0, "undetermined"),
    ],
)
def test_the_jobs_time_decides(wait_s: float, cached: float, client_s: float, kind: str) -> None:
    measured = record(client_s=client_s)
    assert measured.result is not None
    facts = {
        "iterations": [], "request_sizes": [], "io_wait_ns": int(wait_s * SECOND), "job_wait_ns": 0, "needed_bytes": 1000,
        "cache_hit_bytes": int(1000 * cached), "check": None,
    }  # fmt: skip
    verdict = judge(measured.model_copy(update={"result": {**measured.result, "graph": facts}}), [], 1)
    assert verdict is not None
    assert verdict.kind == kind
    assert verdict.evidence["read_wait_share"] == pytest.approx(wait_s / 40, abs=1e-3)
    assert verdict.because


def test_a_run_that_was_stopped_before_the_measurement_has_no_verdict() -> None:
    """The engine reports CPU time and devices of it too, but those were not measured for the algorithm."""
    stopped = record()
    result = {**(stopped.result or {}), "backend": {"kind": "uring"}, "evidence": {"stalls": None}}
    spec = {**stopped.spec, "workload": {"kind": "graph"}}
    stopped = stopped.model_copy(update={"result": result, "spec": spec})
    intervals = pl.DataFrame(schema=INTERVALS)
    assert judged(stopped, intervals, environment={}, study={}) == stopped


# Share of the device's bandwidth, from bandwidths with a known ratio --------------------------------------------------


def share_of(*, wait: float, busy: float = 0.95, device: bool = True) -> DeviceShare:
    of_graph = {
        "bandwidth": [0.9e9, 0.91e9, 0.89e9],
        "edges_per_sec": [2e8, 2.02e8, 1.98e8],
        "edges_per_core_sec": [6e7, 6.1e7, 5.9e7],
        "read_wait_fraction": [wait, wait + 0.01, wait - 0.01],
        "core_utilisation": [busy, busy, busy],
    }
    levels = {"mode": "pull", "jobs": 2}
    metrics = {name: {tuple(levels.values()): each} for name, each in of_graph.items()}
    found = [results(list(levels), metrics, part="pagerank", access=None, edge_factor=16)]
    if device:
        reads = {("sequential",): [1e9, 1.01e9, 0.99e9], ("random",): [1.8e9, 1.82e9, 1.78e9]}
        found.append(results(["access"], {"bandwidth": reads}, part="device"))
    cases, runs = (pl.concat(frames, how="diagonal_relaxed") for frames in zip(*found, strict=True))
    study = load("jo2024-pagerank")
    [share] = find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, support=Support()))
    assert isinstance(share, DeviceShare)
    return share


def test_an_algorithm_that_waits_for_reads_is_limited_by_the_device() -> None:
    found = share_of(wait=0.8)
    assert found.is_device_limited
    shares = dict(found.shares)
    assert shares["sequential"].value == pytest.approx(0.9)
    assert shares["random"].value == pytest.approx(0.5)
    assert found.sentence.startswith("PageRank (pull), 2 jobs: 200 M edges/s")
    alone = share_of(wait=0.8, device=False)
    assert (alone.is_device_limited, alone.shares) == (True, ()), "the device's reads were not measured"


def test_an_algorithm_that_waits_little_is_limited_by_cpu_time_if_that_was_used() -> None:
    found = share_of(wait=0.1)
    assert (found.is_device_limited, found.is_cpu_limited) == (False, True)
    assert not share_of(wait=0.1, busy=0.5).is_cpu_limited
