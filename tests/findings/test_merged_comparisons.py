"""Comparisons of the same two levels under many loads are one finding, and the first one if the study asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import results, study

from iosonde.findings.finding import Finding
from iosonde.findings.findings import findings
from iosonde.findings.questions.asymmetry import LISTED, Comparison
from iosonde.metrics.statistics import POOLED

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
    comparisons = [each for each in found(spread({}), ASKED) if isinstance(each, Comparison)]
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


def test_the_order_of_questions_decides_which_comparison_comes_first() -> None:
    assert isinstance(found(spread({}), ASKED)[0], Comparison)


def test_evidence_names_the_method_and_the_number_of_values() -> None:
    comparison = next(each for each in found(spread({}), ASKED) if isinstance(each, Comparison))
    assert comparison.evidence.endswith(f"95 % CI by {comparison.ratio.method}, n = {comparison.ratio.n}")
    assert (comparison.ratio.method, comparison.ratio.n > 2) == (POOLED, True)
