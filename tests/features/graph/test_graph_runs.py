"""Graph algorithms as runs of a study: metrics, verdict, a raw device, and what remains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from loop_stacks import loop_devices

from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.execution.checks.admission import Admission
from iosonde.features.graph.facts import COLUMNS
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.report import write
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20

STUDY = """
name = "small-graph"
title = "A small graph"
question = "How fast?"
workload = "graph"
repeats = 1

[measurement]
scale = 12
tolerance = 1e-4
interval = "100ms"

[[parts]]
[parts.factors]
algorithm = ["pagerank", "bfs", "components"]

[profiles.standard]
"""


def carried_out(tmp_path: Path, target: Path, *, consent: Consent | None = None, **settings: str) -> ResultSet:
    plan = expand(parse(STUDY), open_target(str(target)), settings=settings)
    results = execute(plan, tmp_path / "results", consent=consent or Consent())
    assert journal.entries() == []
    return results


def values(results: ResultSet, case: str) -> dict[str, float]:
    rows = run_metrics(results).filter(pl.col("operation") == "all", pl.col("case_id").str.contains(case))
    return dict(rows.select("metric", "value").iter_rows())


def facts(record: Record) -> dict[str, Any]:
    assert record.result is not None, record.failure
    found: dict[str, Any] = record.result["graph"]
    return found


@pytest.mark.engine
def test_all_algorithms_share_one_graph_and_leave_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    results = carried_out(tmp_path, data)
    records = list(results.records())
    assert list(data.iterdir()) == []
    assert [record.outcome for record in records] == ["complete"] * 3
    assert sum(facts(record)["build_ns"] > 0 for record in records) == 1, "the graph is written once"
    assert all(record.verdict for record in records)
    assert all(facts(record)["check"]["violations"] == 0 for record in records)
    assert [warning.code for record in records for warning in record.warnings if warning.code == "wrong_result"] == []

    ranks = values(results, "pagerank")
    [record] = [record for record in records if record.levels["algorithm"] == "pagerank"]
    graph = facts(record)
    assert ranks["iterations"] == len(graph["iterations"])
    assert ranks["edges_per_sec"] * ranks["seconds"] == pytest.approx(graph["edges"] * ranks["iterations"])
    assert ranks["read_bytes_per_edge"] == pytest.approx(4, rel=0.01), "every page is read once an iteration"
    assert ranks["bandwidth"] * ranks["seconds"] == pytest.approx(
        sum(each["read_bytes"] for each in graph["iterations"])
    )
    assert ranks["rank_sum_error"] < 1e-12
    assert ranks["rank_residual"] < 1e-4
    assert 0 <= ranks["read_wait_fraction"] <= 1
    assert ranks["graph_violations"] == 0
    assert "graph_cache_hit_fraction" in ranks
    assert ranks["completion_latency_ns_mean"] > 0
    assert values(results, "bfs")["merge_overhead_fraction"] >= 0

    write([results], tmp_path / "report.html")
    assert "A small graph" in (tmp_path / "report.html").read_text()


@pytest.mark.engine
def test_every_column_about_graphs_has_a_value(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    results = carried_out(tmp_path, data, algorithm="pagerank", cache_size="64MiB")
    [row] = Facts(results).runs().select(each.name for each in COLUMNS).rows(named=True)
    missing = {name for name, value in row.items() if value is None}
    assert missing == {"graph_components", "graph_reached"}
    assert values(results, "pagerank")["cached_edges_per_core_sec"] > 0


@pytest.mark.engine
def test_an_edge_list_is_imported_what_was_removed_is_counted_and_every_column_has_a_value(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "edges.txt").write_text("# a path, a self-loop, a duplicate\n0 1\n1 2\n2 2\n2 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "edges.txt")
    settings = {"algorithm": "pagerank", "cache_size": "64MiB", "edge_list": str(tmp_path / "link")}
    results = carried_out(tmp_path, data, **settings)
    [record] = results.records()
    graph = facts(record)
    assert (graph["vertices"], graph["edges"]) == (3, 4)
    assert (graph["source_edges"], graph["self_loops"], graph["duplicates"]) == (4, 1, 2)
    [row] = Facts(results).runs().select(each.name for each in COLUMNS).rows(named=True)
    assert {name for name, value in row.items() if value is None} == {"graph_components", "graph_reached"}
    assert values(results, "pagerank")["cached_edges_per_core_sec"] > 0


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
    plan = expand(parse(STUDY), open_target(str(tmp_path)), settings={"algorithm": "pagerank"})
    [run] = plan.runs
    own = str(Path(run.spec["workload"]["target"]["path"]).parent)
    changed = json.loads(json.dumps({**run.spec["workload"], **change}).replace("OWN", own))
    edited = plan.model_copy(
        update={
            "runs": [run.model_copy(update={"spec": {**run.spec, "workload": changed}})],
            "created_name": Path(own).name,
        }
    )
    Admission.for_plan(plan.model_copy(update={"created_name": Path(own).name}), tmp_path / "set").check_plan()
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(edited, tmp_path / "set").check_plan()


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
        results = carried_out(tmp_path, device, consent=consent, algorithm="components", edge_list=str(edges))
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
