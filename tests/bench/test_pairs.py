"""A comparison that other work on the machine does not decide."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from pairs import interleaved, ratio_of, shown, table

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


def test_ratios_are_shown_with_their_interval() -> None:
    estimates = [Estimate(1.384, 1.351, 1.406), Estimate(1.384), None]
    assert [shown(estimate) for estimate in estimates] == ["1.38 (1.35..1.41)", "1.38", "-"]


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| ---: | ---: |\n| 1 | 2 |"
