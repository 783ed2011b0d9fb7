"""Graph algorithms: parameters, the spec they become, verdicts, and the share of the device's bandwidth."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from measured import record
from stores import command, small_file_system

from iosonde import memory
from iosonde.errors import StudyError, TargetError
from iosonde.execution.record import judged
from iosonde.features.graph.questions import DeviceShare, find
from iosonde.features.graph.size import size_of
from iosonde.features.graph.spec import graph_name
from iosonde.features.graph.verdict import judge
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import expand, load
from iosonde.results.schema import INTERVALS
from iosonde.storage import open_target
from iosonde.workload import named

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


def test_simulated_targets_store_no_graph() -> None:
    with pytest.raises(TargetError, match="real directory or device"):
        GRAPH.fit({"main": GRAPH.build({})}, open_target("null:1GiB"), room_bytes=0)


def test_the_size_while_written_includes_the_area_for_sorting() -> None:
    size = size_of(GRAPH.build({"scale": 10, "edge_factor": 16}))
    assert (size.vertices, size.stored_edges, size.adjacency_bytes) == (1024, 32768, 131072)
    assert size.graph_bytes == 4096 + 12288 + 131072
    assert size.written_bytes(MIB) >= size.graph_bytes + 32768 * 8


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


def findings(*, wait: float, busy: float = 0.95, device: bool = True) -> list[Finding]:
    cases = pl.DataFrame(
        {
            "case_id": ["g", "s", "r"], "part": ["pagerank", "device", "device"], "control": [False] * 3,
            "algorithm": ["pagerank", None, None], "mode": ["pull", None, None], "jobs": [2, None, None],
            "access": [None, "sequential", "random"],
        }
    )  # fmt: skip
    values = {
        ("g", "pagerank", "bandwidth"): [0.9e9, 0.91e9, 0.89e9],
        ("g", "pagerank", "edges_per_sec"): [2e8, 2.02e8, 1.98e8],
        ("g", "pagerank", "edges_per_core_sec"): [6e7, 6.1e7, 5.9e7],
        ("g", "pagerank", "read_wait_fraction"): [wait, wait + 0.01, wait - 0.01],
        ("g", "pagerank", "core_utilisation"): [busy, busy, busy],
    }
    if device:
        values[("s", "device", "bandwidth")] = [1e9, 1.01e9, 0.99e9]
        values[("r", "device", "bandwidth")] = [1.8e9, 1.82e9, 1.78e9]
    rows = [
        {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": "all", "metric": metric, "value": value}
        for (case, part, metric), each in values.items() for i, value in enumerate(each)
    ]  # fmt: skip
    study = load("jo2024-pagerank")
    return list(
        find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), support=Support()))
    )


def test_an_algorithm_that_waits_for_reads_is_limited_by_the_device() -> None:
    [found] = findings(wait=0.8)
    assert isinstance(found, DeviceShare)
    assert found.is_device_limited
    shares = dict(found.shares)
    assert shares["sequential"].value == pytest.approx(0.9)
    assert shares["random"].value == pytest.approx(0.5)
    assert found.sentence.startswith("PageRank (pull), 2 jobs: 200 M edges/s")
    assert "the device limits it" in found.sentence
    assert "80 %" in found.evidence


def test_an_algorithm_that_waits_little_is_limited_by_cpu_time() -> None:
    [found] = findings(wait=0.1)
    assert isinstance(found, DeviceShare)
    assert not found.is_device_limited
    assert "CPU time limits it to 60 M edges/s per core" in found.sentence
    [found] = findings(wait=0.1, busy=0.5)
    assert isinstance(found, DeviceShare)
    assert not found.is_cpu_limited, "without enough CPU time nothing is named as the limit"
    assert "limit undetermined (jobs waited for reads in " in found.sentence


def test_without_the_devices_reads_there_is_a_rate_and_no_share() -> None:
    [found] = findings(wait=0.8, device=False)
    assert isinstance(found, DeviceShare)
    assert found.shares == ()
    assert found.sentence.endswith("the device limits it, with 900 MB/s"), found.sentence
    assert "were not measured" in found.evidence
