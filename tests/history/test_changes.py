"""Change points: found where they were planted, and in flat series at no more than the stated rate."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from change_points import Scenario, by_pelt, row

from iosonde.collections.history import FEWEST, SEGMENT, changes

SERIES = 100


@pytest.mark.parametrize("sessions", [30, 365])
@pytest.mark.parametrize("before_end", [0, 3])
def test_a_change_of_five_percent_is_found_where_it_is(sessions: int, before_end: int) -> None:
    scenario = Scenario(sessions=sessions, loss=0.05, before_end=before_end)
    found, exact, false = row(scenario, SERIES, 1, by_pelt)
    assert found >= 0.97 * SERIES
    assert exact >= 0.95 * SERIES
    assert false <= 1


@pytest.mark.parametrize("sessions", [10, 30, 100, 365])
def test_flat_series_have_no_change_points(sessions: int) -> None:
    """The stated rate is 0.1 % per series: more than 2 in 100 has a probability below 0.1 %."""
    assert row(Scenario(sessions=sessions), SERIES, 1, by_pelt)[2] <= 2


@pytest.mark.parametrize("noise", ["Student's t, 4 degrees", "AR(1), 0.3"])
def test_outliers_and_correlated_sessions_are_no_changes(noise: str) -> None:
    """The documentation states at most 1 %; more than 4 in 100 has a probability below 1 %."""
    assert row(Scenario(sessions=100, noise=noise), SERIES, 1, by_pelt)[2] <= 4


def test_the_interval_covers_the_planted_change() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        level = np.where(np.arange(60) >= 30, math.log(0.95), 0.0)
        [found] = changes(level + random.normal(0, 0.01, 60))
        covered += found.low <= -0.05 <= found.high
    assert covered >= 180


def test_two_outliers_are_no_change_and_three_sessions_at_another_level_are() -> None:
    values = np.random.default_rng(2).normal(0, 0.01, 40)
    outliers = values.copy()
    outliers[20:22] -= 0.3
    assert changes(outliers) == []
    shifted = values.copy()
    shifted[-SEGMENT:] -= 0.1
    assert [each.place for each in changes(shifted)] == [37]


def test_several_changes_are_found_together() -> None:
    levels = np.repeat([0.0, -0.05, 0.03], 20)
    found = changes(levels + np.random.default_rng(3).normal(0, 0.005, 60))
    assert [each.place for each in found] == [20, 40]
    assert found[0].change == pytest.approx(math.expm1(-0.05), abs=0.01)
    assert found[1].change == pytest.approx(math.expm1(0.08), abs=0.01)


def test_a_step_without_noise_is_a_change_and_few_or_equal_values_have_none() -> None:
    assert [each.place for each in changes([1.0] * 10 + [0.9] * 10)] == [10]
    assert changes([1.0] * (FEWEST - 1)) == []
    assert changes([1.0] * 50) == []
