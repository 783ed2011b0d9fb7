"""How small a difference between two systems a study can show, before it runs.

The noise of a run comes from the last result set of the same study and target, or is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from scipy.stats import t as student

from iosonde.comparison.variance import PRIOR_DEGREES, PRIOR_STANDARD_DEVIATION
from iosonde.errors import IosondeError
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.scopes import each_load
from iosonde.plan import Plan
from iosonde.results import ResultSet

CONFIDENCE = 0.95
POWER = 0.9
ASSUMED_NOISE = 0.02
"""Relative standard deviation of a run where no earlier result set shows it."""
RATES = ("ops_per_sec", "iops")


@dataclass(frozen=True, kw_only=True)
class Power:
    """The differences that a plan's repeats can show with 90 % probability, as shares."""

    repeats: int
    noise: float
    """Relative standard deviation of a run's rate: the median over cases."""
    source: str
    """The result set that shows the noise; empty where it is assumed."""
    within: float | None
    """Between two systems measured in one session, in pairs; None with fewer than two repeats."""
    between: float | None
    """Between two systems measured in one session each."""

    @property
    def text(self) -> str:
        """One line for a plan."""
        noise = f"{100 * self.noise:.2g} %" + (f" as in {self.source}" if self.source else " (assumed)")
        if self.within is None or self.between is None:
            return f"with {self.repeats} repeat no difference between two systems can be shown"
        return (
            f"with {self.repeats} repeats a difference of {100 * self.within:.2g} % within one session "
            f"({100 * self.between:.2g} % between sessions) is found with 90 % probability, if runs vary by {noise}"
        )


def power_of(plan: Plan, earlier: Path | None = None) -> Power:
    """Return what the repeats of a plan can show; `earlier` is a directory of result sets."""
    noise, source = _noise(plan, earlier) if earlier else (None, "")
    chosen = ASSUMED_NOISE if noise is None else noise
    return Power(
        repeats=plan.repeats,
        noise=chosen,
        source=source,
        within=_within(plan.repeats, chosen),
        between=_between(plan.repeats, chosen),
    )


def _within(repeats: int, noise: float) -> float | None:
    if repeats < 2:
        return None
    return _share(noise * math.sqrt(2 / repeats), repeats - 1)


def _between(repeats: int, noise: float) -> float | None:
    if repeats < 2:
        return None
    runs, sessions = 2 * noise**2 / repeats, 2 * PRIOR_STANDARD_DEVIATION**2
    degrees = (runs + sessions) ** 2 / (runs**2 / (2 * repeats - 2) + sessions**2 / PRIOR_DEGREES)
    return _share(math.sqrt(runs + sessions), degrees)


def _share(error: float, degrees: float) -> float:
    """Return the difference found with the power wanted, by the usual sum of two quantiles of Student's t."""
    quantiles = student.ppf(0.5 + CONFIDENCE / 2, degrees) + student.ppf(POWER, degrees)
    return math.expm1(error * float(quantiles))


def _noise(plan: Plan, earlier: Path) -> tuple[float | None, str]:
    """Return the noise of the newest result set of the same study and target, and its name."""
    candidates = sorted(earlier.iterdir(), key=lambda path: path.name, reverse=True) if earlier.is_dir() else []
    for directory in candidates:
        if not directory.name.startswith(f"{plan.study_name}-"):
            continue
        try:
            result_set = ResultSet.open(directory)
            if (result_set.plan.study_name, result_set.plan.target) != (plan.study_name, plan.target):
                continue
            noise = run_noise(run_metrics(result_set))
        except (IosondeError, OSError):
            continue  # another study's directory, or a damaged one: nothing that a plan depends on
        if noise is not None:
            return noise, directory.name
    return None, ""


def run_noise(runs: pl.DataFrame) -> float | None:
    """Return the median over cases of the relative standard deviation of a run's rate; None without repeats."""
    rates = each_load(runs).filter(~pl.col("control"), pl.col("metric").is_in(RATES), pl.col("value") > 0)
    spreads = rates.group_by("case_id", "stream", "metric").agg(pl.col("value").log().std()).drop_nulls()
    median = spreads["value"].median()
    return float(median) if isinstance(median, float) else None
