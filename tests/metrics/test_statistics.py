"""Intervals have the coverage that docs/statistics.md states, and verdicts follow from them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.comparison.ratio import spread
from iosonde.metrics.distributions import adjusted_for_discovery
from iosonde.metrics.statistics import (
    AUTOREGRESSIVE,
    CORRECTED,
    CUT_OFF,
    ORDER,
    SIMULTANEOUS,
    T_LOG,
    T_PLAIN,
    WELCH,
    Estimate,
    RepeatNoise,
    distant_modes_coverage,
    known_noise,
    maximum_interval,
    mean_moments,
    median_intervals,
    pooled_ratio,
    ratio,
    repeat_correlation,
    repeats_interval,
    runs_needed,
    series_interval,
    slope,
    verdict,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import coverage  # the simulations of bench/coverage.py

RANDOM = np.random.default_rng(11)
positive = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


def test_up_to_five_repeats_use_t_on_logarithms_and_more_use_order_statistics() -> None:
    few, many = repeats_interval([100, 101, 102]), repeats_interval([6, 1, 2, 3, 4, 5])
    assert (few.value, few.method, few.n) == (101, T_LOG, 3)
    assert (many, many.method, many.n) == (Estimate(3.5, 1, 6), ORDER, 6)
    assert repeats_interval([-1, 0, 1]).method == T_PLAIN


def test_the_interval_of_a_quantity_that_cannot_be_negative_is_cut_off_at_zero() -> None:
    found, whole = repeats_interval([0, 1, 2]), repeats_interval([0, 1, 2], least=-math.inf)
    assert whole.low is not None and whole.low < 0
    assert (found.low, found.high, found.method) == (0, whole.high, T_PLAIN + CUT_OFF)
    assert repeats_interval([1, 2, 3]).method == T_LOG


def test_a_negative_value_shows_that_a_quantity_has_no_limit_at_zero() -> None:
    assert (repeats_interval([-1, 1, 2]).low or 0) < 0


def test_a_mean_over_intervals_is_cut_off_at_zero_too() -> None:
    found = series_interval([0, 0, 0, 9, 0, 0, 0])
    assert (found.low, found.method) == (0, AUTOREGRESSIVE + CUT_OFF)


def test_nine_repeats_leave_out_the_extremes() -> None:
    assert repeats_interval(range(1, 10)) == Estimate(5, 2, 8)


def test_a_day_of_windows_has_an_interval() -> None:
    estimate = repeats_interval(range(1, 1441))
    assert (estimate.low, estimate.value, estimate.high) == (683, 720.5, 758)


def test_there_is_no_interval_of_two_repeats() -> None:
    assert repeats_interval([5, 1]) == Estimate(3, None, None)


def covered(name: str, count: int, samples: int = 2000) -> float:
    return coverage.repeats(np.random.default_rng(5), coverage.DISTRIBUTIONS[name], count, samples)


@pytest.mark.parametrize("count", coverage.REPEATS)
@pytest.mark.parametrize("name", ["normal, 2 %", "log-normal, 2 %", "log-normal, 30 %", "bimodal, near"])
def test_intervals_of_independent_repeats_cover_the_median(name: str, count: int) -> None:
    """At least 95 %, less two standard errors of 2,000 samples."""
    assert covered(name, count) >= 0.94


@pytest.mark.parametrize("count", [6, 7, 8, 9, 10])
def test_intervals_cover_two_distant_modes_from_six_repeats(count: int) -> None:
    assert covered("bimodal, far", count) >= 0.94


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_no_interval_of_few_repeats_covers_between_two_distant_modes(count: int) -> None:
    """All repeats are in one mode in 2^(1-n) of all samples: the widening needed to cover grows with the distance."""
    random = np.random.default_rng(5)
    most = distant_modes_coverage(count)
    assert (most >= 0.95) == (count >= 6)
    rows = coverage._bimodal(random, (4000, count), 50.0)
    one_mode = np.ptp(rows, axis=1) < 50
    assert one_mode.mean() == pytest.approx(1 - most, abs=0.02)
    needed = [coverage.needed_half_width(random, distance, count, 4000) for distance in (12.0, 24.0, 48.0)]
    if count < 6:
        assert needed[1] == pytest.approx(2 * needed[0], rel=0.3)
        assert needed[2] == pytest.approx(4 * needed[0], rel=0.3)
    else:
        assert max(needed) < 1


@pytest.mark.parametrize("count", [5, 7, 10])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_intervals_of_correlated_repeats_cover_in_a_result_set_of_many_cases(correlation: float, count: int) -> None:
    assert coverage.correlated_repeats(np.random.default_rng(5), correlation, count, 2400) >= 0.94


@pytest.mark.parametrize("count", [6, 20, 100])
@pytest.mark.parametrize("correlation", coverage.CORRELATIONS)
def test_intervals_of_one_run_cover_its_mean(correlation: float, count: int) -> None:
    assert coverage.series(np.random.default_rng(5), correlation, count, 1000) >= 0.935


def test_the_interval_of_a_maximum_accounts_for_its_selection() -> None:
    random = np.random.default_rng(5)
    assert coverage.largest(random, 20, 5, 400) >= 0.95
    assert coverage.largest(random, 20, 5, 400, selected=False) < 0.95
    found = maximum_interval([[10, 11, 12], [20, 21, 22]])
    assert (found.value, found.method, found.n) == (21, SIMULTANEOUS, 3)


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.95), (0.3, 0.91), (0.6, 0.79)])
def test_three_moderated_repeats_cover_although_they_hardly_show_a_correlation(
    correlation: float, least: float
) -> None:
    """As docs/statistics.md states: without a correction 90 and 71 % of the intervals covered at 0.3 and 0.6."""
    assert coverage.whole_sets(np.random.default_rng(5), correlation, 3, 300, cases=12)[0] >= least


@pytest.mark.parametrize(("cases", "widened"), [(10, 1.2), (50, 1.05)])
def test_a_comparison_of_three_independent_repeats_is_as_narrow_as_without_a_correction(
    cases: int, widened: float
) -> None:
    """Weighing every correlation widened 2 sets of 50 cases by 10 % and of 10 cases by 25 %."""
    random = np.random.default_rng(5)
    found = [repeat_correlation(list(coverage.autocorrelated(random, (2 * cases, 3), 0.0))) for _ in range(200)]
    widths = np.sqrt([mean_moments(3, each)[0] / mean_moments(3, 0.0)[0] for each in found])
    assert np.median(widths) == 1
    assert widths.mean() <= widened


def test_a_comparison_of_strongly_correlated_repeats_is_wide_where_its_cases_show_it() -> None:
    """Weighing every correlation covered 79 % of 50 cases in two sets at a correlation of 0.9."""
    random, covered = np.random.default_rng(5), []
    for _ in range(40):
        ours, theirs = (np.log(coverage.autocorrelated(random, (50, 3), 0.9)) for _ in range(2))
        found = repeat_correlation([*np.exp(ours), *np.exp(theirs)])
        ratios = [spread([a], [b], None, correlation=found).ratio(b.mean() - a.mean())
                  for a, b in zip(ours, theirs, strict=True)]  # fmt: skip
        covered.append(np.mean([low <= 1 <= high for low, high in (each.interval for each in ratios)]))  # type: ignore[operator]
    assert np.mean(covered) >= 0.83


def test_a_correlation_of_repeats_is_as_large_as_the_cases_show() -> None:
    random = np.random.default_rng(5)
    true = (0.0, 0.2, 0.4, 0.6, 0.8)
    found = [
        np.mean([repeat_correlation(list(coverage.autocorrelated(random, (40, 6), each))) for _ in range(20)])
        for each in true
    ]
    assert found == pytest.approx(true, abs=0.1)
    assert repeat_correlation(list(coverage.autocorrelated(random, (3, 6), 0.8))) == 0, "of too few cases"


@pytest.mark.parametrize(("cases", "count"), [(12, 3), (12, 5), (24, 3), (24, 8)])
def test_a_correlation_that_is_not_there_widens_intervals_little(cases: int, count: int) -> None:
    """Most sets not at all. One that was significant by chance (5 % of result sets) widened by a factor of 13."""
    random = np.random.default_rng(5)
    widths = [coverage.whole_sets(random, 0.0, count, 1, cases=cases)[1] for _ in range(200)]
    assert np.mean(widths) <= 1.2
    assert np.quantile(widths, 0.8) == 1
    assert np.quantile(widths, 0.98) <= 3.5


def test_repeats_that_differ_by_rounding_only_show_no_correlation() -> None:
    """A saturated simulated drive has a constant rate, which gave intervals of a factor of 40."""
    seven = list(coverage.autocorrelated(np.random.default_rng(5), (7, 8), 0.3))
    rounded = [[434_777.5 + each, *range(434_780, 434_785)] for each in range(7)]
    assert repeat_correlation([*seven, *rounded]) == repeat_correlation(seven)
    assert repeat_correlation([*seven, [434_000, 434_780, 435_500, 435_800, 436_200, 436_500]]) != repeat_correlation(
        seven
    )
    assert repeat_correlation(rounded) == 0


@pytest.mark.parametrize("count", [4, 5, 8])
def test_a_disturbance_that_all_cases_share_is_not_taken_as_a_strong_correlation(count: int) -> None:
    """As a test of independent cases, a third of all sets were taken as correlated."""
    assert coverage.whole_sets(np.random.default_rng(5), 0.0, count, 200, shared=0.8)[1] <= 1.45


def test_order_statistics_of_correlated_repeats_are_widened_around_the_median() -> None:
    """They hold for two modes as well, which Student's t does not."""
    rows = np.array([[90.0, 90.5, 91.0, 109.0, 109.5, 110.0], [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]])
    (low, high), (lower, higher) = median_intervals(rows), median_intervals(rows, correlation=0.3)
    wider = np.log(100 / lower[0]) / np.log(100 / low[0])
    assert wider > 1.3
    assert np.log(higher[0] / 100) == pytest.approx(wider * np.log(high[0] / 100))
    assert [lower[1], higher[1]] == pytest.approx([-3 * wider, 3 * wider])
    assert repeats_interval(rows[0], noise=RepeatNoise(correlation=0.3)).method == ORDER + CORRECTED


