"""CPU time of Ceph's object daemons, from rates and CPU times that were made up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hand_made import results

from iosonde.features.object_stores.questions import OsdCpu, find
from iosonde.findings.findings import answer
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load
from iosonde.study.model import Study
from iosonde.verdict.verdict import Kind

pytestmark = pytest.mark.unit

FACTORS = ["operation", "queue_depth"]
PARAMETERS = {"object_store": "ceph", "object_size": 4096, "jobs": 1}


def around(value: float) -> list[float]:
    return [0.99 * value, value, 1.01 * value]


def values(*, cpu: bool = True, depths: tuple[int, ...] = (1, 16)) -> dict[str, Any]:
    """A cluster of which each write costs 500 µs and each read 200 µs of CPU time, on two cores."""
    rates = {("write", 1): 400, ("write", 16): 2000, ("random_read", 1): 2000, ("random_read", 16): 6000}
    metrics: dict[str, Any] = {name: {} for name in ("ops_per_sec", "osd_cpu_ns_per_op", "server_cores")}
    metrics["completion_latency_ns_mean"] = {}
    for (operation, depth), rate in rates.items():
        if depth not in depths:
            continue
        cell, cost = (operation, depth), 5e5 if operation == "write" else 2e5
        metrics["ops_per_sec"][cell] = around(rate)
        metrics["completion_latency_ns_mean"][cell] = around(1e9 * depth / rate)
        if cpu:
            metrics["osd_cpu_ns_per_op"][cell] = around(cost)
            metrics["server_cores"][cell] = around(rate * cost / 1e9)
    return metrics


def question(**changes: Any) -> Question:
    study = load("jo2024-ceph")
    cases, runs = results(FACTORS, values(**changes), part="small", **PARAMETERS)
    return Question(study=study, analysis=_analysis(study), cases=cases, runs=runs)


def _analysis(study: Study) -> Any:
    return next(each for each in study.analysis if each.kind == "osd_cpu")


def test_each_operation_has_its_highest_rate_and_its_cpu_time() -> None:
    write, read = find(question())
    assert isinstance(write, OsdCpu) and isinstance(read, OsdCpu)
    assert (write.value.value, write.cpu.value, write.cores) == (2000, 5e5, 1.0)
    assert (read.value.value, read.cpu.value, read.cores) == (6000, 2e5, 1.2)
    assert write.cpu.low is not None and write.cpu.low < 5e5
    assert write.unloaded_share == pytest.approx(0.2)
    assert read.unloaded_share == pytest.approx(0.4)
    assert write.sentence.startswith("4 KiB object writes on Ceph: 2,000 operations/s at queue depth 16 (95 % CI ")
    assert "OSDs use 500 µs (95 % CI " in write.sentence
    assert write.sentence.endswith("of CPU time per operation, 1.00 cores")
    assert write.evidence.startswith(
        "with one operation in flight: mean latency 2.5 ms, OSD CPU time 500 µs (20 % of it)"
    )


def test_the_limit_is_that_of_most_runs() -> None:
    asked = question()
    support = Support(
        verdicts={"main/operation=write/queue_depth=16": Counter({"server-CPU-limited": 2, "undetermined": 1})}
    )
    write, _ = find(replace(asked, support=support))
    assert write.sentence.endswith("; limited by CPU time")


def test_a_limit_of_a_minority_of_runs_is_not_stated() -> None:
    verdicts: Counter[Kind] = Counter({"device-limited": 1, "undetermined": 1, "server-CPU-limited": 1})
    support = Support(verdicts={"main/operation=write/queue_depth=16": verdicts})
    write, _ = find(replace(question(), support=support))
    assert isinstance(write, OsdCpu)
    assert write.limit == "undetermined"
    assert write.sentence.endswith(" cores")


def test_a_single_queue_depth_has_an_answer() -> None:
    write, _ = find(question(depths=(16,)))
    assert isinstance(write, OsdCpu)
    assert (write.value.value, write.unloaded_share) == (2000, None)


def test_a_store_without_object_daemons_has_no_such_finding() -> None:
    assert list(find(question(cpu=False))) == []


def test_the_answer_of_the_study_has_it_first() -> None:
    cases, runs = results(FACTORS, values(), part="small", **PARAMETERS)
    found = answer(load("jo2024-ceph"), cases, runs)
    assert [each.kind for each in found.summary[:2]] == ["OSD CPU time", "OSD CPU time"]
    assert len(found.summary) == 3
