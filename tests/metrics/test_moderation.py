"""Moderated variances: half the width at the stated coverage, and what they leave alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from iosonde.metrics.moderation import Prior, prior_of
from iosonde.metrics.statistics import (
    ORDER,
    T_LOG,
    T_MODERATED,
    RepeatNoise,
    known_noise,
    ratio,
    repeats_interval,
    sample_key,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import coverage  # the simulations of bench/coverage.py


def logs(cases: int = 13, repeats: int = 3, *, noise: float = 0.02, seed: int = 5) -> NDArray[np.float64]:
    return noise * np.random.default_rng(seed).standard_normal((cases, repeats))


def prior(rows: NDArray[np.float64]) -> Prior:
    found = prior_of(list(rows))
    assert found
    return found


@pytest.mark.parametrize("cases", [13, pytest.param(40, marks=pytest.mark.extended)])
@pytest.mark.parametrize("name", ["equal noise", "unequal noise", "one case in ten is ten times noisier"])
def test_moderated_intervals_of_three_repeats_have_half_the_width_and_cover(name: str, cases: int) -> None:
    _, covered, _, width = coverage.moderated(np.random.default_rng(5), name, cases, 3, 8000 // cases)
    assert covered >= 0.95
    assert width <= 0.5


@pytest.mark.parametrize("name", ["unequal noise", coverage.SHARED_NOISE])
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


def test_few_cases_have_no_prior() -> None:
    assert prior_of(list(logs(cases=3))) is None
    assert prior_of(list(logs(cases=4)))


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
