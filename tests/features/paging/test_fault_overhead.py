"""A major fault compared with a read of the device, from latencies with a known difference."""

from __future__ import annotations

import polars as pl
import pytest

from iosonde.features.paging.fault_overhead import FaultOverhead, find
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.metrics.statistics import difference
from iosonde.planning import load

pytestmark = pytest.mark.unit


def findings(faults: list[float], reads: list[float], **metrics: float) -> list[Finding]:
    cases = pl.DataFrame(
        {
            "case_id": ["f", "d"], "part": ["patterns", "device"], "control": [False, False],
            "pattern": ["uniform", None], "overcommit": [2.0, None],
        }
    )  # fmt: skip
    values = {("f", "patterns", "major_fault"): faults, ("f", "patterns", "hit"): [90.0] * len(faults)}
    values |= {("f", "patterns", "all"): [100.0] * len(faults), ("d", "device", "read"): reads}
    values |= {("d", "device", "all"): reads}
    rows = [
        {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": operation, "metric": "completion_latency_ns_p50", "value": value}
        for (case, part, operation), each in values.items() for i, value in enumerate(each)
    ]  # fmt: skip
    whole = {"case_id": "f", "part": "patterns", "control": False, "stream": "all", "operation": "all"}
    rows += [{**whole, "run_id": "f0", "repeat": 0, "metric": name, "value": value} for name, value in metrics.items()]
    study = load("paging")
    return list(
        find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows), support=Support()))
    )


def test_the_difference_has_an_interval_and_the_answer_names_both_latencies() -> None:
    [found] = findings([91_000.0, 91_500.0, 90_500.0, 91_200.0], [80_000.0, 80_300.0, 79_700.0, 80_000.0])
    assert isinstance(found, FaultOverhead)
    assert found.added.low is not None
    assert found.added.high is not None
    assert found.added.low < 11_000 < found.added.high
    assert found.added.high - found.added.low < 2_000
    assert found.sentence.startswith("A major fault takes 11")
    assert "longer than a direct 4 KiB read" in found.sentence
    assert found.included == ()
    assert "uniform" in found.sentence
    assert "4 runs each" in found.evidence


def test_the_evidence_has_the_read_ahead_and_writes_that_the_kernel_counted() -> None:
    faults, reads = [91.0, 92.0, 93.0], [80.0, 81.0, 82.0]
    [found] = findings(faults, reads, swap_in_pages_per_fault=7.6, swap_out_bandwidth=1e6)
    assert isinstance(found, FaultOverhead)
    assert len(found.included) == 2
    assert "read 7.6 pages from swap per fault" in found.evidence
    assert "write of another page" in found.evidence
    [found] = findings(faults, reads, swap_in_pages_per_fault=1.01, swap_out_bandwidth=0)
    assert isinstance(found, FaultOverhead)
    assert found.included == ()


def test_latencies_within_the_noise_are_no_overhead() -> None:
    [found] = findings([80_000.0, 95_000.0, 70_000.0], [78_000.0, 92_000.0, 75_000.0])
    assert "do not differ clearly" in found.sentence


def test_read_ahead_can_make_a_fault_faster_than_a_read() -> None:
    [found] = findings([20_000.0, 20_100.0, 19_900.0], [80_000.0, 80_100.0, 79_900.0])
    assert "less than a direct 4 KiB read" in found.sentence


def test_without_the_devices_reads_there_is_no_finding() -> None:
    assert findings([20_000.0, 20_100.0, 19_900.0], []) == []


def test_the_interval_of_a_difference_is_that_of_welch() -> None:
    # Computed with scipy.stats.ttest_ind(equal_var=False).confidence_interval().
    found = difference([10.0, 12.0, 14.0], [1.0, 2.0, 6.0])
    assert found.value == 10
    assert found.low == pytest.approx(3.5239, abs=1e-3)
    assert found.high == pytest.approx(14.4761, abs=1e-3)
