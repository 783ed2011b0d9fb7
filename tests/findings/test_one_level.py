"""Studies of which a user measures a single level of a factor: the answer has the values, and compares nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import results, study

from iosonde.findings.answer import Answer
from iosonde.findings.findings import answer
from iosonde.findings.observations.quality import TooFewSamples
from iosonde.findings.questions.one_level import OneLevel

pytestmark = pytest.mark.unit

STORE = {"store": "cassandra", "value_size": 1000, "database": "loaded"}
SATURATION = {"kind": "saturation", "over": "jobs", "metric": "ops_per_sec", "by": ["phase"]}


def answered(
    factors: dict[str, list[Any]], questions: list[dict[str, Any]], values: dict[str, Any], **parameters: Any
) -> Answer:
    cases, runs = results(list(factors), values, **parameters)
    return answer(study(factors, questions, workload="kv"), cases, runs)


def test_a_single_number_of_jobs_has_a_value_for_each_load() -> None:
    rates = {("ycsb_a", 8): [9_900, 10_000, 10_100], ("ycsb_b", 8): [20_000, 20_100, 19_900]}
    found = answered({"phase": ["ycsb_a", "ycsb_b"], "jobs": [1, 8]}, [SATURATION], {"ops_per_sec": rates}, **STORE)
    first, second = found.summary
    assert isinstance(first, OneLevel) and isinstance(second, OneLevel)
    assert (first.value.value, second.value.value) == (10_000, 20_000)
    assert first.value.low is not None and first.value.low < 10_000
    assert first.sentence.startswith("Cassandra YCSB A operations: 10 k operations/s at 8 jobs (95 % CI ")
    assert "only one level of jobs was measured" in first.evidence


def test_a_latency_names_its_metric() -> None:
    p99 = "completion_latency_ns_p99"
    question = {"kind": "tail_growth", "over": "jobs", "metric": p99, "by": ["phase"]}
    found = answered(
        {"phase": ["ycsb_a"], "jobs": [1, 4]}, [question], {p99: {("ycsb_a", 4): [1.2e6, 1.2e6, 1.2e6]}}, **STORE
    )
    [finding] = found.summary
    assert finding.sentence.startswith("Cassandra YCSB A operations, p99 completion latency: 1.2 ms at 4 jobs")


def test_along_an_axis_the_best_value_is_stated_once() -> None:
    rates = {(8, 4096): [100.0] * 3, (8, 65536): [300.0] * 3, (8, 262144): [200.0] * 3}
    question = {"kind": "saturation", "over": "jobs", "metric": "ops_per_sec"}
    found = answered(
        {"jobs": [1, 8], "object_size": [4096, 65536, 262144]}, [question, question], {"ops_per_sec": rates}
    )
    [finding] = found.summary
    assert isinstance(finding, OneLevel)
    assert (finding.value.value, finding.cells, finding.repeats) == (300, 3, 3)
    assert "300 operations/s at 8 jobs and object size 64 KiB" in finding.sentence


def test_a_level_that_the_question_names_and_the_user_left_out() -> None:
    """Not `too few samples`: there are enough, of another level."""
    p50 = "completion_latency_ns_p50"
    question = {"kind": "tail_growth", "over": "jobs", "metric": p50, "where": {"jobs": 1}}
    found = answered({"jobs": [1, 4]}, [question], {p50: {(4,): [1e5, 1e5, 1e5]}}, **STORE, phase="ycsb_a")
    assert not any(isinstance(each, TooFewSamples) for each in found.findings)
    [finding] = found.summary
    assert "100 µs at 4 jobs" in finding.sentence
