"""Accesses to a mapped file compared with reads, from rates with known ratios."""

from __future__ import annotations

import polars as pl
import pytest

from iosonde.features.paging.mapped_reads import MappedReads, find
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.planning import load

pytestmark = pytest.mark.unit


def findings(rates: dict[str, list[float]], reads: dict[str, list[float]]) -> list[Finding]:
    cases = pl.DataFrame(
        [
            {"case_id": name, "part": "mapped", "control": False, "advice": name, "io_mode": None} for name in rates
        ] + [
            {"case_id": name, "part": "reads", "control": False, "advice": None, "io_mode": name} for name in reads
        ]
    )  # fmt: skip
    values = [("mapped", "ops_per_sec", rates), ("reads", "iops", reads)]
    rows = [
        {"case_id": case, "part": part, "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": "all", "metric": metric, "value": value}
        for part, metric, each in values for case, found in each.items() for i, value in enumerate(found)
    ]  # fmt: skip
    study = load("paging")
    (analysis,) = (each for each in study.analysis if each.kind == "mapped_reads")
    return list(find(Question(study=study, analysis=analysis, cases=cases, runs=pl.DataFrame(rows), support=Support())))


RATES = {"normal": [300.0, 303.0, 297.0], "random": [90.0, 91.0, 89.0]}


def test_each_io_mode_has_the_ratio_of_every_advice() -> None:
    direct, buffered = findings(RATES, {"direct": [100.0, 101.0, 99.0], "buffered": [200.0, 202.0, 198.0]})
    assert isinstance(direct, MappedReads)
    assert isinstance(buffered, MappedReads)
    assert [(level, each.value) for level, each in direct.ratios] == [
        ("advice normal", pytest.approx(3.0)),
        ("advice random", pytest.approx(0.9)),
    ]
    assert dict(buffered.ratios)["advice random"].value == pytest.approx(0.45)
    assert direct.sentence.startswith("Accesses to a mapped file have 3.00 times")
    assert "the rate of direct reads of the same blocks with advice normal and 0.90 times" in direct.sentence
    assert "direct reads do not" in direct.evidence
    assert "both find pages" in buffered.evidence


def test_without_reads_or_accesses_there_is_no_finding() -> None:
    assert findings(RATES, {}) == []
    assert findings({}, {"direct": [100.0, 101.0, 99.0]}) == []
