"""Steady state, change points and write cliffs of series with answers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.metrics.change_points import change_points, steps, write_cliff
from iosonde.metrics.steady_state import Criteria, SteadyState, steady_state, window


def test_the_line_of_a_window_is_that_of_least_squares() -> None:
    # Rounds 4..8. Mean 102; deviations of x: -2 -1 0 1 2; slope = (-2*98 - 1*101 + 1*102 + 2*107) / 10 = 1.9.
    found = window([98, 101, 102, 102, 107], first=4)
    assert (found.mean, found.first, found.last) == (102, 4, 8)
    assert found.slope == pytest.approx(1.9)
    assert found.intercept == pytest.approx(102 - 1.9 * 6)
    assert found.line == "y = 1.9 x + 90.6"
    assert [found.range, found.drift] == pytest.approx([9, 7.6])
    assert [found.range_allowed, found.drift_allowed] == pytest.approx([20.4, 10.2])


# Five rounds around 100, so that shares of the mean are the numbers themselves.
GOLDEN: dict[str, tuple[list[float], bool, bool]] = {
    "level": ([100, 100, 100, 100, 100], True, True),
    "range of exactly 20 %": ([100, 110, 100, 90, 100], True, True),  # slope (-110 + 90) / 10... = -2: 8 %
    "range just above 20 %": ([100, 110.1, 100, 89.9, 100], False, True),
    "range just below 20 %": ([100, 109.9, 100, 90.1, 100], True, True),
    # A slope of 2.5 a round is a rise of 10 over the window.
    "slope of exactly 10 %": ([95, 97.5, 100, 102.5, 105], True, True),
    "slope just above 10 %": ([94.9, 97.45, 100, 102.55, 105.1], True, False),
    "slope just below 10 %": ([95.1, 97.55, 100, 102.45, 104.9], True, True),
    "fall just above 10 %": ([105.1, 102.55, 100, 97.45, 94.9], True, False),
    # 12 % from the first to the last: the range test alone would let it pass.
    "a slow drift that fools the range test": ([94, 97, 100, 103, 106], True, False),
    # Without a slope at all: the slope test alone would let it pass.
    "an oscillation that fools the slope test": ([115, 85, 100, 85, 115], False, True),
    "a small oscillation": ([109, 91, 100, 91, 109], True, True),
    "neither": ([60, 80, 100, 120, 140], False, False),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_window_just_inside_and_just_outside_each_criterion(name: str) -> None:
    values, range_holds, slope_holds = GOLDEN[name]
    found = window(values)
    assert found.mean == pytest.approx(100)
    assert window(values, criteria=Criteria(slope=9)).steady == range_holds
    assert window(values, criteria=Criteria(range=9)).steady == slope_holds
    assert found.steady == (range_holds and slope_holds)
    assert (steady_state(values).first is not None) == found.steady


def test_the_measurement_window_is_the_first_at_the_level_of_the_end() -> None:
    found = steady_state([900, 500, 300, 110, 105, 100, 100, 95, *[100, 100, 99, 101] * 5])
    # Rounds 4..8 (110 105 100 100 95) have a mean of 102 and a slope of (-220 - 105 + 100 + 190) / 10 = -3.5: a fall
    # of 14 where 10.2 are allowed. Rounds 5..9 (105 100 100 95 100): slope (-210 - 100 + 95 + 200) / 10 = -1.5.
    assert not window([110, 105, 100, 100, 95]).steady
    assert found.measured is not None
    assert (found.measured.first, found.measured.last, found.measured.mean) == (5, 9, 100)
    assert found.measured.slope == pytest.approx(-1.5)
    assert (found.level, found.quarter) == (100, (22, 28))


def test_a_step_to_another_level_is_noticed() -> None:
    found = steady_state([100, 100, 100, 100, 100, 100, 60, 60, 60, 60, 60])
    assert found.achieved and found.first and (found.first.last, found.first.mean) == (5, 100)
    assert found.earlier and (found.left, found.earlier.mean, found.since) == (6, 100, 7)
    # Results are taken from the level of the end: a fresh plateau is no steady state.
    assert found.measured and found.earlier and not found.lost
    assert found.measured and (found.measured.first, found.level) == (7, 60)


def test_a_level_that_is_left_without_another_is_lost() -> None:
    found = steady_state([100] * 8 + [10, 10, 10])
    assert found.first and found.measured is None and found.first.last == 5
    assert (found.achieved, found.left, found.lost) == (False, 8, True)


def test_a_slow_decline_meets_the_criterion_of_snia_and_is_not_steady() -> None:
    """Each window meets the criterion, and yet the series ends at half of where the first window was."""
    series = [88.9 * 0.985**number for number in range(42)]
    assert series[-1] < 48
    assert all(window(series[end - 5 : end]).steady for end in range(5, 43))
    found = steady_state(series)
    assert found.first and found.first.last == 5
    assert (found.measured, found.trend, found.earlier) == (None, "falling", None)


def test_a_window_with_a_value_that_is_not_finite_is_not_steady() -> None:
    for odd in (float("nan"), float("inf")):
        assert not window([100, 100, odd, 100, 100]).steady
        assert not steady_state([100, 100, odd, 100, 100]).achieved
    assert steady_state([float("nan")] + [100] * 5).achieved


def test_not_achieved_is_a_result_and_what_lasts_until_the_end_was_not_left() -> None:
    lasting = steady_state([300, 100, 100, 100, 100, 100, 101, 99, 100])
    assert (lasting.measured and lasting.measured.first, lasting.left) == (2, None)
    assert not lasting.earlier and not lasting.lost
    for series in ([100, 80, 64, 51, 41, 33, 26], [100, 50] * 6):
        found = steady_state(series)
        assert (found.achieved, found.left) == (False, None)
        assert found.latest is not None and not found.latest.steady


def test_fewer_rounds_than_a_window_and_zero_throughput_have_no_result() -> None:
    found = steady_state([100, 100, 100, 100])
    assert (found.achieved, found.latest, found.rounds) == (False, None, 4)
    assert not steady_state([]).achieved
    assert not steady_state([0, 0, 0, 0, 0]).achieved


def test_other_criteria_can_be_set() -> None:
    assert steady_state([94, 97, 100, 103, 106], criteria=Criteria(slope=0.12)).first
    assert not steady_state([100, 110, 100, 90, 100], criteria=Criteria(range=0.19)).first
    assert steady_state([50, 100, 100, 100, 100], criteria=Criteria(window=3)).achieved
    assert steady_state([50, 100, 100, 100], criteria=Criteria(window=3)).hidden == math.inf


@settings(max_examples=25)
@given(st.lists(st.floats(1, 1e6), min_size=5, max_size=30), st.integers(-10, 20))
def test_the_unit_of_the_tracking_variable_does_not_matter(values: list[float], power: int) -> None:
    """Powers of two are exact, so no threshold is crossed by rounding."""
    ours, scaled = steady_state(values), steady_state([2.0**power * value for value in values])
    assert _decisions(ours) == _decisions(scaled)


def _decisions(found: SteadyState) -> tuple[int | str | None, ...]:
    measured = found.measured.first if found.measured else None
    return measured, found.first.first if found.first else None, found.left, found.trend, found.since


DECAY = [40 + 60 * 0.8**number for number in range(40)]
ADVERSARIAL: dict[str, tuple[list[float], int | None]] = {
    # Name: the series, and the first round of the measurement window; None if there is no steady state at the end.
    "a level": ([100.0] * 12, 1),
    # Windows from s on have the mean 40 + 40.3 x 0.8^(s - 1): within 10 % of 40 from s = 12 on.
    "a decay that levels off": (DECAY, 12),
    "a decay that is cut off": (DECAY[:8], None),
    "a slow decline to the end": ([200.0 - 2.5 * number for number in range(30)], None),
    "a faster decline to the end": ([200.0 - 3 * number for number in range(30)], None),
    "a step down in the last round": ([100.0] * 11 + [60.0], None),
    "a step down long before the end": ([100.0] * 10 + [50.0] * 10, 11),
    "a stall in the last window": ([100.0] * 11 + [0.0], None),
    "a stall of the engine in the last window": ([100.0] * 11 + [float("nan")], None),
    "a stall of the engine before the last window": ([100.0] * 6 + [float("nan")] + [100.0] * 6, 1),
    "an infinite round": ([100.0] * 11 + [float("inf")], None),
    "an oscillation with the period of the window": ([100.0, 130.0, 100.0, 70.0, 100.0] * 4, None),
    "a sawtooth within the range that drops in the last round": ([100.0, 105.0, 110.0, 115.0, 95.0] * 3 + [70.0], None),
    "a sawtooth within the range": ([100.0, 105.0, 110.0, 115.0, 95.0] * 8, 1),
    "a fast start": ([900.0, 500.0, 200.0] + [100.0] * 9, 4),
    "recovery after a disturbance": ([100.0] * 8 + [55.0, 55.0] + [100.0] * 8, 11),
    "growth without an end": ([10.0 * 1.05**number for number in range(40)], None),
    "noise of 30 %": ([100.0, 130.0, 95.0, 125.0, 90.0, 128.0, 97.0, 131.0] * 3, None),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_series_made_to_mislead_is_steady_only_where_it_is(name: str) -> None:
    series, first = ADVERSARIAL[name]
    found = steady_state(series).measured
    assert (found.first if found else None) == first


def test_a_window_that_moved_too_little_is_not_judged() -> None:
    criteria = Criteria(min_length=10**9, min_written=0.02)
    enough = {"round_ns": 1e9, "moved_bytes": 100.0, "range_bytes": 1000}
    assert criteria.has_enough(**enough)  # Five rounds of 2 % of the range.
    assert not criteria.has_enough(**enough | {"moved_bytes": 99.0})
    assert not criteria.has_enough(**enough | {"round_ns": 0.9e9})
    assert criteria.has_enough(**enough | {"moved_bytes": 0.0, "range_bytes": None})


# Change points, steps and write cliffs of series with known ones


def _noisy(*stretches: tuple[int, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    random = np.random.default_rng(7)
    return np.concatenate([random.normal(level, 0.03 * level, size=count) for count, level in stretches])


def test_the_write_cliff_is_where_the_level_drops() -> None:
    found = write_cliff(_noisy((40, 1000.0), (80, 200.0)))
    assert found is not None
    assert abs(found.index - 40) <= 1
    assert found.before == pytest.approx(1000, rel=0.02)
    assert found.fraction == pytest.approx(0.2, rel=0.03) and found.settled


def test_of_several_drops_the_deepest_is_the_cliff() -> None:
    found = write_cliff(_noisy((30, 1000.0), (30, 850.0), (60, 150.0), (30, 140.0)))
    assert found is not None and abs(found.index - 60) <= 1


def test_the_plateau_before_a_cliff_is_no_transition() -> None:
    """The drop takes some intervals: it starts from the plateau, and ends where the level settles."""
    found = write_cliff(_noisy((30, 709.0), (2, 503.0), (2, 400.0), (60, 241.0)))
    assert found is not None and abs(found.index - 30) <= 1
    assert (found.before, found.after) == pytest.approx((709, 241), rel=0.03)
    assert found.settled


def test_a_level_that_still_falls_after_a_cliff_has_not_settled() -> None:
    falling = 200 + 200 * np.exp(-np.arange(60) / 40)
    found = write_cliff(np.concatenate([_noisy((30, 1000.0)), falling]))
    assert found is not None and abs(found.index - 30) <= 1
    assert not found.settled
    assert found.after == pytest.approx(falling[-15:].mean(), rel=0.05)


def test_noise_recovery_and_small_drops_are_no_cliff() -> None:
    assert write_cliff(_noisy((200, 500.0))) is None
    assert write_cliff(_noisy((50, 200.0), (50, 1000.0))) is None
    assert write_cliff(_noisy((50, 1000.0), (50, 900.0))) is None
    assert write_cliff([]) is None
    assert write_cliff([100.0] * 20) is None


def test_a_decay_from_the_start_has_no_cliff() -> None:
    random = np.random.default_rng(1)
    for noise in (0.005, 0.05):
        decay = (100 + 200 * np.exp(-np.arange(200) / 40)) * (1 + noise * random.standard_normal(200))
        assert write_cliff(decay) is None


def test_a_noiseless_step_is_found_exactly_and_a_decline_has_change_points_and_no_steps() -> None:
    assert change_points([100.0] * 10 + [40.0] * 10) == steps([100.0] * 10 + [40.0] * 10) == [10]
    for decline in (300 * 0.98 ** np.arange(60), 100 - 0.5 * np.arange(60)):
        assert change_points(decline)
        assert not steps(decline)


def test_noise_alone_has_no_change_points() -> None:
    random = np.random.default_rng(3)
    found = [change_points(random.normal(100, 5, size=120)) for _ in range(40)]
    assert sum(map(bool, found)) <= 2


def test_long_series_are_thinned_and_still_placed() -> None:
    found = write_cliff(_noisy((3000, 1000.0), (6000, 300.0)))
    assert found is not None and abs(found.index - 3000) <= 10
