"""Change points, steps and write cliffs of series with known ones."""

from __future__ import annotations

import numpy as np
import pytest

from iosonde.metrics.change_points import change_points, steps, write_cliff


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


def test_a_noiseless_step_is_found_exactly() -> None:
    assert change_points([100.0] * 10 + [40.0] * 10) == [10]
    assert steps([100.0] * 10 + [40.0] * 10) == [10]


def test_a_decline_has_change_points_and_no_steps() -> None:
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
