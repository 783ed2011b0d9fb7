"""Several sessions of one system."""

from __future__ import annotations

from pathlib import Path

import fabricate
import numpy as np
import polars as pl
import pytest
from hand_made import results

from iosonde.comparison.sessions import pool, pooled
from iosonde.errors import ResultsError
from iosonde.report.content.pooled_sessions import session_tables
from iosonde.report.material.result_sets import gather

CASES = 12


def sessions(random: np.random.Generator, count: int, *, deviation: float, runs: float = 0.005) -> pl.DataFrame:
    """Draw run metrics of twelve cases whose true value is 1000."""
    frames = []
    for session in range(count):
        effects = random.normal(0, deviation, CASES)
        values = 1000 * np.exp(effects[:, None] + random.normal(0, runs, (CASES, 3)))
        _, drawn = results(["queue_depth"], {"iops": {(case,): list(row) for case, row in enumerate(values)}})
        frames.append(drawn.with_columns(result_set=pl.lit(str(session))))
    return pl.concat(frames)


@pytest.mark.parametrize(("count", "deviation"), [(2, 0.01), (5, 0.02)])
def test_intervals_over_sessions_cover_the_true_value(count: int, deviation: float) -> None:
    """An interval of one session's repeats, whose noise is 0.5 %, would cover it in a third of all cases."""
    random = np.random.default_rng(1)
    covered = []
    for _ in range(40):
        found = pooled(sessions(random, count, deviation=deviation))
        covered += ((found["low"] <= 1000) & (found["high"] >= 1000)).to_list()
    simulation_error = 2 * np.sqrt(0.95 * 0.05 / len(covered))
    assert np.mean(covered) >= 0.95 - simulation_error


def test_the_deviation_between_sessions_is_estimated() -> None:
    found = pooled(sessions(np.random.default_rng(2), 10, deviation=0.03))
    assert found["session_deviation"].mean() == pytest.approx(0.03, rel=0.3)
    assert found["sessions"].to_list() == [10] * CASES and found["repeats"].to_list() == [30] * CASES


def test_one_session_has_nothing_to_pool() -> None:
    assert pooled(sessions(np.random.default_rng(3), 1, deviation=0.01)).is_empty()


def test_result_sets_of_one_target_are_pooled_in_their_report(tmp_path: Path) -> None:
    sets = [
        fabricate.result_set(tmp_path / str(seed), fabricate.small_study(), seconds=1, speed=speed, seed=seed)
        for seed, speed in ((1, 1.0), (2, 1.03), (3, 0.98))
    ]
    assert pool(sets)["sessions"].unique().to_list() == [3]
    [material] = gather(sets)
    [table] = session_tables(material)
    assert table.title.startswith("Pooled over 3 sessions")
    assert all(row[2].interval for row in table.rows)


def test_result_sets_of_two_targets_are_not_pooled(tmp_path: Path) -> None:
    first = fabricate.result_set(tmp_path / "first", fabricate.small_study(), seconds=1)
    plan = fabricate.plan(fabricate.small_study(), target="/srv/other/iosonde.dat")
    second = fabricate.result_set(tmp_path / "second", plan, seconds=1)
    with pytest.raises(ResultsError, match="cannot pool sessions of different studies"):
        pool([first, second])
