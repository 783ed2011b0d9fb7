"""Answers that state each fact once: comparisons that are merged, single levels, and what is no read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hand_made import results, study

import iosonde.findings.findings as findings_module
from iosonde.features.database_transactions.questions import Durability
from iosonde.findings.answer import Answer
from iosonde.findings.answer import answered as divided
from iosonde.findings.finding import LOSSES, Finding
from iosonde.findings.findings import answer, findings
from iosonde.findings.quality import FewRepeats, NotUsable, TooFewSamples, Warned, WrongData
from iosonde.findings.questions.comparison import LISTED, Comparison
from iosonde.findings.questions.peak import OneLevel
from iosonde.findings.searches import NoBoundary, find
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics.statistics import POOLED

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
    assert isinstance(found, NoBoundary) and found.what == "not finished"
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
    stated = [each.kind for each in found if "maximum not shown" in each.sentence]
    assert stated == ["peak"]


ARRAYS = ["raid1", "raid5", "raid6", "raid10"]
LOADS = ["small", "large"]
ASKED = [{"kind": "asymmetry", "over": "state", "metric": "bandwidth", "by": ["array", "load"]}]


def found(values: dict[tuple[Any, ...], list[float]], analysis: list[dict[str, Any]]) -> list[Finding]:
    factors = {"state": ["healthy", "degraded"], "array": ARRAYS, "load": LOADS}
    cases, runs = results(list(factors), {"bandwidth": values}, access="random", block_size=4096)
    return findings(study(factors, analysis), cases, runs)


def spread(healthy: dict[tuple[str, str], float]) -> dict[tuple[Any, ...], list[float]]:
    """Three repeats of each case; degraded arrays have 100, healthy ones what is given."""
    return {
        (state, array, load): [rate * factor for factor in (0.99, 1.0, 1.01)]
        for array in ARRAYS
        for load in LOADS
        for state, rate in (("healthy", healthy.get((array, load), 150.0)), ("degraded", 100.0))
    }


def test_comparisons_with_the_same_result_are_merged() -> None:
    assert len(ARRAYS) * len(LOADS) > LISTED
    first, *others = found(spread({}), ASKED)
    assert isinstance(first, Comparison), "the first question of the study"
    assert first.methods == (f"95 % CI by {first.ratio.method}, n = {first.ratio.n}",)
    assert (first.ratio.method, first.ratio.n > 2) == (POOLED, True)
    comparisons = [first, *(each for each in others if isinstance(each, Comparison))]
    assert {(each.top, each.bottom, each.decision) for each in comparisons} == {
        ("healthy arrays", "degraded arrays", "higher")
    }
    assert [len(each.cells) for each in comparisons] == [2] * len(ARRAYS), "merged over loads, until few remain"
    assert [each.ratio.value for each in comparisons] == [pytest.approx(1.5)] * len(ARRAYS)


def test_a_comparison_with_another_result_stays_apart() -> None:
    comparisons = [each for each in found(spread({("raid6", "large"): 50.0}), ASKED) if isinstance(each, Comparison)]
    reversed_ = [each for each in comparisons if each.top == "degraded arrays"]
    assert [len(each.cells) for each in reversed_] == [1]
    assert sum(len(each.cells) for each in comparisons) == 8
    assert "RAID 6" in reversed_[0].about


def test_what_a_reader_must_not_miss_precedes_every_rate() -> None:
    """Wrong data, then lost durability, then what memory served, then another load than requested."""
    common: dict[str, Any] = {"strength": "strong", "example": "", "hint": ""}
    found = [
        WrongData(what="sectors read differ from those written", count=3, total=43, **common),
        Durability(settings=("PostgreSQL",), acknowledged=9, lost=1, runs=3, recovery_s=1.0, strength="strong"),
        Warned(code="memory_file_system", runs=43, of_most=True, **common),
        Warned(code="not_direct", runs=43, of_most=True, **common),
        Warned(code="not_direct", runs=1, **common),
    ]
    assert [each.loss for each in found] == [*LOSSES[:4], None]
    order = findings_module._order(study({}, []), disturbed=False)
    rates = {"ops_per_sec": {("ycsb_a", 8): [9_900, 10_000, 10_100]}}
    [rate] = answered({"phase": ["ycsb_a"], "jobs": [1, 8]}, [SATURATION], rates, **STORE).summary
    ranked = sorted([rate, *reversed(found)], key=lambda each: findings_module._rank(each, order))
    assert ranked == [*found[:4], rate, found[4]]


def test_the_answer_of_a_disturbed_result_set_has_nothing_that_load_changes() -> None:
    """`Not usable` preceded a dozen rates that other load had changed."""
    rates = {"ops_per_sec": {("ycsb_a", 8): [9_900, 10_000, 10_100]}}
    found = answered({"phase": ["ycsb_a"], "jobs": [1, 8]}, [SATURATION], rates, **STORE)
    common: dict[str, Any] = {"count": 3, "total": 3, "case_ids": ()}
    unusable = NotUsable(code="cpu_contention", example="a job had no CPU", strength="strong", **common)
    law = FewRepeats(**{**common, "count": 1}, strength="weak")
    trust = replace(found.trust, verdicts={"undetermined": 3})
    weak, strong = (replace(found.summary[0], strength=strength) for strength in ("weak", "strong"))
    kills = Durability(settings=("PostgreSQL",), acknowledged=9, lost=0, runs=1, recovery_s=1.0, strength="moderate")
    both = divided("", [unusable, kills, weak, strong, law], trust)
    assert (both.summary, both.rest) == ((unusable, kills), (weak, strong, law))
    assert not both.is_usable and not both.is_trust_first
    assert unusable.sentence == (
        "Not usable: other load on this machine disturbed 3 of 3 runs; a job had no CPU; repeat when it is idle"
    )


def test_wrong_data_is_the_answer_and_the_trust_of_its_result_set() -> None:
    cases, runs = results(["jobs"], {"iops": {(1,): [1e5, 1e5, 1e5]}})
    outcomes = pl.DataFrame(
        [{"run_id": run_id, "case_id": case_id, "outcome": "complete", "failure": None, "verdict": None,
          "failure_message": None, "has_wrong_data": number < 2}
         for number, (run_id, case_id) in enumerate(runs.select("run_id", "case_id").iter_rows())],
        schema_overrides={"failure": pl.String, "verdict": pl.String, "failure_message": pl.String},
    )  # fmt: skip
    message = "data read differs from data written (sectors: 360448 misdirected)"
    warned = {"code": "wrong_data", "message": message, "hint": "do not trust it"}
    warnings = outcomes.head(2).select("run_id", *(pl.lit(text).alias(name) for name, text in warned.items()))
    found = answer(study({"jobs": [1]}, []), cases, runs, runs=outcomes, warnings=warnings)
    assert found.summary[0].sentence == "Wrong data in 2 of 3 runs: sectors read differ from those written"
    assert message in found.summary[0].evidence
    assert found.trust.line.startswith("Wrong data in 2 of 3 runs; ")
