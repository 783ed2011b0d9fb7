"""Intervals have the coverage that docs/statistics.md states, and verdicts follow from them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from iosonde.findings.comparison.sessions import spread
from iosonde.metrics.distributions import Prior, adjusted_for_discovery, prior_of
from iosonde.metrics.statistics import (
    AUTOREGRESSIVE,
    CORRECTED,
    CUT_OFF,
    LARGEST_EXACT,
    ORDER,
    SIMULTANEOUS,
    T_LOG,
    T_MODERATED,
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
    sample_key,
    series_interval,
    slope,
    verdict,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import intervals as coverage  # the simulations of bench/intervals.py

positive = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


def extended(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Simulations that take too long for every run of the tests."""
    return [pytest.param(*each, marks=pytest.mark.extended) for each in rows]


def test_up_to_five_repeats_use_t_on_logarithms_and_more_use_order_statistics() -> None:
    few, many = repeats_interval([100, 101, 102]), repeats_interval([6, 1, 2, 3, 4, 5])
    assert (few.value, few.method, few.n) == (101, T_LOG, 3)
    assert (many, many.method, many.n) == (Estimate(3.5, 1, 6), ORDER, 6)
    assert repeats_interval([-1, 0, 1]).method == T_PLAIN


def test_the_interval_of_a_quantity_that_cannot_be_negative_is_cut_off_at_zero() -> None:
    found, whole = repeats_interval([0, 1, 2]), repeats_interval([0, 1, 2], least=-math.inf)
    assert whole.low is not None and whole.low < 0
    assert (found.low, found.high, found.method) == (0, whole.high, T_PLAIN + CUT_OFF)
    assert repeats_interval([1, 2, 3]).method == repeats_interval([0.1, 0.2, 0.3]).method == T_LOG
    assert (repeats_interval([-1, 1, 2]).low or 0) < 0, "a negative value shows that there is no limit at zero"
    mean = series_interval([0, 0, 0, 9, 0, 0, 0])
    assert (mean.low, mean.method) == (0, AUTOREGRESSIVE + CUT_OFF)


def test_order_statistics_leave_out_extremes_from_nine_repeats_and_two_repeats_have_no_interval() -> None:
    assert repeats_interval([5, 1]) == Estimate(3, None, None)
    assert repeats_interval(range(1, 10)) == Estimate(5, 2, 8)
    day_of_windows = repeats_interval(range(1, 1441))
    assert (day_of_windows.low, day_of_windows.value, day_of_windows.high) == (683, 720.5, 758)


DISTRIBUTIONS = ("normal, 2 %", "log-normal, 2 %", "log-normal, 30 %", "bimodal, near")
CORRELATED = [(correlation, count) for correlation in (0.0, 0.3, 0.6) for count in (5, 7, 10)]


@pytest.mark.parametrize(
    ("simulation", "arguments", "least"),
    [
        # Of independent repeats: at least 95 %, less two standard errors of 2,000 samples.
        *(
            (coverage.repeats, (coverage.DISTRIBUTIONS[name], count, 2000), 0.94)
            for name, count in [*product(DISTRIBUTIONS, coverage.REPEATS), *product(["bimodal, far"], range(6, 11))]
        ),
        # Of correlated repeats in a result set of many cases.
        *((coverage.correlated_repeats, (*each, 2400), 0.94) for each in ((0.3, 5), (0.6, 10))),
        *extended((coverage.correlated_repeats, (*each, 2400), 0.94) for each in CORRELATED),
        # Of the mean of one run.
        *((coverage.series, (each, 20, 1000), 0.935) for each in coverage.CORRELATIONS),
        *extended(
            (coverage.series, (each, count, 1000), 0.935) for each in coverage.CORRELATIONS for count in (6, 100)
        ),
    ],
)
def test_intervals_cover_as_often_as_stated(
    simulation: Callable[..., float], arguments: tuple[Any, ...], least: float
) -> None:
    assert simulation(np.random.default_rng(5), *arguments) >= least


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


def test_the_interval_of_a_maximum_accounts_for_its_selection() -> None:
    random = np.random.default_rng(5)
    assert coverage.largest(random, 20, 5, 400) >= 0.95
    assert coverage.largest(random, 20, 5, 400, selected=False) < 0.95
    found = maximum_interval([[10, 11, 12], [20, 21, 22]])
    assert (found.value, found.method, found.n) == (21, SIMULTANEOUS, 3)
    assert maximum_interval([[0.10, 0.11, 0.12], [0.20, 0.21, 0.22]]).low is not None


