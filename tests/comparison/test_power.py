"""What a plan's repeats can show."""

from __future__ import annotations

import math
from pathlib import Path

import fabricate
import numpy as np
import pytest

from iosonde.comparison.power import power_of
from iosonde.comparison.ratio import paired

NOISE = 0.02


def test_the_stated_difference_is_found_with_the_stated_probability() -> None:
    """Pairs of five with noise of 2 %, simulated: nine of ten comparisons show the difference."""
    stated = power_of(fabricate.plan(fabricate.small_study(), repeats=5))
    assert stated.noise == NOISE and stated.within is not None
    random = np.random.default_rng(2)
    found = 0
    for _ in range(400):
        baseline, contender = random.normal(0, NOISE, (2, 5))
        found += paired(baseline, contender + math.log1p(stated.within)).p_value <= 0.05
    assert 0.85 <= found / 400 <= 0.97


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
