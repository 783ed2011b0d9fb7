"""Two result sets, case by case."""

from __future__ import annotations

import json

import polars as pl
from hand_made import results

from iosonde.findings.comparison import compare

SLOW = {(1,): [100.0, 101, 99], (2,): [200.0, 150, 250], (4,): [300.0, 301, 302], (8,): [1.0, 1, 1]}
FAST = {(1,): [150.0, 151, 149], (2,): [210.0, 160, 260], (4,): [303.0, 304, 302], (16,): [1.0, 1, 1]}
LATENCY = {(1,): [10.0, 10, 10]}
SLOWER = {(1,): [20.0, 20, 20]}


def compared(metric: str = "iops") -> pl.DataFrame:
    cases, runs = results(["queue_depth"], {"iops": SLOW, "completion_latency_ns_p99": LATENCY}, span=1)
    other_cases, other_runs = results(["queue_depth"], {"iops": FAST, "completion_latency_ns_p99": SLOWER}, span=2)
    table = compare(runs, other_runs, baseline_cases=cases, contender_cases=other_cases)
    return table.filter(pl.col("metric") == metric)


def test_cases_that_both_have_are_judged_by_the_interval_of_their_ratio() -> None:
    assert compared().select("case_id", "verdict").rows() == [
        ("main/queue_depth=1", "better"),
        ("main/queue_depth=2", "unclear"),
        ("main/queue_depth=4", "same"),
    ]
    row = compared().row(0, named=True)
    assert (row["baseline"], row["contender"], row["ratio"]) == (100, 150, 1.5)
    assert row["low"] < 1.5 < row["high"]


def test_more_latency_is_worse() -> None:
    row = compared("completion_latency_ns_p99").row(0, named=True)
    assert (row["ratio"], row["verdict"]) == (2, "worse")


def test_parameters_that_differ_in_cases_of_the_same_name_are_told() -> None:
    assert json.loads(compared()["differs"][0]) == {"span": [1, 2]}


def test_result_sets_without_a_common_case_compare_to_nothing() -> None:
    cases, runs = results(["queue_depth"], {"iops": {(1,): [1.0]}})
    other_cases, other_runs = results(["jobs"], {"iops": {(1,): [1.0]}})
    table = compare(runs, other_runs, baseline_cases=cases, contender_cases=other_cases)
    assert table.is_empty()
    assert "verdict" in table.columns
