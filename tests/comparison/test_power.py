"""Smallest difference that a plan's repeats can detect."""

from __future__ import annotations

import math
from pathlib import Path

import fabricate
import numpy as np
import polars as pl
import pytest
from hand_made import results

from iosonde.comparison.cases import Design, compare
from iosonde.comparison.power import power_of
from iosonde.comparison.variance import PRIOR_STANDARD_DEVIATION

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
