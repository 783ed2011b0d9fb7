"""Findings that would state one fact several times, or answer another question than the study's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import results, study

from iosonde.findings.findings import findings
from iosonde.findings.observations.search import NoBoundary, find
from iosonde.findings.throughput import Throughput, UnloadedLatency

LOAD: dict[str, Any] = {
    "access": "random",
    "io_mode": "direct",
    "read_fraction": 1.0,
    "trim_fraction": 0.0,
    "jobs": 1,
    "queue_depth": 1,
    "backend": "uring",
    "submission_polling": False,
    "completion_polling": False,
}


def test_cases_that_are_not_finished_are_one_finding_a_part() -> None:
    """An interrupted study of ten searches stated this ten times, twice in its answer."""
    cases: list[Any] = [SimpleNamespace(case_id=f"curve/load={load}", part="curve") for load in (0.1, 0.5, 0.9)]
    [found] = find([(case, None) for case in cases])
    assert isinstance(found, NoBoundary) and not found.finished
    assert found.case_ids == ("curve/load=0.1", "curve/load=0.5", "curve/load=0.9")
    assert found.sentence == "3 cases of part `curve`: not finished; continue with `iosonde resume DIR`"
    [alone] = find([(cases[0], None)])
    assert alone.sentence == "`curve/load=0.1`: not finished; continue with `iosonde resume DIR`"


@pytest.mark.parametrize(("mapping", "kinds"), [(None, {Throughput, UnloadedLatency}), ("anonymous", set())])
def test_accesses_to_memory_are_not_called_reads(mapping: str | None, kinds: set[type]) -> None:
    """`Reads with one I/O in flight: median latency 280 ns` was the latency of a hit in memory."""
    metrics = {
        "iops": {(1,): [1e4, 1.01e4, 1.02e4]},
        "completion_latency_ns_p50": {(1,): [280.0, 281.0, 282.0]},
        "concurrency": {(1,): [1.0] * 3},
    }
    cases, runs = results(["depth"], metrics, block_size=4096, mapping=mapping, **LOAD)
    assert {type(each) for each in findings(study({"queue_depth": [1]}, []), cases, runs)} & {
        Throughput,
        UnloadedLatency,
    } == kinds


def test_a_peak_that_is_not_saturated_is_stated_once() -> None:
    iops = {(jobs,): [jobs * 1e4, jobs * 1.01e4, jobs * 1.02e4] for jobs in (1, 2, 4)}
    cases, runs = results(["jobs"], {"iops": iops}, block_size=4096, **{**LOAD, "queue_depth": 1})
    asked = [{"kind": kind, "over": "jobs", "metric": "iops"} for kind in ("peak", "saturation")]
    found = findings(study({"jobs": [1, 2, 4]}, asked), cases, runs)
    stated = [each.kind for each in found if "not saturated" in each.sentence]
    assert stated == ["peak"]
