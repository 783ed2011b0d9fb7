"""The sequential test of a limit: error rates, dependence between neighbours, and disturbances of known period."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from limit_error_rates import SHARE, Device, decided, outcomes, stalling

from iosonde.metrics.limit_test import BLOCK_NS, Blocks, blocks_of, compare, joined

RUNS = 40
"""`bench/limit_error_rates.py` has 500 of each kind."""


@pytest.mark.parametrize(("p99", "right", "wrong"), [(0.8, "pass", "fail"), (1.2, "fail", "pass")])
def test_a_percentile_20_percent_from_the_limit_is_decided_without_errors(p99: float, right: str, wrong: str) -> None:
    counts, seconds = outcomes(Device(p99=p99), RUNS, seed=7)
    assert counts[wrong] == 0
    assert counts[right] >= 0.9 * RUNS
    assert seconds <= 40


def test_neighbours_that_resemble_each_other_are_no_independent_evidence() -> None:
    """The same operations in ten bursts instead of evenly: the value is the same, and its error several times larger."""
    operations = np.full(60, 200.0)
    even = Blocks(amounts=np.full(60, 3.0), weights=operations)
    bursts = Blocks(amounts=np.where(np.arange(60) % 30 < 5, 18.0, 0.0), weights=operations)
    spread, clustered = (compare(each, SHARE, is_share=True) for each in (even, bursts))
    assert spread and clustered and spread.value == clustered.value
    assert spread.side == "above" and clustered.side == "undecided"
    assert clustered.high - clustered.value > 4 * (spread.high - spread.value)


@pytest.mark.parametrize("rate", [50, 400])
@pytest.mark.parametrize("first", [0.5, 7.0, 9.9])
def test_a_stall_every_ten_seconds_fails_and_a_single_one_does_not(rate: int, first: float) -> None:
    """A stall of 200 ms delays 2 % of the operations of ten seconds, whenever the test starts."""
    assert decided(stalling([first + 10 * number for number in range(6)], rate=rate))[0] == "fail"
    assert decided(stalling([first], rate=rate))[0] != "fail"


def test_a_clear_case_takes_ten_seconds_and_any_other_pass_forty() -> None:
    none, many = (Blocks(amounts=np.full(120, each), weights=np.full(120, 200.0)) for each in (0.0, 150.0))
    assert decided((none, none)) == ("pass", 10)
    assert decided((many, many)) == ("fail", 10)
    assert decided((none, many)) == ("pass", 40)
    short = compare(Blocks(amounts=np.zeros(19), weights=np.full(19, 200.0)), SHARE, is_share=True)
    assert short and short.side == "undecided"


def test_too_few_operations_decide_nothing() -> None:
    """Of 200 operations two may be slow: none of them is no evidence."""
    few = Blocks(amounts=np.zeros(120), weights=np.full(120, 1.6))
    assert decided((few, few))[0] == "undecided"


def test_a_rate_is_compared_with_its_limit() -> None:
    seconds = np.full(40, 0.5)
    steady = Blocks(amounts=np.tile([300.0, 320.0], 20), weights=seconds)
    found = compare(steady, 500)
    assert found and found.value == 620 and found.side == "above" and 500 < found.low < found.high < 700
    assert compare(steady, 621).side == "undecided"  # type: ignore[union-attr]


def test_a_constant_rate_that_equals_the_limit_is_undecided() -> None:
    intervals = [number * BLOCK_NS // 5 for number in range(600)]
    found = compare(blocks_of(intervals, [5] * 600, [0.1] * 600), 50)
    assert found and found.side == "undecided"


def test_intervals_are_summed_up_by_the_block_in_which_they_begin() -> None:
    """Eleven intervals of 100 ms: two whole blocks, and the last interval is left out."""
    begins = [7 * 10**9 + number * BLOCK_NS // 5 for number in range(11)]
    found = blocks_of(begins, range(11), [1] * 11)
    assert found.amounts.tolist() == [10, 35]
    assert found.weights.tolist() == [5, 5]
    assert joined([found, found]).amounts.tolist() == [10, 35, 10, 35]


def test_without_operations_there_is_no_value() -> None:
    assert compare(blocks_of([], [], []), SHARE, is_share=True) is None
    assert compare(Blocks(amounts=np.zeros(30), weights=np.zeros(30)), SHARE, is_share=True) is None
