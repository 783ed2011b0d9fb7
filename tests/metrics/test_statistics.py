"""Intervals hold what they promise, and verdicts follow from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.metrics.statistics import (
    Estimate,
    block_bootstrap,
    median_interval,
    median_intervals,
    pooled_ratio,
    ratio,
    resampled_medians,
    runs_needed,
    slope,
    verdict,
)

RANDOM = np.random.default_rng(11)
positive = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


def test_the_interval_of_three_repeats_is_their_range() -> None:
    assert median_interval([5, 1, 3]) == Estimate(3, 1, 5)


def test_there_is_no_interval_of_two_repeats() -> None:
    assert median_interval([5, 1]) == Estimate(3, None, None)


@pytest.mark.parametrize("count", [3, 5, 8, 9, 20])
def test_shared_ranks_give_the_same_interval_as_resampling_each_sample(count: int) -> None:
    sample = RANDOM.lognormal(size=count)
    estimate = median_interval(sample)
    low, high = np.percentile(resampled_medians(sample, resamples=40_000), [2.5, 97.5], method="inverted_cdf")
    gap = float(np.diff(np.sort(sample)).max())
    assert estimate.low == pytest.approx(low, abs=gap)
    assert estimate.high == pytest.approx(high, abs=gap)


@pytest.mark.parametrize(("count", "at_least"), [(3, 0.73), (4, 0.86), (5, 0.92), (7, 0.85), (10, 0.92)])
def test_the_interval_covers_the_true_median_as_often_as_the_docs_say(count: int, at_least: float) -> None:
    """Three repeats cannot do better than 75 %: both ends lie on one side of the median in a quarter of all cases."""
    low, high = median_intervals(RANDOM.lognormal(size=(4000, count)))
    covered = float(((low <= 1) & (high >= 1)).mean())
    assert at_least <= covered <= 0.99


@given(st.lists(positive, min_size=3, max_size=12))
@settings(max_examples=60, deadline=None)
def test_an_interval_lies_within_the_sample_and_holds_its_median(values: list[float]) -> None:
    estimate = median_interval(values)
    assert estimate.low is not None and estimate.high is not None
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)


@given(st.lists(positive, min_size=3, max_size=8), st.floats(min_value=0.01, max_value=100))
@settings(max_examples=40, deadline=None)
def test_an_interval_scales_with_its_unit(values: list[float], factor: float) -> None:
    one, other = median_interval(values), median_interval([value * factor for value in values])
    assert (other.low, other.high) == (pytest.approx(one.low * factor), pytest.approx(one.high * factor))  # type: ignore[operator]


def test_the_ratio_of_two_groups_and_its_interval() -> None:
    estimate = ratio([20, 21, 22], [10, 10, 10])
    assert estimate.value == 2.1
    assert (estimate.low, estimate.high) == (2.0, 2.2)


def test_pairing_removes_what_both_members_of_a_pair_suffer() -> None:
    common = RANDOM.lognormal(sigma=0.5, size=12)
    top, bottom = 1.1 * common * RANDOM.normal(1, 0.005, 12), common
    paired, unpaired = ratio(top, bottom, paired=True), ratio(top, bottom)
    assert paired.above(1)
    assert not unpaired.above(1)
    assert paired.value == pytest.approx(1.1, rel=0.01)


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    hits = 0
    for _ in range(200):
        estimate = ratio(RANDOM.normal(110, 5, 10), RANDOM.normal(100, 5, 10))
        hits += estimate.low <= 1.1 <= estimate.high  # type: ignore[operator]
    assert hits >= 180


def test_pooled_ratios_are_their_geometric_mean() -> None:
    assert pooled_ratio([([2], [1]), ([8], [1])]).value == pytest.approx(4)


def test_without_repeats_a_pooled_interval_says_how_the_ratio_varies_among_cells() -> None:
    assert pooled_ratio([([1], [1]), ([2], [1])]).certain is False
    estimate = pooled_ratio([([1.0], [1]), ([1.1], [1]), ([1.2], [1]), ([1.1], [1])])
    assert estimate.above(1)


@pytest.mark.parametrize(
    ("low", "high", "higher", "lower"),
    [
        (1.10, 1.20, "better", "worse"),
        (0.80, 0.90, "worse", "better"),
        (0.97, 1.03, "same", "same"),
        (1.01, 1.04, "same", "same"),
        (1.01, 1.06, "better", "worse"),
        (0.90, 1.10, "unclear", "unclear"),
        (None, None, "unclear", "unclear"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float | None, high: float | None, higher: str, lower: str) -> None:
    estimate = Estimate(1.0, low, high)
    assert verdict(estimate, better="higher") == higher
    assert verdict(estimate, better="lower") == lower


def test_more_repeats_are_asked_for_when_the_interval_is_wide() -> None:
    assert runs_needed(Estimate(1.1, 0.9, 1.35), 5) == "about 23 repeats would settle it"
    assert runs_needed(Estimate(1.1), 2) == "at least 3 repeats are needed"


def test_a_block_bootstrap_is_wider_than_one_that_forgets_correlation() -> None:
    noise = RANDOM.normal(size=400)
    series = np.empty(400)
    series[0] = noise[0]
    for i in range(1, 400):
        series[i] = 0.9 * series[i - 1] + noise[i]
    blocks = block_bootstrap(series + 100)
    single = block_bootstrap(RANDOM.permutation(series) + 100)
    assert blocks.high - blocks.low > 1.5 * (single.high - single.low)  # type: ignore[operator]


def test_a_short_series_has_no_interval() -> None:
    assert block_bootstrap([1.0, 2.0, 3.0]) == Estimate(2.0)


def test_one_outlier_does_not_turn_a_slope() -> None:
    x = np.arange(10.0)
    y = 100 - 2 * x
    y[9] = 500
    assert np.polyfit(x, y, 1)[0] > 0
    assert slope(x, y).value == pytest.approx(-2)
