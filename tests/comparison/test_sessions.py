"""Several sessions of one system, and the smallest difference that repeats can detect."""

from __future__ import annotations

import math
from pathlib import Path

import fabricate
import numpy as np
import polars as pl
import pytest
from hand_made import results

from iosonde.findings.comparison.cases import Design, compare
from iosonde.findings.comparison.sessions import PRIOR_STANDARD_DEVIATION, pooled, power_of
from iosonde.report.details import session_tables
from iosonde.report.material import gather

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
    assert pooled(sessions(np.random.default_rng(3), 1, deviation=0.01)).is_empty(), "one session has nothing to pool"


def test_only_result_sets_of_one_target_are_pooled_in_their_report(tmp_path: Path) -> None:
    sets = [
        fabricate.result_set(tmp_path / str(seed), fabricate.small_study(), seconds=1, speed=speed, seed=seed)
        for seed, speed in ((1, 1.0), (2, 1.03))
    ]
    [material] = gather(sets)
    [table] = session_tables(material)
    assert table.title.startswith("Pooled over 2 sessions")
    assert all(row[2].interval for row in table.rows)


NOISE = 0.02


def cells_found(shift: float, *, repeats: int, cases: int = 12, paired: bool) -> float:
    """Share of cells judged `better` in simulated comparisons whose cases all differ by `shift`."""
    random = np.random.default_rng(2)
    found = []
    for _ in range(50):
        frames = []
        for name, level in (("a", 0.0), ("b", math.log1p(shift))):
            effects = np.zeros(cases) if paired else random.normal(0, PRIOR_STANDARD_DEVIATION, cases)
            values = np.exp(math.log(1e5) + level + effects[:, None] + random.normal(0, NOISE, (cases, repeats)))
            cells = {(case,): list(row) for case, row in enumerate(values)}
            table, runs = results(["queue_depth"], {"iops": cells})
            frames.append(runs.with_columns(result_set=pl.lit(name)))
        judged = compare(*frames, baseline_cases=table, contender_cases=table, design=Design(paired=paired))
        found.append((judged["verdict"] == "better").mean())
    return float(np.mean(found))


@pytest.mark.parametrize("repeats", [3, 10])
def test_the_stated_difference_of_an_a_b_run_is_found_with_the_stated_probability(repeats: int) -> None:
    stated = power_of(fabricate.plan(fabricate.small_study(), repeats=repeats))
    assert stated.noise == NOISE and stated.within is not None
    assert 0.86 <= cells_found(stated.within, repeats=repeats, paired=True) <= 0.97


def test_the_stated_difference_between_two_sessions_is_found_with_the_stated_probability() -> None:
    stated = power_of(fabricate.plan(fabricate.small_study(), repeats=5))
    assert stated.between is not None
    assert 0.86 <= cells_found(stated.between, repeats=5, paired=False) <= 1.0


def test_noise_comes_from_the_last_result_set_of_the_study_and_target(tmp_path: Path) -> None:
    plan = fabricate.plan(fabricate.small_study(), repeats=5)
    fabricate.result_set(tmp_path / "fabricated-20260101-000000", plan, seconds=1)
    (tmp_path / "fabricated-20270101-000000").mkdir()
    stated = power_of(plan, tmp_path)
    assert stated.source == "fabricated-20260101-000000"
    assert stated.noise == pytest.approx(0.012, abs=0.01)
    assert stated.text.endswith("as in fabricated-20260101-000000")


def test_a_single_repeat_shows_nothing() -> None:
    stated = power_of(fabricate.plan(fabricate.small_study(), repeats=1))
    assert stated.text == "with 1 repeat no difference between two systems can be shown"