@given(st.lists(positive, min_size=3, max_size=12))
@settings(max_examples=60)
def test_an_interval_contains_the_median(values: list[float]) -> None:
    estimate = repeats_interval(values)
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low <= estimate.value <= estimate.high


@given(st.lists(positive, min_size=3, max_size=8), st.floats(min_value=0.01, max_value=100))
@settings(max_examples=40)
def test_an_interval_scales_with_its_unit(values: list[float], factor: float) -> None:
    one, other = repeats_interval(values), repeats_interval([value * factor for value in values])
    assert (other.low, other.high) == (pytest.approx(one.low * factor), pytest.approx(one.high * factor))  # type: ignore[operator]


def test_the_ratio_of_two_groups_and_its_interval() -> None:
    estimate = ratio([20, 21, 22], [10, 10, 10])
    assert estimate.value == 2.1
    assert (estimate.low, estimate.high) == (pytest.approx(1.86, abs=0.01), pytest.approx(2.36, abs=0.01))
    assert (estimate.method, estimate.n) == (WELCH, 3)


def test_pairing_removes_what_both_members_of_a_pair_suffer() -> None:
    common = RANDOM.lognormal(sigma=0.5, size=12)
    top, bottom = 1.1 * common * RANDOM.normal(1, 0.005, 12), common
    paired, unpaired = ratio(top, bottom, paired=True), ratio(top, bottom)
    assert paired.above(1)
    assert not unpaired.above(1)
    assert paired.value == pytest.approx(1.1, rel=0.01)