@pytest.mark.parametrize(("correlation", "least"), [(0.3, 0.91), *extended([(0.0, 0.95), (0.6, 0.79)])])
def test_three_moderated_repeats_cover_although_they_hardly_show_a_correlation(
    correlation: float, least: float
) -> None:
    """Without a correction 90 and 71 % of the intervals covered at 0.3 and 0.6."""
    assert coverage.whole_sets(np.random.default_rng(5), correlation, 3, 300, cases=12)[0] >= least


@pytest.mark.parametrize(("cases", "widened"), [(10, 1.2), *extended([(50, 1.05)])])
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
        ratios = [spread([[a], [b]], None, correlation=found).ratio(b.mean() - a.mean())
                  for a, b in zip(ours, theirs, strict=True)]  # fmt: skip
        covered.append(np.mean([low <= 1 <= high for low, high in (each.interval for each in ratios)]))  # type: ignore[operator]
    assert np.mean(covered) >= 0.83


def test_a_correlation_of_repeats_is_as_large_as_the_cases_show() -> None:
    random = np.random.default_rng(5)
    for true in (0.0, 0.2, 0.4, 0.6, 0.8):
        found = [repeat_correlation(list(coverage.autocorrelated(random, (40, 6), true))) for _ in range(20)]
        assert np.mean(found) == pytest.approx(true, abs=0.1)
    assert repeat_correlation(list(coverage.autocorrelated(random, (3, 6), 0.8))) == 0, "of too few cases"


@pytest.mark.parametrize(("cases", "count"), [(12, 3), *extended([(12, 5), (24, 3), (24, 8)])])
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
    real = [434_000, 434_780, 435_500, 435_800, 436_200, 436_500]
    assert repeat_correlation([*seven, real]) != repeat_correlation(seven)
    assert repeat_correlation(rounded) == 0


def test_degrees_of_freedom_of_many_correlated_repeats_continue_those_that_are_computed_exactly() -> None:
    exact, approximate = (mean_moments(count, 0.3)[1] for count in (LARGEST_EXACT, LARGEST_EXACT + 1))
    assert exact < approximate < exact + 1


@pytest.mark.parametrize("count", [4, *extended([(5,), (8,)])])
def test_a_disturbance_that_all_cases_share_is_not_taken_as_a_strong_correlation(count: int) -> None:
    """As a test of independent cases, a third of all sets were taken as correlated."""
    assert coverage.whole_sets(np.random.default_rng(5), 0.0, count, 200, shared=0.8)[1] <= 1.45


def test_order_statistics_of_correlated_repeats_are_widened_around_the_median() -> None:
    """They hold for two modes as well, which Student's t does not."""
    rows = np.array([[90.0, 90.5, 91.0, 109.0, 109.5, 110.0], [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]])
    (low, high, _), (lower, higher, _) = median_intervals(rows), median_intervals(rows, correlation=0.3)
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
    assert ratio([0.20, 0.21, 0.22], [0.10, 0.10, 0.10]).low == pytest.approx(estimate.low)
    assert estimate.above(1.8) and estimate.below(2.4) and not estimate.above(1.9) and not Estimate(1.0).below(2)


def test_pairing_removes_what_both_members_of_a_pair_suffer() -> None:
    random = np.random.default_rng(11)
    common = random.lognormal(sigma=0.5, size=12)
    top, bottom = 1.1 * common * random.normal(1, 0.005, 12), common
    paired, unpaired = ratio(top, bottom, paired=True), ratio(top, bottom)
    assert paired.above(1)
    assert not unpaired.above(1)
    assert paired.value == pytest.approx(1.1, rel=0.01)


def test_pooled_ratios_are_their_geometric_mean_and_without_repeats_vary_among_cells() -> None:
    assert pooled_ratio([([2], [1]), ([8], [1])]).value == pytest.approx(4)
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
    random = np.random.default_rng(11)
    [series] = coverage.autocorrelated(random, (1, 400), 0.9)
    blocks = series_interval(series + 100)
    single = series_interval(random.permutation(series) + 100)
    assert blocks.high - blocks.low > 1.5 * (single.high - single.low)  # type: ignore[operator]
    assert series_interval([1.0, 2.0, 3.0]) == Estimate(2.0)


def test_one_outlier_does_not_turn_a_slope() -> None:
    x = np.arange(10.0)
    y = np.append(100 - 2 * x[:9], 500)
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


# Moderated variances: half the width at the stated coverage, and what they leave alone


