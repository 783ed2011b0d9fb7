"""A cell has one confidence interval: findings state the one of the tables, which is that of `case_metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fabricate import result_set

from iosonde.findings.finding import Finding
from iosonde.findings.questions.peak import Fastest, Peak
from iosonde.findings.throughput import Throughput, UnloadedLatency
from iosonde.metrics.statistics import Estimate
from iosonde.plan import Plan, Setup
from iosonde.planning import expand, load
from iosonde.storage import VirtualTarget

CASES = 4
"""The most cases of a study that are fabricated."""
STUDIES = ("quick", "davidovic2019-grid", "han2021-raid")
BLOCK_IO = {"block_size", "jobs", "queue_depth", "read_fraction"}


class EightDevices(VirtualTarget):
    """Accepts every setup."""

    def device_count(self) -> int:
        return 8

    def with_setup(self, setup: Setup) -> EightDevices:
        return self

    def side_by_side(self, size_bytes: int) -> EightDevices:
        return self


def plan_of(name: str) -> Plan:
    """A shortened plan of a study."""
    target = EightDevices(name="null:4TiB", kind="null", size_bytes=4 << 40)
    plan = expand(load(name), target, profile="quick", repeats=3)
    with_runs = {run.case_id for run in plan.runs}
    cases = [case for case in plan.cases if case.parameters.keys() >= BLOCK_IO and case.case_id in with_runs][:CASES]
    kept = {case.case_id for case in cases}
    runs = [run for run in plan.runs if run.case_id in kept]
    return plan.model_copy(update={"cases": cases, "runs": runs})


def values_of_cells(finding: Finding) -> Iterator[Estimate]:
    """Values that a finding states of single cells."""
    match finding:
        case Throughput() | Peak():
            yield finding.value
        case UnloadedLatency():
            yield finding.p50
        case Fastest():
            yield from (value for _, value in finding.levels)


@pytest.mark.parametrize("name", STUDIES)
def test_a_sentence_states_the_interval_of_the_table(name: str, tmp_path: Path) -> None:
    results = result_set(tmp_path / "set", plan_of(name), seconds=1)
    listed = {row[:4] for row in results.case_metrics.select("case_id", "median", "low", "high").iter_rows()}
    stated = [
        (finding.case_ids, each.value, each.low, each.high)
        for finding in results.findings
        for each in values_of_cells(finding)
        if each.certain
    ]
    assert stated
    assert [each for each in stated if not any((case, *each[1:]) in listed for case in each[0])] == []
