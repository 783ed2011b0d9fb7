"""A comparison that other work on the machine does not decide."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from pairs import interleaved, median_ratio_of, ratio_of, shown, table

from iosonde.metrics.statistics import Estimate


def test_members_of_a_pair_take_turns_in_going_first() -> None:
    order: list[str] = []

    def run(name: str) -> str:
        order.append(name)
        return name

    pairs = interleaved(lambda: run("ours"), lambda: run("theirs"), pairs=3)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert pairs == [("ours", "theirs")] * 3


def test_what_slows_both_members_of_a_pair_cancels() -> None:
    speeds = [1.0, 0.3, 0.9, 0.5, 0.7]
    estimate = ratio_of([(150 * speed, 100 * speed) for speed in speeds], lambda iops: iops)
    assert estimate is not None
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_figure_that_one_run_lacks_has_no_ratio() -> None:
    assert ratio_of([(1.0, 1.0), (None, 1.0), (1.0, 1.0)], lambda latency: latency) is None


@pytest.mark.parametrize(("pairs", "below"), [(5, None), (6, 1), (20, 6), (100, 40)])
def test_an_interval_of_the_sign_test_ends_at_the_ranks_of_its_table(pairs: int, below: int | None) -> None:
    """Conover, Practical Nonparametric Statistics: ranks for the median at 95 %."""
    estimate = median_ratio_of([(float(number), 1.0) for number in range(1, pairs + 1)], lambda rate: rate)
    assert estimate.value == (pairs + 1) / 2
    assert (estimate.low, estimate.high) == ((below, pairs + 1 - below) if below else (None, None))


def test_single_disturbed_pairs_do_not_widen_the_interval_of_the_sign_test() -> None:
    rates = [*(100.0 + number for number in range(-5, 5)), 10.0, 900.0]
    estimate = median_ratio_of([(rate, 100.0) for rate in rates], lambda rate: rate)
    assert estimate.low is not None and estimate.high is not None
    assert 0.95 <= estimate.low <= 1 <= estimate.high <= 1.05


def test_ratios_are_shown_with_their_interval() -> None:
    estimates = [Estimate(1.384, 1.351, 1.406), Estimate(1.384), None]
    assert [shown(estimate) for estimate in estimates] == ["1.38 (1.35..1.41)", "1.38", "-"]


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| ---: | ---: |\n| 1 | 2 |"