def test_the_interval_of_a_ratio_covers_the_true_value() -> None:
    hits = 0
    for _ in range(200):
        estimate = ratio(RANDOM.normal(110, 5, 10), RANDOM.normal(100, 5, 10))
        hits += estimate.low <= 1.1 <= estimate.high  # type: ignore[operator]
    assert hits >= 180


def test_pooled_ratios_are_their_geometric_mean() -> None:
    assert pooled_ratio([([2], [1]), ([8], [1])]).value == pytest.approx(4)


def test_without_repeats_a_pooled_interval_shows_the_variation_among_cells() -> None:
    assert pooled_ratio([([1], [1]), ([2], [1])]).certain is False
    estimate = pooled_ratio([([cell], [1]) for cell in (1.05, 1.1, 1.2, 1.1, 1.15)])
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


def test_more_repeats_are_suggested_when_the_interval_is_wide() -> None:
    assert runs_needed(Estimate(1.1, 0.9, 1.35), 5) == "about 18 repeats would decide it"
    assert runs_needed(Estimate(1.01, 0.5, 2.0), 5).startswith("more than 50 repeats would be needed")
    assert runs_needed(Estimate(1.1), 2) == "at least 3 repeats are needed"


def test_the_interval_of_a_correlated_series_is_wider_than_of_a_shuffled_one() -> None:
    noise = RANDOM.normal(size=400)
    series = np.empty(400)
    series[0] = noise[0]
    for i in range(1, 400):
        series[i] = 0.9 * series[i - 1] + noise[i]
    blocks = series_interval(series + 100)
    single = series_interval(RANDOM.permutation(series) + 100)
    assert blocks.high - blocks.low > 1.5 * (single.high - single.low)  # type: ignore[operator]


def test_a_short_series_has_no_interval() -> None:
    assert series_interval([1.0, 2.0, 3.0]) == Estimate(2.0)


def test_one_outlier_does_not_turn_a_slope() -> None:
    x = np.arange(10.0)
    y = 100 - 2 * x
    y[9] = 500
    assert np.polyfit(x, y, 1)[0] > 0
    assert slope(x, y).value == pytest.approx(-2)


def test_intervals_of_correlated_repeats_are_wider_wherever_they_are_computed() -> None:
    sample, other = [100.0, 101.0, 99.0, 100.5, 99.5], [110.0, 111.0, 109.0, 110.5, 109.5]
    plain = repeats_interval(sample), ratio(other, sample), maximum_interval([sample, other])
    with known_noise(RepeatNoise(correlation=0.5)):
        corrected = repeats_interval(sample), ratio(other, sample), maximum_interval([sample, other])
    for narrow, wide in zip(plain, corrected, strict=True):
        assert narrow.low is not None and wide.low is not None and wide.low < narrow.low
        assert narrow.high is not None and wide.high is not None and wide.high > narrow.high
    assert repeats_interval(sample) == plain[0]


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=40))
def test_p_values_are_adjusted_for_discovery_as_by_scipy(p_values: list[float]) -> None:
    from scipy.stats import false_discovery_control  # Half a second to import.

    assert adjusted_for_discovery(p_values) == list(false_discovery_control(p_values, method="bh"))