def logs(cases: int = 13, repeats: int = 3, *, noise: float = 0.02, seed: int = 5) -> NDArray[np.float64]:
    return noise * np.random.default_rng(seed).standard_normal((cases, repeats))


def prior(rows: NDArray[np.float64]) -> Prior:
    found = prior_of(list(rows))
    assert found
    return found


NOISES = ("equal noise", "unequal noise", "one case in ten is ten times noisier")


@pytest.mark.parametrize(("name", "cases"), [("unequal noise", 13), *extended(product(NOISES, (13, 40)))])
def test_moderated_intervals_of_three_repeats_have_half_the_width_and_cover(name: str, cases: int) -> None:
    _, covered, _, width = coverage.moderated(np.random.default_rng(5), name, cases, 3, 8000 // cases)
    assert covered >= 0.95
    assert width <= 0.5


@pytest.mark.parametrize("name", [coverage.SHARED_NOISE, *extended([("unequal noise",)])])
def test_moderated_intervals_of_four_cases_cover(name: str) -> None:
    assert coverage.moderated(np.random.default_rng(5), name, 4, 3, 500)[1] >= 0.94


def test_distant_modes_are_covered_as_often_as_without_moderation() -> None:
    alone, covered, _, _ = coverage.moderated(np.random.default_rng(5), "two distant modes", 13, 3, 100)
    assert covered >= alone - 0.01


def test_a_case_much_noisier_than_the_others_keeps_its_variance() -> None:
    rows = logs()
    rows[0] = [-0.4, 0.0, 0.4]
    own = rows.var(axis=1, ddof=1)
    variances, degrees = prior(rows).moderated(own, 2)
    assert (variances[0], degrees[0]) == (own[0], 2)
    assert (degrees[1:] > 4).all()
    assert variances[1:].std() < own[1:].std()
    assert prior(rows).variance < 0.03**2


def test_repeats_that_differ_by_rounding_keep_their_variance() -> None:
    rows = logs()
    rows[:2] = [[0, 1e-6, 2e-6], [0, 0, 0]]
    variances, degrees = prior(rows).moderated(rows.var(axis=1, ddof=1), 2)
    assert variances[:2].max() < 1e-11
    assert list(degrees[:2]) == [2, 2]
    assert prior_of(list(1e-6 * logs())) is None
    assert prior_of(list(logs(cases=3))) is None and prior_of(list(logs(cases=4))), "few cases have no prior"


def test_cases_that_share_all_disturbances_count_as_one() -> None:
    shared = np.tile(logs(cases=1), (13, 1)) + logs(noise=1e-4)
    _, degrees = prior(shared).moderated(shared.var(axis=1, ddof=1), 2)
    assert degrees.max() < 3
    assert prior(logs()).limit > 20


def test_cases_of_unequal_numbers_of_repeats_have_one_prior() -> None:
    rows = [*logs(), *logs(repeats=5, seed=6), *logs(repeats=9, seed=7)]
    assert prior_of(rows).variance == pytest.approx(0.02**2, rel=0.3)  # type: ignore[union-attr]


def test_the_sample_alone_has_an_interval_too_and_a_wider_one() -> None:
    rows = np.exp(logs())
    noise = RepeatNoise(priors=dict.fromkeys(map(sample_key, rows), prior(np.log(rows))))
    typical = rows[np.argsort(np.ptp(rows, axis=1))[6]]
    alone = repeats_interval(typical), ratio(2 * rows[1], typical)
    with known_noise(noise):
        among = repeats_interval(typical), ratio(2 * rows[1], typical)
        assert repeats_interval(typical[::-1]) == among[0], "whatever the order"
        assert repeats_interval(3 * typical).method == T_LOG, "a value that no case has"
        assert repeats_interval([1, 2, 3, 4, 5, 6]).method == ORDER
    assert [each.method for each in (alone[0], among[0])] == [T_LOG, T_MODERATED]
    assert (among[0].high - among[0].low) < 0.6 * (alone[0].high - alone[0].low)  # type: ignore[operator]
    assert repeats_interval(typical, noise=noise) == among[0]


def test_six_repeats_have_order_statistics_even_with_a_prior() -> None:
    rows = np.exp(logs(repeats=6))
    noise = RepeatNoise(priors=dict.fromkeys(map(sample_key, rows), prior(np.log(rows))))
    found = repeats_interval(rows[0], noise=noise)
    assert (found.low, found.high, found.method) == (rows[0].min(), rows[0].max(), ORDER)
